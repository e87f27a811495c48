//! The C types of the CUDA driver API. Their layout is asserted.
//!
//! Handles are numbers and C enums are newtypes with constants: no value that a driver of any version returns is
//! undefined behaviour here.

#![allow(missing_docs, reason = "NVIDIA documents what cuda.h declares")]
#![allow(non_camel_case_types, reason = "the types are named as C names them")]

use std::ffi::c_void;
use std::fmt;

use super::code::CUresult;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[repr(transparent)]
        pub struct $name(pub usize);

        impl $name {
            pub const NULL: Self = Self(0);
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        const _: () = assert!(size_of::<$name>() == size_of::<*mut c_void>());
    )*};
}

handles! {
    CUcontext;
    /// `NULL` is the default stream that the caller was compiled for: here, the legacy one.
    CUstream;
    CUevent;
    CUmemoryPool;
    /// An array: memory in a layout of the driver's, for textures and surfaces.
    CUarray;
}

impl CUstream {
    /// The default stream that waits for every blocking stream of its context, and they for it.
    pub const LEGACY: Self = Self(1);
    /// The calling thread's own default stream: a blocking stream like any other.
    pub const PER_THREAD: Self = Self(2);
}

/// An address in the unified address space of host and devices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct CUdeviceptr(pub u64);

impl CUdeviceptr {
    pub const NULL: Self = Self(0);
}

impl fmt::Debug for CUdeviceptr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUdeviceptr({:#x})", self.0)
    }
}

/// A device by its ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct CUdevice(pub i32);

impl CUdevice {
    /// The host, as a location of managed memory.
    pub const CPU: Self = Self(-1);
}

macro_rules! c_enums {
    ($($(#[$doc:meta])* $name:ident { $($constant:ident = $value:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            $(pub const $constant: Self = Self($value);)*
        }
    )*};
}

pub(super) use {c_enums, handles};

c_enums! {
    CUdevice_attribute {
        MAX_THREADS_PER_BLOCK = 1,
        MAX_BLOCK_DIM_X = 2,
        MAX_BLOCK_DIM_Y = 3,
        MAX_BLOCK_DIM_Z = 4,
        MAX_GRID_DIM_X = 5,
        MAX_GRID_DIM_Y = 6,
        MAX_GRID_DIM_Z = 7,
        MAX_PITCH = 11,
        TEXTURE_ALIGNMENT = 14,
        MULTIPROCESSOR_COUNT = 16,
        CAN_MAP_HOST_MEMORY = 19,
        PCI_BUS_ID = 33,
        PCI_DEVICE_ID = 34,
        UNIFIED_ADDRESSING = 41,
        PCI_DOMAIN_ID = 50,
        COMPUTE_CAPABILITY_MAJOR = 75,
        COMPUTE_CAPABILITY_MINOR = 76,
        STREAM_PRIORITIES_SUPPORTED = 78,
        MANAGED_MEMORY = 83,
        PAGEABLE_MEMORY_ACCESS = 88,
        CONCURRENT_MANAGED_ACCESS = 89,
        CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
        HOST_REGISTER_SUPPORTED = 99,
        DIRECT_MANAGED_MEM_ACCESS_FROM_HOST = 101,
        VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
        HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
        READ_ONLY_HOST_REGISTER_SUPPORTED = 113,
        MEMORY_POOLS_SUPPORTED = 115,
        CAN_USE_64_BIT_STREAM_MEM_OPS = 122,
    }
    CUdevice_P2PAttribute {
        PERFORMANCE_RANK = 1,
        ACCESS_SUPPORTED = 2,
        NATIVE_ATOMIC_SUPPORTED = 3,
        CUDA_ARRAY_ACCESS_SUPPORTED = 4,
    }
    CUpointer_attribute {
        CONTEXT = 1,
        MEMORY_TYPE = 2,
        DEVICE_POINTER = 3,
        HOST_POINTER = 4,
        P2P_TOKENS = 5,
        SYNC_MEMOPS = 6,
        BUFFER_ID = 7,
        IS_MANAGED = 8,
        DEVICE_ORDINAL = 9,
        IS_LEGACY_CUDA_IPC_CAPABLE = 10,
        RANGE_START_ADDR = 11,
        RANGE_SIZE = 12,
        MAPPED = 13,
        ALLOWED_HANDLE_TYPES = 14,
        IS_GPU_DIRECT_RDMA_CAPABLE = 15,
        ACCESS_FLAGS = 16,
        MEMPOOL_HANDLE = 17,
        MAPPING_SIZE = 18,
        MAPPING_BASE_ADDR = 19,
        MEMORY_BLOCK_ID = 20,
    }
    CUmemorytype {
        HOST = 1,
        DEVICE = 2,
        ARRAY = 3,
        UNIFIED = 4,
    }
    CUlimit {
        STACK_SIZE = 0,
        PRINTF_FIFO_SIZE = 1,
        MALLOC_HEAP_SIZE = 2,
        DEV_RUNTIME_SYNC_DEPTH = 3,
        DEV_RUNTIME_PENDING_LAUNCH_COUNT = 4,
        MAX_L2_FETCH_GRANULARITY = 5,
        PERSISTING_L2_CACHE_SIZE = 6,
    }
    CUfunc_cache {
        PREFER_NONE = 0,
        PREFER_SHARED = 1,
        PREFER_L1 = 2,
        PREFER_EQUAL = 3,
    }
    CUstreamCaptureStatus {
        NONE = 0,
        ACTIVE = 1,
        INVALIDATED = 2,
    }
    CUstreamBatchMemOpType {
        WAIT_VALUE_32 = 1,
        WRITE_VALUE_32 = 2,
        FLUSH_REMOTE_WRITES = 3,
        WAIT_VALUE_64 = 4,
        WRITE_VALUE_64 = 5,
        BARRIER = 6,
    }
    CUmemPool_attribute {
        REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
        REUSE_ALLOW_OPPORTUNISTIC = 2,
        REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
        RELEASE_THRESHOLD = 4,
        RESERVED_MEM_CURRENT = 5,
        RESERVED_MEM_HIGH = 6,
        USED_MEM_CURRENT = 7,
        USED_MEM_HIGH = 8,
    }
    CUmemAllocationType {
        INVALID = 0,
        PINNED = 1,
    }
    CUmemAllocationHandleType {
        NONE = 0,
        POSIX_FILE_DESCRIPTOR = 1,
        WIN32 = 2,
        WIN32_KMT = 4,
        FABRIC = 8,
    }
    CUmemLocationType {
        INVALID = 0,
        DEVICE = 1,
        HOST = 2,
        HOST_NUMA = 3,
        HOST_NUMA_CURRENT = 4,
    }
    CUmemAccess_flags {
        PROT_NONE = 0,
        PROT_READ = 1,
        PROT_READWRITE = 3,
    }
    CUdriverProcAddressQueryResult {
        SUCCESS = 0,
        SYMBOL_NOT_FOUND = 1,
        VERSION_NOT_SUFFICIENT = 2,
    }
}

