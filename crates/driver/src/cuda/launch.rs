//! Launches of kernels, in stream order.
//!
//! A launch is `unsafe`: the driver reads the arguments through pointers whose types only the kernel knows, and the
//! kernel may write through any address among its arguments, pinned host memory included.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::api::Api;
use super::call::{DriverError, call};
use super::kernel_types::{CUfunction, CUlaunchAttribute, CUlaunchConfig};
use super::types::CUstream;
pub use crate::backend::LaunchConfig;

/// Launches a function, or a kernel passed as one, with a pointer to each argument.
///
/// # Safety
/// `parameters` contains a pointer to an argument for each parameter of the function, of its type. While the kernel
/// runs, nothing else uses host memory that it accesses through them, except with atomics.
pub unsafe fn kernel(
    api: &Api,
    function: CUfunction,
    shape: LaunchConfig,
    stream: CUstream,
    parameters: &mut [*mut c_void],
) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that the arguments are valid; `extra` is null.
    unsafe { raw(api, function, shape, stream, parameters.as_mut_ptr(), null_mut()) }
}

/// [`kernel`] in its C form: the arguments are behind one of two pointers, either of which may be null.
///
/// # Safety
/// As for [`kernel`]; `extra`, if not null, is a list as [`launch_param`](super::launch_param) describes.
pub unsafe fn raw(
    api: &Api,
    function: CUfunction,
    shape: LaunchConfig,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<(), DriverError> {
    let LaunchConfig { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes } = shape;
    // SAFETY: the caller guarantees that the arguments are valid, and what the kernel does with them.
    unsafe {
        call!(api.cuLaunchKernel(
            function,
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            shared_bytes,
            stream,
            parameters,
            extra
        ))
    }
}

/// [`kernel`] with attributes.
///
/// # Safety
/// As for [`kernel`].
pub unsafe fn with_attributes(
    api: &Api,
    function: CUfunction,
    shape: LaunchConfig,
    stream: CUstream,
    attributes: &mut [CUlaunchAttribute],
    parameters: &mut [*mut c_void],
) -> Result<(), DriverError> {
    let config = CUlaunchConfig {
        gridDimX: shape.grid[0],
        gridDimY: shape.grid[1],
        gridDimZ: shape.grid[2],
        blockDimX: shape.block[0],
        blockDimY: shape.block[1],
        blockDimZ: shape.block[2],
        sharedMemBytes: shape.shared_bytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: u32::try_from(attributes.len()).expect("the number of attributes fits a u32"),
    };
    // SAFETY: `config` and the attributes that it points to outlive the call; the caller guarantees that the arguments
    // are valid, and what the kernel does with them.
    unsafe { call!(api.cuLaunchKernelEx(&config, function, parameters.as_mut_ptr(), null_mut())) }
}

/// [`kernel`] with all blocks resident at once, so that they may wait for each other.
///
/// # Safety
/// As for [`kernel`].
pub unsafe fn cooperative(
    api: &Api,
    function: CUfunction,
    shape: LaunchConfig,
    stream: CUstream,
    parameters: &mut [*mut c_void],
) -> Result<(), DriverError> {
    let LaunchConfig { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes } = shape;
    // SAFETY: the caller guarantees that the arguments are valid, and what the kernel does with them.
    unsafe {
        call!(api.cuLaunchCooperativeKernel(
            function,
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            shared_bytes,
            stream,
            parameters.as_mut_ptr()
        ))
    }
}
