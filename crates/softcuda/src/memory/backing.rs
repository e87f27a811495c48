//! Memory without an address: a memfd, charged to its device while any process holds it.
//!
//! The last page of the file, after the memory, is a header. It is written when the memory is shared, and describes the
//! file to an importer. Each process that opens shared memory holds a lock on the file, which keeps the memory's
//! account in the usage file alive.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::fs::{fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create, seek};
use rustix::io::{Errno, fcntl_dupfd_cloexec, pread, pwrite};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::usage_file::{Account, UsageFile};
use crate::base::sync::lock;

const MAGIC: u64 = u64::from_le_bytes(*b"freelabl");

/// Size of the header.
const SHARE_HEADER_BYTES: u64 = 4096;

/// The kind of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ShareKind {
    /// Memory from `cuMemCreate`.
    Allocation = 1,
    /// Pages that hold blocks of `cuMemAlloc`.
    Pages = 2,
    /// The memory of a pool.
    Pool = 3,
    /// The state of an event.
    Event = 4,
}

/// The header behind shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ShareHeader {
    magic: u64,
    kind: u32,
    pub(crate) device: u32,
    bytes: u64,
}

impl ShareHeader {
    pub(crate) fn new(kind: ShareKind, device: usize, bytes: u64) -> Self {
        let device = u32::try_from(device).expect("there are few devices");
        Self { magic: MAGIC, kind: kind as u32, device, bytes }
    }

    pub(crate) fn is_kind(&self, kind: ShareKind) -> bool {
        self.kind == kind as u32
    }
}

/// Memory of a device, or a page that processes share.
#[derive(Debug)]
pub(crate) struct Backing {
    file: OwnedFd,
    bytes: u64,
    inode: u64,
    /// `None` for memory that is not charged to a device.
    usage: Option<Arc<UsageFile>>,
    /// Bytes that this process has charged for it.
    charged_bytes: AtomicU64,
    account: Mutex<Account>,
}

impl Backing {
    /// Allocates memory of a device and charges it. Returns `None` if the device does not have `bytes` free.
    pub(crate) fn create(usage: &Arc<UsageFile>, bytes: u64) -> io::Result<Option<Arc<Self>>> {
        let made = Self::create_uncharged(Some(Arc::clone(usage)), bytes)?;
        Ok(made.charge(bytes)?.then(|| Arc::new(made)))
    }

    /// As [`create`](Self::create), but charges nothing until [`charge`](Self::charge).
    pub(crate) fn create_uncharged(usage: Option<Arc<UsageFile>>, bytes: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = with_fd_limit_raised(|| memfd_create("freehold-memory", flags))?;
        ftruncate(&file, bytes + SHARE_HEADER_BYTES)?;
        let inode = fstat(&file)?.st_ino;
        Ok(Self { file, bytes, inode, usage, charged_bytes: 0.into(), account: Mutex::new(Account::Own) })
    }