/// Flags of `cuCtxCreate` and of primary contexts.
pub mod ctx_flags {
    pub const SCHED_AUTO: u32 = 0x00;
    pub const SCHED_SPIN: u32 = 0x01;
    pub const SCHED_YIELD: u32 = 0x02;
    pub const SCHED_BLOCKING_SYNC: u32 = 0x04;
    pub const SCHED_MASK: u32 = 0x07;
    pub const MAP_HOST: u32 = 0x08;
    pub const LMEM_RESIZE_TO_MAX: u32 = 0x10;
    pub const COREDUMP_ENABLE: u32 = 0x20;
    pub const USER_COREDUMP_ENABLE: u32 = 0x40;
    pub const SYNC_MEMOPS: u32 = 0x80;
    pub const ALL: u32 = 0xff;
}

/// Flags of `cuStreamCreate`.
pub mod stream_flags {
    pub const DEFAULT: u32 = 0;
    pub const NON_BLOCKING: u32 = 1;
}

/// Flags of `cuEventCreate`.
pub mod event_flags {
    pub const DEFAULT: u32 = 0;
    pub const BLOCKING_SYNC: u32 = 1;
    pub const DISABLE_TIMING: u32 = 2;
    pub const INTERPROCESS: u32 = 4;
}

/// Flags of `cuMemHostAlloc`.
pub mod host_alloc_flags {
    pub const PORTABLE: u32 = 1;
    pub const DEVICEMAP: u32 = 2;
    pub const WRITECOMBINED: u32 = 4;
}

/// Flags of `cuMemHostRegister`.
pub mod host_register_flags {
    pub const PORTABLE: u32 = 1;
    pub const DEVICEMAP: u32 = 2;
    pub const IOMEMORY: u32 = 4;
    pub const READ_ONLY: u32 = 8;
}

