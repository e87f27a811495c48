//! Arrays: creation, descriptions and copies. A copy of an array is the driver's copy of a box.

use std::ffi::c_void;

use freehold_driver::cuda::{
    Api, CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEMCPY3D, CUarray, CUarray_format, CUdeviceptr, CUmemorytype, CUmipmappedArray,
    CUstream,
};

use super::copy::{check_kind, memory_types};
use crate::code::{CudaError, cudaError_t};
use crate::process;
use crate::thread;
use crate::types::{cudaChannelFormatDesc, cudaExtent, cudaMemcpyKind, read, write};

/// The kinds of a channel's format.
mod kind {
    pub(super) const SIGNED: u32 = 0;
    pub(super) const UNSIGNED: u32 = 1;
    pub(super) const FLOAT: u32 = 2;
    /// The first of twelve normalized formats, in the order of the driver's.
    pub(super) const NORMALIZED: u32 = 5;
    pub(super) const NORMALIZED_LAST: u32 = 16;
}

/// Returns the driver's format, and the number of channels.
pub(crate) fn format_of(desc: &cudaChannelFormatDesc) -> Result<(CUarray_format, u32), CudaError> {
    let invalid = Err(CudaError::INVALID_CHANNEL_DESCRIPTOR);
    let bits = [desc.x, desc.y, desc.z, desc.w];
    let channels = bits.iter().take_while(|&&bits| bits != 0).count();
    let is_even = bits[..channels].iter().all(|&bits| bits == desc.x) && bits[channels..].iter().all(|&bits| bits == 0);
    if !is_even || !matches!(channels, 1 | 2 | 4) {
        return invalid;
    }
    let format = match (desc.f, desc.x) {
        (kind::UNSIGNED, 8) => CUarray_format::UNSIGNED_INT8,
        (kind::UNSIGNED, 16) => CUarray_format::UNSIGNED_INT16,
        (kind::UNSIGNED, 32) => CUarray_format::UNSIGNED_INT32,
        (kind::SIGNED, 8) => CUarray_format::SIGNED_INT8,
        (kind::SIGNED, 16) => CUarray_format::SIGNED_INT16,
        (kind::SIGNED, 32) => CUarray_format::SIGNED_INT32,
        (kind::FLOAT, 16) => CUarray_format::HALF,
        (kind::FLOAT, 32) => CUarray_format::FLOAT,
        (kind::NORMALIZED..=kind::NORMALIZED_LAST, 8 | 16) => {
            CUarray_format(CUarray_format::UNORM_INT8X1.0 + desc.f - kind::NORMALIZED)
        }
        _ => return invalid,
    };
    Ok((format, channels as u32))
}

/// Returns the runtime's description of a format.
pub(crate) fn desc_of(format: CUarray_format, channels: u32) -> cudaChannelFormatDesc {
    let normalized = format.0.wrapping_sub(CUarray_format::UNORM_INT8X1.0);
    let (kind, bits) = match format {
        CUarray_format::UNSIGNED_INT8 => (kind::UNSIGNED, 8),
        CUarray_format::UNSIGNED_INT16 => (kind::UNSIGNED, 16),
        CUarray_format::UNSIGNED_INT32 => (kind::UNSIGNED, 32),
        CUarray_format::SIGNED_INT8 => (kind::SIGNED, 8),
        CUarray_format::SIGNED_INT16 => (kind::SIGNED, 16),
        CUarray_format::SIGNED_INT32 => (kind::SIGNED, 32),
        CUarray_format::HALF => (kind::FLOAT, 16),
        CUarray_format::FLOAT => (kind::FLOAT, 32),
        // Groups of three: 8 and 16 bits unsigned, 8 and 16 bits signed.
        _ => (kind::NORMALIZED + normalized.min(11), if (normalized / 3).is_multiple_of(2) { 8 } else { 16 }),
    };
    let [x, y, z, w] = [1, 2, 3, 4].map(|channel| if channel <= channels { bits } else { 0 });
    cudaChannelFormatDesc { x, y, z, w, f: kind }
}

/// Returns the driver's description of an array.
fn descriptor(
    desc: *const cudaChannelFormatDesc,
    extent: cudaExtent,
    flags: u32,
) -> Result<CUDA_ARRAY3D_DESCRIPTOR, CudaError> {
    // SAFETY: the C caller guarantees that the struct is valid.
    let (format, channels) = format_of(&unsafe { read(desc) }?)?;
    Ok(CUDA_ARRAY3D_DESCRIPTOR {
        Width: extent.width,
        Height: extent.height,
        Depth: extent.depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    })
}

