//! Streams, events, host functions, and waiting.

#![allow(non_snake_case, reason = "named as C names the functions")]

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use freehold_check::BlockKind;
use freehold_check::Kind;
use freehold_check::calls::{Awaited, StreamKey};
use freehold_driver::cuda::{
    Api, CUcontext, CUdeviceptr, CUerror, CUevent, CUgraph, CUgraphEdgeData, CUgraphNode, CUhostFn, CUipcEventHandle,
    CUresult, CUstream, CUstreamBatchMemOpParams, CUstreamBatchMemOpType, CUstreamCallback, CUstreamCaptureMode,
};

use super::checked_process::get;
use super::lock::lock;
use super::wrap::{Call, wrappers};

/// A host function of the program, and what has completed when it runs.
struct HostFunction {
    work: CUhostFn,
    data: *mut c_void,
    awaited: Awaited,
}

/// Calls a host function of the program.
unsafe extern "C" fn run_host_function(data: *mut c_void) {
    // SAFETY: `cuLaunchHostFunc` has passed a box, and the driver calls this once.
    let function = unsafe { Box::from_raw(data.cast::<HostFunction>()) };
    if let Some(calls) = get() {
        calls.checker.observe(&function.awaited);
    }
    if let Some(work) = function.work {
        // SAFETY: the program guarantees that its function may be called with its data.
        unsafe { work(function.data) };
    }
}

/// The older form of a host function.
struct Callback {
    callback: CUstreamCallback,
    data: *mut c_void,
    awaited: Awaited,
}

/// Calls a callback of the program.
unsafe extern "C" fn run_callback(stream: CUstream, status: CUresult, data: *mut c_void) {
    // SAFETY: `cuStreamAddCallback` has passed a box, and the driver calls this once.
    let callback = unsafe { Box::from_raw(data.cast::<Callback>()) };
    if let Some(calls) = get() {
        calls.checker.observe(&callback.awaited);
    }
    if let Some(function) = callback.callback {
        // SAFETY: the program guarantees that its callback may be called with its data.
        unsafe { function(stream, status, callback.data) };
    }
}

/// Notes a word that a stream writes: the host may look for it.
fn wrote(call: Call, stream: CUstream, address: CUdeviceptr) {
    if !matches!(call.calls.checker.memory_kind(address.0), Some(BlockKind::Device | BlockKind::Pool)) {
        signals(call, stream);
    }
}

/// Notes that a stream tells something else than a stream of this process how far it is: the host may know.
pub(super) fn signals(call: Call, stream: CUstream) {
    if !call.is_captured(stream) {
        let key = call.known_key(stream);
        call.calls.checker.observe(&call.calls.checker.stream_so_far(key));
    }
}

/// Notes that a stream waits for something else than work of this process: a word in memory, or another library.
pub(super) fn waits(call: Call, stream: CUstream) {
    if !call.is_captured(stream) {
        call.calls.checker.wait_memory(call.known_key(stream));
    }
}

/// Notes that an event was recorded.
fn recorded(call: Call, event: CUevent, stream: CUstream) {
    if call.is_captured(stream) {
        call.calls.checker.forget_event(event.0 as u64);
    } else {
        call.calls.checker.record_event(event.0 as u64, call.known_key(stream));
    }
}

/// Makes a call that asks whether an event is complete, or waits for it.
fn wait_for_events(call: Call, events: &[CUevent], ask: impl FnOnce() -> CUresult) -> CUresult {
    let checker = &call.calls.checker;
    events.iter().for_each(|event| call.check_event(event.0));
    let awaited: Vec<Awaited> = events.iter().map(|event| checker.event_so_far(event.0 as u64)).collect();
    let result = ask();
    if result.is_ok() {
        awaited.iter().for_each(|awaited| checker.observe(awaited));
    }
    call.noted(result)
}

pub(super) fn created_event(call: Call, event: CUevent) {
    lock(&call.calls.handles).destroyed_events.remove(&event.0);
}

