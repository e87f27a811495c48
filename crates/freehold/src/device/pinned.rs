//! Memory of the host that processes share by a descriptor: mapped here, registered with the driver, and given up behind the last
//! work with it. Knows nothing of what lies there.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use freehold_driver::HostRegistration;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use crate::device::context::Context;
use crate::device::deferred::Deferred;
use crate::device::device_inner::DeviceInner;
use crate::error::{Error, Result};
use crate::ledger::Fence;
use crate::ordering::context_state::ContextState;

/// A mapping of shared memory. It is not unmapped by a drop: the device may still write there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned {
    start: NonNull<c_void>,
    bytes: usize,
    /// What is mapped, in whole pages of the system's.
    mapped_bytes: usize,
}

// SAFETY: `start` is not `Send` as a pointer; whoever follows it does so through atomics only.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

/// Memory that is registered with the driver, and that nobody here has any more.
#[derive(Debug)]
pub(crate) struct Stopped {
    pinned: Pinned,
    context_state: Arc<ContextState>,
    fences: Vec<Fence>,
}

/// How many bytes a descriptor's memory has, and never fewer.
///
/// # Errors
/// [`Error::NotSealed`]: the host would die of a read behind an end that came nearer.
pub(crate) fn sealed_bytes(descriptor: BorrowedFd<'_>) -> Result<u64> {
    // Asked before the length: it cannot become less from then on. What has no seals is no file in memory.
    if !fcntl_get_seals(descriptor).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return Err(Error::NotSealed);
    }
    let found = fstat(descriptor).map_err(of_system)?;
    Ok(u64::try_from(found.st_size).unwrap_or(0))
}

impl Pinned {
    /// Maps the first bytes of a descriptor, which has as many: [`sealed_bytes`].
    pub(crate) fn map(descriptor: BorrowedFd<'_>, bytes: usize) -> Result<Self> {
        let found = fstat(descriptor).map_err(of_system)?;
        // A file of huge pages is mapped, and unmapped, in those. One that only may have some ends before the last of them does.
        let whole_bytes = usize::try_from(found.st_size).unwrap_or(0).next_multiple_of(page_size());
        let block_bytes = page_size().max(usize::try_from(found.st_blksize).unwrap_or(0));
        let mapped_bytes = bytes.next_multiple_of(block_bytes).min(whole_bytes);
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address, so that no mapping of anybody's is replaced.
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

    /// Lets streams of all contexts use the memory: where the device sees it. After an error it is unmapped, or will be.
    pub(crate) fn register(
        self,
        by: &dyn HostRegistration,
        device: &DeviceInner,
        context_state: &Arc<ContextState>,
    ) -> Result<u64> {
        // SAFETY: the mapping stays until it is unregistered; only atomics refer to it.
        if let Err(error) = unsafe { by.register(self.start, self.mapped_bytes) } {
            // SAFETY: the driver has not taken the memory, and nobody else knows of it.
            unsafe { self.unmap() };
            return Err(device.failed(error));
        }
        by.device_address(self.start).map_err(|error| {
            device.defer(Deferred::Unregister {
                stopped: Stopped { pinned: self, context_state: context_state.clone(), fences: Vec::new() },
            });
            device.failed(error)
        })
    }

    /// Gives the memory up behind the last work with it: its owner is being dropped, and puts no more in.
    pub(crate) fn stop(self, context: &Context, fences: Vec<Fence>) {
        let device = &context.inner.device;
        if device.is_good()
            && let Err(error) = device.record_fences(&fences)
        {
            // Without them it is heard of when their streams have nothing left to do.
            device.note_drop_error(error);
        }
        let stopped = Stopped { pinned: self, context_state: context.inner.state.clone(), fences };
        device.defer(Deferred::Unregister { stopped });
        if device.is_good()
            && let Err(error) = device.run_deferred()
        {
            device.note_drop_error(error);
        }
    }

    /// # Safety
    /// Nothing uses the memory any more: no reference, no work, no registration.
    unsafe fn unmap(self) {
        // SAFETY: the mapping is of this start and length, and the caller vouches that nothing uses it.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.mapped_bytes) };
        unmapped.expect("the whole of a mapping can be unmapped");
    }
}

impl Stopped {
    /// Unregisters the memory where all work with it has passed, and nothing else is pending that the driver would wait for.
    pub(crate) fn attempt(&self, device: &DeviceInner) -> Result<bool> {
        for &fence in &self.fences {
            if !device.is_complete_by_now(fence)? {
                return Ok(false);
            }
        }
        let by = device.backend.host_registration().expect("what was registered can be unregistered");
        // SAFETY: all work with the memory has passed, and no more comes: its owner is gone.
        let unregister = || unsafe { by.unregister(self.pinned.start) };
        let is_done =
            device.streams.with_idle_context(&self.context_state, unregister).map_err(|error| device.failed(error))?;
        if is_done {
            // SAFETY: the owner, and the registration, are gone; work has passed.
            unsafe { self.pinned.unmap() };
        }
        Ok(is_done)
    }
}

fn of_system(error: Errno) -> Error {
    Error::System { kind: error.kind() }
}
