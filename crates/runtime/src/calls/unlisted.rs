//! The wrappers of functions that are in no table.

#![allow(non_snake_case, reason = "named as C names the functions")]

use std::ffi::c_void;

use freehold_driver::cuda::{CUevent, CUresult, CUstream};

use super::lock::lock;
use super::streams::{created_event, signals, waits};
use super::wrap::{Call, exports};

exports! {
    fn cuWaitExternalSemaphoresAsync["_ptsz"](call, semaphores: *const usize, params: *const c_void, count: u32, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        unsafe { (call.unlisted().cuWaitExternalSemaphoresAsync)(semaphores, params, count, stream) }?;
        waits(call, stream);
        Ok(())
    }

    fn cuSignalExternalSemaphoresAsync["_ptsz"](call, semaphores: *const usize, params: *const c_void, count: u32, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        unsafe { (call.unlisted().cuSignalExternalSemaphoresAsync)(semaphores, params, count, stream) }?;
        signals(call, stream);
        Ok(())
    }

    fn cuGreenCtxStreamCreate(call, stream: *mut CUstream, context: usize, flags: u32, priority: i32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.unlisted().cuGreenCtxStreamCreate)(stream, context, flags, priority) }?;
        // SAFETY: the call has written the handle.
        let stream = unsafe { *stream };
        lock(&call.calls.handles).destroyed_streams.remove(&stream.0);
        // Its context is not the current one.
        call.known_key(stream);
        Ok(())
    }

    fn cuEventCreateFromEGLSync(call, event: *mut CUevent, sync: *mut c_void, flags: u32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.unlisted().cuEventCreateFromEGLSync)(event, sync, flags) }?;
        // SAFETY: the call has written the handle.
        let event = unsafe { *event };
        created_event(call, event);
        call.calls.checker.share_event(event.0 as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_char};
    use std::ptr;

    use freehold_check::Kind;
    use freehold_driver::cuda::{Api, CUdriverProcAddressQueryResult, CUerror};

    use super::*;
    use crate::calls::testing::{FIRST, Program, SECOND, no_driver};

    const GREEN: CUstream = CUstream(0x300);

    /// A driver that accepts signals and waits, and creates one stream of a green context.
    fn driver() -> Api {
        unsafe extern "C" fn accept(_: *const usize, _: *const c_void, _: u32, _: CUstream) -> CUresult {
            Ok(())
        }
        unsafe extern "C" fn create(stream: *mut CUstream, _: usize, _: u32, _: i32) -> CUresult {
            // SAFETY: the caller passes a valid place.
            unsafe { *stream = GREEN };
            Ok(())
        }
        unsafe extern "C" fn address(
            name: *const c_char,
            function: *mut *mut c_void,
            _: i32,
            _: u64,
            _: *mut CUdriverProcAddressQueryResult,
        ) -> CUresult {
            // SAFETY: the caller passes a name that ends in a NUL.
            let found = match unsafe { CStr::from_ptr(name) }.to_str() {
                Ok("cuWaitExternalSemaphoresAsync" | "cuSignalExternalSemaphoresAsync") => accept as *mut c_void,
                Ok("cuGreenCtxStreamCreate") => create as *mut c_void,
                _ => return Err(CUerror::NOT_FOUND),
            };
            // SAFETY: the caller passes a valid place.
            unsafe { *function = found };
            Ok(())
        }
        Api { cuGetProcAddress_v2: address, ..no_driver() }
    }

    #[test]
    fn a_wait_for_an_external_semaphore_may_come_after_anything() {
        let mut program = Program::new(driver());
        program.fill(FIRST);
        // SAFETY: this driver reads nothing.
        let waited = unsafe { body::cuWaitExternalSemaphoresAsync(program.call, ptr::null(), ptr::null(), 1, SECOND) };
        program.fill(SECOND);
        assert_eq!((waited, program.kinds()), (Ok(()), vec![]));
    }

    #[test]
    fn the_host_may_know_what_a_stream_has_signalled() {
        let mut program = Program::new(driver());
        program.fill(FIRST);
        // SAFETY: as above.
        let done = unsafe { body::cuSignalExternalSemaphoresAsync(program.call, ptr::null(), ptr::null(), 1, FIRST) };
        program.fill(SECOND);
        assert_eq!((done, program.kinds()), (Ok(()), vec![]));
        program.fill(FIRST);
        assert_eq!(program.kinds(), [Kind::StreamRace]);
    }

    #[test]
    fn a_stream_of_a_green_context_may_have_the_handle_of_a_destroyed_one() {
        let program = Program::new(driver());
        program.call.calls.destroyed(|handles| handles.destroyed_streams.insert(GREEN.0));
        let mut stream = CUstream::NULL;
        // SAFETY: `stream` is a valid place.
        let made = unsafe { body::cuGreenCtxStreamCreate(program.call, &raw mut stream, 1, 1, 0) };
        program.call.check_stream(stream);
        assert_eq!((made, stream, program.kinds()), (Ok(()), GREEN, vec![]));
    }

    #[test]
    fn a_function_that_the_driver_lacks_is_not_supported() {
        let program = Program::new(no_driver());
        // SAFETY: this driver does nothing.
        let made = unsafe { body::cuEventCreateFromEGLSync(program.call, ptr::null_mut(), ptr::null_mut(), 0) };
        assert_eq!(made, Err(CUerror::NOT_SUPPORTED));
    }
}
