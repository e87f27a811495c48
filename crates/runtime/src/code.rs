//! Error codes of the runtime. The driver's codes keep their numbers, and the runtime adds its own.

use std::ffi::CStr;
use std::num::NonZeroU32;

use freehold_driver::cuda::CUerror;

/// A code other than `cudaSuccess`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct CudaError(NonZeroU32);

/// What a function of the runtime returns. It has the layout of a `u32` in which zero is `Ok`, as [`CUresult`] has.
///
/// [`CUresult`]: freehold_driver::cuda::CUresult
#[allow(non_camel_case_types, reason = "named as C names it")]
pub(crate) type cudaError_t = Result<(), CudaError>;

const _: () = assert!(size_of::<cudaError_t>() == 4);

impl CudaError {
    /// As C counts.
    pub(crate) const fn number(self) -> u32 {
        self.0.get()
    }
}

impl From<CUerror> for CudaError {
    fn from(error: CUerror) -> Self {
        Self(NonZeroU32::new(error.number()).expect("an error code is not zero"))
    }
}

macro_rules! codes {
    ($($constant:ident = $number:literal, $name:literal, $said:literal;)*) => {
        impl CudaError {
            $(#[allow(dead_code, reason = "the list is complete")]
            pub(crate) const $constant: Self = Self(NonZeroU32::new($number).expect("an error code is not zero"));)*
        }

        /// Returns the name and the description of a code, as the runtime documents them.
        pub(crate) fn text(number: u32) -> Option<(&'static CStr, &'static CStr)> {
            Some(match number {
                0 => (c"cudaSuccess", c"no error"),
                $($number => ($name, $said),)*
                _ => return None,
            })
        }
    };
}

