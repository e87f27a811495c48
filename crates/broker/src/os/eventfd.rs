//! Event counters that wake a process.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

/// Creates an event counter that never blocks.
pub(crate) fn create() -> Result<OwnedFd, Errno> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Wakes the process that polls the counter. [`Errno::AGAIN`] if the counter is full: then it is awake already.
pub(crate) fn notify(eventfd: impl AsFd) -> Result<(), Errno> {
    rustix::io::write(eventfd, &1_u64.to_ne_bytes()).map(drop)
}

/// Resets the counter.
pub(crate) fn drain(eventfd: impl AsFd) {
    // If this fails, the count was 0.
    let _ = rustix::io::read(eventfd, &mut [0; 8]);
}
