//! The semaphores that show the progress of all workers.

use std::io;
use std::os::fd::OwnedFd;

/// Indexes of the semaphores that show the progress, in memory that all processes of a run share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) workers: u32,
}

impl Progress {
    /// Epochs that a worker has finished.
    pub(crate) fn done(self, worker: u32) -> usize {
        worker as usize
    }

    /// Flag passes of a worker whose result can be read: which of its tiles are steep.
    pub(crate) fn looked(self, worker: u32) -> usize {
        (self.workers + worker) as usize
    }

    /// 1 when the victim has been killed: until then no worker finishes.
    pub(crate) fn struck(self) -> usize {
        2 * self.workers as usize
    }

    pub(crate) fn count(self) -> usize {
        2 * self.workers as usize + 1
    }

    /// Creates the memory, sealed against shrinking.
    pub(crate) fn create_memory(self) -> io::Result<OwnedFd> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        let descriptor = memfd_create("mesh", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, self.count() as u64 * 8)?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK)?;
        Ok(descriptor)
    }
}
