//! Device addresses: a reserved range, and the alias at which the driver accesses the memory behind it.
//!
//! Adding a constant to a device address gives the driver's pointer. At the alias the driver maps the files that hold
//! device memory. The host cannot access the device range itself, unless device and host are coherent: then the files
//! are also mapped at their device addresses. Unmapped parts of the alias hold anonymous scratch pages, so that work
//! that still accesses detached memory reads and writes those pages instead of crashing.

use std::ffi::c_void;
use std::io;
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect};

use super::backing::Backing;
use super::page_heap::PAGE_BYTES;

/// The byte that freed memory is filled with.
const POISON: u8 = 0xdb;

/// Freed blocks smaller than this are filled without looking for the pages that were written.
const POISON_WHOLE_BYTES: u64 = 64 << 10;

/// Maximum number of addresses of an arena: a little less than half of its region, so that both mappings fit there, far
/// from the mappings of the program. A wild access of the program that runs past its own memory must not reach writable
/// pages of the driver.
pub(crate) const ARENA_BYTES_MAX: u64 = (8 << 40) - (4 << 30);

#[derive(Debug)]
pub(crate) struct Arena {
    /// The first device address, on a page boundary.
    base: u64,
    /// The driver's pointer to the byte at `base`.
    alias: *mut u8,
    /// Number of addresses. There are more addresses than memory, so that fragmentation never makes a free page
    /// unusable.
    bytes: u64,
    /// Whether the host can access memory at its device address.
    is_coherent: bool,
}

// SAFETY: `alias` is the field that is not `Send`; it points to addresses that stay mapped while the arena lives and
// that belong to no thread.
unsafe impl Send for Arena {}
// SAFETY: as above; accesses through `alias` are raw copies that may race as those of a GPU do.
unsafe impl Sync for Arena {}

/// Unbacked addresses of the alias are private scratch pages, which use no memory until they are accessed.
const UNBACKED: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

/// Host access to memory at its device address, where device and host are coherent.
pub(crate) const HOST_READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
pub(crate) const HOST_NO_ACCESS: ProtFlags = ProtFlags::empty();

impl Arena {
    /// Reserves `bytes` of addresses. The hint depends only on `region`, so that addresses are the same in a repeated
    /// run.
    pub(crate) fn reserve(region: usize, bytes: u64, is_coherent: bool) -> io::Result<Self> {
        const REGION_BYTES: usize = 16 << 40;
        const FIRST: usize = 0x1000_0000_0000;
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let hint = (FIRST + (region % 4) * REGION_BYTES + (region / 4) * (REGION_BYTES / 8)) as *mut c_void;
        let padded = length + PAGE_BYTES as usize;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe { mmap_anonymous(hint, padded, ProtFlags::empty(), UNBACKED) }?;
        let base = (start as u64).next_multiple_of(PAGE_BYTES);
        let alias_hint = (hint as usize + REGION_BYTES / 2) as *mut c_void;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses replaces nothing.
        let alias = unsafe { mmap_anonymous(alias_hint, length, protection, UNBACKED) }?;
        Ok(Self { base, alias: alias.cast(), bytes, is_coherent })
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.base);
        offset < self.bytes && self.bytes - offset >= bytes
    }

    /// Returns the driver's pointer to the byte at `address`.
    pub(crate) fn pointer(&self, address: u64) -> *mut u8 {
        assert!(self.contains(address, 1), "a span lies in the arena of its addresses");
        self.alias.wrapping_add((address - self.base) as usize)
    }

    pub(crate) fn is_coherent(&self) -> bool {
        self.is_coherent
    }

    /// Maps `memory` from `offset` on at `address`. With coherent memory the host gets access `host_prot` there.
    pub(crate) fn attach(
        &self,
        address: u64,
        memory: &Backing,
        offset: u64,
        bytes: u64,
        host_prot: ProtFlags,
    ) -> io::Result<()> {
        assert!(self.contains(address, bytes), "the attached range lies in the arena");
        let (at, flags) = (self.pointer(address).cast(), MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the replaced range lies in the mapping at `alias`, as asserted, which this arena owns and to which no
        // reference exists: work accesses it by raw copies, which are valid for any page mapped there.
        unsafe { mmap(at, bytes as usize, ProtFlags::READ | ProtFlags::WRITE, flags, memory, offset) }?;
        if self.is_coherent {
            // SAFETY: the replaced range lies in the mapping at `base`, as asserted, which this arena owns. No object
            // of the host lies there; a program that kept an address of freed memory accesses other memory.
            let seen = unsafe { mmap(address as *mut c_void, bytes as usize, host_prot, flags, memory, offset) };
            seen.inspect_err(|_| self.detach(address, bytes))?;
        }
        Ok(())
    }

    /// Sets the host's access to the memory attached at `address` to `host_prot`, if device and host are coherent.
    pub(crate) fn protect_host(&self, address: u64, bytes: u64, host_prot: ProtFlags) -> io::Result<()> {
        assert!(self.contains(address, bytes), "the protected range lies in the arena");
        if self.is_coherent {
            let host_prot = MprotectFlags::from_bits_retain(host_prot.bits());
            // SAFETY: the range lies in the mapping at `base`, as asserted, to which the driver has no reference.
            unsafe { mprotect(address as *mut c_void, bytes as usize, host_prot) }?;
        }
        Ok(())
    }

    /// Unmaps the memory at `address`.
    ///
    /// If the kernel cannot allocate the mapping, the memory stays there until other memory replaces it: nothing can
    /// access it, but it keeps its pages of host memory.
    pub(crate) fn detach(&self, address: u64, bytes: u64) {
        assert!(self.contains(address, bytes), "the detached range lies in the arena");
        let (at, protection) = (self.pointer(address).cast(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: as in `attach`.
        let _noted = unsafe { mmap_anonymous(at, bytes as usize, protection, UNBACKED | MapFlags::FIXED) };
        if self.is_coherent {
            // SAFETY: as in `attach`.
            let _hidden = unsafe {
                mmap_anonymous(address as *mut c_void, bytes as usize, HOST_NO_ACCESS, UNBACKED | MapFlags::FIXED)
            };
        }
    }

    /// Overwrites freed memory with the poison byte.
    pub(crate) fn poison(&self, address: u64, bytes: u64) {
        assert!(self.contains(address, bytes), "the poisoned range lies in the arena");
        // SAFETY: the range lies in the writable mapping at `alias`, as asserted. No Rust reference into it exists.
        unsafe { ptr::write_bytes(self.pointer(address), POISON, bytes as usize) }
    }

    /// Overwrites freed memory at `offset` of `memory`, which is attached at `address`. Pages that were never written
    /// stay unwritten and use no host memory.
    pub(crate) fn poison_written(&self, address: u64, bytes: u64, memory: &Backing, offset: u64) {
        if bytes <= POISON_WHOLE_BYTES {
            return self.poison(address, bytes);
        }
        let (mut at, end) = (offset, offset + bytes);
        while let Some((start, stop)) = memory.next_written(at, end) {
            self.poison(address + (start - offset), stop - start);
            at = stop;
        }
    }
}
