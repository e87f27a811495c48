//! The structs of graph nodes that differ from the driver's, and conversions in both directions.

#![allow(non_camel_case_types, non_snake_case, reason = "named as C names them")]

use std::ffi::c_void;

use freehold_driver::cuda::{
    CUDA_CHILD_GRAPH_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUarray, CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraphNodeType,
    CUkernel, CUmemorytype,
};

use crate::code::CudaError;
use crate::types::{Dim3, cudaExtent, cudaMemcpy3DParms, cudaMemcpyKind, cudaPitchedPtr, cudaPos};

/// A launch. The kernel is a host stub, or a kernel of a library.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaKernelNodeParams {
    pub(crate) func: *mut c_void,
    pub(crate) gridDim: Dim3,
    pub(crate) blockDim: Dim3,
    pub(crate) sharedMemBytes: u32,
    pub(crate) kernelParams: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
}

const _: () = assert!(size_of::<cudaKernelNodeParams>() == 56);

/// A copy, in the parameters of `cudaGraphAddNode`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaMemcpyNodeParams {
    pub(crate) flags: i32,
    pub(crate) reserved: [i32; 3],
    pub(crate) copyParams: cudaMemcpy3DParms,
}

const _: () = assert!(size_of::<cudaMemcpyNodeParams>() == 176);

/// The parameters of a node of the kind `kind`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaGraphNodeParams {
    pub(crate) kind: CUgraphNodeType,
    pub(crate) reserved0: [u32; 3],
    pub(crate) value: cudaGraphNodeParamsValue,
    pub(crate) reserved2: u64,
}

/// The member is that of the node's kind. Every member may have any bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union cudaGraphNodeParamsValue {
    pub(crate) words: [u64; 29],
    pub(crate) kernel: cudaKernelNodeParams,
    pub(crate) memcpy: cudaMemcpyNodeParams,
    pub(crate) memset: CUDA_MEMSET_NODE_PARAMS,
    pub(crate) host: CUDA_HOST_NODE_PARAMS,
    pub(crate) graph: CUDA_CHILD_GRAPH_NODE_PARAMS,
    pub(crate) event: CUevent,
    pub(crate) alloc: CUDA_MEM_ALLOC_NODE_PARAMS,
    pub(crate) free: CUdeviceptr,
}

const _: () = assert!(size_of::<cudaGraphNodeParams>() == 256);

impl cudaKernelNodeParams {
    /// Returns the driver's parameters for a kernel in the current context.
    pub(crate) fn for_driver(&self, kernel: CUkernel) -> CUDA_KERNEL_NODE_PARAMS {
        CUDA_KERNEL_NODE_PARAMS {
            func: CUfunction::NULL,
            gridDimX: self.gridDim.x,
            gridDimY: self.gridDim.y,
            gridDimZ: self.gridDim.z,
            blockDimX: self.blockDim.x,
            blockDimY: self.blockDim.y,
            blockDimZ: self.blockDim.z,
            sharedMemBytes: self.sharedMemBytes,
            kernelParams: self.kernelParams,
            extra: self.extra,
            kern: kernel,
            ctx: CUcontext::NULL,
        }
    }

    pub(crate) fn from_driver(params: &CUDA_KERNEL_NODE_PARAMS, func: *mut c_void) -> Self {
        Self {
            func,
            gridDim: Dim3 { x: params.gridDimX, y: params.gridDimY, z: params.gridDimZ },
            blockDim: Dim3 { x: params.blockDimX, y: params.blockDimY, z: params.blockDimZ },
            sharedMemBytes: params.sharedMemBytes,
            kernelParams: params.kernelParams,
            extra: params.extra,
        }
    }
}

/// Returns the kinds of memory at the source and the destination of a copy.
fn memory_types(kind: cudaMemcpyKind) -> Result<(CUmemorytype, CUmemorytype), CudaError> {
    Ok(match kind {
        cudaMemcpyKind::HOST_TO_HOST => (CUmemorytype::HOST, CUmemorytype::HOST),
        cudaMemcpyKind::HOST_TO_DEVICE => (CUmemorytype::HOST, CUmemorytype::DEVICE),
        cudaMemcpyKind::DEVICE_TO_HOST => (CUmemorytype::DEVICE, CUmemorytype::HOST),
        cudaMemcpyKind::DEVICE_TO_DEVICE => (CUmemorytype::DEVICE, CUmemorytype::DEVICE),
        cudaMemcpyKind::DEFAULT => (CUmemorytype::UNIFIED, CUmemorytype::UNIFIED),
        _ => return Err(CudaError::INVALID_MEMCPY_DIRECTION),
    })
}

