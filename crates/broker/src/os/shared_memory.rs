//! Shared memory between processes: a sealed memfd, mapped, and accessed only as atomic words.
//!
//! The other process may write anything at any time. So no reference to plain bytes is ever created, and a file that
//! could shrink under its reader is refused.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A memfd, mapped while this value lives.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    start: NonNull<u8>,
    bytes: usize,
    file: Arc<OwnedFd>,
}

// SAFETY: `start` is not `Send` by itself: it points to a mapping that no thread owns, and that is only accessed
// atomically.
unsafe impl Send for SharedMemory {}
// SAFETY: as above: every access through a shared reference is atomic.
unsafe impl Sync for SharedMemory {}

/// Miri has no memfd. There, both sides are in one process, and a mapping is found by its descriptor.
#[cfg(miri)]
impl SharedMemory {
    pub(crate) fn create(_name: &str, bytes: usize) -> Result<Self, Errno> {
        use std::os::fd::AsRawFd;

        let (file, _writer) = std::io::pipe().map_err(|_| Errno::MFILE)?;
        let words: Box<[AtomicU64]> = (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        mappings().insert(file.as_raw_fd(), Box::leak(words));
        Self::open(OwnedFd::from(file), bytes)
    }

    pub(crate) fn open(file: impl Into<Arc<OwnedFd>>, bytes: usize) -> Result<Self, Errno> {
        use std::os::fd::AsRawFd;

        let file = file.into();
        let words = *mappings().get(&file.as_raw_fd()).ok_or(Errno::INVAL)?;
        Ok(Self { start: NonNull::from(words).cast(), bytes, file })
    }
}

#[cfg(miri)]
fn mappings() -> std::sync::MutexGuard<'static, std::collections::BTreeMap<i32, &'static [AtomicU64]>> {
    static MAPPINGS: std::sync::Mutex<std::collections::BTreeMap<i32, &[AtomicU64]>> =
        std::sync::Mutex::new(std::collections::BTreeMap::new());
    MAPPINGS.lock().expect("no thread panics while it holds this lock")
}

#[cfg(not(miri))]
impl SharedMemory {
    /// Creates zeroed memory of a fixed size.
    pub(crate) fn create(name: &str, bytes: usize) -> Result<Self, Errno> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(Arc::new(file), bytes)
    }

    /// Maps memory that another process created. [`Errno::INVAL`] if it is not a memfd, has fewer bytes, or could
    /// shrink.
    pub(crate) fn open(file: impl Into<Arc<OwnedFd>>, bytes: usize) -> Result<Self, Errno> {
        let file = file.into();
        let seals = fcntl_get_seals(&file).map_err(|_| Errno::INVAL)?;
        let has_bytes = fstat(&file)?.st_size as u64 >= bytes as u64;
        if !seals.contains(SealFlags::SHRINK) || !has_bytes {
            return Err(Errno::INVAL);
        }
        Self::map(file, bytes)
    }

    fn map(file: Arc<OwnedFd>, bytes: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is requested, so no other mapping is touched.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, bytes, file })
    }
}

impl SharedMemory {
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the descriptor of the memory, which may outlive this mapping.
    pub(crate) fn shared_fd(&self) -> Arc<OwnedFd> {
        self.file.clone()
    }

    /// Returns the 4-byte word at a byte offset.
    #[inline]
    pub(crate) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset <= self.bytes - 4, "an aligned word inside the mapping");
        // SAFETY: the offset lies in the mapping, which lives as long as `self`.
        let word = unsafe { self.start.add(offset) };
        // SAFETY: the mapping starts at a page, so the word is aligned; every access to it is atomic.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    /// Returns the 8-byte word at a byte offset.
    #[inline]
    pub(crate) fn u64_at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset <= self.bytes - 8, "an aligned word inside the mapping");
        // SAFETY: the offset lies in the mapping, which lives as long as `self`.
        let word = unsafe { self.start.add(offset) };
        // SAFETY: the mapping starts at a page, so the word is aligned; every access to it is atomic.
        unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if cfg!(miri) {
            return;
        }
        // SAFETY: `map` created the mapping, and it is no longer borrowed.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping succeeds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_one_writes_the_other_reads() {
        let one = SharedMemory::create("test", 4096).unwrap();
        let other = SharedMemory::open(one.shared_fd(), 4096).unwrap();
        one.u64_at(4088).store(7, Ordering::Relaxed);
        assert_eq!(other.u64_at(4088).load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_file_that_could_shrink_is_refused() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 4096).unwrap();
        assert_eq!(SharedMemory::open(file, 4096).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn a_file_that_is_too_short_is_refused() {
        let one = SharedMemory::create("test", 4096).unwrap();
        assert_eq!(SharedMemory::open(one.shared_fd(), 8192).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn a_descriptor_other_than_a_memfd_is_refused() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(SharedMemory::open(OwnedFd::from(reader), 4096).unwrap_err(), Errno::INVAL);
    }
}
