//! The structs of the interface, as `driver_types.h` lays them out. Types with the same layout in the driver are used under
//! the driver's names: streams, events, graphs, pools and IPC handles.

#![allow(non_camel_case_types, non_snake_case, reason = "named as C names them")]

pub(crate) mod device_prop;
pub(crate) mod texture;

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use freehold_driver::cuda::{CUerror, CUmemLocation, CUresult, CUstream};

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

impl cudaExtent {
    /// Returns the number of an array's elements, with this many levels.
    pub(crate) fn elements(&self, levels: u32) -> usize {
        let side = |side: usize, level: u32| side.checked_shr(level).unwrap_or(0).max(1);
        let of_level = |level| side(self.width, level) * side(self.height, level) * side(self.depth, level);
        (0..levels.clamp(1, usize::BITS)).map(of_level).sum()
    }
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct cudaChannelFormatDesc {
    pub(crate) x: c_int,
    pub(crate) y: c_int,
    pub(crate) z: c_int,
    pub(crate) w: c_int,
    pub(crate) f: u32,
}

impl cudaChannelFormatDesc {
    pub(crate) fn element_bytes(&self) -> usize {
        [self.x, self.y, self.z, self.w].into_iter().map(|bits| bits.max(0) as usize).sum::<usize>() / 8
    }
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

const _: () = assert!(size_of::<cudaMemcpy3DParms>() == 160);
const _: () = assert!(offset_of!(cudaMemcpy3DParms, srcPtr) == 32);
const _: () = assert!(offset_of!(cudaMemcpy3DParms, dstArray) == 64);
const _: () = assert!(offset_of!(cudaMemcpy3DParms, dstPtr) == 96);
const _: () = assert!(offset_of!(cudaMemcpy3DParms, extent) == 128);
const _: () = assert!(offset_of!(cudaMemcpy3DParms, kind) == 152);

/// The arguments of `cudaMemcpy3DPeer`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaMemcpy3DPeerParms {
    pub(crate) srcArray: *mut c_void,
    pub(crate) srcPos: cudaPos,
    pub(crate) srcPtr: cudaPitchedPtr,
    pub(crate) srcDevice: c_int,
    pub(crate) dstArray: *mut c_void,
    pub(crate) dstPos: cudaPos,
    pub(crate) dstPtr: cudaPitchedPtr,
    pub(crate) dstDevice: c_int,
    pub(crate) extent: cudaExtent,
}

const _: () = assert!(size_of::<cudaMemcpy3DPeerParms>() == 168);
const _: () = assert!(offset_of!(cudaMemcpy3DPeerParms, srcDevice) == 64);
const _: () = assert!(offset_of!(cudaMemcpy3DPeerParms, dstArray) == 72);
const _: () = assert!(offset_of!(cudaMemcpy3DPeerParms, dstDevice) == 136);
const _: () = assert!(offset_of!(cudaMemcpy3DPeerParms, extent) == 144);

/// What a batch of copies may assume about its sources and destinations.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaMemcpyAttributes {
    pub(crate) srcAccessOrder: cudaMemcpySrcAccessOrder,
    pub(crate) srcLocHint: CUmemLocation,
    pub(crate) dstLocHint: CUmemLocation,
    pub(crate) flags: u32,
}

const _: () = assert!(size_of::<cudaMemcpyAttributes>() == 24);
const _: () = assert!(offset_of!(cudaMemcpyAttributes, dstLocHint) == 12);
const _: () = assert!(offset_of!(cudaMemcpyAttributes, flags) == 20);

/// When the source of a copy in a batch is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct cudaMemcpySrcAccessOrder(pub(crate) u32);

impl cudaMemcpySrcAccessOrder {
    pub(crate) const STREAM: Self = Self(1);
    /// Before the call returns.
    pub(crate) const DURING_API_CALL: Self = Self(2);
    pub(crate) const ANY: Self = Self(3);
}

/// One end of a copy of `cudaMemcpy3DBatchAsync`. C has a union of a pointer with its pitches and an array with an offset,
/// both of four words; for a pointer they are the address, the row length, the layer height and a location.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaMemcpy3DOperand {
    /// 1 for a pointer, 2 for an array.
    pub(crate) kind: u32,
    pub(crate) address: u64,
    pub(crate) row_length: usize,
    pub(crate) layer_height: usize,
    pub(crate) location: CUmemLocation,
}

