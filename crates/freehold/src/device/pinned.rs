//! Host memory that processes share by a descriptor, mapped here. Knows nothing of its content.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use crate::error::{Error, Result};
use crate::ledger::Fence;
use crate::ordering::context_state::ContextState;

/// A mapping of shared memory. Dropping it does not unmap it: the device may still write there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned {
    pub(super) start: NonNull<c_void>,
    bytes: usize,
    /// The mapped length, in whole pages of the system.
    pub(super) mapped_bytes: usize,
}

// SAFETY: `start` is not `Send` as a pointer; it is accessed through atomics only.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

/// Memory that is registered with the driver and no longer has an owner.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(super) pinned: Pinned,
    pub(super) context_state: Arc<ContextState>,
    pub(super) fences: Vec<Fence>,
}

/// Returns the length of a descriptor's memory, which cannot shrink.
///
/// # Errors
/// [`Error::NotSealed`] if it could shrink: reading beyond its end would kill the process.
pub(crate) fn sealed_bytes(descriptor: BorrowedFd<'_>) -> Result<u64> {
    // Checked before the length, which cannot shrink from then on. A descriptor without seals is not a memory file.
    if !fcntl_get_seals(descriptor).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return Err(Error::NotSealed);
    }
    let found = fstat(descriptor).map_err(of_system)?;
    Ok(u64::try_from(found.st_size).unwrap_or(0))
}

impl Pinned {
    /// Maps the first bytes of a descriptor that has at least as many: see [`sealed_bytes`].
    pub(crate) fn map(descriptor: BorrowedFd<'_>, bytes: usize) -> Result<Self> {
        let found = fstat(descriptor).map_err(of_system)?;
        // A hugetlbfs file is mapped and unmapped in huge pages. A file that merely may have some ends before the last
        // of them does.
        let whole_bytes = usize::try_from(found.st_size).unwrap_or(0).next_multiple_of(page_size());
        let block_bytes = page_size().max(usize::try_from(found.st_blksize).unwrap_or(0));
        let mapped_bytes = bytes.next_multiple_of(block_bytes).min(whole_bytes);
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address, so that no existing mapping is replaced.
        let start = unsafe { mmap(null_mut(), mapped_bytes, protection, flags, descriptor, 0) }.map_err(of_system)?;
        let start = NonNull::new(start).expect("the kernel maps nothing at null unless it is asked to");
        Ok(Self { start, bytes, mapped_bytes })
    }

    pub(crate) fn start(&self) -> NonNull<c_void> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// # Safety
    /// Nothing refers to the memory: no reference, no work, no registration.
    pub(super) unsafe fn unmap(self) {
        // SAFETY: the mapping is of this start and length, and the caller guarantees that nothing uses it.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.mapped_bytes) };
        unmapped.expect("a whole mapping can be unmapped");
    }
}

fn of_system(error: Errno) -> Error {
    Error::System { kind: error.kind() }
}