/// Asks the driver what an array is.
pub(crate) fn describe(api: &Api, array: CUarray) -> Result<CUDA_ARRAY3D_DESCRIPTOR, CudaError> {
    if array == CUarray::NULL {
        return Err(CudaError::INVALID_RESOURCE_HANDLE);
    }
    let mut descriptor = CUDA_ARRAY3D_DESCRIPTOR::default();
    // SAFETY: the driver writes one description, and the C caller guarantees that the array is valid.
    unsafe { (api.cuArray3DGetDescriptor_v2)(&raw mut descriptor, array) }?;
    Ok(descriptor)
}

/// Returns the size of an array's element.
pub(crate) fn element_bytes(api: &Api, array: CUarray) -> Result<usize, CudaError> {
    let descriptor = describe(api, array)?;
    let desc = desc_of(descriptor.Format, descriptor.NumChannels);
    Ok(desc.x as usize / 8 * descriptor.NumChannels as usize)
}

/// Returns the size of an array's row.
pub(crate) fn row_bytes(api: &Api, array: CUarray) -> Result<usize, CudaError> {
    Ok(describe(api, array)?.Width * element_bytes(api, array)?)
}

pub(crate) unsafe fn cudaMallocArray(
    array: *mut CUarray,
    desc: *const cudaChannelFormatDesc,
    width: usize,
    height: usize,
    flags: u32,
) -> cudaError_t {
    // SAFETY: the conditions are the same.
    unsafe { cudaMalloc3DArray(array, desc, cudaExtent { width, height, depth: 0 }, flags) }
}

pub(crate) unsafe fn cudaMalloc3DArray(
    array: *mut CUarray,
    desc: *const cudaChannelFormatDesc,
    extent: cudaExtent,
    flags: u32,
) -> cudaError_t {
    crate::types::check(array)?;
    let descriptor = descriptor(desc, extent, flags)?;
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuArray3DCreate_v2)(array, &raw const descriptor) }?)
}

pub(crate) unsafe fn cudaMallocMipmappedArray(
    mipmap: *mut CUmipmappedArray,
    desc: *const cudaChannelFormatDesc,
    extent: cudaExtent,
    levels: u32,
    flags: u32,
) -> cudaError_t {
    crate::types::check(mipmap)?;
    let descriptor = descriptor(desc, extent, flags)?;
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuMipmappedArrayCreate)(mipmap, &raw const descriptor, levels) }?)
}

pub(crate) unsafe fn cudaFreeArray(array: CUarray) -> cudaError_t {
    let process = process::with_context()?;
    if array == CUarray::NULL {
        return Ok(());
    }
    // SAFETY: the C caller guarantees that the array is valid.
    Ok(unsafe { (process.api.cuArrayDestroy)(array) }?)
}

pub(crate) unsafe fn cudaFreeMipmappedArray(mipmap: CUmipmappedArray) -> cudaError_t {
    let process = process::with_context()?;
    if mipmap == CUmipmappedArray::NULL {
        return Ok(());
    }
    // SAFETY: the C caller guarantees that the array is valid.
    Ok(unsafe { (process.api.cuMipmappedArrayDestroy)(mipmap) }?)
}

forward! {
    fn cudaGetMipmappedArrayLevel(array: *mut CUarray, mipmap: CUmipmappedArray, level: u32) =
        cuMipmappedArrayGetLevel(array, mipmap, level);
}

pub(crate) unsafe fn cudaArrayGetInfo(
    desc: *mut cudaChannelFormatDesc,
    extent: *mut cudaExtent,
    flags: *mut u32,
    array: CUarray,
) -> cudaError_t {
    let found = describe(&process::with_context()?.api, array)?;
    if !desc.is_null() {
        // SAFETY: the C caller guarantees that the output pointer is valid.
        unsafe { write(desc, desc_of(found.Format, found.NumChannels)) }?;
    }
    if !extent.is_null() {
        let size = cudaExtent { width: found.Width, height: found.Height, depth: found.Depth };
        // SAFETY: as above.
        unsafe { write(extent, size) }?;
    }
    if !flags.is_null() {
        // SAFETY: as above.
        unsafe { write(flags, found.Flags) }?;
    }
    Ok(())
}

pub(crate) unsafe fn cudaGetChannelDesc(desc: *mut cudaChannelFormatDesc, array: CUarray) -> cudaError_t {
    let found = describe(&process::with_context()?.api, array)?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(desc, desc_of(found.Format, found.NumChannels)) }?)
}

/// One end of a copy: a position in an array, or rows in memory.
#[derive(Clone, Copy)]
pub(super) enum End {
    Array { array: CUarray, x_bytes: usize, y: usize },
    Memory { start: *mut c_void, pitch_bytes: usize },
}

