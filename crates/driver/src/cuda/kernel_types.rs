//! The C types of modules, kernels, launches and logs. Their layout is asserted.

#![allow(missing_docs, reason = "NVIDIA documents what cuda.h declares")]
#![allow(non_camel_case_types, reason = "the types are named as C names them")]

use std::ffi::{c_char, c_void};
use std::fmt;

use super::types::{CUstream, c_enums, handles};

handles! {
    /// An image loaded into a context.
    CUmodule;
    /// A kernel of a module. Launches and queries that take one accept a `CUkernel` too.
    CUfunction;
    /// An image that belongs to no context.
    CUlibrary;
    /// A kernel of a library.
    CUkernel;
    CUlinkState;
    CUlogsCallbackHandle;
}

impl From<CUkernel> for CUfunction {
    /// Passes the kernel as a function: the driver accepts both there.
    fn from(kernel: CUkernel) -> Self {
        Self(kernel.0)
    }
}

c_enums! {
    CUfunction_attribute {
        MAX_THREADS_PER_BLOCK = 0,
        SHARED_SIZE_BYTES = 1,
        CONST_SIZE_BYTES = 2,
        LOCAL_SIZE_BYTES = 3,
        NUM_REGS = 4,
        PTX_VERSION = 5,
        BINARY_VERSION = 6,
        CACHE_MODE_CA = 7,
        MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
        PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
        CLUSTER_SIZE_MUST_BE_SET = 10,
        REQUIRED_CLUSTER_WIDTH = 11,
        REQUIRED_CLUSTER_HEIGHT = 12,
        REQUIRED_CLUSTER_DEPTH = 13,
        NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
        CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15,
    }
    CUjit_option {
        MAX_REGISTERS = 0,
        THREADS_PER_BLOCK = 1,
        WALL_TIME = 2,
        INFO_LOG_BUFFER = 3,
        INFO_LOG_BUFFER_SIZE_BYTES = 4,
        ERROR_LOG_BUFFER = 5,
        ERROR_LOG_BUFFER_SIZE_BYTES = 6,
        OPTIMIZATION_LEVEL = 7,
        TARGET_FROM_CUCONTEXT = 8,
        TARGET = 9,
        FALLBACK_STRATEGY = 10,
        GENERATE_DEBUG_INFO = 11,
        LOG_VERBOSE = 12,
        GENERATE_LINE_INFO = 13,
        CACHE_MODE = 14,
        NEW_SM3X_OPT = 15,
        FAST_COMPILE = 16,
        GLOBAL_SYMBOL_NAMES = 17,
        GLOBAL_SYMBOL_ADDRESSES = 18,
        GLOBAL_SYMBOL_COUNT = 19,
        LTO = 20,
        FTZ = 21,
        PREC_DIV = 22,
        PREC_SQRT = 23,
        FMA = 24,
        REFERENCED_KERNEL_NAMES = 25,
        REFERENCED_KERNEL_COUNT = 26,
        REFERENCED_VARIABLE_NAMES = 27,
        REFERENCED_VARIABLE_COUNT = 28,
        OPTIMIZE_UNUSED_DEVICE_VARIABLES = 29,
        POSITION_INDEPENDENT_CODE = 30,
        MIN_CTA_PER_SM = 31,
        MAX_THREADS_PER_BLOCK = 32,
        OVERRIDE_DIRECTIVE_VALUES = 33,
        SPLIT_COMPILE = 34,
    }
    CUjitInputType {
        CUBIN = 0,
        PTX = 1,
        FATBINARY = 2,
        OBJECT = 3,
        LIBRARY = 4,
        NVVM = 5,
    }
    CUlibraryOption {
        HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE = 0,
        BINARY_IS_PRESERVED = 1,
    }
    CUmoduleLoadingMode {
        EAGER = 1,
        LAZY = 2,
    }
    CUfunctionLoadingState {
        UNLOADED = 0,
        LOADED = 1,
    }
    CUsharedconfig {
        DEFAULT_BANK_SIZE = 0,
        FOUR_BYTE_BANK_SIZE = 1,
        EIGHT_BYTE_BANK_SIZE = 2,
    }
    CUlogLevel {
        ERROR = 0,
        WARNING = 1,
    }
    CUlaunchAttributeID {
        IGNORE = 0,
        ACCESS_POLICY_WINDOW = 1,
        COOPERATIVE = 2,
        SYNCHRONIZATION_POLICY = 3,
        CLUSTER_DIMENSION = 4,
        CLUSTER_SCHEDULING_POLICY_PREFERENCE = 5,
        PROGRAMMATIC_STREAM_SERIALIZATION = 6,
        PROGRAMMATIC_EVENT = 7,
        PRIORITY = 8,
        MEM_SYNC_DOMAIN_MAP = 9,
        MEM_SYNC_DOMAIN = 10,
        PREFERRED_CLUSTER_DIMENSION = 11,
        LAUNCH_COMPLETION_EVENT = 12,
        DEVICE_UPDATABLE_KERNEL_NODE = 13,
        PREFERRED_SHARED_MEMORY_CARVEOUT = 14,
        NVLINK_UTIL_CENTRIC_SCHEDULING = 16,
    }
}

/// Flags of `cuOccupancy...WithFlags`.
pub mod occupancy_flags {
    pub const DEFAULT: u32 = 0;
    pub const DISABLE_CACHING_OVERRIDE: u32 = 1;
}

/// The words of `extra` of a launch: each of the first two is followed by its value.
pub mod launch_param {
    pub const END: usize = 0;
    pub const BUFFER_POINTER: usize = 1;
    pub const BUFFER_SIZE: usize = 2;
}

/// Returns the dynamic shared memory that a block of this many threads needs.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(block_size: i32) -> usize>;

/// A callback that receives the driver's log messages.
pub type CUlogsCallback =
    Option<unsafe extern "C" fn(data: *mut c_void, level: CUlogLevel, message: *mut c_char, length: usize)>;

/// A position in the driver's log.
pub type CUlogIterator = u32;

/// One attribute of a launch. C has a union of 64 bytes; all its members start at its first byte, and those used here
/// are up to four 32-bit words, or a handle and two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CUlaunchAttribute {
    pub id: CUlaunchAttributeID,
    pub pad: u32,
    pub value: [u64; 8],
}

const _: () = assert!(size_of::<CUlaunchAttribute>() == 72);

impl CUlaunchAttribute {
    /// Returns an attribute whose value is up to three 32-bit words.
    pub const fn of_words(id: CUlaunchAttributeID, words: [u32; 3]) -> Self {
        let [x, y, z] = words;
        Self { id, pad: 0, value: [x as u64 | (y as u64) << 32, z as u64, 0, 0, 0, 0, 0, 0] }
    }

    /// Returns the first three 32-bit words of the value.
    pub const fn words(&self) -> [u32; 3] {
        [self.value[0] as u32, (self.value[0] >> 32) as u32, self.value[1] as u32]
    }
}

/// A launch as `cuLaunchKernelEx` takes it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_snake_case, reason = "the fields are named as C names them")]
pub struct CUlaunchConfig {
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub hStream: CUstream,
    pub attrs: *mut CUlaunchAttribute,
    pub numAttrs: u32,
}

const _: () = assert!(size_of::<CUlaunchConfig>() == 56);
const _: () = assert!(std::mem::offset_of!(CUlaunchConfig, hStream) == 32);
