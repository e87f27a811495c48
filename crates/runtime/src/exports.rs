//! The C names of the functions.
//!
//! Each wrapper runs its function, turns a panic into `cudaErrorUnknown`, and stores an error as the thread's last error.
//! The variants for per-thread default streams (`_ptds`, `_ptsz`) are the same functions with another meaning of stream
//! zero.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold_driver::cuda::*;

use crate::code::{self, CudaError, cudaError_t};
use crate::list::with_functions;
use crate::node_types::*;
use crate::observe::{self, Function, Kind};
use crate::process;
use crate::registry::{self, FatBinary, FatBinaryWrapper};
use crate::thread::{self, CallConfiguration};
use crate::types::device_prop::cudaDeviceProp;
use crate::types::texture::{cudaResourceDesc, cudaTextureDesc};
use crate::types::*;

mod v12;

/// Runs a function of the interface. If the driver or another runtime has destroyed the primary context, runs it again with a
/// new one.
fn entry(function: impl Fn() -> cudaError_t) -> cudaError_t {
    let run = || catch_unwind(AssertUnwindSafe(&function)).unwrap_or(Err(CudaError::UNKNOWN));
    let mut result = run();
    if result == Err(CudaError::CONTEXT_IS_DESTROYED) && process::forget_destroyed_primary() {
        result = run();
    }
    if let Err(error) = result {
        thread::set_last_error(error);
    }
    result
}

macro_rules! export {
    ($($group:ident { $(fn $name:ident($($argument:ident: $kind:ty),*);)* })*) => {
        $($(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $kind),*) -> cudaError_t {
                // SAFETY: the C caller meets the conditions that the runtime API states for this function.
                entry(|| observed!($name; [$($argument)*]; unsafe { crate::api::$group::$name($($argument),*) }))
            }
        )*)*

        mod per_thread_stream {
            use super::*;

            $($(per_thread! {
                $name,
                unsafe extern "C" fn $name($($argument: $kind),*) -> cudaError_t {
                    // SAFETY: the C caller meets the conditions that the runtime API states for this function.
                    let call = || unsafe { crate::api::$group::$name($($argument),*) };
                    entry(|| observed!($name; [$($argument)*]; thread::with_per_thread_stream(call)))
                }
            })*)*
        }
    };
}

macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> cudaError_t {
            crate::log::missing(stringify!($name));
            entry(|| Err(CudaError::NOT_SUPPORTED))
        }
    )*};
}

include!("exports/observed.rs");
include!("exports/per_thread.rs");
include!("exports/unsupported.rs");
with_functions!(export);

fn number(result: cudaError_t) -> u32 {
    result.err().map_or(0, CudaError::number)
}

/// Returns the thread's last error and forgets it.
#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> cudaError_t {
    thread::take_last_error().map_or(Ok(()), Err)
}

/// Returns the thread's last error and keeps it.
#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> cudaError_t {
    thread::last_error().map_or(Ok(()), Err)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(error: u32) -> *const c_char {
    code::text(error).map_or(c"unrecognized error code", |(name, _)| name).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(error: u32) -> *const c_char {
    code::text(error).map_or(c"unrecognized error code", |(_, said): (&CStr, &CStr)| said).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaCreateChannelDesc(x: c_int, y: c_int, z: c_int, w: c_int, f: u32) -> cudaChannelFormatDesc {
    cudaChannelFormatDesc { x, y, z, w, f }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterFatBinary(wrapper: *const FatBinaryWrapper) -> *mut FatBinary {
    // SAFETY: compilers pass a wrapper in the object's data, which lives until the object is unloaded.
    unsafe { registry::register(wrapper) }
}

/// Marks the end of the registrations. Nothing depends on it.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_: *mut FatBinary) {}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaUnregisterFatBinary(handle: *mut FatBinary) {
    // SAFETY: compilers pass the handle of `__cudaRegisterFatBinary`, once, when the object is unloaded.
    unsafe { registry::unregister(handle) };
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "compilers emit calls with these arguments")]
unsafe extern "C" fn __cudaRegisterFunction(
    handle: *mut FatBinary,
    stub: *const c_void,
    _device_function: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_size: *mut Dim3,
    _grid_size: *mut Dim3,
    _warp_size: *mut c_int,
) {
    // SAFETY: compilers pass the handle of `__cudaRegisterFatBinary`, and a constant of the object.
    unsafe { registry::register_kernel(handle, stub, name) };
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "compilers emit calls with these arguments")]
unsafe extern "C" fn __cudaRegisterVar(
    handle: *mut FatBinary,
    shadow: *const c_void,
    _device_address: *mut c_char,
    name: *const c_char,
    _is_external: c_int,
    bytes: usize,
    _is_constant: c_int,
    _is_global: c_int,
) {
    // SAFETY: compilers pass the handle of `__cudaRegisterFatBinary`, and a constant of the object.
    unsafe { registry::register_variable(handle, shadow, name, bytes) };
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "compilers emit calls with these arguments")]
unsafe extern "C" fn __cudaRegisterManagedVar(
    handle: *mut FatBinary,
    place: *mut *mut c_void,
    _device_address: *mut c_char,
    name: *const c_char,
    _is_external: c_int,
    bytes: usize,
    _is_constant: c_int,
    _is_global: c_int,
) {
    // SAFETY: compilers pass the handle of `__cudaRegisterFatBinary`, and data and a constant of the object.
    unsafe { registry::register_managed(handle, place, name, bytes) };
}

/// Makes the managed variables of a fat binary accessible. Returns whether it could.
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaInitModule(handle: *mut FatBinary) -> c_char {
    // SAFETY: compilers pass the handle of `__cudaRegisterFatBinary`.
    let result = entry(|| unsafe { registry::init_managed(handle) });
    c_char::from(number(result) == 0)
}

/// Remembers the configuration of a launch until the stub of the kernel asks for it.
#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared_bytes: usize, stream: CUstream) -> u32 {
    thread::push_configuration(CallConfiguration { grid, block, shared_bytes, stream });
    0
}

/// The version that a program of CUDA 12 expects, for `libcudart.so.12`.
#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaRuntimeGetVersion(version: *mut c_int) -> cudaError_t {
    const CUDA_12_9: c_int = 12090;
    if version.is_null() {
        return entry(|| Err(CudaError::INVALID_VALUE));
    }
    // SAFETY: the C caller guarantees that the output pointer is valid.
    unsafe { version.write(CUDA_12_9) };
    Ok(())
}
