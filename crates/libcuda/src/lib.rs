//! `libcuda.so.1`: the software driver under the names by which programs know NVIDIA's.
//!
//! Every function of the one list is exported with its version, and once more with `_ptds` or `_ptsz` where programs
//! that are compiled for per-thread default streams ask for that. Every other documented symbol of CUDA 12.9 and 13.0 is
//! there too and answers `NOT_SUPPORTED`.
//!
//! A Rust program has no use for this crate: it calls [`freehold_softcuda::api`].

/// How the library's file is called where cargo builds it. Programs look for `libcuda.so.1`, which whoever starts them
/// makes a link to it: were the file called so, cargo would put it in the way of NVIDIA's.
pub const LIBRARY_FILE: &str = "libfreehold_libcuda.so";

#[allow(non_snake_case, reason = "named as C names the functions")]
mod exports {
    use std::ffi::{c_char, c_void};

    use freehold_driver::cuda::*;

    // SAFETY: each function is exported with the conditions that the driver API makes for it.
    const API: Api = unsafe { freehold_softcuda::api() };
    // SAFETY: as above.
    const PER_THREAD_API: Api = unsafe { freehold_softcuda::per_thread_api() };

    macro_rules! exported {
        ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
            $(
                #[unsafe(no_mangle)]
                unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                    // SAFETY: the C caller keeps the conditions that the driver API makes for this function.
                    unsafe { (API.$name)($($argument),*) }
                }
            )*

            mod per_thread_stream {
                use super::*;

                $(per_thread! {
                    $name,
                    unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                        // SAFETY: the C caller keeps the conditions that the driver API makes for this function.
                        unsafe { (PER_THREAD_API.$name)($($argument),*) }
                    }
                })*
            }
        };
    }

    macro_rules! unsupported {
        ($($name:ident)*) => {$(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> CUresult {
                freehold_softcuda::not_supported()
            }
        )*};
    }

    include!("exports.rs");
    freehold_driver::with_functions!(exported);

    #[unsafe(no_mangle)]
    unsafe extern "C" fn cuGetProcAddress(
        name: *const c_char,
        function: *mut *mut c_void,
        version: i32,
        flags: u64,
    ) -> CUresult {
        // SAFETY: the C caller keeps the conditions that the driver API makes for this function.
        unsafe { freehold_softcuda::cuGetProcAddress(name, function, version, flags) }
    }
}
