//! The C interface: memory by the number of a device, the handle of a stream, and an address.
//!
//! The names and signatures are those that PyTorch's `CUDAPluggableAllocator` calls. Nothing here links to a CUDA library: the
//! driver is the one that the process has loaded.

use std::ffi::{c_int, c_void};
use std::ptr;

use freehold::guest::Guest;
use freehold::open;
use freehold_driver::cuda::CUstream;

fn stream_of(stream: *mut c_void) -> CUstream {
    CUstream(stream as usize as _)
}

#[inline]
fn guest(device: c_int) -> freehold::Result<&'static Guest> {
    match open::known_guest(device) {
        Some(guest) => Ok(guest),
        None => open::guest(device),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn freehold_alloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    match guest(device).and_then(|guest| guest.alloc(size as u64, stream_of(stream))) {
        Ok(address) => ptr::without_provenance_mut(address as usize),
        Err(error) => {
            eprintln!("{error}");
            ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn freehold_free(address: *mut c_void, _size: isize, device: c_int, stream: *mut c_void) {
    if let Err(error) = guest(device).and_then(|guest| guest.free(address as u64, stream_of(stream))) {
        eprintln!("{error}");
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn freehold_reserved_bytes(device: c_int) -> usize {
    guest(device).map_or(0, |guest| guest.reserved_bytes() as usize)
}

#[unsafe(no_mangle)]
pub extern "C" fn freehold_live_bytes(device: c_int) -> usize {
    guest(device).map_or(0, |guest| guest.live_bytes() as usize)
}
