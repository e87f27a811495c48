//! Copies of rectangles and boxes. Each is the driver's copy with the same pitches; a direction becomes two kinds of memory.

use std::ffi::c_void;

use freehold_driver::cuda::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUdeviceptr, CUmemorytype, CUstream,
};

use super::array::element_bytes;
use super::copy::check_kind;
use super::copy::memory_types;
use crate::code::{CudaError, cudaError_t};
use crate::process::{self, Process};
use crate::runtime_pool;
use crate::thread;
use crate::types::{
    cudaExtent, cudaMemcpy3DParms, cudaMemcpy3DPeerParms, cudaMemcpyKind, cudaPitchedPtr, cudaPos, read,
};

pub(crate) unsafe fn cudaMemcpy2D(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let Some(copy) = rectangle(to, to_pitch, from, from_pitch, width, height, kind)? else { return Ok(()) };
    let api = process::with_context()?.default_stream_api();
    // The other form refuses some pitches.
    // SAFETY: the C caller guarantees that both rectangles are valid.
    Ok(unsafe { (api.cuMemcpy2DUnaligned_v2)(&raw const copy) }?)
}

#[expect(clippy::too_many_arguments, reason = "as many as C has")]
pub(crate) unsafe fn cudaMemcpy2DAsync(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
    stream: CUstream,
) -> cudaError_t {
    let Some(copy) = rectangle(to, to_pitch, from, from_pitch, width, height, kind)? else { return Ok(()) };
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the stream is valid, and both rectangles until it has copied.
    Ok(unsafe { (process.api.cuMemcpy2DAsync_v2)(&raw const copy, thread::stream(stream)) }?)
}

/// Returns the driver's copy of a rectangle, `None` if it is empty.
fn rectangle(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
) -> Result<Option<CUDA_MEMCPY2D>, CudaError> {
    check_kind(kind)?;
    if width == 0 || height == 0 {
        return Ok(None);
    }
    if width > to_pitch || width > from_pitch {
        return Err(CudaError::INVALID_PITCH_VALUE);
    }
    runtime_pool::check_rows(to, to_pitch, width, height)?;
    runtime_pool::check_rows(from, from_pitch, width, height)?;
    let [from_memory, to_memory] = memory_types(kind);
    Ok(Some(CUDA_MEMCPY2D {
        srcMemoryType: from_memory,
        srcHost: from.addr(),
        srcDevice: CUdeviceptr(from as u64),
        srcPitch: from_pitch,
        dstMemoryType: to_memory,
        dstHost: to.addr(),
        dstDevice: CUdeviceptr(to as u64),
        dstPitch: to_pitch,
        WidthInBytes: width,
        Height: height,
        ..CUDA_MEMCPY2D::default()
    }))
}

pub(crate) unsafe fn cudaMemcpy3D(copy: *const cudaMemcpy3DParms) -> cudaError_t {
    // SAFETY: the C caller guarantees that the struct is valid.
    let copy = unsafe { read(copy) }?;
    let api = process::with_context()?.default_stream_api();
    let Some(copy) = box_of(&copy, &|array| element_bytes(api, array))? else { return Ok(()) };
    // SAFETY: the C caller guarantees that both boxes are valid.
    Ok(unsafe { (api.cuMemcpy3D_v2)(&raw const copy) }?)
}

pub(crate) unsafe fn cudaMemcpy3DAsync(copy: *const cudaMemcpy3DParms, stream: CUstream) -> cudaError_t {
    // SAFETY: the C caller guarantees that the struct is valid.
    let copy = unsafe { read(copy) }?;
    let process = process::with_context()?;
    let Some(copy) = box_of(&copy, &|array| element_bytes(&process.api, array))? else { return Ok(()) };
    // SAFETY: the C caller guarantees that the stream is valid, and both boxes until it has copied.
    Ok(unsafe { (process.api.cuMemcpy3DAsync_v2)(&raw const copy, thread::stream(stream)) }?)
}

