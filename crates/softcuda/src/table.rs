//! The table of the software driver, made from the one list: a function of the list that no entry serves does not
//! compile.

use std::ffi::{c_char, c_void};

use freehold_driver::cuda::*;

use crate::api::dispatch::dispatch;
use crate::ffi::args::FromC;
use crate::ffi::default_stream::with_per_thread_default;

/// The software driver.
///
/// # Safety
/// Calls through the table are as unsafe as the C functions: see [`Vouched::new`].
pub const unsafe fn api() -> Api {
    API
}

/// The software driver with the calling thread's own stream in place of the null stream.
///
/// # Safety
/// As for [`api()`].
pub const unsafe fn per_thread_api() -> Api {
    PER_THREAD_API
}

macro_rules! table {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
        pub(crate) const API: Api = Api {
            // SAFETY: the functions are the driver's; whoever gets the table from `api` vouches for what is called of it.
            vouched: unsafe { Vouched::new() },
            $($name: legacy::$name,)*
        };

        pub(crate) const PER_THREAD_API: Api = Api {
            // SAFETY: as above.
            vouched: unsafe { Vouched::new() },
            $($name: per_thread::$name,)*
        };

        #[allow(non_snake_case, reason = "named as C names the functions")]
        mod legacy {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                dispatch(Function::$name, || {
                    $(
                        // SAFETY: the C caller vouches for its pointers, as the documentation of the call demands.
                        let $argument = unsafe { FromC::from_c($argument) }?;
                    )*
                    crate::api::$name($($argument),*)
                })
            })*
        }

        #[allow(non_snake_case, reason = "named as C names the functions")]
        mod per_thread {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                with_per_thread_default(|| {
                    // SAFETY: the C caller vouches for its pointers, as the documentation of the call demands.
                    unsafe { legacy::$name($($argument),*) }
                })
            })*
        }
    };
}

freehold_driver::with_functions!(table);
