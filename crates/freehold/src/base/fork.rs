//! Detects that this process is a fork of the one that opened the device: the driver does not work in the child, and
//! memory shared with the device is not mapped there. Also records that the device has failed, and whether threads may
//! cache blocks. These flags are adjacent bytes, so one load checks them.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const BYTES: usize = 4096;

/// Whether this is still the process that created the guard, for one load of a byte. The pools of a device check it
/// before each operation: the first byte of a page is 1 in the process that created it, the second one is 1 until the
/// device fails, and the third one is 1 until the device fails or caches are turned off.
///
/// ```
/// let fork_guard = freehold::ForkGuard::new().expect("a page of memory");
/// assert!(!fork_guard.is_child()); // it would be true in a fork of this process
/// ```
#[derive(Clone, Debug)]
pub struct ForkGuard {
    /// The page's first bytes, so that a check follows one pointer.
    bytes: NonNull<[AtomicU8; 3]>,
    /// Keeps the page mapped.
    _page: Arc<Page>,
}

/// A page that the system zeroes in a child.
#[derive(Debug)]
struct Page {
    start: NonNull<c_void>,
}

// SAFETY: `bytes` is not `Send` as a pointer; it is memory of `_page`, read and written through atomics.
unsafe impl Send for ForkGuard {}
// SAFETY: as above: the page is only accessed atomically.
unsafe impl Sync for ForkGuard {}
// SAFETY: `start` is not `Send` as a pointer; it is memory of this value alone, which any thread may unmap.
unsafe impl Send for Page {}
// SAFETY: as above: nothing is done with the page through a shared reference to this.
unsafe impl Sync for Page {}

impl ForkGuard {
    /// # Errors
    /// If the system maps no page, or cannot zero it in a child.
    pub fn new() -> std::io::Result<Self> {
        // SAFETY: the kernel chooses the address, so that no existing mapping is replaced.
        let page = unsafe { mmap_anonymous(null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
        let start = NonNull::new(page).expect("the kernel maps nothing at null unless it is asked to");
        let fork_guard = Self { bytes: start.cast(), _page: Arc::new(Page { start }) };
        // Miri has no forks.
        if !cfg!(miri) {
            // SAFETY: the page is this function's own, and holds nothing yet.
            unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork) }?;
        }
        fork_guard.bytes().iter().for_each(|byte| byte.store(1, Ordering::Relaxed));
        Ok(fork_guard)
    }

    /// Whether this process is a fork of the one that created it.
    #[inline]
    pub fn is_child(&self) -> bool {
        self.bytes()[0].load(Ordering::Relaxed) == 0
    }

    /// Whether this is the process that created it, and the device has not failed.
    #[inline]
    pub(crate) fn is_well(&self) -> bool {
        self.bytes()[1].load(Ordering::Relaxed) != 0
    }

    /// Whether threads may use their caches of blocks: never in a child, nor after a failure.
    #[inline]
    pub(crate) fn may_cache(&self) -> bool {
        self.bytes()[2].load(Ordering::Relaxed) != 0
    }

    /// Turns the threads' caches off.
    pub(crate) fn forbid_caches(&self) {
        self.bytes()[2].store(0, Ordering::Relaxed);
    }

    /// Notes that the device has failed.
    pub(crate) fn note_failure(&self) {
        self.forbid_caches();
        self.bytes()[1].store(0, Ordering::Relaxed);
    }

    #[inline]
    fn bytes(&self) -> &[AtomicU8; 3] {
        // SAFETY: the page is mapped, readable and writable until `self` is dropped at the earliest, and any byte is a
        // valid `AtomicU8`.
        unsafe { self.bytes.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the page is `self`'s own mapping of this length, and nothing refers to it.
        let unmapped = unsafe { munmap(self.start.as_ptr(), BYTES) };
        unmapped.expect("a whole mapping can be unmapped");
    }
}

/// Whether `run` returns in a forked child, and its result there. A child that waits for a lock is killed.
#[cfg(test)]
pub(crate) fn in_child(run: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child makes only the calls under test, none of which needs another thread, and then ends without its
    // parent's exit handlers.
    match unsafe { libc::fork() } {
        -1 => panic!("fork failed"),
        0 => {
            // SAFETY: has no conditions.
            unsafe { libc::alarm(freehold_testing::HANG_TIMEOUT.as_secs() as u32) };
            let status = if run() { 0 } else { 1 };
            // SAFETY: ends the child, whose memory is its own.
            unsafe { libc::_exit(status) }
        }
        process => {
            let mut status = 0;
            // SAFETY: `status` outlives the call, which writes one `i32` to it.
            assert_eq!(unsafe { libc::waitpid(process, &mut status, 0) }, process);
            status == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::arena::Arena;
    use crate::api::device::Device;
    use crate::error::Error;

    #[test]
    fn an_arena_asks_for_no_lock_in_a_child() {
        // SAFETY: the table is the device's alone.
        let opened = unsafe { crate::api::open::open(None) }.unwrap();
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        let device = unsafe { Device::new(opened.api, opened.device) }.unwrap();
        let [stream, other] = [(); 2].map(|()| device.new_stream().unwrap());
        let mut arena = Arena::new(&stream, 1 << 20).unwrap();
        arena.scope(|scope| {
            let mut piece = scope.alloc::<u8>(100).unwrap();
            other.fill_bytes(&mut piece, 1).unwrap();
        });
        // Held forever in the child, by a thread that does not exist there.
        let streams = device.inner().streams.locked();
        let is_refused = in_child(|| {
            let refused = arena.scope(|scope| scope.alloc::<u8>(100).map(drop));
            matches!(refused, Err(Error::ForkedChild { .. }))
        });
        drop(streams);
        assert!(is_refused);
    }

    #[test]
    fn the_process_that_made_it_is_not_a_child() {
        let fork_guard = ForkGuard::new().unwrap();
        assert!(!fork_guard.is_child() && fork_guard.is_well());
    }

    #[test]
    fn a_failed_device_makes_no_child() {
        let fork_guard = ForkGuard::new().unwrap();
        fork_guard.note_failure();
        assert!(!fork_guard.is_child() && !fork_guard.is_well() && !fork_guard.may_cache());
    }

    #[test]
    fn a_device_without_caches_has_not_failed() {
        let fork_guard = ForkGuard::new().unwrap();
        assert!(fork_guard.may_cache());
        fork_guard.forbid_caches();
        assert!(fork_guard.is_well() && !fork_guard.may_cache());
    }

    #[test]
    fn a_failure_is_noted_for_all_that_share_a_page() {
        let fork_guard = ForkGuard::new().unwrap();
        let other = fork_guard.clone();
        fork_guard.note_failure();
        drop(fork_guard);
        assert!(!other.is_child() && !other.is_well());
    }
}
