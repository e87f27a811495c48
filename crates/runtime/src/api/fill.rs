//! Fills with a byte, of linear memory, rectangles and boxes.

use std::ffi::c_void;

use freehold_driver::cuda::{CUdeviceptr, CUresult, CUstream};

use crate::code::{CudaError, cudaError_t};
use crate::process;
use crate::runtime_pool;
use crate::thread;
use crate::types::{cudaExtent, cudaPitchedPtr};

pub(crate) unsafe fn cudaMemset(start: *mut c_void, value: i32, bytes: usize) -> cudaError_t {
    let api = process::with_context()?.default_stream_api();
    if bytes == 0 {
        return Ok(());
    }
    runtime_pool::check_range(start, bytes)?;
    // SAFETY: the C caller guarantees that the range is valid.
    Ok(unsafe { (api.cuMemsetD8_v2)(CUdeviceptr(start as u64), value as u8, bytes) }?)
}

pub(crate) unsafe fn cudaMemsetAsync(start: *mut c_void, value: i32, bytes: usize, stream: CUstream) -> cudaError_t {
    let process = process::with_context()?;
    if bytes == 0 {
        return Ok(());
    }
    runtime_pool::check_range(start, bytes)?;
    // SAFETY: the C caller guarantees that the stream is valid, and the range until it has filled it.
    Ok(unsafe { (process.api.cuMemsetD8Async)(CUdeviceptr(start as u64), value as u8, bytes, thread::stream(stream)) }?)
}

pub(crate) unsafe fn cudaMemset2D(
    start: *mut c_void,
    pitch: usize,
    value: i32,
    width: usize,
    height: usize,
) -> cudaError_t {
    let api = process::with_context()?.default_stream_api();
    if width == 0 || height == 0 {
        return Ok(());
    }
    runtime_pool::check_rows(start, pitch, width, height)?;
    // SAFETY: the C caller guarantees that the rectangle is valid.
    Ok(unsafe { (api.cuMemsetD2D8_v2)(CUdeviceptr(start as u64), pitch, value as u8, width, height) }?)
}

pub(crate) unsafe fn cudaMemset2DAsync(
    start: *mut c_void,
    pitch: usize,
    value: i32,
    width: usize,
    height: usize,
    stream: CUstream,
) -> cudaError_t {
    let process = process::with_context()?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    runtime_pool::check_rows(start, pitch, width, height)?;
    let (start, stream) = (CUdeviceptr(start as u64), thread::stream(stream));
    // SAFETY: the C caller guarantees that the stream is valid, and the rectangle until it has filled it.
    Ok(unsafe { (process.api.cuMemsetD2D8Async)(start, pitch, value as u8, width, height, stream) }?)
}

pub(crate) unsafe fn cudaMemset3D(memory: cudaPitchedPtr, value: i32, extent: cudaExtent) -> cudaError_t {
    let api = process::with_context()?.default_stream_api();
    let fill = |start, rows| {
        // SAFETY: the C caller guarantees the box, and with it for each rectangle.
        unsafe { (api.cuMemsetD2D8_v2)(start, memory.pitch, value as u8, extent.width, rows) }
    };
    fill_box(&memory, extent, fill)
}

pub(crate) unsafe fn cudaMemset3DAsync(
    memory: cudaPitchedPtr,
    value: i32,
    extent: cudaExtent,
    stream: CUstream,
) -> cudaError_t {
    let (process, stream) = (process::with_context()?, thread::stream(stream));
    let fill = |start, rows| {
        // SAFETY: the C caller guarantees that the stream is valid, and the box, and with it for each rectangle, until it is filled.
        unsafe { (process.api.cuMemsetD2D8Async)(start, memory.pitch, value as u8, extent.width, rows, stream) }
    };
    fill_box(&memory, extent, fill)
}

/// Fills a box: in one rectangle if its slices follow each other without a gap, otherwise slice by slice. `fill` fills a
/// rectangle of the box's width from an address and a number of rows.
fn fill_box(
    memory: &cudaPitchedPtr,
    extent: cudaExtent,
    mut fill: impl FnMut(CUdeviceptr, usize) -> CUresult,
) -> cudaError_t {
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(());
    }
    if extent.width > memory.pitch || (extent.depth > 1 && extent.height > memory.ysize) {
        return Err(CudaError::INVALID_VALUE);
    }
    let start = memory.ptr as u64;
    if extent.depth == 1 || extent.height == memory.ysize {
        let rows = extent.height.checked_mul(extent.depth).ok_or(CudaError::INVALID_VALUE)?;
        runtime_pool::check_rows(memory.ptr, memory.pitch, extent.width, rows)?;
        return Ok(fill(CUdeviceptr(start), rows)?);
    }
    let slice = memory.pitch.checked_mul(memory.ysize).ok_or(CudaError::INVALID_VALUE)? as u64;
    let rows = memory.ysize.checked_mul(extent.depth - 1).and_then(|rows| rows.checked_add(extent.height));
    runtime_pool::check_rows(memory.ptr, memory.pitch, extent.width, rows.ok_or(CudaError::INVALID_VALUE)?)?;
    for z in 0..extent.depth as u64 {
        let offset = z.checked_mul(slice).ok_or(CudaError::INVALID_VALUE)?;
        fill(CUdeviceptr(start.checked_add(offset).ok_or(CudaError::INVALID_VALUE)?), extent.height)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(width: usize, height: usize, depth: usize) -> Result<Vec<(u64, usize)>, CudaError> {
        let memory =
            cudaPitchedPtr { ptr: std::ptr::without_provenance_mut(0x1000), pitch: 0x100, xsize: 64, ysize: 4 };
        let mut calls = Vec::new();
        fill_box(&memory, cudaExtent { width, height, depth }, |start, rows| {
            calls.push((start.0, rows));
            Ok(())
        })?;
        Ok(calls)
    }

    #[test]
    fn whole_slices_are_one_rectangle() {
        assert_eq!(filled(64, 4, 3), Ok(vec![(0x1000, 12)]));
        assert_eq!(filled(64, 2, 1), Ok(vec![(0x1000, 2)]));
    }

    #[test]
    fn parts_of_slices_are_a_rectangle_each() {
        assert_eq!(filled(64, 2, 3), Ok(vec![(0x1000, 2), (0x1400, 2), (0x1800, 2)]));
    }

    #[test]
    fn an_empty_box_is_not_filled() {
        for (width, height, depth) in [(0, 4, 3), (64, 0, 3), (64, 4, 0)] {
            assert_eq!(filled(width, height, depth), Ok(vec![]));
        }
    }

    #[test]
    fn a_box_larger_than_a_slice_is_invalid() {
        assert_eq!(filled(0x101, 4, 1), Err(CudaError::INVALID_VALUE));
        assert_eq!(filled(64, 5, 2), Err(CudaError::INVALID_VALUE));
        assert_eq!(filled(64, 5, 1), Ok(vec![(0x1000, 5)]));
    }
}
