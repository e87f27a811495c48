//! The error codes of the driver. A code is a number, so that an unknown one of a newer driver is a value too.

use std::ffi::CStr;
use std::fmt;
use std::num::NonZeroU32;

use crate::error::Code;

/// A code other than `CUDA_SUCCESS`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CUerror(NonZeroU32);

/// The return type of every driver function. `Ok(())` is `CUDA_SUCCESS`: the standard library guarantees that this type
/// has the layout and calling convention of a `u32` in which zero is `Ok`.
pub type CUresult = Result<(), CUerror>;

const _: () = assert!(size_of::<CUresult>() == 4);
const _: () = assert!(align_of::<CUresult>() == 4);

macro_rules! codes {
    ($($name:ident = $number:literal, $said:literal;)*) => {
        #[allow(missing_docs, reason = "NVIDIA documents the codes of cuda.h")]
        impl CUerror {
            $(pub const $name: Self = Self(NonZeroU32::new($number).expect("an error code is not zero"));)*

            /// Every code that has a name, in ascending order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the name of the code as C spells it, if it is known.
            pub const fn name(self) -> Option<&'static CStr> {
                match self {
                    $(Self::$name => Some(code_name!($name)),)*
                    _ => None,
                }
            }

            /// Returns a short description of the code, if it is known.
            pub const fn description(self) -> Option<&'static CStr> {
                match self {
                    $(Self::$name => Some(c_text!($said)),)*
                    _ => None,
                }
            }
        }
    };
}

macro_rules! c_text {
    ($text:expr) => {
        match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => panic!("the text contains a NUL"),
        }
    };
}

macro_rules! code_name {
    ($name:ident) => {
        c_text!(concat!("CUDA_ERROR_", stringify!($name)))
    };
}

impl CUerror {
    /// Returns the code with this number; `None` for zero, which is success.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the number of the code, as in C.
    pub const fn number(self) -> u32 {
        self.0.get()
    }

    /// Returns whether every later call of the process returns the code too.
    pub const fn is_sticky(self) -> bool {
        matches!(
            self,
            Self::ECC_UNCORRECTABLE
                | Self::ILLEGAL_ADDRESS
                | Self::LAUNCH_TIMEOUT
                | Self::ASSERT
                | Self::HARDWARE_STACK_ERROR
                | Self::ILLEGAL_INSTRUCTION
                | Self::MISALIGNED_ADDRESS
                | Self::INVALID_ADDRESS_SPACE
                | Self::INVALID_PC
                | Self::LAUNCH_FAILED
        )
    }
}

impl From<CUerror> for Code {
    fn from(code: CUerror) -> Self {
        let name = code.name().map(|name| name.to_str().expect("the names of codes are ASCII"));
        Self { number: code.number().into(), name }
    }
}

impl fmt::Debug for CUerror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CUerror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({})", name.to_string_lossy(), self.number()),
            None => write!(f, "error {}", self.number()),
        }
    }
}

