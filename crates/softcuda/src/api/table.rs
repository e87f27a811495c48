//! The function tables of the software driver, generated from the list of `freehold-driver`: a listed function without
//! an implementation does not compile. Also the look-up of symbols: a function of the list, an older version of one, or
//! a stub that returns an error.

use std::ffi::{c_char, c_void};
use std::ptr;

use freehold_driver::cuda::symbols::Symbol;
use freehold_driver::cuda::*;

use super::dispatch::dispatch;
use crate::ffi::args::{FromC, InStr, Out};
use crate::ffi::default_stream::{is_per_thread_default, with_per_thread_default};
use crate::objects::attributes::DRIVER_VERSION;

/// The functions behind the table.
mod entries {
    pub(super) use super::cuGetProcAddress_v2;
    pub(super) use crate::api::address::*;
    pub(super) use crate::api::allocation::*;
    pub(super) use crate::api::array::*;
    pub(super) use crate::api::capture::*;
    pub(super) use crate::api::context::*;
    pub(super) use crate::api::copy::*;
    pub(super) use crate::api::device::*;
    pub(super) use crate::api::driver::*;
    pub(super) use crate::api::event::*;
    pub(super) use crate::api::fill::*;
    pub(super) use crate::api::function::*;
    pub(super) use crate::api::graph::*;
    pub(super) use crate::api::graph_edges::*;
    pub(super) use crate::api::graph_memory::*;
    pub(super) use crate::api::graph_node::*;
    pub(super) use crate::api::graph_update::*;
    pub(super) use crate::api::host::*;
    pub(super) use crate::api::ipc::*;
    pub(super) use crate::api::kernel::*;
    pub(super) use crate::api::launch::*;
    pub(super) use crate::api::library::*;
    pub(super) use crate::api::link::*;
    pub(super) use crate::api::logs::*;
    pub(super) use crate::api::managed::*;
    pub(super) use crate::api::mapping::*;
    pub(super) use crate::api::memory::*;
    pub(super) use crate::api::module::*;
    pub(super) use crate::api::occupancy::*;
    pub(super) use crate::api::pointer::*;
    pub(super) use crate::api::pool::*;
    pub(super) use crate::api::stream::*;
    pub(super) use crate::api::tensor_map::*;
    pub(super) use crate::api::texture::*;
    pub(super) use crate::api::user_object::*;
    pub(super) use crate::api::value::*;
}

/// Returns the function table of the software driver.
///
/// # Safety
/// Calls through the table are as unsafe as the C functions: see [`DriverContract::new`].
pub const unsafe fn api() -> Api {
    API
}

/// Returns the function table of the software driver in which the null stream is the per-thread default stream.
///
/// # Safety
/// As for [`api()`].
pub const unsafe fn per_thread_api() -> Api {
    PER_THREAD_API
}

macro_rules! table {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
        pub(crate) const API: Api = Api {
            // SAFETY: the functions are the driver's; the caller of `api` guarantees that its calls through the table
            // are valid.
            contract: unsafe { DriverContract::new() },
            $($name: legacy::$name,)*
        };

        pub(crate) const PER_THREAD_API: Api = Api {
            // SAFETY: as above.
            contract: unsafe { DriverContract::new() },
            $($name: per_thread::$name,)*
        };

        #[allow(non_snake_case, reason = "named as C names the functions")]
        mod legacy {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                dispatch(Function::$name, || {
                    $(
                        // SAFETY: the C caller guarantees that its pointers are valid, as the documentation of the call
                        // demands.
                        let $argument = unsafe { FromC::from_c($argument) }?;
                    )*
                    entries::$name($($argument),*)
                })
            })*
        }

        #[allow(non_snake_case, reason = "named as C names the functions")]
        mod per_thread {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                with_per_thread_default(|| {
                    // SAFETY: the C caller guarantees that its pointers are valid, as the documentation of the call
                    // demands.
                    unsafe { legacy::$name($($argument),*) }
                })
            })*
        }
    };
}

freehold_driver::with_functions!(table);

/// The meaning of the null stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DefaultStream {
    Legacy,
    PerThread,
}

/// Returns `CUDA_ERROR_NOT_SUPPORTED`. Stands for every symbol that this driver does not support: C callers may pass
/// any arguments, which this function ignores.
pub extern "C" fn not_supported() -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

/// Implements `cuGetProcAddress` as in CUDA 11, without a status.
///
/// # Safety
/// As the driver API says: `name` is null or ends in a NUL, and `function` is null or a place for one pointer.
#[allow(non_snake_case, reason = "named as C names the function")]
pub unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
) -> CUresult {
    // SAFETY: the caller keeps the conditions of `name` and `function`; the status may be null.
    unsafe { (API.cuGetProcAddress_v2)(name, function, version, flags, ptr::null_mut()) }
}

/// Returns the address of a symbol's function.
fn address(symbol: &Symbol, streams: DefaultStream) -> usize {
    match (Function::named(symbol.name), streams, symbol.per_thread) {
        (Some(function), DefaultStream::PerThread, Some(_)) => PER_THREAD_API.address(function),
        (Some(function), _, _) => API.address(function),
        (None, _, _) if symbol.name == "cuGetProcAddress" => cuGetProcAddress as *const () as usize,
        (None, _, _) => not_supported as *const () as usize,
    }
}

#[allow(non_snake_case, reason = "named as C names the function")]
fn cuGetProcAddress_v2(
    name: InStr,
    function: Out<*mut c_void>,
    version: i32,
    flags: u64,
    status: Option<Out<CUdriverProcAddressQueryResult>>,
) -> CUresult {
    let streams = match flags {
        proc_address_flags::DEFAULT if is_per_thread_default() => DefaultStream::PerThread,
        proc_address_flags::DEFAULT | proc_address_flags::LEGACY_STREAM => DefaultStream::Legacy,
        proc_address_flags::PER_THREAD_DEFAULT_STREAM => DefaultStream::PerThread,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    if version > DRIVER_VERSION {
        return Err(CUerror::INVALID_VALUE);
    }
    let forms = symbols::forms(&name.0);
    let is_extension = name.0.as_bytes() == extension::NAME.to_bytes();
    let (address, outcome) = match forms.iter().rfind(|form| form.since <= version) {
        Some(form) => (address(form, streams), CUdriverProcAddressQueryResult::SUCCESS),
        None if is_extension => (crate::api::extension::address(), CUdriverProcAddressQueryResult::SUCCESS),
        None if forms.is_empty() => (0, CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND),
        None => (0, CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT),
    };
    // A name that is not found is not an error: the address is null.
    function.set(address as *mut c_void);
    if let Some(status) = status {
        status.set(outcome);
    }
    Ok(())
}
