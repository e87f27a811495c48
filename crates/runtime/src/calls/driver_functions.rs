//! Functions of the driver that are in no table: work that waits for other libraries, and handles that others create.

#![allow(non_snake_case, reason = "named as C names the functions")]

use std::ffi::{CStr, c_void};
use std::ptr;

use freehold_driver::cuda::{
    Api, CUdriverProcAddressQueryResult, CUerror, CUevent, CUresult, CUstream, proc_address_flags,
};

/// What stream zero is in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Default {
    Legacy,
    PerThread,
}

/// The release from which the driver has all of these functions, in the form of `cuDriverGetVersion`.
const RELEASE: i32 = 12_050;

/// Returns a function of the driver.
fn find(api: &Api, name: &CStr, flags: u64) -> Option<*mut c_void> {
    let (mut function, mut status) = (ptr::null_mut(), CUdriverProcAddressQueryResult::SUCCESS);
    // SAFETY: the name ends in a NUL, and both are valid places for the answer.
    unsafe { (api.cuGetProcAddress_v2)(name.as_ptr(), &raw mut function, RELEASE, flags, &raw mut status) }.ok()?;
    (!function.is_null()).then_some(function)
}

/// Defines a table of functions of the driver.
macro_rules! unlisted {
    ($(fn $name:ident($($kind:ty),*);)*) => {
        /// The functions of the driver. One that it lacks answers `NOT_SUPPORTED`.
        pub(super) struct Unlisted {
            $(pub(super) $name: unsafe extern "C" fn($($kind),*) -> CUresult,)*
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
    };
}

fn name(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).expect("a name ends in a NUL and contains no other")
}

unlisted! {
    fn cuWaitExternalSemaphoresAsync(*const usize, *const c_void, u32, CUstream);
    fn cuSignalExternalSemaphoresAsync(*const usize, *const c_void, u32, CUstream);
    fn cuGreenCtxStreamCreate(*mut CUstream, usize, u32, i32);
    fn cuEventCreateFromEGLSync(*mut CUevent, *mut c_void, u32);
}
