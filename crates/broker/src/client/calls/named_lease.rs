//! What has a name as an argument of calls, for who has no device: leased, and published again when a kernel has written it.

use std::sync::Arc;

use freehold::Grid;

use super::modules::digest;
use super::{CallError, Caller, Channel, Launch};
use crate::call_codec::Argument;
use crate::client::link::{Granted, LinkError};
use crate::name::Name;
use crate::wire::{Access, Fence, Id, Policy, Reply, Request, RequestError};

/// A kernel that copies.
const COPY: &str = include_str!("copy.ptx");

/// Memory that has a name, leased for calls.
#[derive(Debug)]
pub struct NamedLease {
    /// The connection that it was leased over.
    way: Arc<Channel>,
    name: Name,
    lease: Id,
    bytes: u64,
    /// Whether it is to be published again: it is a copy of what the name stands for.
    is_copy: bool,
}

impl NamedLease {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From a byte on, to be read, and to be written where it was leased for that.
    pub fn argument(&self, offset_bytes: u64) -> Argument<'_> {
        Argument::memory(self.way.owner(), self.lease, offset_bytes)
    }
}

impl Caller {
    /// Leases what has a name. For writing, what a writer gets memory of its own for ([`Policy::Restore`]) is copied there first,
    /// by the worker: until [`commit`](Self::commit) others read what was there before.
    ///
    /// # Errors
    /// [`RequestError::NoName`] with the nearest names, [`RequestError::Busy`], and those of a call.
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
        // Who writes in place has the one lease, or one of what all write.
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

    /// Gives back what has a name when all calls with it are over: what was written is there under the name from now on.
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

    /// Gives back what has a name and was not written: it stays what it was.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn discard(&self, named: NamedLease) -> Result<(), CallError> {
        Ok(self.connection()?.return_lease(named.lease, Fence::default())?)
    }
}