wrappers! {
    fn cuStreamCreate(call, stream: *mut CUstream, flags: u32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuStreamCreate)(stream, flags) }?;
        // SAFETY: the call has written the handle.
        created_stream(call, unsafe { *stream }, flags);
        Ok(())
    }

    fn cuStreamCreateWithPriority(call, stream: *mut CUstream, flags: u32, priority: i32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuStreamCreateWithPriority)(stream, flags, priority) }?;
        // SAFETY: the call has written the handle.
        created_stream(call, unsafe { *stream }, flags);
        Ok(())
    }

    fn cuStreamDestroy_v2(call, stream: CUstream) {
        call.check_stream(stream);
        // Another thread may get the handle when the call returns.
        let key = StreamKey::created(stream.0 as u64);
        let awaited = call.stream_so_far(stream);
        let was_alive = call.calls.destroyed(|handles| handles.destroyed_streams.insert(stream.0));
        call.calls.checker.destroy_stream(key);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuStreamDestroy_v2)(stream) };
        if result.is_err() && was_alive {
            lock(&call.calls.handles).destroyed_streams.remove(&stream.0);
            // The checker takes it for another stream from now on.
            call.calls.checker.observe(&awaited);
        }
        call.noted(result)
    }

    fn cuStreamSynchronize["_ptsz"](call, stream: CUstream) {
        call.check_stream(stream);
        let awaited = call.stream_so_far(stream);
        // SAFETY: the conditions are the same.
        call.waited(&awaited, unsafe { (call.api.cuStreamSynchronize)(stream) })
    }

    fn cuStreamQuery["_ptsz"](call, stream: CUstream) {
        call.check_stream(stream);
        let awaited = call.stream_so_far(stream);
        // SAFETY: the conditions are the same.
        call.waited(&awaited, unsafe { (call.api.cuStreamQuery)(stream) })
    }

    fn cuStreamWaitEvent["_ptsz"](call, stream: CUstream, event: CUevent, flags: u32) {
        call.check_stream(stream);
        call.check_event(event.0);
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuStreamWaitEvent)(stream, event, flags) }?;
        if !call.is_captured(stream) {
            call.calls.checker.wait_event(call.known_key(stream), event.0 as u64);
        }
        Ok(())
    }

    fn cuStreamBeginCapture_v2["_ptsz"](call, stream: CUstream, mode: CUstreamCaptureMode) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuStreamBeginCapture_v2)(stream, mode) }?;
        began_capture(call, stream);
        Ok(())
    }

    fn cuStreamBeginCaptureToGraph["_ptsz"](call, stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuStreamBeginCaptureToGraph)(stream, graph, dependencies, edges, count, mode) }?;
        began_capture(call, stream);
        Ok(())
    }

    fn cuStreamEndCapture["_ptsz"](call, stream: CUstream, graph: *mut CUgraph) {
        call.check_stream(stream);
        let is_captured = call.is_captured(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuStreamEndCapture)(stream, graph) };
        if result == Err(CUerror::STREAM_CAPTURE_UNJOINED) {
            let what = "ends a capture, and a stream that joined it does not lead back to its first stream";
            call.calls.checker.report_call(Kind::UnjoinedCapture, call.name, what);
        }
        if is_captured && !call.is_captured(stream) {
            call.calls.captures.fetch_sub(1, Ordering::Relaxed);
            call.calls.checker.end_capture(call.key(stream));
        }
        call.noted(result)
    }

    fn cuStreamAddCallback["_ptsz"](call, stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: u32) {
        call.check_stream(stream);
        if call.is_captured(stream) {
            // SAFETY: the conditions are the same.
            return unsafe { (call.api.cuStreamAddCallback)(stream, callback, data, flags) };
        }
        call.known_key(stream);
        let own = Box::into_raw(Box::new(Callback { callback, data, awaited: call.stream_so_far(stream) }));
        let function: CUstreamCallback = callback.map(|_| run_callback as unsafe extern "C" fn(CUstream, CUresult, *mut c_void));
        // SAFETY: the conditions are the same, and `run_callback` gets its box.
        let result = unsafe { (call.api.cuStreamAddCallback)(stream, function, own.cast(), flags) };
        if result.is_err() {
            // SAFETY: the driver has refused the call, so nothing else has the box.
            drop(unsafe { Box::from_raw(own) });
        }
        result
    }

    fn cuLaunchHostFunc["_ptsz"](call, stream: CUstream, work: CUhostFn, data: *mut c_void) {
        call.check_stream(stream);
        if call.is_captured(stream) {
            // SAFETY: the conditions are the same.
            return unsafe { (call.api.cuLaunchHostFunc)(stream, work, data) };
        }
        call.known_key(stream);
        let own = Box::into_raw(Box::new(HostFunction { work, data, awaited: call.stream_so_far(stream) }));
        let function: CUhostFn = work.map(|_| run_host_function as unsafe extern "C" fn(*mut c_void));
        // SAFETY: the conditions are the same, and `run_host_function` gets its box.
        let result = unsafe { (call.api.cuLaunchHostFunc)(stream, function, own.cast()) };
        if result.is_err() {
            // SAFETY: the driver has refused the call, so nothing else has the box.
            drop(unsafe { Box::from_raw(own) });
        }
        result
    }

    fn cuStreamWaitValue32_v2["_ptsz"](call, stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuStreamWaitValue32_v2)(stream, address, value, flags) }?;
        waits(call, stream);
        Ok(())
    }

    fn cuStreamWaitValue64_v2["_ptsz"](call, stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuStreamWaitValue64_v2)(stream, address, value, flags) }?;
        waits(call, stream);
        Ok(())
    }

    fn cuStreamWriteValue32_v2["_ptsz"](call, stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuStreamWriteValue32_v2)(stream, address, value, flags) }?;
        wrote(call, stream, address);
        Ok(())
    }

    fn cuStreamWriteValue64_v2["_ptsz"](call, stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuStreamWriteValue64_v2)(stream, address, value, flags) }?;
        wrote(call, stream, address);
        Ok(())
    }

    fn cuStreamBatchMemOp_v2["_ptsz"](call, stream: CUstream, count: u32, operations: *mut CUstreamBatchMemOpParams, flags: u32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuStreamBatchMemOp_v2)(stream, count, operations, flags) }?;
        for index in 0..count as usize {
            // SAFETY: the driver has accepted as many operations.
            let operation = unsafe { operations.add(index) };
            // SAFETY: as above.
            let operation = unsafe { *operation };
            match operation.operation {
                CUstreamBatchMemOpType::WAIT_VALUE_32 | CUstreamBatchMemOpType::WAIT_VALUE_64 => waits(call, stream),
                CUstreamBatchMemOpType::WRITE_VALUE_32 | CUstreamBatchMemOpType::WRITE_VALUE_64 => {
                    wrote(call, stream, operation.address);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn cuEventCreate(call, event: *mut CUevent, flags: u32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuEventCreate)(event, flags) }?;
        // SAFETY: the call has written the handle.
        created_event(call, unsafe { *event });
        Ok(())
    }

    fn cuIpcOpenEventHandle(call, event: *mut CUevent, handle: CUipcEventHandle) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuIpcOpenEventHandle)(event, handle) }?;
        // SAFETY: the call has written the handle.
        let event = unsafe { *event };
        created_event(call, event);
        call.calls.checker.share_event(event.0 as u64);
        Ok(())
    }

    fn cuIpcGetEventHandle(call, handle: *mut CUipcEventHandle, event: CUevent) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuIpcGetEventHandle)(handle, event) }?;
        // Another process may record it from now on.
        call.calls.checker.share_event(event.0 as u64);
        Ok(())
    }

    fn cuEventDestroy_v2(call, event: CUevent) {
        call.check_event(event.0);
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuEventDestroy_v2)(event) }?;
        call.calls.destroyed(|handles| handles.destroyed_events.insert(event.0));
        call.calls.checker.destroy_event(event.0 as u64);
        Ok(())
    }

    fn cuEventRecord["_ptsz"](call, event: CUevent, stream: CUstream) {
        call.check_stream(stream);
        call.check_event(event.0);
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuEventRecord)(event, stream) }?;
        recorded(call, event, stream);
        Ok(())
    }

    fn cuEventRecordWithFlags["_ptsz"](call, event: CUevent, stream: CUstream, flags: u32) {
        call.check_stream(stream);
        call.check_event(event.0);
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuEventRecordWithFlags)(event, stream, flags) }?;
        recorded(call, event, stream);
        Ok(())
    }

    fn cuEventQuery(call, event: CUevent) {
        // SAFETY: the conditions are the same.
        wait_for_events(call, &[event], || unsafe { (call.api.cuEventQuery)(event) })
    }

    fn cuEventSynchronize(call, event: CUevent) {
        // SAFETY: the conditions are the same.
        wait_for_events(call, &[event], || unsafe { (call.api.cuEventSynchronize)(event) })
    }

    fn cuEventElapsedTime(call, milliseconds: *mut f32, start: CUevent, end: CUevent) {
        // SAFETY: the conditions are the same.
        wait_for_events(call, &[start, end], || unsafe { (call.api.cuEventElapsedTime)(milliseconds, start, end) })
    }

    fn cuEventElapsedTime_v2(call, milliseconds: *mut f32, start: CUevent, end: CUevent) {
        // SAFETY: the conditions are the same.
        wait_for_events(call, &[start, end], || unsafe { (call.api.cuEventElapsedTime_v2)(milliseconds, start, end) })
    }

    fn cuCtxRecordEvent(call, context: CUcontext, event: CUevent) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuCtxRecordEvent)(context, event) }?;
        let context = if context == CUcontext::NULL { call.context() } else { context.0 as u64 };
        call.calls.checker.record_after_all(event.0 as u64, context, call.joint_key(context));
        Ok(())
    }

    fn cuCtxSynchronize(call) {
        let awaited = call.context_so_far();
        // SAFETY: the conditions are the same.
        call.waited(&awaited, unsafe { (call.api.cuCtxSynchronize)() })
    }

    fn cuCtxSynchronize_v2(call, context: CUcontext) {
        let awaited = call.calls.checker.context_so_far(context.0 as u64);
        // SAFETY: the conditions are the same.
        call.waited(&awaited, unsafe { (call.api.cuCtxSynchronize_v2)(context) })
    }
}

