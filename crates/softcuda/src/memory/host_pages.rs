//! Pages that the program and the driver access, for pinned and managed memory.

use std::io;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::backing::Backing;
use crate::base::{check, host_watch};

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Pages of the host. The program and the driver use the same mapping, unless the program's accesses are watched.
#[derive(Debug)]
pub(crate) struct HostPages {
    program: Mapping,
    /// The driver's mapping, if it has one of its own.
    driver: Option<Mapping>,
}

/// A mapping that this value owns.
#[derive(Debug)]
struct Mapping {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: `start` is the field that is not `Send`; it points to a mapping that this value owns alone.
unsafe impl Send for Mapping {}
// SAFETY: the value exposes only the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn anonymous(bytes: usize) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, READ_WRITE, MapFlags::PRIVATE) }?;
        Ok(Self { start: start.cast(), bytes })
    }

    /// Maps the first bytes of a memory file.
    fn file(memory: &Backing, bytes: usize) -> io::Result<Self> {
        assert!(bytes > 0 && bytes as u64 <= memory.bytes(), "the mapped range lies in the file");
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe { mmap(ptr::null_mut(), bytes, READ_WRITE, MapFlags::SHARED, memory, 0) }?;
        Ok(Self { start: start.cast(), bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and the last work that uses it has dropped its reference to the span.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        assert!(unmapped.is_ok(), "an owned mapping can be unmapped");
    }
}

impl HostPages {
    pub(crate) fn map(bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes.checked_next_multiple_of(4096).ok_or(io::ErrorKind::InvalidInput)?)
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        if !host_watch::is_on() {
            return Ok(Self { program: Mapping::anonymous(bytes)?, driver: None });
        }
        let memory = Backing::create_uncharged(None, bytes as u64)?;
        let (program, driver) = (Mapping::file(&memory, bytes)?, Mapping::file(&memory, bytes)?);
        host_watch::add(program.start as u64, bytes as u64);
        Ok(Self { program, driver: Some(driver) })
    }

    /// Maps the first bytes of a memory file, shared with all other mappings of it.
    pub(crate) fn map_file(memory: &Backing, bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self { program: Mapping::file(memory, bytes)?, driver: None })
    }

    /// Returns the address at which the program accesses the pages.
    pub(crate) fn address(&self) -> u64 {
        self.program.start as u64
    }

    /// Returns the driver's pointer to the pages.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.driver.as_ref().unwrap_or(&self.program).start
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        if self.driver.is_some() {
            host_watch::remove(self.address());
        }
        check::unmap_host(self.address());
    }
}
