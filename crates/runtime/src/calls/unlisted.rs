//! Functions of the driver that are in no table: work that waits for other libraries, and handles that others create.

#![allow(non_snake_case, reason = "named as C names the functions")]

use std::ffi::{CStr, c_void};
use std::ptr;

use freehold_driver::cuda::{
    Api, CUdriverProcAddressQueryResult, CUerror, CUevent, CUresult, CUstream, proc_address_flags,
};

use super::lock;
use super::streams::{created_event, signals, waits};
use super::wrap::{Call, Default, exports};

/// The release from which the driver has all of these functions, in the form of `cuDriverGetVersion`.
const RELEASE: i32 = 12_050;

/// Returns a function of the driver.
fn find(api: &Api, name: &CStr, flags: u64) -> Option<*mut c_void> {
    let (mut function, mut status) = (ptr::null_mut(), CUdriverProcAddressQueryResult::SUCCESS);
    // SAFETY: the name ends in a NUL, and both are valid places for the answer.
    unsafe { (api.cuGetProcAddress_v2)(name.as_ptr(), &raw mut function, RELEASE, flags, &raw mut status) }.ok()?;
    (!function.is_null()).then_some(function)
}

/// Defines the wrappers as `wrappers!` does, and the driver's functions that they call.
macro_rules! unlisted {
    ($(fn $name:ident $([$suffix:literal])? ($call:ident $(, $argument:ident: $kind:ty)*) $body:block)*) => {
        /// The functions of the driver. One that it lacks answers `NOT_SUPPORTED`.
        pub(super) struct Unlisted {
            $($name: unsafe extern "C" fn($($kind),*) -> CUresult,)*
        }

        impl Unlisted {
            /// Finds the functions of the driver of a table.
            pub(super) fn find(api: &Api, default: Default) -> Self {
                let flags = match default {
                    Default::Legacy => proc_address_flags::LEGACY_STREAM,
                    Default::PerThread => proc_address_flags::PER_THREAD_DEFAULT_STREAM,
                };
                Self {
                    $($name: match find(api, name(concat!(stringify!($name), "\0")), flags) {
                        // SAFETY: the driver has a function of this name with these arguments.
                        Some(function) => unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> CUresult>(function)
                        },
                        None => missing::$name,
                    },)*
                }
            }
        }

        mod missing {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name($(_: $kind),*) -> CUresult {
                Err(CUerror::NOT_SUPPORTED)
            })*
        }

        exports! { $(fn $name $([$suffix])? ($call $(, $argument: $kind)*) $body)* }
    };
}

fn name(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).expect("a name ends in a NUL and contains no other")
}

unlisted! {
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
