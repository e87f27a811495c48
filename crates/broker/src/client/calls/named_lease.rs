//! Named memory as a call argument, for processes without a device. It is leased, and published again after a kernel
//! has written it.

use std::sync::Arc;

use freehold::Grid;

use super::caller::{Caller, Channel, Launch};
use crate::client::call_error::CallError;
use crate::client::link::{Granted, LinkError};
use crate::protocol::call_codec::Argument;
use crate::protocol::message::{Reply, Request};
use crate::protocol::module_text::digest;
use crate::protocol::name::Name;
use crate::protocol::request_error::RequestError;
use crate::protocol::types::{Access, Fence, Id, Policy};

/// PTX of a kernel that copies.
const COPY: &str = include_str!("copy.ptx");

/// Named memory, leased for calls.
#[derive(Debug)]
pub struct NamedLease {
    /// The connection over which it was leased.
    way: Arc<Channel>,
    name: Name,
    lease: Id,
    bytes: u64,
    /// Whether it is a copy that `commit` publishes.
    is_copy: bool,
}

impl NamedLease {
    /// Returns its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns it as an argument, starting at a byte offset. The argument is writable if the name was leased for
    /// writing.
    pub fn argument(&self, offset_bytes: u64) -> Argument<'_> {
        Argument::memory(self.way.owner(), self.lease, offset_bytes)
    }
}

impl Caller {
    /// Leases a name. For writing under [`Policy::Restore`], where a writer gets new memory, the worker first copies
    /// the current version there; until [`commit`](Self::commit) others read the old version.
    ///
    /// # Errors
    /// [`RequestError::NoName`] with similar names, [`RequestError::Busy`], and those of a call.
    pub fn lease_named(&self, name: &str, access: Access) -> Result<NamedLease, CallError> {
        let name = Name::parse(name)?;
        let mut link = self.connection()?;
        let Reply::Number { id, .. } = link.call(Request::Find { name: name.clone() })?.reply else {
            return Err(LinkError::Malformed.into());
        };
        let granted = link.lease(id, access)?;
        let mut named =
            NamedLease { way: self.channel.clone(), name, lease: granted.lease, bytes: granted.bytes, is_copy: false };
        if access == Access::Read {
            return Ok(named);
        }
        // A lease that writes in place, alone or together with others, needs no copy.
        let before = match link.lease(id, Access::Read) {
            Ok(before) => before,
            Err(LinkError::Request { error: RequestError::Busy { .. }, .. }) => return Ok(named),
            Err(error) => {
                link.return_lease(granted.lease, Fence::default())?;
                return Err(error.into());
            }
        };
        drop(link);
        let copied = match (before.segment, before.offset) == (granted.segment, granted.offset) {
            true => Ok(()),
            false => {
                named.is_copy = true;
                self.copy(&before, &granted)
            }
        };
        self.connection()?.return_lease(before.lease, Fence::default())?;
        if copied.is_err() {
            self.connection()?.return_lease(granted.lease, Fence::default())?;
        }
        copied.map(|()| named)
    }

    fn copy(&self, from: &Granted, to: &Granted) -> Result<(), CallError> {
        // Programs of other versions may have another text.
        let module = self.put_module(&format!("freehold/copy-{}", digest(COPY)), COPY)?;
        // SAFETY: `copy` reads and writes as many bytes as the shorter of both leases has.
        let kernel = unsafe { module.kernel("copy") }?;
        let lease = |granted: &Granted| Argument::memory(self.channel.owner(), granted.lease, 0);
        let bytes = from.bytes.min(to.bytes);
        let grid = Grid::line(Grid::cover(bytes.div_ceil(8), 256).blocks[0].clamp(1, 4096), 256);
        self.call(&Launch::new(&kernel, grid, &[lease(to), lease(from), bytes.into()]))?.wait()
    }

    /// Returns a named lease when all calls with it are complete. What they wrote is published under the name.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn commit(&self, named: NamedLease) -> Result<(), CallError> {
        let NamedLease { name, lease, is_copy, .. } = named;
        let mut link = self.connection()?;
        if is_copy {
            link.call(Request::Publish { lease, policy: Policy::Restore, fence: Fence::default(), name })?;
        }
        Ok(link.return_lease(lease, Fence::default())?)
    }

    /// Returns a named lease without publishing it: the name keeps its version.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn discard(&self, named: NamedLease) -> Result<(), CallError> {
        Ok(self.connection()?.return_lease(named.lease, Fence::default())?)
    }
}
