//! `libcuda.so.1`: the software driver under the symbol names of NVIDIA's library.
//!
//! Programs that were built for NVIDIA's driver load this library and run on [`freehold_softcuda`] unchanged. `freehold run`
//! has a copy of it inside, writes it to a directory in front of the program's library path, and becomes the program. A Rust
//! program does not need this crate: it calls [`freehold_softcuda::api()`].
//!
//! # What is exported
//!
//! - Every function of the list in `freehold_driver::cuda::api`, with its version (`cuMemAlloc_v2`), from the macro
//!   `exported!`.
//! - The same with `_ptds` or `_ptsz`, where programs that are compiled for per-thread default streams ask for it.
//! - Every other documented symbol of CUDA 12.9 and 13.0. It answers `NOT_SUPPORTED`.
//! - `cuGetProcAddress` in its old form; the new one is in the list.
//!
//! The second and third come from `src/exports.rs`, which `tests/it/exports.rs` generates from
//! `freehold_driver::cuda::symbols` and compares. A function that joins the list therefore stops being unsupported with the
//! next `FREEHOLD_WRITE_EXPORTS=1 cargo test`.
//!
//! # Invariants
//!
//! - There is no logic here: each export calls its entry in the table of the software driver.
//! - The file is not called `libcuda.so.1` where cargo builds it ([`LIBRARY_FILE`]): cargo would put it in front of NVIDIA's.

/// The file name of the library where cargo builds it. Programs look for `libcuda.so.1`, which `freehold run` provides:
/// under that name, cargo would put the file in front of NVIDIA's.
pub const LIBRARY_FILE: &str = "libfreehold_libcuda.so";

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Runs after the handlers of `atexit` and the destructors of the program, which may still free.
extern "C" fn end() {
    freehold_softcuda::finish_check();
}

/// What pools tell the checker, for `freehold/check.h`.
mod announced {
    use std::ffi::c_void;

    use freehold_softcuda::announce;

    #[unsafe(no_mangle)]
    extern "C" fn freehold_check_handed_out(_pool: *mut c_void, address: u64, bytes: usize, _stream: usize) {
        announce::handed_out(address, bytes as u64);
    }

    #[unsafe(no_mangle)]
    extern "C" fn freehold_check_freed(_pool: *mut c_void, address: u64, _stream: usize) {
        announce::freed(address);
    }

    /// The accesses themselves are seen.
    #[unsafe(no_mangle)]
    extern "C" fn freehold_check_used(_pool: *mut c_void, _address: u64, _stream: usize) {}
}

#[allow(non_snake_case, reason = "named as C names the functions")]
mod exports {
    use std::ffi::{c_char, c_void};

    use freehold_driver::cuda::*;

    // SAFETY: each function is exported with the conditions that the driver API states for it.
    const API: Api = unsafe { freehold_softcuda::api() };
    // SAFETY: as above.
    const PER_THREAD_API: Api = unsafe { freehold_softcuda::per_thread_api() };

    macro_rules! exported {
        ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
            $(
                #[unsafe(no_mangle)]
                unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                    // SAFETY: the C caller meets the conditions that the driver API states for this function.
                    unsafe { (API.$name)($($argument),*) }
                }
            )*

            mod per_thread_stream {
                use super::*;

                $(per_thread! {
                    $name,
                    unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                        // SAFETY: the C caller meets the conditions that the driver API states for this function.
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
        // SAFETY: the C caller meets the conditions that the driver API states for this function.
        unsafe { freehold_softcuda::cuGetProcAddress(name, function, version, flags) }
    }
}
