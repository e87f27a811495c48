//! Host memory that several processes map.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use freehold_driver::cuda::host_register_flags;

use super::host_buffer::HostBuffer;

/// The flags with which each process registers it.
pub(crate) const SHARED: u32 = host_register_flags::PORTABLE | host_register_flags::DEVICEMAP;

const SHARED_BYTES: usize = 4096;

/// Creates a page of zeros, and the descriptor with which another process maps it.
pub(crate) fn memory() -> io::Result<(HostBuffer, OwnedFd)> {
    // SAFETY: the name ends in a NUL, and is all that the call reads.
    let descriptor = unsafe { libc::memfd_create(c"freehold-lab".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and belongs to nothing else.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len(SHARED_BYTES as u64)?;
    Ok((map(&file)?, file.into()))
}

/// Maps the page of a descriptor.
pub(crate) fn map(file: &File) -> io::Result<HostBuffer> {
    let (protection, descriptor) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: a new mapping at an address that the system chooses touches no memory in use.
    let start = unsafe { libc::mmap(ptr::null_mut(), SHARED_BYTES, protection, libc::MAP_SHARED, descriptor, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: the mapping is a page long, readable and writable, and is never unmapped.
    Ok(unsafe { HostBuffer::shared(start, SHARED_BYTES) })
}
