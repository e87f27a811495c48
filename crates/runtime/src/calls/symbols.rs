//! Finds wrappers by their symbols: for `cuGetProcAddress`, and for tables.

#![allow(non_snake_case, reason = "named as C names the functions")]
#![allow(clippy::missing_safety_doc, reason = "the driver API states the conditions of each function")]

use std::ffi::{CStr, c_char, c_void};

use freehold_driver::cuda::symbols;
use freehold_driver::cuda::{Api, CUdriverProcAddressQueryResult, CUresult, proc_address_flags};

use super::checked_process::get;
use super::wrap::{Call, Default, wrappers};
use super::{copies, graphs, launches, memory, streams, unlisted};

/// Returns a table with the wrappers, if calls are checked.
pub(crate) fn checked(api: Api) -> Api {
    if get().is_some() { table(api, Default::Legacy) } else { api }
}

/// Returns the same for a table with per-thread default streams.
pub(crate) fn checked_per_thread(api: Api) -> Api {
    if get().is_some() { table(api, Default::PerThread) } else { api }
}

/// Returns a table with all wrappers.
fn table(api: Api, default: Default) -> Api {
    let api = streams::table(memory::table(api, default), default);
    let api = copies::linear::table(copies::boxes::table(copies::fills::table(api, default), default), default);
    own::table(graphs::table(launches::table(api, default), default), default)
}

/// Returns the wrapper of a symbol.
fn wrapper(symbol: &str) -> Option<*mut c_void> {
    let all = [
        streams::wrapper,
        memory::wrapper,
        copies::linear::wrapper,
        copies::boxes::wrapper,
        copies::fills::wrapper,
        launches::wrapper,
        graphs::wrapper,
        unlisted::wrapper,
        own::wrapper,
    ];
    all.iter().find_map(|wrapper| wrapper(symbol))
}

/// Replaces a function that `cuGetProcAddress` has found by its wrapper.
unsafe fn replace(name: *const c_char, function: *mut *mut c_void, version: i32, is_per_thread: bool) {
    // SAFETY: the driver has accepted the name.
    let name = unsafe { CStr::from_ptr(name) };
    // SAFETY: the driver has written the place.
    let found = unsafe { &mut *function };
    let Ok(name) = name.to_str() else { return };
    if found.is_null() {
        return;
    }
    let form = symbols::forms(name).iter().rev().find(|form| form.since <= version);
    let symbol = form.map_or(name, |form| if is_per_thread { form.per_thread.unwrap_or(form.name) } else { form.name });
    if let Some(wrapper) = wrapper(symbol) {
        *found = wrapper;
    }
}

/// The wrappers of `cuGetProcAddress`.
mod own {
    use super::*;

    wrappers! {
        fn cuGetProcAddress_v2["_ptsz"](call, name: *const c_char, function: *mut *mut c_void, version: i32, flags: u64, status: *mut CUdriverProcAddressQueryResult) {
            let is_variant = call.is_per_thread();
            let is_per_thread = match is_variant {
                true => flags & proc_address_flags::LEGACY_STREAM == 0,
                false => flags & proc_address_flags::PER_THREAD_DEFAULT_STREAM != 0,
            };
            // SAFETY: the conditions are the same.
            unsafe { (call.api.cuGetProcAddress_v2)(name, function, version, flags, status) }?;
            // SAFETY: the driver has accepted the arguments.
            unsafe { replace(name, function, version, is_per_thread) };
            Ok(())
        }
    }

    /// The old form, which is in no table.
    #[unsafe(export_name = "freehold_calls_cuGetProcAddress")]
    unsafe extern "C" fn cuGetProcAddress(
        name: *const c_char,
        function: *mut *mut c_void,
        version: i32,
        flags: u64,
    ) -> CUresult {
        let mut status = CUdriverProcAddressQueryResult::SUCCESS;
        // SAFETY: the conditions are the same, and `status` is a valid place for the answer.
        unsafe { cuGetProcAddress_v2(name, function, version, flags, &raw mut status) }
    }
}
