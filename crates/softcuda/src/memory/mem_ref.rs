//! References to memory that work reads and writes. An access never crashes, even if the program has unmapped the
//! memory.
//!
//! Memory that the driver mapped is accessed directly; a [`MemRef`] keeps it alive. Memory that the program mapped,
//! pageable or registered, is accessed through system calls, which return an error for a dead address.

use std::ffi::c_void;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use freehold_driver::cuda::CUerror;

use super::arena::Arena;
use super::host_pages::HostPages;

const HOST_PAGE_BYTES: usize = 4096;

/// Zero fills smaller than this are written; larger ones may punch a hole.
const PUNCH_BYTES_MIN: u64 = 64 << 10;

/// A location in memory at which work reads or writes.
#[derive(Debug, Clone)]
pub(crate) struct MemRef {
    addr: Addr,
    /// The address as the program names it. Zero if it has none.
    address: u64,
    /// Keeps the memory that `Addr::Direct` points to alive.
    keep_alive: KeepAlive,
}

/// Whether memory that can be unmapped under work is still mapped, and whether it was imported.
#[derive(Debug)]
pub(crate) struct MappingStatus {
    is_unmapped: AtomicBool,
    /// Whether another process made the memory.
    is_imported: bool,
}

impl MappingStatus {
    pub(crate) fn new(is_imported: bool) -> Self {
        Self { is_unmapped: AtomicBool::new(false), is_imported }
    }

    pub(crate) fn mark_unmapped(&self) {
        self.is_unmapped.store(true, Ordering::Release);
    }

    pub(crate) fn mark_mapped(&self) {
        self.is_unmapped.store(false, Ordering::Release);
    }

    pub(crate) fn is_unmapped(&self) -> bool {
        self.is_unmapped.load(Ordering::Acquire)
    }
}

#[derive(Debug, Clone)]
enum KeepAlive {
    /// For the program's memory, and for device memory, which stays mapped until the process exits.
    Nothing,
    Pages {
        _pages: Arc<HostPages>,
    },
    Staged {
        _bytes: Arc<[u8]>,
    },
    /// For memory that can be unmapped under work, which then faults.
    Mapped(Arc<[Arc<MappingStatus>]>),
}

#[derive(Debug, Clone, Copy)]
enum Addr {
    /// A pointer into a mapping of the driver.
    Direct(*mut u8),
    /// An address in the program's memory.
    Host(u64),
}

// SAFETY: the pointer of `Direct` is the part that is not `Send`; it points to memory that `keep_alive` or the device
// keeps alive, and is only used for raw copies.
unsafe impl Send for MemRef {}
// SAFETY: as above; a shared `MemRef` hands out no reference into the memory.
unsafe impl Sync for MemRef {}

impl MemRef {
    /// Refers to memory of a device.
    pub(crate) fn device(arena: &Arena, address: u64) -> Self {
        Self { addr: Addr::Direct(arena.pointer(address)), address, keep_alive: KeepAlive::Nothing }
    }

    /// Refers to memory that is mapped to reserved addresses.
    pub(crate) fn mapped(arena: &Arena, address: u64, mappings: Arc<[Arc<MappingStatus>]>) -> Self {
        Self { addr: Addr::Direct(arena.pointer(address)), address, keep_alive: KeepAlive::Mapped(mappings) }
    }

    /// Refers to host pages that the driver mapped.
    pub(crate) fn host_pages(pages: &Arc<HostPages>, offset: u64) -> Self {
        let pointer = pages.pointer().wrapping_add(offset as usize);
        let keep_alive = KeepAlive::Pages { _pages: Arc::clone(pages) };
        Self { addr: Addr::Direct(pointer), address: pages.address().wrapping_add(offset), keep_alive }
    }

    /// Refers to a copy of the program's bytes, for reading.
    pub(crate) fn staged(bytes: Vec<u8>) -> Self {
        let bytes: Arc<[u8]> = bytes.into();
        let pointer = bytes.as_ptr().cast_mut();
        Self { addr: Addr::Direct(pointer), address: 0, keep_alive: KeepAlive::Staged { _bytes: bytes } }
    }

    /// Refers to memory that the program mapped.
    pub(crate) fn host(address: u64) -> Self {
        Self { addr: Addr::Host(address), address, keep_alive: KeepAlive::Nothing }
    }

    /// Returns the address as the program names it, or `None` for a copy of its bytes.
    pub(crate) fn address(&self) -> Option<u64> {
        Some(self.address).filter(|&address| address != 0)
    }

    /// Returns whether the host can access it.
    pub(crate) fn is_on_host(&self) -> bool {
        matches!(self.addr, Addr::Host(_)) || matches!(self.keep_alive, KeepAlive::Pages { .. })
    }

    /// Returns the address at which the driver accesses it.
    pub(crate) fn pointer(&self) -> *mut c_void {
        match self.addr {
            Addr::Direct(pointer) => pointer.cast(),
            Addr::Host(address) => address as *mut c_void,
        }
    }

