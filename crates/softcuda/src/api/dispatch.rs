//! The way into every call: panics become codes, and the state of the process decides whether a call is let through at
//! all.

use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold_driver::cuda::{CUerror, CUresult, Function};

use crate::engine::work::is_within_host_function;
use crate::objects::capture;
use crate::objects::context::current;
use crate::state::driver_state;

/// Runs what C calls beyond the driver's interface: a panic becomes a code.
pub(crate) fn catch_panic(call: impl FnOnce() -> CUresult) -> CUresult {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(CUerror::UNKNOWN))
}

/// Lets a call through, or answers in its place.
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

/// Which calls a forked child may make: what the driver knows without a device.
fn works_after_fork(function: Function) -> bool {
    works_without_init(function) && function != Function::cuInit
}

/// Which calls a fault does not spoil: what is known without the device, which context is current, the end of contexts,
/// and what the driver has to say of the fault.
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
            | Function::cuLogsRegisterCallback
            | Function::cuLogsUnregisterCallback
            | Function::cuLogsCurrent
            | Function::cuLogsDumpToFile
            | Function::cuLogsDumpToMemory
    )
}

/// What a call answers that a fault spoils. That its thread has no context, or one that is destroyed, goes first where the call
/// needs one.
fn fault_code(function: Function, fault: CUerror) -> CUerror {
    if works_without_context(function) { fault } else { current().err().unwrap_or(fault) }
}

/// Which calls need no current context: those that make one, and those that name a stream or an event, which has one.
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