/// Returns the driver's copy of a box, `None` if it is empty.
fn box_of(copy: &cudaMemcpy3DParms, element: &ElementBytes<'_>) -> Result<Option<CUDA_MEMCPY3D>, CudaError> {
    check_kind(copy.kind)?;
    let arrays = [copy.srcArray, copy.dstArray];
    let unit = common_element(arrays, element)?;
    let width = copy.extent.width.checked_mul(unit).ok_or(CudaError::INVALID_VALUE)?;
    let from = Corner::new(copy.srcArray, copy.srcPtr, copy.srcPos, width, unit)?;
    let to = Corner::new(copy.dstArray, copy.dstPtr, copy.dstPos, width, unit)?;
    if is_empty(copy.extent) {
        return Ok(None);
    }
    let [from_memory, to_memory] = memory_types(copy.kind);
    if [from, to]
        .iter()
        .zip([from_memory, to_memory])
        .any(|(end, memory)| end.is_array() && memory == CUmemorytype::HOST)
    {
        return Err(CudaError::INVALID_VALUE);
    }
    for end in [from, to] {
        end.check_inside(width, copy.extent)?;
    }
    Ok(Some(CUDA_MEMCPY3D {
        srcXInBytes: from.at.x,
        srcY: from.at.y,
        srcZ: from.at.z,
        srcMemoryType: if from.is_array() { CUmemorytype::ARRAY } else { from_memory },
        srcArray: from.array,
        srcHost: from.base.addr(),
        srcDevice: CUdeviceptr(from.base as u64),
        srcPitch: from.pitch,
        srcHeight: from.height,
        dstXInBytes: to.at.x,
        dstY: to.at.y,
        dstZ: to.at.z,
        dstMemoryType: if to.is_array() { CUmemorytype::ARRAY } else { to_memory },
        dstArray: to.array,
        dstHost: to.base.addr(),
        dstDevice: CUdeviceptr(to.base as u64),
        dstPitch: to.pitch,
        dstHeight: to.height,
        WidthInBytes: width,
        Height: copy.extent.height,
        Depth: copy.extent.depth,
        ..CUDA_MEMCPY3D::default()
    }))
}

fn is_empty(extent: cudaExtent) -> bool {
    extent.width == 0 || extent.height == 0 || extent.depth == 0
}

/// Returns the size of an array's element.
type ElementBytes<'e> = dyn Fn(CUarray) -> Result<usize, CudaError> + 'e;

/// Returns the unit of a copy's width: the element of its arrays, or a byte.
fn common_element(arrays: [*mut c_void; 2], element: &ElementBytes<'_>) -> Result<usize, CudaError> {
    let mut unit = None;
    for array in arrays.iter().filter(|array| !array.is_null()) {
        let bytes = element(CUarray(array.addr()))?;
        if unit.replace(bytes).is_some_and(|other| other != bytes) {
            return Err(CudaError::INVALID_VALUE);
        }
    }
    Ok(unit.unwrap_or(1))
}

/// Where a box starts in pitched memory or in an array. The first coordinate is in bytes.
#[derive(Clone, Copy)]
struct Corner {
    base: *mut c_void,
    array: CUarray,
    pitch: usize,
    /// Rows between two slices.
    height: usize,
    at: cudaPos,
}

impl Corner {
    /// Checks one end of a copy: either an array or pitched memory. Positions are in units of `unit` bytes.
    fn new(
        array: *mut c_void,
        memory: cudaPitchedPtr,
        at: cudaPos,
        width: usize,
        unit: usize,
    ) -> Result<Self, CudaError> {
        // A unit of the position is that of the width, in memory as well as in arrays.
        let at = cudaPos { x: at.x.checked_mul(unit).ok_or(CudaError::INVALID_VALUE)?, ..at };
        match (array.is_null(), memory.ptr.is_null()) {
            (true, false) if width > memory.pitch => Err(CudaError::INVALID_VALUE),
            (true, false) => {
                Ok(Self { base: memory.ptr, array: CUarray::NULL, pitch: memory.pitch, height: memory.ysize, at })
            }
            (false, true) => Ok(Self { base: memory.ptr, array: CUarray(array.addr()), pitch: 0, height: 0, at }),
            _ => Err(CudaError::INVALID_VALUE),
        }
    }