/// Flags of `cuMemAllocManaged`.
pub mod attach_flags {
    pub const GLOBAL: u32 = 1;
    pub const HOST: u32 = 2;
    pub const SINGLE: u32 = 4;
}

/// Flags of `cuStreamWaitValue`: the comparison, and whether to flush remote writes after it.
pub mod wait_value_flags {
    pub const GEQ: u32 = 0;
    pub const EQ: u32 = 1;
    pub const AND: u32 = 2;
    pub const NOR: u32 = 3;
    pub const FLUSH: u32 = 1 << 30;
}

/// Flags of `cuStreamWriteValue`.
pub mod write_value_flags {
    pub const DEFAULT: u32 = 0;
    pub const NO_MEMORY_BARRIER: u32 = 1;
}

/// Flags of `cuGetProcAddress`.
pub mod proc_address_flags {
    pub const DEFAULT: u64 = 0;
    pub const LEGACY_STREAM: u64 = 1;
    pub const PER_THREAD_DEFAULT_STREAM: u64 = 2;
}

/// A host function called in stream order.
pub type CUhostFn = Option<unsafe extern "C" fn(data: *mut c_void)>;

/// The older form of [`CUhostFn`], which receives the state of its stream.
pub type CUstreamCallback = Option<unsafe extern "C" fn(stream: CUstream, status: CUresult, data: *mut c_void)>;

/// An id that no two devices share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub struct CUuuid {
    pub bytes: [u8; 16],
}

/// A copy of a rectangle. Lengths and pitches in bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(non_snake_case, reason = "the fields are named as C names them")]
pub struct CUDA_MEMCPY2D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: usize,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: usize,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}

const _: () = assert!(size_of::<CUDA_MEMCPY2D>() == 128);

/// A copy of a box within one device, or between it and the host.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(non_snake_case, reason = "the fields are named as C names them")]
pub struct CUDA_MEMCPY3D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: usize,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub reserved0: usize,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: usize,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub reserved1: usize,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

const _: () = assert!(size_of::<CUDA_MEMCPY3D>() == 200);

/// A copy of a box between two contexts: [`CUDA_MEMCPY3D`] with a context in place of each reserved word.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(non_snake_case, reason = "the fields are named as C names them")]
pub struct CUDA_MEMCPY3D_PEER {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: usize,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcContext: CUcontext,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: usize,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstContext: CUcontext,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

const _: () = assert!(size_of::<CUDA_MEMCPY3D_PEER>() == 200);

/// One operation of `cuStreamBatchMemOp`. C has a union; the members that wait and write have one layout, and the two
/// others use only the operation and the flags.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CUstreamBatchMemOpParams {
    pub operation: CUstreamBatchMemOpType,
    /// The flags of a barrier and of a flush. Padding in the other operations.
    pub barrier_flags: u32,
    pub address: CUdeviceptr,
    /// A 32-bit operation uses the low half.
    pub value: u64,
    pub flags: u32,
    pub alias: CUdeviceptr,
    pub pad: u64,
}

const _: () = assert!(size_of::<CUstreamBatchMemOpParams>() == 48);
const _: () = assert!(std::mem::offset_of!(CUstreamBatchMemOpParams, address) == 8);
const _: () = assert!(std::mem::offset_of!(CUstreamBatchMemOpParams, flags) == 24);
const _: () = assert!(std::mem::offset_of!(CUstreamBatchMemOpParams, alias) == 32);

/// A location of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CUmemLocation {
    pub kind: CUmemLocationType,
    /// A device's ordinal, or a NUMA node of the host.
    pub id: i32,
}

/// Which location may access memory, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    pub flags: CUmemAccess_flags,
}

const _: () = assert!(size_of::<CUmemAccessDesc>() == 12);

/// The properties of a pool.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_snake_case, reason = "the fields are named as C names them")]
pub struct CUmemPoolProps {
    pub allocType: CUmemAllocationType,
    pub handleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32SecurityAttributes: usize,
    /// In bytes; zero means as much as the device has.
    pub maxSize: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

const _: () = assert!(size_of::<CUmemPoolProps>() == 88);

impl CUmemPoolProps {
    /// Returns the properties of a pool of ordinary memory of `device` that is not shared with other processes.
    pub const fn on_device(device: CUdevice) -> Self {
        Self {
            allocType: CUmemAllocationType::PINNED,
            handleTypes: CUmemAllocationHandleType::NONE,
            location: CUmemLocation { kind: CUmemLocationType::DEVICE, id: device.0 },
            win32SecurityAttributes: 0,
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        }
    }
}
