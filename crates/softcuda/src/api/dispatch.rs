//! The entry of every call: turns panics into error codes, and rejects calls after a fork, after a fault, inside a host
//! function or during a capture.

use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold_driver::cuda::{CUerror, CUresult, Function};

use crate::base::{check, shared_frees};
use crate::engine::work::is_within_host_function;
use crate::objects::capture;
use crate::objects::context::current;
use crate::state::driver_state;

/// Runs a C entry point outside the driver API. A panic becomes an error code.
pub(crate) fn catch_panic(call: impl FnOnce() -> CUresult) -> CUresult {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(CUerror::UNKNOWN))
}

/// Runs a call, or returns the error that the state of the process demands.
pub(crate) fn dispatch(function: Function, call: impl FnOnce() -> CUresult) -> CUresult {
    if driver_state::is_forked() && !works_after_fork(function) {
        return Err(CUerror::NOT_INITIALIZED);
    }
    catch_panic(|| {
        if works_without_init(function) {
            return call();
        }
        let driver = driver_state::driver()?;
        if is_within_host_function() {
            return Err(CUerror::NOT_PERMITTED);
        }
        check::enter(function.name());
        shared_frees::look();
        driver.engine.before_call();
        if let Err(fault) = driver.engine.visible_fault()
            && !works_after_fault(function)
        {
            return Err(fault_code(function, fault));
        }
        if capture::is_unsafe_in_capture(function) {
            driver.captures.refuse_unsafe_call()?;
        }
        let result = call();
        driver.engine.after_call();
        if result == Err(CUerror::STREAM_CAPTURE_UNJOINED) {
            check::unjoined_capture();
        }
        result
    })
}

fn works_without_init(function: Function) -> bool {
    matches!(
        function,
        Function::cuInit
            | Function::cuDriverGetVersion
            | Function::cuGetErrorName
            | Function::cuGetErrorString
            | Function::cuGetProcAddress_v2
    )
}

/// Returns whether a forked child may make the call: only calls that need no device.
fn works_after_fork(function: Function) -> bool {
    works_without_init(function) && function != Function::cuInit
}

/// Returns whether a call works after a fault: queries of devices and pointers, the current context, the destruction of
/// contexts, libraries, which need no context to be loaded, and the log.
fn works_after_fault(function: Function) -> bool {
    matches!(
        function,
        Function::cuDeviceGet
            | Function::cuDeviceGetCount
            | Function::cuDeviceGetName
            | Function::cuDeviceGetUuid
            | Function::cuDeviceGetUuid_v2
            | Function::cuDeviceGetProperties
            | Function::cuDeviceTotalMem_v2
            | Function::cuDeviceGetAttribute
            | Function::cuDeviceGetByPCIBusId
            | Function::cuDeviceGetPCIBusId
            | Function::cuDeviceCanAccessPeer
            | Function::cuDeviceGetP2PAttribute
            | Function::cuDeviceComputeCapability
            | Function::cuDevicePrimaryCtxRelease_v2
            | Function::cuDevicePrimaryCtxReset_v2
            | Function::cuDevicePrimaryCtxGetState
            | Function::cuCtxDestroy_v2
            | Function::cuCtxPushCurrent_v2
            | Function::cuCtxPopCurrent_v2
            | Function::cuCtxSetCurrent
            | Function::cuCtxGetCurrent
            | Function::cuCtxGetDevice
            | Function::cuCtxGetFlags
            | Function::cuCtxGetId
            | Function::cuCtxGetApiVersion
            | Function::cuPointerGetAttribute
            | Function::cuPointerGetAttributes
            | Function::cuLibraryLoadData
            | Function::cuLibraryLoadFromFile
            | Function::cuLibraryGetKernel
            | Function::cuLogsRegisterCallback
            | Function::cuLogsUnregisterCallback
            | Function::cuLogsCurrent
            | Function::cuLogsDumpToFile
            | Function::cuLogsDumpToMemory
    )
}

/// Returns the error of a call after a fault. If the call needs a context and its thread has none, or a destroyed one,
/// that error takes precedence.
fn fault_code(function: Function, fault: CUerror) -> CUerror {
    if works_without_context(function) { fault } else { current().err().unwrap_or(fault) }
}

/// Returns whether a call needs no current context: calls that create one, and calls that name a stream or an event,
/// which has its own.
fn works_without_context(function: Function) -> bool {
    matches!(
        function,
        Function::cuCtxCreate_v2
            | Function::cuCtxCreate_v3
            | Function::cuCtxCreate_v4
            | Function::cuDevicePrimaryCtxRetain
            | Function::cuEventDestroy_v2
            | Function::cuEventElapsedTime
            | Function::cuEventQuery
            | Function::cuEventRecord
            | Function::cuEventRecordWithFlags
            | Function::cuEventSynchronize
            | Function::cuLaunchHostFunc
            | Function::cuLaunchKernel
            | Function::cuMemcpyAsync
            | Function::cuMemcpyDtoDAsync_v2
            | Function::cuMemcpyDtoHAsync_v2
            | Function::cuMemcpyHtoDAsync_v2
            | Function::cuMemcpy2DAsync_v2
            | Function::cuMemsetD8Async
            | Function::cuMemsetD16Async
            | Function::cuMemsetD32Async
            | Function::cuStreamDestroy_v2
            | Function::cuStreamQuery
            | Function::cuStreamSynchronize
            | Function::cuStreamWaitEvent
            | Function::cuStreamWaitValue32_v2
            | Function::cuStreamWaitValue64_v2
            | Function::cuStreamWriteValue32_v2
            | Function::cuStreamWriteValue64_v2
    )
}
