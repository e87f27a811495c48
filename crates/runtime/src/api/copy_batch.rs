//! Batches of copies: each copy of a batch is one call of the driver, in the order of the batch. Locations are hints and
//! ignored.

use std::ffi::c_void;

use freehold_driver::cuda::{CUDA_MEMCPY3D, CUdeviceptr, CUmemorytype, CUstream};

use super::copy::check_ranges;
use super::managed::check_firsts;
use crate::code::{CudaError, cudaError_t};
use crate::process::{self, Process};
use crate::thread;
use crate::types::{
    cudaExtent, cudaMemcpy3DBatchOp, cudaMemcpy3DOperand, cudaMemcpyAttributes, cudaMemcpySrcAccessOrder, read_slice,
};

/// The only flag of a copy: a preference for its overlap with kernels.
const FLAGS_MAX: u32 = 1;

/// The kinds of an operand.
const OPERAND_POINTER: u32 = 1;
const OPERAND_ARRAY: u32 = 2;

#[expect(clippy::too_many_arguments, reason = "as many as C has")]
pub(crate) unsafe fn cudaMemcpyBatchAsync(
    to: *const *mut c_void,
    from: *const *const c_void,
    sizes: *const usize,
    count: usize,
    attributes: *mut cudaMemcpyAttributes,
    attribute_starts: *mut usize,
    attribute_count: usize,
    stream: CUstream,
) -> cudaError_t {
    let process = process::with_context()?;
    let stream = batch_stream(stream)?;
    // SAFETY: the C caller guarantees `attribute_count` values.
    let firsts = unsafe { read_slice(attribute_starts, attribute_count) }?;
    check_firsts(&firsts, count)?;
    // SAFETY: as above.
    let attributes = unsafe { read_slice(attributes, attribute_count) }?;
    for attributes in &attributes {
        check_order(attributes.srcAccessOrder, attributes.flags)?;
    }
    // SAFETY: the C caller guarantees `count` values.
    let to = unsafe { read_slice(to, count) }?;
    // SAFETY: as above.
    let from = unsafe { read_slice(from, count) }?;
    // SAFETY: as above.
    let sizes = unsafe { read_slice(sizes, count) }?;
    for ((to, from), bytes) in to.into_iter().zip(from).zip(sizes) {
        check_ranges(to, from, bytes)?;
        let (to, from) = (CUdeviceptr(to as u64), CUdeviceptr(from as u64));
        // SAFETY: the C caller guarantees that the stream is valid, and both ranges until it has copied.
        unsafe { (process.api.cuMemcpyAsync)(to, from, bytes, stream) }?;
    }
    finish(process, attributes.iter().map(|attributes| attributes.srcAccessOrder), stream)
}

pub(crate) unsafe fn cudaMemcpy3DBatchAsync(
    count: usize,
    copies: *mut cudaMemcpy3DBatchOp,
    flags: u64,
    stream: CUstream,
) -> cudaError_t {
    let process = process::with_context()?;
    let stream = batch_stream(stream)?;
    if flags != 0 || count == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: the C caller guarantees `count` values.
    let copies = unsafe { read_slice(copies, count) }?;
    let boxes = copies.iter().map(box_of).collect::<Result<Vec<_>, _>>()?;
    for copy in &boxes {
        // SAFETY: the C caller guarantees that the stream is valid, and both boxes until it has copied.
        unsafe { (process.api.cuMemcpy3DAsync_v2)(copy, stream) }?;
    }
    finish(process, copies.iter().map(|copy| copy.srcAccessOrder), stream)
}

/// Returns the stream of a batch, which must not be the legacy default stream.
fn batch_stream(stream: CUstream) -> Result<CUstream, CudaError> {
    match thread::stream(stream) {
        CUstream::NULL | CUstream::LEGACY => Err(CudaError::INVALID_VALUE),
        stream => Ok(stream),
    }
}

