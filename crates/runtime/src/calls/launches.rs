//! Launches of kernels.

#![allow(non_snake_case, reason = "named as C names the functions")]

use std::ffi::c_void;
use std::ptr;

use freehold_check::calls::{Argument, Item};
use freehold_driver::cuda::{Api, CUfunction, CUlaunchConfig, CUresult, CUstream};

use super::wrap::{Call, wrappers};

/// Tells the checker of a launch.
///
/// # Safety
/// The driver has accepted the arguments.
#[inline]
unsafe fn launched(
    call: Call,
    function: CUfunction,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) {
    if call.is_captured(stream) {
        return;
    }
    let function = call.calls.functions.get(call.api, &call.calls.checker, function);
    let (kernel, module) = (Some(function.kernel), function.module);
    let submit = |arguments: &[Argument]| {
        call.submit(stream, &[Item { kernel, module, accesses: &[], arguments, is_of_graph: false }], false);
    };
    // SAFETY: the caller guarantees that they are arguments of the kernel.
    unsafe { function.with_arguments(parameters, extra, submit) };
}

wrappers! {
    fn cuLaunchKernel["_ptsz"](call, function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared_bytes: u32, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        call.noted(unsafe {
            (call.api.cuLaunchKernel)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra)
        })?;
        // SAFETY: the driver has accepted the arguments.
        unsafe { launched(call, function, stream, parameters, extra) };
        Ok(())
    }

    fn cuLaunchKernelEx["_ptsz"](call, config: *const CUlaunchConfig, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void) {
        // SAFETY: the C caller guarantees that the configuration is valid, if there is one.
        let stream = unsafe { config.as_ref() }.map_or(CUstream::NULL, |config| config.hStream);
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuLaunchKernelEx)(config, function, parameters, extra) })?;
        // SAFETY: the driver has accepted the arguments.
        unsafe { launched(call, function, stream, parameters, extra) };
        Ok(())
    }

    fn cuLaunchCooperativeKernel["_ptsz"](call, function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared_bytes: u32, stream: CUstream, parameters: *mut *mut c_void) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        call.noted(unsafe {
            (call.api.cuLaunchCooperativeKernel)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters)
        })?;
        // SAFETY: the driver has accepted the arguments.
        unsafe { launched(call, function, stream, parameters, ptr::null_mut()) };
        Ok(())
    }
}