/// Returns the driver's parameters of a copy between linear memory. Arrays are not supported.
pub(crate) fn copy_for_driver(params: &cudaMemcpy3DParms) -> Result<CUDA_MEMCPY3D, CudaError> {
    if !params.srcArray.is_null() || !params.dstArray.is_null() {
        return Err(CudaError::NOT_SUPPORTED);
    }
    let (from, to) = memory_types(params.kind)?;
    let place = |kind, ptr: *mut c_void| match kind {
        CUmemorytype::HOST => (ptr.addr(), CUdeviceptr::NULL),
        _ => (0, CUdeviceptr(ptr as u64)),
    };
    let (srcHost, srcDevice) = place(from, params.srcPtr.ptr);
    let (dstHost, dstDevice) = place(to, params.dstPtr.ptr);
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: params.srcPos.x,
        srcY: params.srcPos.y,
        srcZ: params.srcPos.z,
        srcLOD: 0,
        srcMemoryType: from,
        srcHost,
        srcDevice,
        srcArray: CUarray::NULL,
        reserved0: 0,
        srcPitch: params.srcPtr.pitch,
        srcHeight: params.srcPtr.ysize,
        dstXInBytes: params.dstPos.x,
        dstY: params.dstPos.y,
        dstZ: params.dstPos.z,
        dstLOD: 0,
        dstMemoryType: to,
        dstHost,
        dstDevice,
        dstArray: CUarray::NULL,
        reserved1: 0,
        dstPitch: params.dstPtr.pitch,
        dstHeight: params.dstPtr.ysize,
        WidthInBytes: params.extent.width,
        Height: params.extent.height,
        Depth: params.extent.depth,
    })
}

/// Returns the runtime's parameters of a copy between linear memory.
pub(crate) fn copy_from_driver(copy: &CUDA_MEMCPY3D) -> cudaMemcpy3DParms {
    let kind = match (copy.srcMemoryType, copy.dstMemoryType) {
        (CUmemorytype::HOST, CUmemorytype::HOST) => cudaMemcpyKind::HOST_TO_HOST,
        (CUmemorytype::HOST, CUmemorytype::DEVICE) => cudaMemcpyKind::HOST_TO_DEVICE,
        (CUmemorytype::DEVICE, CUmemorytype::HOST) => cudaMemcpyKind::DEVICE_TO_HOST,
        (CUmemorytype::DEVICE, CUmemorytype::DEVICE) => cudaMemcpyKind::DEVICE_TO_DEVICE,
        _ => cudaMemcpyKind::DEFAULT,
    };
    let pointer = |kind, host: usize, device: CUdeviceptr| match kind {
        CUmemorytype::HOST => host as *mut c_void,
        _ => device.0 as *mut c_void,
    };
    let pitched = |ptr, pitch, ysize| cudaPitchedPtr { ptr, pitch, xsize: copy.WidthInBytes, ysize };
    cudaMemcpy3DParms {
        srcArray: copy.srcArray.0 as *mut c_void,
        srcPos: cudaPos { x: copy.srcXInBytes, y: copy.srcY, z: copy.srcZ },
        srcPtr: pitched(pointer(copy.srcMemoryType, copy.srcHost, copy.srcDevice), copy.srcPitch, copy.srcHeight),
        dstArray: copy.dstArray.0 as *mut c_void,
        dstPos: cudaPos { x: copy.dstXInBytes, y: copy.dstY, z: copy.dstZ },
        dstPtr: pitched(pointer(copy.dstMemoryType, copy.dstHost, copy.dstDevice), copy.dstPitch, copy.dstHeight),
        extent: cudaExtent { width: copy.WidthInBytes, height: copy.Height, depth: copy.Depth },
        kind,
    }
}

/// Returns the driver's parameters of a copy of consecutive bytes.
pub(crate) fn linear_copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
) -> Result<CUDA_MEMCPY3D, CudaError> {
    let pitched = |ptr| cudaPitchedPtr { ptr, pitch: bytes, xsize: bytes, ysize: 1 };
    let start = cudaPos { x: 0, y: 0, z: 0 };
    copy_for_driver(&cudaMemcpy3DParms {
        srcArray: std::ptr::null_mut(),
        srcPos: start,
        srcPtr: pitched(from.cast_mut()),
        dstArray: std::ptr::null_mut(),
        dstPos: start,
        dstPtr: pitched(to),
        extent: cudaExtent { width: bytes, height: 1, depth: 1 },
        kind,
    })
}