    /// Checks that a box of this width in bytes lies in one block, if it is memory of the pool.
    fn check_inside(&self, width: usize, extent: cudaExtent) -> cudaError_t {
        if self.is_array() {
            return Ok(());
        }
        let slices = self.at.z.saturating_add(extent.depth - 1).checked_mul(self.height);
        let rows = slices.and_then(|rows| rows.checked_add(self.at.y.saturating_add(extent.height)));
        runtime_pool::check_rows(
            self.base,
            self.pitch,
            self.at.x.saturating_add(width),
            rows.ok_or(CudaError::INVALID_VALUE)?,
        )
    }

    fn is_array(&self) -> bool {
        self.array != CUarray::NULL
    }
}

pub(crate) unsafe fn cudaMemcpy3DPeer(copy: *const cudaMemcpy3DPeerParms) -> cudaError_t {
    // SAFETY: the C caller guarantees that the struct is valid.
    let copy = unsafe { read(copy) }?;
    let process = process::with_context()?;
    let Some(copy) = peer_box_of(process, &copy)? else { return Ok(()) };
    // SAFETY: both contexts are retained, and the C caller guarantees that both boxes are valid.
    Ok(unsafe { (process.default_stream_api().cuMemcpy3DPeer)(&raw const copy) }?)
}

pub(crate) unsafe fn cudaMemcpy3DPeerAsync(copy: *const cudaMemcpy3DPeerParms, stream: CUstream) -> cudaError_t {
    // SAFETY: the C caller guarantees that the struct is valid.
    let copy = unsafe { read(copy) }?;
    let process = process::with_context()?;
    let Some(copy) = peer_box_of(process, &copy)? else { return Ok(()) };
    // SAFETY: both contexts are retained, and the C caller guarantees that the stream is valid, and both boxes until it
    // has copied.
    Ok(unsafe { (process.api.cuMemcpy3DPeerAsync)(&raw const copy, thread::stream(stream)) }?)
}