    /// Returns an error if the memory was unmapped.
    pub(crate) fn check_mapped(&self) -> Result<(), CUerror> {
        match &self.keep_alive {
            KeepAlive::Mapped(mappings) if mappings.iter().any(|mapping| mapping.is_unmapped()) => {
                Err(CUerror::ILLEGAL_ADDRESS)
            }
            _ => Ok(()),
        }
    }

    fn addr_at(&self, offset: u64) -> Result<Addr, CUerror> {
        self.check_mapped()?;
        Ok(match self.addr {
            Addr::Direct(pointer) => Addr::Direct(pointer.wrapping_add(offset as usize)),
            Addr::Host(address) => Addr::Host(address.wrapping_add(offset)),
        })
    }

    /// Loads the aligned word here. A word in the driver's memory is loaded atomically; one in the program's memory is
    /// read by a system call.
    pub(crate) fn load(&self, width: WordWidth) -> Result<u64, CUerror> {
        self.check_mapped()?;
        let pointer = match self.addr {
            Addr::Direct(pointer) => pointer,
            Addr::Host(address) => {
                let mut bytes = [0u8; 8];
                read_host(address, bytes.as_mut_ptr(), width.bytes())?;
                return Ok(u64::from_le_bytes(bytes));
            }
        };
        Ok(match width {
            WordWidth::Four => {
                // SAFETY: this reference keeps the word mapped, and its alignment was checked when the work was
                // created; concurrent accesses of the program are atomic or its own responsibility.
                let word = unsafe { AtomicU32::from_ptr(pointer.cast()) };
                u64::from(word.load(Ordering::Acquire))
            }
            WordWidth::Eight => {
                // SAFETY: as for four bytes.
                let word = unsafe { AtomicU64::from_ptr(pointer.cast()) };
                word.load(Ordering::Acquire)
            }
        })
    }

    /// Stores the aligned word here, as [`load`](Self::load) loads it. A 32-bit word gets the low half of `value`.
    pub(crate) fn store(&self, width: WordWidth, value: u64) -> Result<(), CUerror> {
        self.check_mapped()?;
        let pointer = match self.addr {
            Addr::Direct(pointer) => pointer,
            Addr::Host(address) => {
                return write_host(value.to_le_bytes().as_mut_ptr(), address, width.bytes());
            }
        };
        match width {
            WordWidth::Four => {
                // SAFETY: as in `load`.
                let word = unsafe { AtomicU32::from_ptr(pointer.cast()) };
                word.store(value as u32, Ordering::Release);
            }
            WordWidth::Eight => {
                // SAFETY: as in `load`.
                let word = unsafe { AtomicU64::from_ptr(pointer.cast()) };
                word.store(value, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Reads the current bytes here.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), CUerror> {
        let bytes = into.len();
        move_bytes(self.addr_at(offset)?, Addr::Direct(into.as_mut_ptr()), bytes)
    }

    /// Writes bytes here.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), CUerror> {
        move_bytes(Addr::Direct(from.as_ptr().cast_mut()), self.addr_at(offset)?, from.len())
    }

    /// Repeats `pattern` over `bytes` bytes from `offset` on.
    pub(crate) fn fill(&self, offset: u64, pattern: &[u8], bytes: u64) -> Result<(), CUerror> {
        if bytes >= PUNCH_BYTES_MIN && pattern.iter().all(|&byte| byte == 0) {
            let start = self.addr_at(offset)?;
            let (before, forgotten) = self.punch_hole(start, bytes);
            self.fill_pattern(offset, pattern, before)?;
            let behind = before + forgotten;
            return self.fill_pattern(offset + behind, pattern, bytes - behind);
        }
        self.fill_pattern(offset, pattern, bytes)
    }

    /// Zeroes whole pages of imported memory by punching a hole, which returns them to the host until they are written
    /// again. Returns the number of bytes before the hole, and the size of the hole.
    fn punch_hole(&self, start: Addr, bytes: u64) -> (u64, u64) {
        let is_imported = matches!(&self.keep_alive, KeepAlive::Mapped(mappings) if mappings.iter().all(|mapping| mapping.is_imported));
        let Addr::Direct(pointer) = start else { return (0, 0) };
        let before = pointer.align_offset(HOST_PAGE_BYTES) as u64;
        let pages = bytes.saturating_sub(before) / HOST_PAGE_BYTES as u64 * HOST_PAGE_BYTES as u64;
        if !is_imported || pages == 0 {
            return (0, 0);
        }
        let first = pointer.wrapping_add(before as usize);
        // SAFETY: the pages lie in a mapping of the driver to which no reference exists. If a file no longer backs it,
        // the kernel refuses the call.
        let outcome = unsafe { libc::madvise(first.cast(), pages as usize, libc::MADV_REMOVE) };
        if outcome == 0 { (before, pages) } else { (0, 0) }
    }

    fn fill_pattern(&self, offset: u64, pattern: &[u8], bytes: u64) -> Result<(), CUerror> {
        const CHUNK_BYTES: usize = 4096;
        let mut chunk = [0u8; CHUNK_BYTES];
        for (byte, value) in chunk.iter_mut().zip(pattern.iter().cycle()) {
            *byte = *value;
        }
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(CHUNK_BYTES as u64);
            move_bytes(Addr::Direct(chunk.as_mut_ptr()), self.addr_at(offset + done)?, part as usize)?;
            done += part;
        }
        Ok(())
    }
}

/// The width of a word that a stream waits for or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordWidth {
    Four,
    Eight,
}

