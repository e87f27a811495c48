//! Whether this process is a fork of the one that opened the device: its driver answers the child nothing (fact 0.6), and
//! memory shared with the device is not there. And whether the device has failed: who asks for both reads one byte.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const BYTES: usize = 4096;

/// A page that the system makes zero in a child. The byte at its start is 1 in the process that made it, and the next one is
/// until the device fails.
#[derive(Debug)]
pub(crate) struct Family {
    page: NonNull<c_void>,
}

// SAFETY: `page` is not `Send` as a pointer; it is memory of this value alone, read through atomics.
unsafe impl Send for Family {}
// SAFETY: as above: all that is done with the page is atomic.
unsafe impl Sync for Family {}

impl Family {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the kernel chooses the address, so that no mapping of anybody's is replaced.
        let page = unsafe { mmap_anonymous(null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
        let family = Self { page: NonNull::new(page).expect("the kernel maps nothing at null unless it is asked to") };
        // SAFETY: the page is ours, and holds nothing yet.
        unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork) }?;
        family.bytes().iter().for_each(|byte| byte.store(1, Ordering::Relaxed));
        Ok(family)
    }

    #[inline]
    pub(crate) fn is_child(&self) -> bool {
        self.bytes()[0].load(Ordering::Relaxed) == 0
    }

    /// Whether this is the process that made it, and the device has not failed.
    #[inline]
    pub(crate) fn is_well(&self) -> bool {
        self.bytes()[1].load(Ordering::Relaxed) != 0
    }

    /// Notes that the device has failed.
    pub(crate) fn note_failure(&self) {
        self.bytes()[1].store(0, Ordering::Relaxed);
    }

    #[inline]
    fn bytes(&self) -> &[AtomicU8; 2] {
        // SAFETY: the page is mapped, readable and writable until `self` is dropped, and any byte is a good `AtomicU8`.
        unsafe { self.page.cast::<[AtomicU8; 2]>().as_ref() }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        // SAFETY: the page is `self`'s own mapping of this length, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.page.as_ptr(), BYTES) };
        unmapped.expect("the whole of a mapping can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_made_it_is_no_child() {
        let family = Family::new().unwrap();
        assert!(!family.is_child() && family.is_well());
    }

    #[test]
    fn a_failed_device_makes_no_child() {
        let family = Family::new().unwrap();
        family.note_failure();
        assert!(!family.is_child() && !family.is_well());
    }
}
