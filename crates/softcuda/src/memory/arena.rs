//! Addresses of devices: a range that the host cannot touch, or only where memory is, and where the driver reaches the memory behind it.
//!
//! A device address becomes a pointer of the driver's by adding a constant. There the driver maps the files that are the
//! memory. Where device and host are coherent, they are mapped at the device address too, and the host reads and writes
//! them there. Where nothing is mapped lie pages of no meaning, so that work which is still at memory that was taken away
//! reads and writes those, and nothing crashes.

use std::ffi::c_void;
use std::io;
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

use super::backing::Backing;
use super::page_heap::PAGE_BYTES;

/// What freed memory holds.
const POISON: u8 = 0xdb;

/// Below this a freed block is filled without asking which of its pages were ever written.
const POISON_WHOLE_BYTES: u64 = 64 << 10;

/// As many addresses as an arena has at the most: a little less than half of the region that it is put into, so that
/// both of its mappings find their place there, far from those of the program. A wild access of the program's, which runs
/// on from memory of its own, must not meet pages that anybody may write.
pub(crate) const ARENA_BYTES_MAX: u64 = (8 << 40) - (4 << 30);

#[derive(Debug)]
pub(crate) struct Arena {
    /// The first device address, on a page boundary.
    base: u64,
    /// Where the driver reaches the byte at `base`.
    alias: *mut u8,
    /// Addresses, more than there is memory, so that memory in use never keeps a free page from being used.
    bytes: u64,
    /// Whether the host reaches memory at its device address.
    is_coherent: bool,
}

// SAFETY: `alias` is the field that is not `Send`; it points to addresses that are mapped as long as the arena lives and
// belong to no thread.
unsafe impl Send for Arena {}
// SAFETY: as above; accesses through `alias` are raw copies that may race as those of a GPU do.
unsafe impl Sync for Arena {}

/// Driver-side addresses that lie nowhere are the program's to read and write, and cost nothing until they are.
const UNBACKED: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

/// What the host may do with memory at its device address, where it reaches it: all, or nothing yet.
pub(crate) const HOST_READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
pub(crate) const HOST_NO_ACCESS: ProtFlags = ProtFlags::empty();

impl Arena {
    /// Reserves `bytes` of addresses. The kernel is asked for the same place each time, `region` by `region`, so that a
    /// run can be repeated with the same addresses.
    pub(crate) fn reserve(region: usize, bytes: u64, is_coherent: bool) -> io::Result<Self> {
        const REGION_BYTES: usize = 16 << 40;
        const FIRST: usize = 0x1000_0000_0000;
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let hint = (FIRST + (region % 4) * REGION_BYTES + (region / 4) * (REGION_BYTES / 8)) as *mut c_void;
        let padded = length + PAGE_BYTES as usize;
        // SAFETY: a new anonymous mapping at a place of the kernel's choice replaces nothing.
        let start = unsafe { mmap_anonymous(hint, padded, ProtFlags::empty(), UNBACKED) }?;
        let base = (start as u64).next_multiple_of(PAGE_BYTES);
        let alias_hint = (hint as usize + REGION_BYTES / 2) as *mut c_void;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at a place of the kernel's choice replaces nothing.
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

    /// Where the driver reaches the byte at `address`.
    pub(crate) fn pointer(&self, address: u64) -> *mut u8 {
        assert!(self.contains(address, 1), "a span lies in the arena of its addresses");
        self.alias.wrapping_add((address - self.base) as usize)
    }

    pub(crate) fn is_coherent(&self) -> bool {
        self.is_coherent
    }

    /// Puts memory from `offset` of it on at `address`. The host sees it there as `host_prot` says, where it can.
    pub(crate) fn attach(
        &self,
        address: u64,
        memory: &Backing,
        offset: u64,
        bytes: u64,
        host_prot: ProtFlags,
    ) -> io::Result<()> {
        assert!(self.contains(address, bytes), "what is attached lies in the arena");
        let (at, flags) = (self.pointer(address).cast(), MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: what is replaced lies in the mapping at `alias`, as asserted, which is this arena's own and to which
        // nobody has a reference: work reaches it by raw copies, to which one page is as good as another.
        unsafe { mmap(at, bytes as usize, ProtFlags::READ | ProtFlags::WRITE, flags, memory, offset) }?;
        if self.is_coherent {
            // SAFETY: what is replaced lies in the mapping at `base`, as asserted, which is this arena's own. Nothing that
            // the driver gave out lies there; a program that has kept an address of freed memory meets other memory.
            let seen = unsafe { mmap(address as *mut c_void, bytes as usize, host_prot, flags, memory, offset) };
            seen.inspect_err(|_| self.detach(address, bytes))?;
        }
        Ok(())
    }

    /// Lets the host do as `host_prot` says with memory that is attached at `address`, where it reaches any.
    pub(crate) fn protect_host(&self, address: u64, bytes: u64, host_prot: ProtFlags) -> io::Result<()> {
        assert!(self.contains(address, bytes), "what is shown lies in the arena");
        if self.is_coherent {
            let host_prot = MprotectFlags::from_bits_retain(host_prot.bits());
            // SAFETY: the range lies in the mapping at `base`, as asserted, to which the driver has no reference.
            unsafe { mprotect(address as *mut c_void, bytes as usize, host_prot) }?;
        }
        Ok(())
    }

    /// Takes away the memory at `address`.
    ///
    /// Where the system has no room to note that, the memory stays there until other memory takes its place: it is
    /// reached by nobody, and costs the host its pages.
    pub(crate) fn detach(&self, address: u64, bytes: u64) {
        assert!(self.contains(address, bytes), "what is detached lies in the arena");
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

    /// Overwrites freed memory.
    pub(crate) fn poison(&self, address: u64, bytes: u64) {
        assert!(self.contains(address, bytes), "what is poisoned lies in the arena");
        // SAFETY: the range lies in the writable mapping at `alias`, as asserted. Nobody holds a Rust reference into it.
        unsafe { ptr::write_bytes(self.pointer(address), POISON, bytes as usize) }
    }

    /// Overwrites freed memory from `offset` of `memory` on, which is attached at `address`. Pages that were never
    /// written stay unwritten, and cost nothing still.
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

    /// The first bytes of a file in memory, to be seen by all who map it.
    pub(crate) fn map_file(memory: &Backing, bytes: u64) -> io::Result<Self> {
        assert!(bytes > 0 && bytes <= memory.bytes(), "what is mapped lies in the file");
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, memory, 0) }?;
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
