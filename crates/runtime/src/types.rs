//! The structs of the interface, as `driver_types.h` lays them out. What the driver has with the same layout is used under its
//! own name: streams, events, graphs, pools and IPC handles.

#![allow(non_camel_case_types, non_snake_case, reason = "named as C names them")]

use std::ffi::{c_char, c_int, c_void};

use freehold_driver::cuda::{CUerror, CUresult, CUstream};

/// The size of a grid or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Dim3 {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct cudaMemcpyKind(pub(crate) u32);

impl cudaMemcpyKind {
    pub(crate) const HOST_TO_HOST: Self = Self(0);
    pub(crate) const HOST_TO_DEVICE: Self = Self(1);
    pub(crate) const DEVICE_TO_HOST: Self = Self(2);
    pub(crate) const DEVICE_TO_DEVICE: Self = Self(3);
    /// Derived from the addresses.
    pub(crate) const DEFAULT: Self = Self(4);
}

/// The callback of `cudaStreamAddCallback`.
pub(crate) type cudaStreamCallback_t =
    Option<unsafe extern "C" fn(stream: CUstream, status: CUresult, data: *mut c_void)>;

/// A range of memory with rows of a common pitch.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaPitchedPtr {
    pub(crate) ptr: *mut c_void,
    pub(crate) pitch: usize,
    pub(crate) xsize: usize,
    pub(crate) ysize: usize,
}

/// Width in elements of an array or in bytes of linear memory; height and depth in rows and slices.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaExtent {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// A position, in the units of [`cudaExtent`].
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaPos {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
}

/// The bits of each channel of an array's element, and their kind.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaChannelFormatDesc {
    pub(crate) x: c_int,
    pub(crate) y: c_int,
    pub(crate) z: c_int,
    pub(crate) w: c_int,
    pub(crate) f: u32,
}

/// The arguments of `cudaMemcpy3D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaMemcpy3DParms {
    pub(crate) srcArray: *mut c_void,
    pub(crate) srcPos: cudaPos,
    pub(crate) srcPtr: cudaPitchedPtr,
    pub(crate) dstArray: *mut c_void,
    pub(crate) dstPos: cudaPos,
    pub(crate) dstPtr: cudaPitchedPtr,
    pub(crate) extent: cudaExtent,
    pub(crate) kind: cudaMemcpyKind,
}

/// The attributes of a kernel.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaFuncAttributes {
    pub(crate) sharedSizeBytes: usize,
    pub(crate) constSizeBytes: usize,
    pub(crate) localSizeBytes: usize,
    pub(crate) maxThreadsPerBlock: c_int,
    pub(crate) numRegs: c_int,
    pub(crate) ptxVersion: c_int,
    pub(crate) binaryVersion: c_int,
    pub(crate) cacheModeCA: c_int,
    pub(crate) maxDynamicSharedSizeBytes: c_int,
    pub(crate) preferredShmemCarveout: c_int,
    pub(crate) clusterDimMustBeSet: c_int,
    pub(crate) requiredClusterWidth: c_int,
    pub(crate) requiredClusterHeight: c_int,
    pub(crate) requiredClusterDepth: c_int,
    pub(crate) clusterSchedulingPolicyPreference: c_int,
    pub(crate) nonPortableClusterSizeAllowed: c_int,
    pub(crate) reserved: [c_int; 16],
}

/// What an address refers to.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaPointerAttributes {
    /// 0 unregistered, 1 host, 2 device, 3 managed.
    pub(crate) kind: u32,
    pub(crate) device: c_int,
    pub(crate) devicePointer: *mut c_void,
    pub(crate) hostPointer: *mut c_void,
    pub(crate) reserved: [i64; 8],
}

/// The configuration of `cudaLaunchKernelExC`. The driver's differs in the type of the shared memory's size.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaLaunchConfig_t {
    pub(crate) gridDim: Dim3,
    pub(crate) blockDim: Dim3,
    pub(crate) dynamicSmemBytes: usize,
    pub(crate) stream: CUstream,
    pub(crate) attrs: *mut freehold_driver::cuda::CUlaunchAttribute,
    pub(crate) numAttrs: u32,
}

/// A value that must be aligned and not null, from C.
///
/// # Safety
/// If it is neither null nor misaligned, the pointer must be valid for writes of a `T`.
pub(crate) unsafe fn write<T>(to: *mut T, value: T) -> Result<(), CUerror> {
    if to.is_null() || !to.is_aligned() {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: it is neither null nor misaligned, so the caller vouches for it.
    unsafe { to.write(value) };
    Ok(())
}

/// Returns a value that must be aligned and not null, from C.
///
/// # Safety
/// If it is neither null nor misaligned, the pointer must be valid for reads of a `T`.
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> Result<T, CUerror> {
    if from.is_null() || !from.is_aligned() {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: it is neither null nor misaligned, so the caller vouches for it.
    Ok(unsafe { from.read() })
}

/// The text of a name in a fixed field, cut to fit and terminated by a NUL.
pub(crate) fn name_field<const N: usize>(text: &[u8]) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N - 1).zip(text.iter().take_while(|&&byte| byte != 0)) {
        *to = from.cast_signed() as c_char;
    }
    field
}
