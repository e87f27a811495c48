//! Device memory: linear, with rows of a common pitch, and what an address refers to.

use std::ffi::c_void;

use freehold_driver::cuda::{CUdevice_attribute, CUdeviceptr, CUerror, CUmemorytype, CUpointer_attribute, CUresult};

use super::properties::attribute;
use crate::code::{CudaError, cudaError_t};
use crate::process::{self, Process};
use crate::runtime_pool;
use crate::types::{check, cudaExtent, cudaPitchedPtr, cudaPointerAttributes, cudaPointerAttributes_v12, write};

/// The size of the largest access that rows are aligned for. It has no influence on the pitch of current devices.
const ELEMENT_BYTES: u32 = 4;

/// The driver's number for the device of memory that it does not know.
const NO_DEVICE: i32 = -2;

pub(crate) unsafe fn cudaMalloc(start: *mut *mut c_void, bytes: usize) -> cudaError_t {
    check(start)?;
    let process = process::get()?;
    if bytes > 0
        && let Some(pool) = runtime_pool::current(process)
    {
        let block = pool.alloc(bytes)?;
        // SAFETY: the C caller guarantees that `start` is valid.
        return Ok(unsafe { write(start, block.0 as *mut c_void) }?);
    }
    process.make_current()?;
    let mut block = CUdeviceptr::NULL;
    if bytes > 0 {
        let place = &raw mut block;
        // SAFETY: `place` is valid for the answer.
        runtime_pool::with_spare_memory(process, || unsafe { (process.api.cuMemAlloc_v2)(place, bytes) })?;
    }
    // SAFETY: the C caller guarantees that `start` is valid.
    Ok(unsafe { write(start, block.0 as *mut c_void) }?)
}

pub(crate) unsafe fn cudaMallocPitch(
    start: *mut *mut c_void,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> cudaError_t {
    check(start)?;
    check(pitch)?;
    let rows = alloc_rows(process::with_context()?, width, height)?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    unsafe { write(start, rows.start) }?;
    // SAFETY: as above.
    Ok(unsafe { write(pitch, rows.pitch) }?)
}

pub(crate) unsafe fn cudaMalloc3D(place: *mut cudaPitchedPtr, extent: cudaExtent) -> cudaError_t {
    check(place)?;
    let rows = extent.height.checked_mul(extent.depth).ok_or(CudaError::INVALID_VALUE)?;
    let rows = alloc_rows(process::with_context()?, extent.width, rows)?;
    let made = cudaPitchedPtr { ptr: rows.start, pitch: rows.pitch, xsize: extent.width, ysize: extent.height };
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(place, made) }?)
}

/// Rows of memory.
struct Rows {
    start: *mut c_void,
    pitch: usize,
}

/// Allocates rows of this width in bytes. An empty allocation is null, with a pitch of zero.
fn alloc_rows(process: &'static Process, width_bytes: usize, count: usize) -> Result<Rows, CudaError> {
    let (mut block, mut pitch) = (CUdeviceptr::NULL, 0);
    if width_bytes == 0 || count == 0 {
        // Empty.
    } else if let Some(pool) = runtime_pool::current(process) {
        (block, pitch) = pool.alloc_rows(width_bytes, count)?;
    } else {
        // SAFETY: both are valid places for the answer.
        unsafe { (process.api.cuMemAllocPitch_v2)(&raw mut block, &raw mut pitch, width_bytes, count, ELEMENT_BYTES) }?;
    }
    Ok(Rows { start: block.0 as *mut c_void, pitch })
}

pub(crate) unsafe fn cudaFree(start: *mut c_void) -> cudaError_t {
    if let Some(freed) = runtime_pool::free(CUdeviceptr(start as u64)) {
        return freed;
    }
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the block is valid.
    Ok(unsafe { (process.api.cuMemFree_v2)(CUdeviceptr(start as u64)) }?)
}

pub(crate) unsafe fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that both output pointers are valid.
    unsafe { (process.api.cuMemGetInfo_v2)(free, total) }?;
    if let Some(pool) = runtime_pool::current(process) {
        // SAFETY: as above; the call before has written it.
        unsafe { *free += pool.spare_bytes() as usize };
    }
    Ok(())
}