codes! {
    INVALID_VALUE = 1, c"cudaErrorInvalidValue", c"invalid argument";
    MEMORY_ALLOCATION = 2, c"cudaErrorMemoryAllocation", c"out of memory";
    INITIALIZATION_ERROR = 3, c"cudaErrorInitializationError", c"initialization error";
    CUDART_UNLOADING = 4, c"cudaErrorCudartUnloading", c"driver shutting down";
    PROFILER_DISABLED = 5, c"cudaErrorProfilerDisabled", c"profiler disabled while using external profiling tool";
    INVALID_CONFIGURATION = 9, c"cudaErrorInvalidConfiguration", c"invalid configuration argument";
    INVALID_PITCH_VALUE = 12, c"cudaErrorInvalidPitchValue", c"invalid pitch argument";
    INVALID_SYMBOL = 13, c"cudaErrorInvalidSymbol", c"invalid device symbol";
    INVALID_HOST_POINTER = 16, c"cudaErrorInvalidHostPointer", c"invalid host pointer";
    INVALID_DEVICE_POINTER = 17, c"cudaErrorInvalidDevicePointer", c"invalid device pointer";
    INVALID_TEXTURE = 18, c"cudaErrorInvalidTexture", c"invalid texture reference";
    INVALID_CHANNEL_DESCRIPTOR = 20, c"cudaErrorInvalidChannelDescriptor", c"invalid channel descriptor";
    INVALID_MEMCPY_DIRECTION = 21, c"cudaErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy";
    INVALID_FILTER_SETTING = 26, c"cudaErrorInvalidFilterSetting", c"linear filtering not supported for non-float type";
    INVALID_NORM_SETTING = 27, c"cudaErrorInvalidNormSetting", c"read as normalized float not supported for 32-bit non float type";
    STUB_LIBRARY = 34, c"cudaErrorStubLibrary", c"CUDA driver is a stub library";
    INSUFFICIENT_DRIVER = 35, c"cudaErrorInsufficientDriver", c"CUDA driver version is insufficient for CUDA runtime version";
    CALL_REQUIRES_NEWER_DRIVER = 36, c"cudaErrorCallRequiresNewerDriver", c"API call is not supported in the installed CUDA driver";
    INVALID_SURFACE = 37, c"cudaErrorInvalidSurface", c"invalid surface reference";
    DUPLICATE_VARIABLE_NAME = 43, c"cudaErrorDuplicateVariableName", c"duplicate global variable looked up by string name";
    DUPLICATE_TEXTURE_NAME = 44, c"cudaErrorDuplicateTextureName", c"duplicate texture reference looked up by string name";
    DUPLICATE_SURFACE_NAME = 45, c"cudaErrorDuplicateSurfaceName", c"duplicate surface reference looked up by string name";
    DEVICES_UNAVAILABLE = 46, c"cudaErrorDevicesUnavailable", c"CUDA-capable device(s) is/are busy or unavailable";
    INCOMPATIBLE_DRIVER_CONTEXT = 49, c"cudaErrorIncompatibleDriverContext", c"incompatible driver context";
    MISSING_CONFIGURATION = 52, c"cudaErrorMissingConfiguration", c"__global__ function call is not configured";
    LAUNCH_MAX_DEPTH_EXCEEDED = 65, c"cudaErrorLaunchMaxDepthExceeded", c"launch would exceed maximum depth of nested launches";
    LAUNCH_PENDING_COUNT_EXCEEDED = 69, c"cudaErrorLaunchPendingCountExceeded", c"launch failed because the number of pending launches would exceed the limit";
    INVALID_DEVICE_FUNCTION = 98, c"cudaErrorInvalidDeviceFunction", c"invalid device function";
    NO_DEVICE = 100, c"cudaErrorNoDevice", c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, c"cudaErrorInvalidDevice", c"invalid device ordinal";
    DEVICE_NOT_LICENSED = 102, c"cudaErrorDeviceNotLicensed", c"device doesn't have valid Grid license";
    STARTUP_FAILURE = 127, c"cudaErrorStartupFailure", c"startup failure in cuda runtime";
    INVALID_KERNEL_IMAGE = 200, c"cudaErrorInvalidKernelImage", c"device kernel image is invalid";
    DEVICE_UNINITIALIZED = 201, c"cudaErrorDeviceUninitialized", c"invalid device context";
    MAP_BUFFER_OBJECT_FAILED = 205, c"cudaErrorMapBufferObjectFailed", c"mapping of buffer object failed";
    UNMAP_BUFFER_OBJECT_FAILED = 206, c"cudaErrorUnmapBufferObjectFailed", c"unmapping of buffer object failed";
    ARRAY_IS_MAPPED = 207, c"cudaErrorArrayIsMapped", c"array is mapped";
    ALREADY_MAPPED = 208, c"cudaErrorAlreadyMapped", c"resource already mapped";
    NO_KERNEL_IMAGE_FOR_DEVICE = 209, c"cudaErrorNoKernelImageForDevice", c"no kernel image is available for execution on the device";
    ALREADY_ACQUIRED = 210, c"cudaErrorAlreadyAcquired", c"resource already acquired";
    NOT_MAPPED = 211, c"cudaErrorNotMapped", c"resource not mapped";
    NOT_MAPPED_AS_ARRAY = 212, c"cudaErrorNotMappedAsArray", c"resource not mapped as array";
    NOT_MAPPED_AS_POINTER = 213, c"cudaErrorNotMappedAsPointer", c"resource not mapped as pointer";
    ECC_UNCORRECTABLE = 214, c"cudaErrorECCUncorrectable", c"uncorrectable ECC error encountered";
    UNSUPPORTED_LIMIT = 215, c"cudaErrorUnsupportedLimit", c"limit is not supported on this architecture";
    DEVICE_ALREADY_IN_USE = 216, c"cudaErrorDeviceAlreadyInUse", c"exclusive-thread device already in use by a different thread";
    PEER_ACCESS_UNSUPPORTED = 217, c"cudaErrorPeerAccessUnsupported", c"peer access is not supported between these two devices";
    INVALID_PTX = 218, c"cudaErrorInvalidPtx", c"a PTX JIT compilation failed";
    INVALID_GRAPHICS_CONTEXT = 219, c"cudaErrorInvalidGraphicsContext", c"invalid OpenGL or DirectX context";
    NVLINK_UNCORRECTABLE = 220, c"cudaErrorNvlinkUncorrectable", c"uncorrectable NVLink error detected during the execution";
    JIT_COMPILER_NOT_FOUND = 221, c"cudaErrorJitCompilerNotFound", c"PTX JIT compiler library not found";
    UNSUPPORTED_PTX_VERSION = 222, c"cudaErrorUnsupportedPtxVersion", c"the provided PTX was compiled with an unsupported toolchain.";
    JIT_COMPILATION_DISABLED = 223, c"cudaErrorJitCompilationDisabled", c"PTX JIT compilation was disabled";
    UNSUPPORTED_EXEC_AFFINITY = 224, c"cudaErrorUnsupportedExecAffinity", c"the provided execution affinity is not supported";
    INVALID_SOURCE = 300, c"cudaErrorInvalidSource", c"device kernel image is invalid";
    FILE_NOT_FOUND = 301, c"cudaErrorFileNotFound", c"file not found";
    SHARED_OBJECT_SYMBOL_NOT_FOUND = 302, c"cudaErrorSharedObjectSymbolNotFound", c"shared object symbol not found";
    SHARED_OBJECT_INIT_FAILED = 303, c"cudaErrorSharedObjectInitFailed", c"shared object initialization failed";
    OPERATING_SYSTEM = 304, c"cudaErrorOperatingSystem", c"OS call failed or operation not supported on this OS";
    INVALID_RESOURCE_HANDLE = 400, c"cudaErrorInvalidResourceHandle", c"invalid resource handle";
    ILLEGAL_STATE = 401, c"cudaErrorIllegalState", c"the operation cannot be performed in the present state";
    SYMBOL_NOT_FOUND = 500, c"cudaErrorSymbolNotFound", c"named symbol not found";
    NOT_READY = 600, c"cudaErrorNotReady", c"device not ready";
    ILLEGAL_ADDRESS = 700, c"cudaErrorIllegalAddress", c"an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, c"cudaErrorLaunchOutOfResources", c"too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, c"cudaErrorLaunchTimeout", c"the launch timed out and was terminated";
    LAUNCH_INCOMPATIBLE_TEXTURING = 703, c"cudaErrorLaunchIncompatibleTexturing", c"launch uses incompatible texturing mode";
    PEER_ACCESS_ALREADY_ENABLED = 704, c"cudaErrorPeerAccessAlreadyEnabled", c"peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, c"cudaErrorPeerAccessNotEnabled", c"peer access has not been enabled";
    SET_ON_ACTIVE_PROCESS = 708, c"cudaErrorSetOnActiveProcess", c"cannot set while device is active in this process";
    CONTEXT_IS_DESTROYED = 709, c"cudaErrorContextIsDestroyed", c"context is destroyed";
    ASSERT = 710, c"cudaErrorAssert", c"device-side assert triggered";
    TOO_MANY_PEERS = 711, c"cudaErrorTooManyPeers", c"peer mapping resources exhausted";
    HOST_MEMORY_ALREADY_REGISTERED = 712, c"cudaErrorHostMemoryAlreadyRegistered", c"part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, c"cudaErrorHostMemoryNotRegistered", c"pointer does not correspond to a registered memory region";
    HARDWARE_STACK_ERROR = 714, c"cudaErrorHardwareStackError", c"hardware stack error";
    ILLEGAL_INSTRUCTION = 715, c"cudaErrorIllegalInstruction", c"an illegal instruction was encountered";
    MISALIGNED_ADDRESS = 716, c"cudaErrorMisalignedAddress", c"misaligned address";
    INVALID_ADDRESS_SPACE = 717, c"cudaErrorInvalidAddressSpace", c"operation not supported on global/shared address space";
    INVALID_PC = 718, c"cudaErrorInvalidPc", c"invalid program counter";
    LAUNCH_FAILURE = 719, c"cudaErrorLaunchFailure", c"unspecified launch failure";
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, c"cudaErrorCooperativeLaunchTooLarge", c"too many blocks in cooperative launch";
    NOT_PERMITTED = 800, c"cudaErrorNotPermitted", c"operation not permitted";
    NOT_SUPPORTED = 801, c"cudaErrorNotSupported", c"operation not supported";
    SYSTEM_NOT_READY = 802, c"cudaErrorSystemNotReady", c"system not yet initialized";
    SYSTEM_DRIVER_MISMATCH = 803, c"cudaErrorSystemDriverMismatch", c"system has unsupported display driver / cuda driver combination";
    COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, c"cudaErrorCompatNotSupportedOnDevice", c"forward compatibility was attempted on non supported HW";
    STREAM_CAPTURE_UNSUPPORTED = 900, c"cudaErrorStreamCaptureUnsupported", c"operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, c"cudaErrorStreamCaptureInvalidated", c"operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, c"cudaErrorStreamCaptureMerge", c"operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, c"cudaErrorStreamCaptureUnmatched", c"capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904, c"cudaErrorStreamCaptureUnjoined", c"capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, c"cudaErrorStreamCaptureIsolation", c"dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906, c"cudaErrorStreamCaptureImplicit", c"operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, c"cudaErrorCapturedEvent", c"operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, c"cudaErrorStreamCaptureWrongThread", c"attempt to terminate a thread-local capture sequence from another thread";
    TIMEOUT = 909, c"cudaErrorTimeout", c"wait operation timed out";
    GRAPH_EXEC_UPDATE_FAILURE = 910, c"cudaErrorGraphExecUpdateFailure", c"the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    EXTERNAL_DEVICE = 911, c"cudaErrorExternalDevice", c"an async error has occured in external entity outside of CUDA";
    INVALID_CLUSTER_SIZE = 912, c"cudaErrorInvalidClusterSize", c"a kernel launch error has occurred due to cluster misconfiguration";
    FUNCTION_NOT_LOADED = 913, c"cudaErrorFunctionNotLoaded", c"the function handle is not loaded when calling an API that requires a loaded function";
    INVALID_RESOURCE_TYPE = 914, c"cudaErrorInvalidResourceType", c"one or more resources passed in are not valid resource types for the operation";
    INVALID_RESOURCE_CONFIGURATION = 915, c"cudaErrorInvalidResourceConfiguration", c"one or more resources are insufficient or non-applicable for the operation";
    UNKNOWN = 999, c"cudaErrorUnknown", c"unknown error";
}