fn check_order(order: cudaMemcpySrcAccessOrder, flags: u32) -> cudaError_t {
    let is_known = (cudaMemcpySrcAccessOrder::STREAM.0..=cudaMemcpySrcAccessOrder::ANY.0).contains(&order.0);
    if is_known && flags <= FLAGS_MAX { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

/// Waits until the sources have been read, if the caller wants that before the call returns.
fn finish(
    process: &Process,
    mut orders: impl Iterator<Item = cudaMemcpySrcAccessOrder>,
    stream: CUstream,
) -> cudaError_t {
    if orders.all(|order| order != cudaMemcpySrcAccessOrder::DURING_API_CALL) {
        return Ok(());
    }
    // SAFETY: the C caller guarantees that the stream is valid.
    Ok(unsafe { (process.api.cuStreamSynchronize)(stream) }?)
}

/// Returns the driver's copy of a box.
fn box_of(copy: &cudaMemcpy3DBatchOp) -> Result<CUDA_MEMCPY3D, CudaError> {
    check_order(copy.srcAccessOrder, copy.flags)?;
    let extent = copy.extent;
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let [from_pitch, from_height] = pitches(&copy.src, extent)?;
    let [to_pitch, to_height] = pitches(&copy.dst, extent)?;
    Ok(CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::UNIFIED,
        srcDevice: CUdeviceptr(copy.src.address),
        srcPitch: from_pitch,
        srcHeight: from_height,
        dstMemoryType: CUmemorytype::UNIFIED,
        dstDevice: CUdeviceptr(copy.dst.address),
        dstPitch: to_pitch,
        dstHeight: to_height,
        WidthInBytes: extent.width,
        Height: extent.height,
        Depth: extent.depth,
        ..CUDA_MEMCPY3D::default()
    })
}

/// Returns the row length in bytes and the layer height of an operand. Zero means as the copy.
fn pitches(operand: &cudaMemcpy3DOperand, extent: cudaExtent) -> Result<[usize; 2], CudaError> {
    match operand.kind {
        OPERAND_POINTER => {}
        OPERAND_ARRAY => return Err(CudaError::NOT_SUPPORTED),
        _ => return Err(CudaError::INVALID_VALUE),
    }
    let at_least = |length, least| match length {
        0 => Ok(least),
        length if length >= least => Ok(length),
        _ => Err(CudaError::INVALID_VALUE),
    };
    Ok([at_least(operand.row_length, extent.width)?, at_least(operand.layer_height, extent.height)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_driver::cuda::CUmemLocation;

    fn copy() -> cudaMemcpy3DBatchOp {
        let operand = |address| cudaMemcpy3DOperand {
            kind: OPERAND_POINTER,
            address,
            row_length: 0,
            layer_height: 0,
            location: CUmemLocation::default(),
        };
        cudaMemcpy3DBatchOp {
            src: operand(0x1000),
            dst: operand(0x2000),
            extent: cudaExtent { width: 16, height: 4, depth: 2 },
            srcAccessOrder: cudaMemcpySrcAccessOrder::STREAM,
            flags: 0,
        }
    }

    #[test]
    fn a_batch_needs_a_stream_of_its_own() {
        assert_eq!(batch_stream(CUstream::NULL), Err(CudaError::INVALID_VALUE));
        assert_eq!(batch_stream(CUstream::LEGACY), Err(CudaError::INVALID_VALUE));
        assert_eq!(batch_stream(CUstream::PER_THREAD), Ok(CUstream::PER_THREAD));
        assert_eq!(thread::with_per_thread_stream(|| batch_stream(CUstream::NULL)), Ok(CUstream::PER_THREAD));
    }

    #[test]
    fn an_operand_without_lengths_is_packed() {
        let mut copy = copy();
        copy.dst.row_length = 32;
        copy.dst.layer_height = 5;
        let made = box_of(&copy).unwrap();
        assert_eq!((made.srcPitch, made.srcHeight, made.dstPitch, made.dstHeight), (16, 4, 32, 5));
    }

    #[test]
    fn what_a_batch_cannot_copy_is_refused() {
        let check = |change: fn(&mut cudaMemcpy3DBatchOp)| {
            let mut copy = copy();
            change(&mut copy);
            box_of(&copy).map(|_| ())
        };
        assert_eq!(check(|_| ()), Ok(()));
        assert_eq!(check(|copy| copy.extent.height = 0), Err(CudaError::INVALID_VALUE));
        assert_eq!(check(|copy| copy.src.row_length = 15), Err(CudaError::INVALID_VALUE));
        assert_eq!(check(|copy| copy.dst.layer_height = 3), Err(CudaError::INVALID_VALUE));
        assert_eq!(check(|copy| copy.src.kind = 0), Err(CudaError::INVALID_VALUE));
        assert_eq!(check(|copy| copy.src.kind = OPERAND_ARRAY), Err(CudaError::NOT_SUPPORTED));
        assert_eq!(check(|copy| copy.srcAccessOrder.0 = 0), Err(CudaError::INVALID_VALUE));
        assert_eq!(check(|copy| copy.srcAccessOrder.0 = 4), Err(CudaError::INVALID_VALUE));
        assert_eq!(check(|copy| copy.flags = 2), Err(CudaError::INVALID_VALUE));
    }
}