pub(crate) unsafe fn cudaPointerGetAttributes(
    attributes: *mut cudaPointerAttributes,
    address: *const c_void,
) -> cudaError_t {
    check(attributes)?;
    let known = pointer_attributes(process::with_context()?, address)?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(attributes, cudaPointerAttributes { known, reserved: [0; 8] }) }?)
}

/// `cudaPointerGetAttributes` of CUDA 12.
pub(crate) unsafe fn cudaPointerGetAttributes_v12(
    attributes: *mut cudaPointerAttributes_v12,
    address: *const c_void,
) -> cudaError_t {
    check(attributes)?;
    let known = pointer_attributes(process::with_context()?, address)?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(attributes, known) }?)
}

/// Returns what an address refers to. Memory that the driver does not know is the host's.
fn pointer_attributes(process: &Process, address: *const c_void) -> Result<cudaPointerAttributes_v12, CudaError> {
    let (mut memory, mut is_managed, mut device) = (CUmemorytype(0), 0u32, 0i32);
    let mut wanted =
        [CUpointer_attribute::MEMORY_TYPE, CUpointer_attribute::IS_MANAGED, CUpointer_attribute::DEVICE_ORDINAL];
    let mut places = [(&raw mut memory).cast::<c_void>(), (&raw mut is_managed).cast(), (&raw mut device).cast()];
    let start = CUdeviceptr(address as u64);
    // SAFETY: there are as many places as attributes, each of the attribute's type. Any address may be asked about.
    unsafe { (process.api.cuPointerGetAttributes)(3, wanted.as_mut_ptr(), places.as_mut_ptr(), start) }?;
    if runtime_pool::at(start).is_some_and(|pool| pool.is_freed(start)) {
        // The driver only knows the pool's chunks.
        (memory, is_managed, device) = (CUmemorytype(0), 0, NO_DEVICE);
    }
    let kind = MemoryKind::of(memory, is_managed != 0);
    let (device_pointer, host_pointer) = if kind == MemoryKind::Unregistered {
        let is_shared = attribute(process, CUdevice_attribute::PAGEABLE_MEMORY_ACCESS)? != 0;
        (if is_shared { address.cast_mut() } else { process::none() }, address.cast_mut())
    } else {
        let pointer = |which| pointer_for(process, which, start);
        (pointer(CUpointer_attribute::DEVICE_POINTER)?, pointer(CUpointer_attribute::HOST_POINTER)?)
    };
    let kind = kind as u32;
    Ok(cudaPointerAttributes_v12 { kind, device, devicePointer: device_pointer, hostPointer: host_pointer })
}

/// The runtime's kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryKind {
    Unregistered = 0,
    Host = 1,
    Device = 2,
    Managed = 3,
}

impl MemoryKind {
    fn of(memory: CUmemorytype, is_managed: bool) -> Self {
        match memory {
            _ if is_managed => Self::Managed,
            CUmemorytype::HOST => Self::Host,
            CUmemorytype(0) => Self::Unregistered,
            _ => Self::Device,
        }
    }
}

/// Returns the address at which the device or the host accesses known memory, null if it cannot.
fn pointer_for(process: &Process, which: CUpointer_attribute, start: CUdeviceptr) -> Result<*mut c_void, CudaError> {
    let mut pointer = process::none::<c_void>();
    // SAFETY: both attributes are pointers, and `pointer` is a valid place for one.
    let result: CUresult = unsafe { (process.api.cuPointerGetAttribute)((&raw mut pointer).cast(), which, start) };
    match result {
        Ok(()) => Ok(pointer),
        Err(CUerror::INVALID_VALUE) => Ok(process::none()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_memory_is_managed_wherever_it_is() {
        assert_eq!(MemoryKind::of(CUmemorytype::DEVICE, true) as u32, 3);
        assert_eq!(MemoryKind::of(CUmemorytype::HOST, true) as u32, 3);
    }

    #[test]
    fn other_memory_has_the_runtimes_number_of_its_kind() {
        assert_eq!(MemoryKind::of(CUmemorytype(0), false) as u32, 0);
        assert_eq!(MemoryKind::of(CUmemorytype::HOST, false) as u32, 1);
        assert_eq!(MemoryKind::of(CUmemorytype::DEVICE, false) as u32, 2);
    }
}
