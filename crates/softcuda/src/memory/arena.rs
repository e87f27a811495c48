//! The memory of one device: addresses that the host cannot touch, and the pages behind them.
//!
//! The pages are those of a file in memory, mapped a second time where the driver alone knows: a device address
//! becomes a pointer of the driver's by adding a constant. A page costs nothing until it is first written.

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;

use rustix::fs::{MemfdFlags, SeekFrom, ftruncate, memfd_create, seek};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::PAGE_BYTES;

/// What freed memory holds.
pub(crate) const POISON: u8 = 0xdb;

/// Below this a freed block is filled without asking which of its pages were ever written.
const POISON_WHOLE_BYTES: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Arena {
    /// The first device address, on a page boundary.
    base: u64,
    /// Where the driver reaches the byte at `base`.
    alias: *mut u8,
    /// Addresses, more than there is memory, so that memory in use never keeps a free page from being used.
    bytes: u64,
    file: OwnedFd,
}

// SAFETY: `alias` is the field that is not `Send`; it points to a shared mapping that lives as long as the arena and
// belongs to no thread.
unsafe impl Send for Arena {}
// SAFETY: as above; accesses through `alias` are raw copies that may race as those of a GPU do.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `bytes` of addresses for the device with this ordinal. The kernel is asked for the same place each
    /// time, so that a run can be repeated with the same addresses.
    pub(crate) fn reserve(ordinal: usize, bytes: u64) -> io::Result<Self> {
        const REGION_BYTES: usize = 16 << 40;
        const FIRST: usize = 0x1000_0000_0000;
        let file = memfd_create("freehold-device-memory", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes)?;
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let hint = (FIRST + (ordinal % 3) * REGION_BYTES + (ordinal / 3) * (REGION_BYTES / 8)) as *mut c_void;
        let padded = length + PAGE_BYTES as usize;
        // SAFETY: a new anonymous mapping at a place of the kernel's choice replaces nothing.
        let start =
            unsafe { mmap_anonymous(hint, padded, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE) }?;
        let base = (start as u64).next_multiple_of(PAGE_BYTES);
        let alias_hint = (hint as usize + REGION_BYTES / 2) as *mut c_void;
        // SAFETY: a new mapping of our own file at a place of the kernel's choice replaces nothing.
        let alias = unsafe {
            mmap(
                alias_hint,
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )
        }?;
        Ok(Self { base, alias: alias.cast(), bytes, file })
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Where the driver reaches the byte at `address`.
    pub(crate) fn pointer(&self, address: u64) -> *mut u8 {
        let offset = address - self.base;
        assert!(offset < self.bytes, "a span of this device lies in its arena");
        self.alias.wrapping_add(offset as usize)
    }

    /// Overwrites freed memory. Pages that were never written stay unwritten, and cost nothing still.
    pub(crate) fn poison(&self, address: u64, bytes: u64) {
        let mut at = address - self.base;
        let end = at + bytes;
        if bytes <= POISON_WHOLE_BYTES {
            return self.fill(at, bytes);
        }
        while at < end {
            let Ok(data) = seek(&self.file, SeekFrom::Data(at)) else { return };
            if data >= end {
                return;
            }
            let hole = seek(&self.file, SeekFrom::Hole(data)).unwrap_or(end).min(end);
            self.fill(data.max(at), hole - data.max(at));
            at = hole;
        }
    }

    fn fill(&self, offset: u64, bytes: u64) {
        assert!(offset + bytes <= self.bytes, "what is poisoned lies in the arena");
        let start = self.alias.wrapping_add(offset as usize);
        // SAFETY: `start..start + bytes` lies in the writable mapping at `alias`, as asserted. Nobody holds a Rust
        // reference into it.
        unsafe { ptr::write_bytes(start, POISON, bytes as usize) }
    }
}

/// Pages of the host's, for pinned and for managed memory.
#[derive(Debug)]
pub(crate) struct HostPages {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: `start` is the field that is not `Send`; it points to a mapping that this value owns alone.
unsafe impl Send for HostPages {}
// SAFETY: the value gives out the address only.
unsafe impl Sync for HostPages {}

impl HostPages {
    pub(crate) fn map(bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes.checked_next_multiple_of(4096).ok_or(io::ErrorKind::InvalidInput)?)
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new anonymous mapping at a place of the kernel's choice replaces nothing.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
        Ok(Self { start: start.cast(), bytes })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and the last work that uses it has dropped its share of the span.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        assert!(unmapped.is_ok(), "a whole mapping of our own can be unmapped");
    }
}