/// Returns the driver's copy of `height` rows of `width` bytes.
fn rows(from: End, to: End, width: usize, height: usize, kind: cudaMemcpyKind) -> Result<CUDA_MEMCPY3D, CudaError> {
    let mut copy = CUDA_MEMCPY3D { WidthInBytes: width, Height: height, Depth: 1, ..CUDA_MEMCPY3D::default() };
    let [from_memory, to_memory] = memory_types(kind);
    match from {
        End::Array { .. } if from_memory == CUmemorytype::HOST => return Err(CudaError::INVALID_MEMCPY_DIRECTION),
        End::Array { array, x_bytes, y } => {
            (copy.srcMemoryType, copy.srcArray) = (CUmemorytype::ARRAY, array);
            (copy.srcXInBytes, copy.srcY) = (x_bytes, y);
        }
        End::Memory { start, pitch_bytes } => {
            (copy.srcMemoryType, copy.srcHost) = (from_memory, start.addr());
            (copy.srcDevice, copy.srcPitch, copy.srcHeight) = (CUdeviceptr(start as u64), pitch_bytes, height);
        }
    }
    match to {
        End::Array { .. } if to_memory == CUmemorytype::HOST => return Err(CudaError::INVALID_MEMCPY_DIRECTION),
        End::Array { array, x_bytes, y } => {
            (copy.dstMemoryType, copy.dstArray) = (CUmemorytype::ARRAY, array);
            (copy.dstXInBytes, copy.dstY) = (x_bytes, y);
        }
        End::Memory { start, pitch_bytes } => {
            (copy.dstMemoryType, copy.dstHost) = (to_memory, start.addr());
            (copy.dstDevice, copy.dstPitch, copy.dstHeight) = (CUdeviceptr(start as u64), pitch_bytes, height);
        }
    }
    Ok(copy)
}

/// Copies rows, in a stream if there is one.
///
/// # Safety
/// The array and the memory must be valid until they are copied.
pub(super) unsafe fn copy_rows(
    from: End,
    to: End,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
    stream: Option<CUstream>,
) -> cudaError_t {
    check_kind(kind)?;
    for end in [from, to] {
        match end {
            End::Array { array, .. } if array == CUarray::NULL => return Err(CudaError::INVALID_RESOURCE_HANDLE),
            End::Memory { pitch_bytes, .. } if width > pitch_bytes => return Err(CudaError::INVALID_VALUE),
            _ => {}
        }
    }
    let process = process::with_context()?;
    let copy = rows(from, to, width, height, kind)?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    Ok(match stream {
        // SAFETY: the C caller guarantees that the array and the memory are valid.
        None => unsafe { (process.default_stream_api().cuMemcpy3D_v2)(&raw const copy) },
        // SAFETY: as above, until the stream has copied.
        Some(stream) => unsafe { (process.api.cuMemcpy3DAsync_v2)(&raw const copy, thread::stream(stream)) },
    }?)
}

pub(crate) unsafe fn cudaMemcpy2DToArray(
    to: CUarray,
    x_bytes: usize,
    y: usize,
    from: *const c_void,
    pitch_bytes: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let from = End::Memory { start: from.cast_mut(), pitch_bytes };
    // SAFETY: the conditions are the same.
    unsafe { copy_rows(from, End::Array { array: to, x_bytes, y }, width, height, kind, None) }
}

pub(crate) unsafe fn cudaMemcpy2DToArrayAsync(
    to: CUarray,
    x_bytes: usize,
    y: usize,
    from: *const c_void,
    pitch_bytes: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
    stream: CUstream,
) -> cudaError_t {
    let from = End::Memory { start: from.cast_mut(), pitch_bytes };
    // SAFETY: the conditions are the same.
    unsafe { copy_rows(from, End::Array { array: to, x_bytes, y }, width, height, kind, Some(stream)) }
}

pub(crate) unsafe fn cudaMemcpy2DFromArray(
    to: *mut c_void,
    pitch_bytes: usize,
    from: CUarray,
    x_bytes: usize,
    y: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let to = End::Memory { start: to, pitch_bytes };
    // SAFETY: the conditions are the same.
    unsafe { copy_rows(End::Array { array: from, x_bytes, y }, to, width, height, kind, None) }
}

pub(crate) unsafe fn cudaMemcpy2DFromArrayAsync(
    to: *mut c_void,
    pitch_bytes: usize,
    from: CUarray,
    x_bytes: usize,
    y: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
    stream: CUstream,
) -> cudaError_t {
    let to = End::Memory { start: to, pitch_bytes };
    // SAFETY: the conditions are the same.
    unsafe { copy_rows(End::Array { array: from, x_bytes, y }, to, width, height, kind, Some(stream)) }
}

pub(crate) unsafe fn cudaMemcpy2DArrayToArray(
    to: CUarray,
    to_x_bytes: usize,
    to_y: usize,
    from: CUarray,
    from_x_bytes: usize,
    from_y: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let from = End::Array { array: from, x_bytes: from_x_bytes, y: from_y };
    let to = End::Array { array: to, x_bytes: to_x_bytes, y: to_y };
    // SAFETY: the conditions are the same.
    unsafe { copy_rows(from, to, width, height, kind, None) }
}