fn began_capture(call: Call, stream: CUstream) {
    call.calls.captures.fetch_add(1, Ordering::Relaxed);
    call.calls.checker.begin_capture(call.name, call.known_key(stream));
}

fn created_stream(call: Call, stream: CUstream, flags: u32) {
    lock(&call.calls.handles).destroyed_streams.remove(&stream.0);
    call.created_stream(stream, call.context(), flags);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::testing::{FIRST, Program, SECOND, no_driver};

    const EVENT: CUevent = CUevent(0x77);

    /// A driver with one event, which other processes may have.
    fn driver() -> Api {
        unsafe extern "C" fn open(event: *mut CUevent, _: CUipcEventHandle) -> CUresult {
            // SAFETY: the caller passes a valid place.
            unsafe { *event = EVENT };
            Ok(())
        }
        unsafe extern "C" fn export(_: *mut CUipcEventHandle, _: CUevent) -> CUresult {
            Ok(())
        }
        unsafe extern "C" fn wait(_: CUstream, _: CUevent, _: u32) -> CUresult {
            Ok(())
        }
        Api { cuIpcOpenEventHandle: open, cuIpcGetEventHandle: export, cuStreamWaitEvent: wait, ..no_driver() }
    }

    #[test]
    fn a_wait_for_an_event_of_another_process_may_come_after_anything() {
        for is_opened in [true, false] {
            let mut program = Program::new(driver());
            let (mut event, mut handle) = (EVENT, CUipcEventHandle { bytes: [0; 64] });
            let shared = match is_opened {
                // SAFETY: the event is a valid place.
                true => unsafe { body::cuIpcOpenEventHandle(program.call, &raw mut event, handle) },
                // SAFETY: the handle is a valid place.
                false => unsafe { body::cuIpcGetEventHandle(program.call, &raw mut handle, event) },
            };
            program.fill(FIRST);
            // SAFETY: this driver does nothing.
            let waited = unsafe { body::cuStreamWaitEvent(program.call, SECOND, event, 0) };
            program.fill(SECOND);
            assert_eq!((shared, waited, program.kinds()), (Ok(()), Ok(()), vec![]), "{is_opened}");
        }
    }

    #[test]
    fn a_stream_that_the_driver_does_not_destroy_may_be_used() {
        let mut program = Program::new(no_driver());
        program.fill(FIRST);
        // SAFETY: this driver does nothing.
        let destroyed = unsafe { body::cuStreamDestroy_v2(program.call, FIRST) };
        program.call.check_stream(FIRST);
        program.fill(FIRST);
        assert_eq!((destroyed, program.kinds()), (Err(CUerror::NOT_SUPPORTED), vec![]));
    }
}
