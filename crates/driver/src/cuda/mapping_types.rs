//! The C types of virtual memory and of memory shared between processes.

#![allow(missing_docs, reason = "NVIDIA documents what cuda.h declares")]
#![allow(non_camel_case_types, reason = "the types are named as C names them")]

use std::fmt;

use super::types::{
    CUdevice, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType, c_enums,
};

/// Memory without an address, made by `cuMemCreate`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct CUmemGenericAllocationHandle(pub u64);

impl fmt::Debug for CUmemGenericAllocationHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUmemGenericAllocationHandle({:#x})", self.0)
    }
}

c_enums! {
    CUmemAllocationGranularity_flags {
        MINIMUM = 0,
        RECOMMENDED = 1,
    }
}

/// Flags of `cuIpcOpenMemHandle`.
pub mod ipc_flags {
    /// The only flag, and a required one.
    pub const LAZY_ENABLE_PEER_ACCESS: u32 = 1;
}

/// The properties of memory that `cuMemCreate` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(non_snake_case, reason = "the fields are named as C names them")]
pub struct CUmemAllocationProp {
    pub kind: CUmemAllocationType,
    pub requestedHandleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32HandleMetaData: usize,
    pub compressionType: u8,
    pub gpuDirectRDMACapable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

const _: () = assert!(size_of::<CUmemAllocationProp>() == 32);

impl CUmemAllocationProp {
    /// Returns the properties of memory of `device` that can be exported as `handles`.
    pub const fn on_device(device: CUdevice, handles: CUmemAllocationHandleType) -> Self {
        Self {
            kind: CUmemAllocationType::PINNED,
            requestedHandleTypes: handles,
            location: CUmemLocation { kind: CUmemLocationType::DEVICE, id: device.0 },
            win32HandleMetaData: 0,
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }
}

macro_rules! tokens {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(C)]
        pub struct $name {
            pub bytes: [u8; 64],
        }

        impl Default for $name {
            fn default() -> Self {
                Self { bytes: [0; 64] }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

tokens! {
    /// A block allocated with `cuMemAlloc`, for another process.
    CUipcMemHandle;
    /// An event, for another process.
    CUipcEventHandle;
    /// A block of an exported pool, for a process that has imported the pool.
    CUmemPoolPtrExportData;
}
