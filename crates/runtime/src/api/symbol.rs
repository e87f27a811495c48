//! Variables of the program: `__device__`, `__constant__` and `__managed__`. A copy to or from one is a copy of memory at
//! its address.

use std::ffi::c_void;

use freehold_driver::cuda::{CUdeviceptr, CUstream};

use super::copy::{cudaMemcpy, cudaMemcpyAsync};
use crate::code::{CudaError, cudaError_t};
use crate::process;
use crate::registry::{self, Symbol};
use crate::types::{check, cudaMemcpyKind, write};

pub(crate) unsafe fn cudaGetSymbolAddress(start: *mut *mut c_void, symbol: *const c_void) -> cudaError_t {
    check(start)?;
    let found = registry::symbol(process::with_context()?, symbol)?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(start, found.start.0 as *mut c_void) }?)
}

pub(crate) unsafe fn cudaGetSymbolSize(bytes: *mut usize, symbol: *const c_void) -> cudaError_t {
    check(bytes)?;
    let found = registry::symbol(process::with_context()?, symbol)?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(bytes, found.bytes) }?)
}

pub(crate) unsafe fn cudaMemcpyToSymbol(
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    check_to(kind)?;
    let to = find(symbol, bytes, offset)?;
    // SAFETY: the range is within the variable, and the C caller guarantees that the source is valid.
    unsafe { cudaMemcpy(to, from, bytes, kind) }
}

pub(crate) unsafe fn cudaMemcpyToSymbolAsync(
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
    stream: CUstream,
) -> cudaError_t {
    check_to(kind)?;
    let to = find(symbol, bytes, offset)?;
    // SAFETY: the range is within the variable; the C caller guarantees that the stream is valid, and the source until
    // it is copied.
    unsafe { cudaMemcpyAsync(to, from, bytes, kind, stream) }
}

pub(crate) unsafe fn cudaMemcpyFromSymbol(
    to: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    check_from(kind)?;
    let from = find(symbol, bytes, offset)?;
    // SAFETY: the range is within the variable, and the C caller guarantees that the destination is valid.
    unsafe { cudaMemcpy(to, from, bytes, kind) }
}

pub(crate) unsafe fn cudaMemcpyFromSymbolAsync(
    to: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
    stream: CUstream,
) -> cudaError_t {
    check_from(kind)?;
    let from = find(symbol, bytes, offset)?;
    // SAFETY: the range is within the variable; the C caller guarantees that the stream is valid, and the destination
    // until it is copied.
    unsafe { cudaMemcpyAsync(to, from, bytes, kind, stream) }
}

/// Checks the direction of a copy to a variable.
fn check_to(kind: cudaMemcpyKind) -> cudaError_t {
    match kind {
        cudaMemcpyKind::HOST_TO_DEVICE | cudaMemcpyKind::DEVICE_TO_DEVICE | cudaMemcpyKind::DEFAULT => Ok(()),
        _ => Err(CudaError::INVALID_MEMCPY_DIRECTION),
    }
}

/// Checks the direction of a copy from a variable.
fn check_from(kind: cudaMemcpyKind) -> cudaError_t {
    match kind {
        cudaMemcpyKind::DEVICE_TO_HOST | cudaMemcpyKind::DEVICE_TO_DEVICE | cudaMemcpyKind::DEFAULT => Ok(()),
        _ => Err(CudaError::INVALID_MEMCPY_DIRECTION),
    }
}

/// Returns the address of a part of a variable.
fn find(symbol: *const c_void, bytes: usize, offset: usize) -> Result<*mut c_void, CudaError> {
    let found = registry::symbol(process::with_context()?, symbol)?;
    part(&found, bytes, offset).map(|start| start.0 as *mut c_void)
}

fn part(symbol: &Symbol, bytes: usize, offset: usize) -> Result<CUdeviceptr, CudaError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= symbol.bytes => Ok(CUdeviceptr(symbol.start.0 + offset as u64)),
        _ => Err(CudaError::INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stays_within_its_variable() {
        let symbol = Symbol { start: CUdeviceptr(0x1000), bytes: 16 };
        assert_eq!(part(&symbol, 16, 0), Ok(CUdeviceptr(0x1000)));
        assert_eq!(part(&symbol, 4, 12), Ok(CUdeviceptr(0x100c)));
        assert_eq!(part(&symbol, 0, 16), Ok(CUdeviceptr(0x1010)));
        for (bytes, offset) in [(17, 0), (4, 13), (0, 17), (1, usize::MAX)] {
            assert_eq!(part(&symbol, bytes, offset), Err(CudaError::INVALID_VALUE), "{bytes} at {offset}");
        }
    }

    #[test]
    fn a_variable_is_on_the_device_in_every_direction() {
        let wrong = Err(CudaError::INVALID_MEMCPY_DIRECTION);
        let kinds = [0, 1, 2, 3, 4, 5].map(cudaMemcpyKind);
        assert_eq!(kinds.map(check_to), [wrong, Ok(()), wrong, Ok(()), Ok(()), wrong]);
        assert_eq!(kinds.map(check_from), [wrong, wrong, Ok(()), Ok(()), Ok(()), wrong]);
    }
}