/// Returns the driver's copy of a box between two devices, `None` if it is empty.
fn peer_box_of(process: &Process, copy: &cudaMemcpy3DPeerParms) -> Result<Option<CUDA_MEMCPY3D_PEER>, CudaError> {
    let unit = common_element([copy.srcArray, copy.dstArray], &|array| element_bytes(&process.api, array))?;
    let width = copy.extent.width.checked_mul(unit).ok_or(CudaError::INVALID_VALUE)?;
    let from = Corner::new(copy.srcArray, copy.srcPtr, copy.srcPos, width, unit)?;
    let to = Corner::new(copy.dstArray, copy.dstPtr, copy.dstPos, width, unit)?;
    let memory = |end: &Corner| if end.is_array() { CUmemorytype::ARRAY } else { CUmemorytype::DEVICE };
    let (from_context, to_context) = (process.primary(copy.srcDevice)?, process.primary(copy.dstDevice)?);
    if is_empty(copy.extent) {
        return Ok(None);
    }
    Ok(Some(CUDA_MEMCPY3D_PEER {
        srcXInBytes: from.at.x,
        srcY: from.at.y,
        srcZ: from.at.z,
        srcMemoryType: memory(&from),
        srcArray: from.array,
        srcDevice: CUdeviceptr(from.base as u64),
        srcContext: from_context,
        srcPitch: from.pitch,
        srcHeight: from.height,
        dstXInBytes: to.at.x,
        dstY: to.at.y,
        dstZ: to.at.z,
        dstMemoryType: memory(&to),
        dstArray: to.array,
        dstDevice: CUdeviceptr(to.base as u64),
        dstContext: to_context,
        dstPitch: to.pitch,
        dstHeight: to.height,
        WidthInBytes: width,
        Height: copy.extent.height,
        Depth: copy.extent.depth,
        ..CUDA_MEMCPY3D_PEER::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(address: usize) -> *mut c_void {
        std::ptr::without_provenance_mut(address)
    }

    fn parms() -> cudaMemcpy3DParms {
        let memory = |address| cudaPitchedPtr { ptr: pointer(address), pitch: 512, xsize: 100, ysize: 8 };
        cudaMemcpy3DParms {
            srcArray: pointer(0),
            srcPos: cudaPos { x: 1, y: 2, z: 3 },
            srcPtr: memory(0x1000),
            dstArray: pointer(0),
            dstPos: cudaPos { x: 4, y: 5, z: 6 },
            dstPtr: memory(0x2000),
            extent: cudaExtent { width: 100, height: 3, depth: 2 },
            kind: cudaMemcpyKind::HOST_TO_DEVICE,
        }
    }

    #[test]
    fn a_rectangle_wider_than_a_pitch_has_an_invalid_pitch() {
        let (to, from) = (pointer(0x1000), pointer(0x2000));
        let copy = |to_pitch, from_pitch, width, height| {
            rectangle(to, to_pitch, from, from_pitch, width, height, cudaMemcpyKind::DEFAULT).map(|copy| copy.is_some())
        };
        assert_eq!(copy(64, 32, 32, 4), Ok(true));
        assert_eq!(copy(31, 32, 32, 4), Err(CudaError::INVALID_PITCH_VALUE));
        assert_eq!(copy(32, 31, 32, 4), Err(CudaError::INVALID_PITCH_VALUE));
        assert_eq!(copy(0, 0, 0, 4), Ok(false));
        assert_eq!(copy(0, 0, 32, 0), Ok(false));
    }

    #[test]
    fn a_direction_names_both_memories() {
        let (host, device, unified) = (CUmemorytype::HOST, CUmemorytype::DEVICE, CUmemorytype::UNIFIED);
        let all = [0, 1, 2, 3, 4].map(|kind| memory_types(cudaMemcpyKind(kind)));
        assert_eq!(all, [[host, host], [host, device], [device, host], [device, device], [unified, unified]]);
    }

    #[test]
    fn a_box_keeps_positions_pitches_and_slice_heights() {
        let copy = box_of(&parms(), &|_| Ok(4)).unwrap().unwrap();
        assert_eq!((copy.srcXInBytes, copy.srcY, copy.srcZ), (1, 2, 3));
        assert_eq!((copy.dstXInBytes, copy.dstY, copy.dstZ), (4, 5, 6));
        assert_eq!((copy.srcHost, copy.dstDevice), (0x1000, CUdeviceptr(0x2000)));
        assert_eq!((copy.srcPitch, copy.srcHeight, copy.dstPitch, copy.dstHeight), (512, 8, 512, 8));
        assert_eq!((copy.WidthInBytes, copy.Height, copy.Depth), (100, 3, 2));
    }

    #[test]
    fn the_width_of_a_box_in_an_array_is_in_elements() {
        let mut parms = parms();
        (parms.dstArray, parms.dstPtr.ptr) = (pointer(8), pointer(0));
        let copy = box_of(&parms, &|_| Ok(4)).unwrap().unwrap();
        assert_eq!((copy.WidthInBytes, copy.srcXInBytes, copy.dstXInBytes), (400, 4, 16));
        assert_eq!((copy.dstMemoryType, copy.dstArray), (CUmemorytype::ARRAY, CUarray(8)));
        (parms.srcArray, parms.srcPtr.ptr) = (pointer(16), pointer(0));
        let differ = box_of(&parms, &|array| Ok(array.0));
        assert_eq!(differ.map(|copy| copy.is_some()), Err(CudaError::INVALID_VALUE));
    }

    #[test]
    fn each_end_of_a_box_is_one_of_array_and_memory() {
        let check = |change: fn(&mut cudaMemcpy3DParms)| {
            let mut parms = parms();
            change(&mut parms);
            box_of(&parms, &|_| Ok(4)).map(|copy| copy.is_some())
        };
        assert_eq!(check(|parms| parms.srcPtr.ptr = pointer(0)), Err(CudaError::INVALID_VALUE));
        assert_eq!(check(|parms| parms.dstArray = pointer(8)), Err(CudaError::INVALID_VALUE));
        let array = |parms: &mut cudaMemcpy3DParms| {
            parms.dstPtr.ptr = pointer(0);
            parms.dstArray = pointer(8);
        };
        assert_eq!(check(array), Ok(true));
        assert_eq!(check(|parms| parms.extent.width = 513), Err(CudaError::INVALID_VALUE));
        assert_eq!(check(|parms| parms.extent.depth = 0), Ok(false));
        assert_eq!(check(|parms| parms.kind = cudaMemcpyKind(5)), Err(CudaError::INVALID_MEMCPY_DIRECTION));
    }
}