    /// Opens memory that a process shared. It is already charged, to its own account.
    ///
    /// # Errors
    /// The file is not shared memory.
    pub(crate) fn import(file: OwnedFd) -> io::Result<(Self, ShareHeader)> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let length = fstat(&file)?.st_size as u64;
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        if !fcntl_get_seals(&file)?.contains(sealed) || length < SHARE_HEADER_BYTES {
            return Err(invalid());
        }
        let bytes = length - SHARE_HEADER_BYTES;
        let mut header = [0; size_of::<ShareHeader>()];
        if pread(&file, &mut header, bytes)? != header.len() {
            return Err(invalid());
        }
        let header = ShareHeader::read_from_bytes(&header).map_err(|_| invalid())?;
        if header.magic != MAGIC || header.bytes != bytes {
            return Err(invalid());
        }
        lock_shared(&file)?;
        let inode = fstat(&file)?.st_ino;
        let account = Mutex::new(Account::Own);
        Ok((Self { file, bytes, inode, usage: None, charged_bytes: 0.into(), account }, header))
    }

    /// Makes the memory importable by other processes. Further calls do nothing.
    pub(crate) fn share(&self, header: ShareHeader) -> io::Result<()> {
        let mut account = lock(&self.account);
        if *account != Account::Own || fcntl_get_seals(&self.file)?.contains(SealFlags::SHRINK) {
            return Ok(());
        }
        pwrite(&self.file, header.as_bytes(), self.bytes)?;
        lock_shared(&self.file)?;
        if let Some(usage) = &self.usage {
            *account = usage.share(self.inode, self.charged_bytes.load(Ordering::Relaxed))?;
        }
        // The seals come last: if the usage file is full, the memory stays unshared, and the next attempt starts over.
        fcntl_add_seals(&self.file, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(())
    }

    /// Returns whether the memory was imported.
    pub(crate) fn is_imported(&self) -> bool {
        self.usage.is_none()
    }

    /// Returns whether other processes can import the memory.
    pub(crate) fn is_shared(&self) -> bool {
        *lock(&self.account) != Account::Own || self.is_imported()
    }

    /// Charges `bytes` more to the device. Returns false if the device does not have them free.
    pub(crate) fn charge(&self, bytes: u64) -> io::Result<bool> {
        let account = lock(&self.account);
        let fits = match &self.usage {
            Some(usage) => usage.charge(*account, bytes)?,
            None => true,
        };
        if fits {
            self.charged_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(fits)
    }

    /// Returns bytes that [`charge`](Self::charge) took.
    pub(crate) fn uncharge(&self, bytes: u64) -> io::Result<()> {
        let account = lock(&self.account);
        self.charged_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.usage.as_ref().map_or(Ok(()), |usage| usage.uncharge(*account, bytes))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the inode of the file, the same in all processes that hold it.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns a new descriptor, which by itself keeps the memory alive.
    pub(crate) fn dup_fd(&self) -> io::Result<OwnedFd> {
        Ok(with_fd_limit_raised(|| fcntl_dupfd_cloexec(&self.file, 0))?)
    }

    /// Returns the number of this process's own descriptor.
    pub(crate) fn raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Returns the next part at or after `at` that was ever written, if one starts before `end`.
    pub(crate) fn next_written(&self, at: u64, end: u64) -> Option<(u64, u64)> {
        let start = seek(&self.file, SeekFrom::Data(at)).ok().filter(|&start| start < end)?;
        let stop = seek(&self.file, SeekFrom::Hole(start)).unwrap_or(end);
        Some((start.max(at), stop.min(end)))
    }

    /// Discards the contents of a part, so that it uses no host memory until it is written again.
    pub(crate) fn punch_hole(&self, at: u64, bytes: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, bytes)?)
    }
}

impl AsFd for Backing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let Some(usage) = &self.usage else { return };
        let account = *lock(&self.account);
        let written = match account {
            Account::Own => usage.uncharge(account, self.charged_bytes.load(Ordering::Relaxed)),
            Account::Shared(_) => usage.release_share(account, self.inode),
        };
        // A damaged usage file is reported by the next allocation.
        drop(written);
    }
}

/// Holds a lock on shared memory while any process has a descriptor or a mapping of this open file.
fn lock_shared(file: &OwnedFd) -> io::Result<()> {
    let whole = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the structure, which outlives the call, is what the command reads.
    let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a descriptor. At the soft limit on descriptors it raises the limit and tries again: a device has memory for
/// more blocks than the common limit of 1024.
pub(crate) fn with_fd_limit_raised(open: impl Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    let first = open();
    let limit = getrlimit(Resource::Nofile);
    if first.as_ref().err() != Some(&Errno::MFILE) || limit.current == limit.maximum {
        return first;
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    open()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_that_could_not_be_shared_is_not_shared_until_it_can() {
        let usage = Arc::new(UsageFile::open_in_test(1029 * MIB));
        let memory = Backing::create(&usage, 2 * MIB).expect("the system has memory").expect("the device has memory");
        let share_header = ShareHeader::new(ShareKind::Pages, 0, 2 * MIB);
        usage.while_damaged(|| assert!(memory.share(share_header).is_err()));
        assert!(!memory.is_shared());
        memory.share(share_header).expect("the usage file is whole");
        assert!(memory.is_shared());
        drop(memory);
        assert_eq!(usage.free_bytes().expect("it is a usage file"), 1029 * MIB);
        usage.close().expect("no thread is using it");
    }
}