codes! {
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    DEINITIALIZED = 4, "driver shutting down";
    PROFILER_DISABLED = 5, "profiler disabled";
    PROFILER_NOT_INITIALIZED = 6, "profiler not initialized";
    PROFILER_ALREADY_STARTED = 7, "profiler already started";
    PROFILER_ALREADY_STOPPED = 8, "profiler already stopped";
    STUB_LIBRARY = 34, "stub library";
    CALL_REQUIRES_NEWER_DRIVER = 36, "call requires newer driver";
    DEVICE_UNAVAILABLE = 46, "device unavailable";
    NO_DEVICE = 100, "no CUDA-capable device is detected";
    INVALID_DEVICE = 101, "invalid device ordinal";
    DEVICE_NOT_LICENSED = 102, "device not licensed";
    INVALID_IMAGE = 200, "invalid image";
    INVALID_CONTEXT = 201, "invalid device context";
    CONTEXT_ALREADY_CURRENT = 202, "context already current";
    MAP_FAILED = 205, "map failed";
    UNMAP_FAILED = 206, "unmap failed";
    ARRAY_IS_MAPPED = 207, "array is mapped";
    ALREADY_MAPPED = 208, "already mapped";
    NO_BINARY_FOR_GPU = 209, "no binary for gpu";
    ALREADY_ACQUIRED = 210, "already acquired";
    NOT_MAPPED = 211, "not mapped";
    NOT_MAPPED_AS_ARRAY = 212, "not mapped as array";
    NOT_MAPPED_AS_POINTER = 213, "not mapped as pointer";
    ECC_UNCORRECTABLE = 214, "ecc uncorrectable";
    UNSUPPORTED_LIMIT = 215, "unsupported limit";
    CONTEXT_ALREADY_IN_USE = 216, "context already in use";
    PEER_ACCESS_UNSUPPORTED = 217, "peer access unsupported";
    INVALID_PTX = 218, "invalid ptx";
    INVALID_GRAPHICS_CONTEXT = 219, "invalid graphics context";
    NVLINK_UNCORRECTABLE = 220, "nvlink uncorrectable";
    JIT_COMPILER_NOT_FOUND = 221, "jit compiler not found";
    UNSUPPORTED_PTX_VERSION = 222, "unsupported ptx version";
    JIT_COMPILATION_DISABLED = 223, "jit compilation disabled";
    UNSUPPORTED_EXEC_AFFINITY = 224, "unsupported exec affinity";
    UNSUPPORTED_DEVSIDE_SYNC = 225, "unsupported devside sync";
    CONTAINED = 226, "contained";
    INVALID_SOURCE = 300, "invalid source";
    FILE_NOT_FOUND = 301, "file not found";
    SHARED_OBJECT_SYMBOL_NOT_FOUND = 302, "shared object symbol not found";
    SHARED_OBJECT_INIT_FAILED = 303, "shared object init failed";
    OPERATING_SYSTEM = 304, "operating system";
    INVALID_HANDLE = 400, "invalid resource handle";
    ILLEGAL_STATE = 401, "illegal state";
    LOSSY_QUERY = 402, "lossy query";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "device not ready";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, "launch out of resources";
    LAUNCH_TIMEOUT = 702, "launch timeout";
    LAUNCH_INCOMPATIBLE_TEXTURING = 703, "launch incompatible texturing";
    PEER_ACCESS_ALREADY_ENABLED = 704, "peer access already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "peer access not enabled";
    PRIMARY_CONTEXT_ACTIVE = 708, "primary context active";
    CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    ASSERT = 710, "assert";
    TOO_MANY_PEERS = 711, "too many peers";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "host memory already registered";
    HOST_MEMORY_NOT_REGISTERED = 713, "host memory not registered";
    HARDWARE_STACK_ERROR = 714, "hardware stack error";
    ILLEGAL_INSTRUCTION = 715, "illegal instruction";
    MISALIGNED_ADDRESS = 716, "misaligned address";
    INVALID_ADDRESS_SPACE = 717, "invalid address space";
    INVALID_PC = 718, "invalid pc";
    LAUNCH_FAILED = 719, "launch failed";
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, "cooperative launch too large";
    TENSOR_MEMORY_LEAK = 721, "tensor memory leak";
    NOT_PERMITTED = 800, "operation not permitted";
    NOT_SUPPORTED = 801, "operation not supported";
    SYSTEM_NOT_READY = 802, "system not ready";
    SYSTEM_DRIVER_MISMATCH = 803, "system driver mismatch";
    COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, "compat not supported on device";
    MPS_CONNECTION_FAILED = 805, "mps connection failed";
    MPS_RPC_FAILURE = 806, "mps rpc failure";
    MPS_SERVER_NOT_READY = 807, "mps server not ready";
    MPS_MAX_CLIENTS_REACHED = 808, "mps max clients reached";
    MPS_MAX_CONNECTIONS_REACHED = 809, "mps max connections reached";
    MPS_CLIENT_TERMINATED = 810, "mps client terminated";
    CDP_NOT_SUPPORTED = 811, "cdp not supported";
    CDP_VERSION_MISMATCH = 812, "cdp version mismatch";
    STREAM_CAPTURE_UNSUPPORTED = 900, "stream capture unsupported";
    STREAM_CAPTURE_INVALIDATED = 901, "stream capture invalidated";
    STREAM_CAPTURE_MERGE = 902, "stream capture merge";
    STREAM_CAPTURE_UNMATCHED = 903, "stream capture unmatched";
    STREAM_CAPTURE_UNJOINED = 904, "stream capture unjoined";
    STREAM_CAPTURE_ISOLATION = 905, "stream capture isolation";
    STREAM_CAPTURE_IMPLICIT = 906, "stream capture implicit";
    CAPTURED_EVENT = 907, "captured event";
    STREAM_CAPTURE_WRONG_THREAD = 908, "stream capture wrong thread";
    TIMEOUT = 909, "timeout";
    GRAPH_EXEC_UPDATE_FAILURE = 910, "graph exec update failure";
    EXTERNAL_DEVICE = 911, "external device";
    INVALID_CLUSTER_SIZE = 912, "invalid cluster size";
    FUNCTION_NOT_LOADED = 913, "function not loaded";
    INVALID_RESOURCE_TYPE = 914, "invalid resource type";
    INVALID_RESOURCE_CONFIGURATION = 915, "invalid resource configuration";
    KEY_ROTATION = 916, "key rotation";
    UNKNOWN = 999, "unknown error";
}