impl WordWidth {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// Copies `bytes` bytes; the two ranges may overlap.
pub(crate) fn copy(from: &MemRef, from_offset: u64, to: &MemRef, to_offset: u64, bytes: u64) -> Result<(), CUerror> {
    move_bytes(from.addr_at(from_offset)?, to.addr_at(to_offset)?, bytes as usize)
}

fn move_bytes(from: Addr, to: Addr, bytes: usize) -> Result<(), CUerror> {
    if bytes == 0 {
        return Ok(());
    }
    match (from, to) {
        (Addr::Direct(from), Addr::Direct(to)) => {
            // SAFETY: both ranges lie in mappings that the references keep alive. The copy is the C library's, so that
            // a race with another stream gives mixed bytes, as on a GPU, and nothing worse.
            unsafe { libc::memmove(to.cast(), from.cast(), bytes) };
            Ok(())
        }
        (Addr::Host(from), Addr::Direct(to)) => read_host(from, to, bytes),
        (Addr::Host(from), Addr::Host(to)) => read_host(from, to as *mut u8, bytes),
        (Addr::Direct(from), Addr::Host(to)) => write_host(from, to, bytes),
    }
}

/// Copies from an address in the program's memory. A dead address on either side is an error.
fn read_host(from: u64, to: *mut u8, bytes: usize) -> Result<(), CUerror> {
    process_vm_copy(to, from, bytes, |local, remote| {
        let process = own_pid();
        // SAFETY: one element each way; the kernel checks both ranges and returns EFAULT for unmapped addresses.
        unsafe { libc::process_vm_readv(process, local, 1, remote, 1, 0) }
    })
}

/// Copies to an address in the program's memory. A dead address is an error.
fn write_host(from: *mut u8, to: u64, bytes: usize) -> Result<(), CUerror> {
    process_vm_copy(from, to, bytes, |local, remote| {
        let process = own_pid();
        // SAFETY: one element each way; the kernel checks both ranges and returns EFAULT for unmapped addresses.
        unsafe { libc::process_vm_writev(process, local, 1, remote, 1, 0) }
    })
}

fn process_vm_copy(
    local: *mut u8,
    remote: u64,
    bytes: usize,
    call: impl Fn(*const libc::iovec, *const libc::iovec) -> isize,
) -> Result<(), CUerror> {
    let mut done = 0;
    while done < bytes {
        let near = libc::iovec { iov_base: local.wrapping_add(done).cast(), iov_len: bytes - done };
        let far = libc::iovec { iov_base: (remote as usize + done) as *mut c_void, iov_len: bytes - done };
        match call(&near, &far) {
            moved if moved > 0 => done += moved as usize,
            0 => return Err(CUerror::ILLEGAL_ADDRESS),
            _ => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EFAULT) => return Err(CUerror::ILLEGAL_ADDRESS),
                _ => return Err(CUerror::OPERATING_SYSTEM),
            },
        }
    }
    Ok(())
}

fn own_pid() -> libc::pid_t {
    std::process::id() as libc::pid_t
}

/// Returns whether every page of a range of the program's memory is readable. Reads one byte of each page, many pages
/// per system call.
pub(crate) fn is_host_mapped(start: u64, bytes: u64) -> bool {
    const PAGE: u64 = HOST_PAGE_BYTES as u64;
    const PAGES_PER_CALL: usize = 512;
    let process = own_pid();
    let mut pages = (start / PAGE * PAGE..start + bytes).step_by(PAGE as usize).map(|page| page.max(start));
    loop {
        let far: Vec<_> = pages.by_ref().take(PAGES_PER_CALL).map(|at| byte_at(at as *mut u8)).collect();
        if far.is_empty() {
            return true;
        }
        let mut taken = [0u8; PAGES_PER_CALL];
        let near = libc::iovec { iov_len: far.len(), ..byte_at(taken.as_mut_ptr()) };
        // SAFETY: the local range holds a byte for each remote one; the kernel checks the remote ones.
        let moved = unsafe { libc::process_vm_readv(process, &near, 1, far.as_ptr(), far.len() as libc::c_ulong, 0) };
        if usize::try_from(moved) != Ok(far.len()) {
            return false;
        }
    }
}

fn byte_at(address: *mut u8) -> libc::iovec {
    libc::iovec { iov_base: address.cast(), iov_len: 1 }
}
