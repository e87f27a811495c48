//! The C types of advice on managed memory, and of the older forms of contexts and devices.

#![allow(missing_docs, reason = "NVIDIA documents what cuda.h declares")]
#![allow(non_camel_case_types, reason = "the types are named as C names them")]

use super::types::{CUdevice, c_enums};

c_enums! {
    CUmem_advise {
        SET_READ_MOSTLY = 1,
        UNSET_READ_MOSTLY = 2,
        SET_PREFERRED_LOCATION = 3,
        UNSET_PREFERRED_LOCATION = 4,
        SET_ACCESSED_BY = 5,
        UNSET_ACCESSED_BY = 6,
    }
    CUmem_range_attribute {
        READ_MOSTLY = 1,
        PREFERRED_LOCATION = 2,
        ACCESSED_BY = 3,
        LAST_PREFETCH_LOCATION = 4,
        PREFERRED_LOCATION_TYPE = 5,
        PREFERRED_LOCATION_ID = 6,
        LAST_PREFETCH_LOCATION_TYPE = 7,
        LAST_PREFETCH_LOCATION_ID = 8,
    }
}

impl CUdevice {
    /// No location, or not the same one for a whole range.
    pub const INVALID: Self = Self(-2);
}

/// The number of multiprocessors that a context uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CUexecAffinityParam {
    /// Zero, a number of multiprocessors, is the only type.
    pub kind: u32,
    pub sm_count: u32,
}

/// The parameters of `cuCtxCreate_v4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(non_snake_case, reason = "the fields are named as C names them")]
pub struct CUctxCreateParams {
    /// The address of a list of [`CUexecAffinityParam`].
    pub execAffinityParams: usize,
    pub numExecAffinityParams: i32,
    /// The address of the parameters of a context that shares its device with graphics.
    pub cigParams: usize,
}

const _: () = assert!(size_of::<CUctxCreateParams>() == 24);

/// The result of `cuDeviceGetProperties`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(non_snake_case, reason = "the fields are named as C names them")]
pub struct CUdevprop {
    pub maxThreadsPerBlock: i32,
    pub maxThreadsDim: [i32; 3],
    pub maxGridSize: [i32; 3],
    pub sharedMemPerBlock: i32,
    pub totalConstantMemory: i32,
    pub SIMDWidth: i32,
    pub memPitch: i32,
    pub regsPerBlock: i32,
    pub clockRate: i32,
    pub textureAlign: i32,
}

const _: () = assert!(size_of::<CUdevprop>() == 56);