const _: () = assert!(size_of::<cudaMemcpy3DOperand>() == 40);
const _: () = assert!(offset_of!(cudaMemcpy3DOperand, address) == 8);
const _: () = assert!(offset_of!(cudaMemcpy3DOperand, location) == 32);

/// One copy of `cudaMemcpy3DBatchAsync`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaMemcpy3DBatchOp {
    pub(crate) src: cudaMemcpy3DOperand,
    pub(crate) dst: cudaMemcpy3DOperand,
    pub(crate) extent: cudaExtent,
    pub(crate) srcAccessOrder: cudaMemcpySrcAccessOrder,
    pub(crate) flags: u32,
}

const _: () = assert!(size_of::<cudaMemcpy3DBatchOp>() == 112);
const _: () = assert!(offset_of!(cudaMemcpy3DBatchOp, extent) == 80);
const _: () = assert!(offset_of!(cudaMemcpy3DBatchOp, srcAccessOrder) == 104);

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

const _: () = assert!(size_of::<cudaFuncAttributes>() == 144);
const _: () = assert!(offset_of!(cudaFuncAttributes, maxThreadsPerBlock) == 24);
const _: () = assert!(offset_of!(cudaFuncAttributes, clusterSchedulingPolicyPreference) == 68);
const _: () = assert!(offset_of!(cudaFuncAttributes, reserved) == 76);

/// What an address refers to, as CUDA 12 lays it out.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaPointerAttributes_v12 {
    /// 0 unregistered, 1 host, 2 device, 3 managed.
    pub(crate) kind: u32,
    pub(crate) device: c_int,
    pub(crate) devicePointer: *mut c_void,
    pub(crate) hostPointer: *mut c_void,
}

const _: () = assert!(size_of::<cudaPointerAttributes_v12>() == 24);
const _: () = assert!(offset_of!(cudaPointerAttributes_v12, devicePointer) == 8);

/// What an address refers to.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaPointerAttributes {
    pub(crate) known: cudaPointerAttributes_v12,
    pub(crate) reserved: [i64; 8],
}

const _: () = assert!(size_of::<cudaPointerAttributes>() == 88);
const _: () = assert!(offset_of!(cudaPointerAttributes, reserved) == 24);

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

const _: () = assert!(size_of::<cudaLaunchConfig_t>() == 56);
const _: () = assert!(offset_of!(cudaLaunchConfig_t, dynamicSmemBytes) == 24);
const _: () = assert!(offset_of!(cudaLaunchConfig_t, attrs) == 40);

/// Checks a pointer from C: it must be aligned and not null.
pub(crate) fn check<T>(place: *const T) -> Result<(), CUerror> {
    if place.is_null() || !place.is_aligned() { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
}

/// Reads a struct that C passes by its address.
///
/// # Safety
/// If it is neither null nor misaligned, the pointer must be valid for reads of a `T`.
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> Result<T, CUerror> {
    check(from)?;
    // SAFETY: it is neither null nor misaligned, so the caller guarantees that it is valid.
    Ok(unsafe { from.read() })
}

/// Reads an array that C passes by its address and its length.
///
/// # Safety
/// If it is neither null nor misaligned, the pointer must be valid for reads of `count` values.
pub(crate) unsafe fn read_slice<T: Copy>(from: *const T, count: usize) -> Result<Vec<T>, CUerror> {
    check(from)?;
    // SAFETY: it is neither null nor misaligned, so the caller guarantees that all values are valid; nothing writes
    // them meanwhile.
    Ok(unsafe { std::slice::from_raw_parts(from, count) }.to_vec())
}

/// Writes a value where C wants it: the pointer must be aligned and not null.
///
/// # Safety
/// If it is neither null nor misaligned, the pointer must be valid for writes of a `T`.
pub(crate) unsafe fn write<T>(to: *mut T, value: T) -> Result<(), CUerror> {
    check(to)?;
    // SAFETY: it is neither null nor misaligned, so the caller guarantees that it is valid.
    unsafe { to.write(value) };
    Ok(())
}

/// The text of a name in a fixed field, cut to fit and terminated by a NUL.
pub(crate) fn name_field<const N: usize>(text: &[u8]) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N - 1).zip(text.iter().take_while(|&&byte| byte != 0)) {
        *to = from.cast_signed() as c_char;
    }
    field
}
