//! Occupancy: how many blocks and clusters of a kernel fit on the device.

use std::ffi::c_void;

use super::function::in_context;
use super::launch::driver_config;
use crate::code::cudaError_t;
use crate::process;
use crate::types::{cudaLaunchConfig_t, read};

pub(crate) unsafe fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut i32,
    function: *const c_void,
    block_size: i32,
    shared_bytes: usize,
) -> cudaError_t {
    let process = process::with_context()?;
    let function = in_context(process, function)?;
    // SAFETY: the C caller guarantees that the output pointer is valid, and the function is loaded.
    Ok(unsafe {
        (process.api.cuOccupancyMaxActiveBlocksPerMultiprocessor)(blocks, function, block_size, shared_bytes)
    }?)
}

pub(crate) unsafe fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut i32,
    function: *const c_void,
    block_size: i32,
    shared_bytes: usize,
    flags: u32,
) -> cudaError_t {
    let process = process::with_context()?;
    let function = in_context(process, function)?;
    // SAFETY: the C caller guarantees that the output pointer is valid, and the function is loaded.
    Ok(unsafe {
        (process.api.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(
            blocks,
            function,
            block_size,
            shared_bytes,
            flags,
        )
    }?)
}

pub(crate) unsafe fn cudaOccupancyAvailableDynamicSMemPerBlock(
    shared_bytes: *mut usize,
    function: *const c_void,
    blocks: i32,
    block_size: i32,
) -> cudaError_t {
    let process = process::with_context()?;
    let function = in_context(process, function)?;
    // SAFETY: the C caller guarantees that the output pointer is valid, and the function is loaded.
    Ok(unsafe { (process.api.cuOccupancyAvailableDynamicSMemPerBlock)(shared_bytes, function, blocks, block_size) }?)
}

pub(crate) unsafe fn cudaOccupancyMaxPotentialClusterSize(
    size: *mut i32,
    function: *const c_void,
    config: *const cudaLaunchConfig_t,
) -> cudaError_t {
    let process = process::with_context()?;
    let function = in_context(process, function)?;
    // SAFETY: the C caller guarantees that the configuration is valid.
    let config = driver_config(&unsafe { read(config) }?)?;
    // SAFETY: the C caller guarantees that the output pointer and the attributes are valid, and the function is loaded.
    Ok(unsafe { (process.api.cuOccupancyMaxPotentialClusterSize)(size, function, &raw const config) }?)
}

pub(crate) unsafe fn cudaOccupancyMaxActiveClusters(
    clusters: *mut i32,
    function: *const c_void,
    config: *const cudaLaunchConfig_t,
) -> cudaError_t {
    let process = process::with_context()?;
    let function = in_context(process, function)?;
    // SAFETY: the C caller guarantees that the configuration is valid.
    let config = driver_config(&unsafe { read(config) }?)?;
    // SAFETY: the C caller guarantees that the output pointer and the attributes are valid, and the function is loaded.
    Ok(unsafe { (process.api.cuOccupancyMaxActiveClusters)(clusters, function, &raw const config) }?)
}
