//! The table of the software driver, made from the one list: a function of the list that no entry serves does not
//! compile.

use std::ffi::{c_char, c_void};

use freehold_driver::cuda::*;

use crate::boundary::{self, FromC};
use crate::entry;

macro_rules! table {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
        /// The software driver.
        pub const API: Api = Api { $($name: legacy::$name,)* };

        /// The software driver with the calling thread's own stream in place of the null stream.
        pub const PER_THREAD_API: Api = Api { $($name: per_thread::$name,)* };

        #[allow(non_snake_case, reason = "named as C names the functions")]
        mod legacy {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                boundary::enter(Function::$name, || {
                    $(
                        // SAFETY: the C caller vouches for its pointers, as the documentation of the call demands.
                        let $argument = unsafe { FromC::from_c($argument) }?;
                    )*
                    entry::$name($($argument),*)
                })
            })*
        }

        #[allow(non_snake_case, reason = "named as C names the functions")]
        mod per_thread {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                boundary::with_per_thread_default(|| {
                    // SAFETY: the C caller vouches for its pointers, as the documentation of the call demands.
                    unsafe { legacy::$name($($argument),*) }
                })
            })*
        }
    };
}

freehold_driver::with_functions!(table);
