//! An operation's use of memory: which block, its access history, and the permitted access.

use std::fmt;
use std::ops::Range;

use freehold_driver::Permission;

use crate::device::context::Context;
use crate::error::{Error, Result};
use crate::ordering::access_history::{Access, AccessHistory};

/// A block that an operation uses, and how.
#[derive(Clone, Copy)]
pub struct MemoryUse<'a> {
    pub(crate) uses: &'a AccessHistory,
    pub(crate) context: &'a Context,
    /// The address of the block.
    pub(crate) base: u64,
    /// The part of it that is used.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    pub(crate) is_ordered: bool,
    /// The permitted access.
    pub(crate) permission: Permission,
}

impl fmt::Debug for MemoryUse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryUse")
            .field("start", &format_args!("{:#x}", self.start))
            .field("bytes", &self.bytes)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl MemoryUse<'_> {
    /// Returns the addresses that are used.
    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes
    }

    /// Returns an error if a failed transfer left part of it undefined.
    #[inline]
    pub(crate) fn check_defined(&self) -> Result<()> {
        match self.uses.poisoned_within(|| self.range()) {
            None => Ok(()),
            Some(found) => Err(Error::Undefined { address: found.start, bytes: found.end - found.start }),
        }
    }

    /// Notes that an operation was submitted that writes all of it.
    pub(crate) fn note_filled(&self) {
        self.uses.note_filled(|| self.range());
    }
}
