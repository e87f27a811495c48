//! Occupancy: how many blocks of a function a multiprocessor runs at once.

use super::api::Api;
use super::call::{DriverError, call};
use super::kernel_types::{CUfunction, CUlaunchConfig, CUoccupancyB2DSize};

/// A launch that fills the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Potential {
    /// Blocks that fill the device.
    pub grid_size: i32,
    /// Threads per block.
    pub block_size: i32,
}

/// Returns how many blocks of `block_size` threads and `shared_bytes` of dynamic shared memory fit at once.
pub fn blocks(api: &Api, function: CUfunction, block_size: i32, shared_bytes: usize) -> Result<i32, DriverError> {
    let mut blocks = 0;
    // SAFETY: `blocks` outlives the call, which writes one `i32` to it.
    unsafe { call!(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, block_size, shared_bytes)) }?;
    Ok(blocks)
}

/// [`blocks`] with flags as in [`occupancy_flags`](super::occupancy_flags).
pub fn blocks_with_flags(
    api: &Api,
    function: CUfunction,
    block_size: i32,
    shared_bytes: usize,
    flags: u32,
) -> Result<i32, DriverError> {
    let mut blocks = 0;
    // SAFETY: `blocks` outlives the call, which writes one `i32` to it.
    unsafe {
        call!(api.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            &mut blocks,
            function,
            block_size,
            shared_bytes,
            flags
        ))
    }?;
    Ok(blocks)
}

/// Returns the block size with the highest occupancy. `limit` is its maximum; zero means none.
///
/// # Safety
/// `shared_of_block` may be called with any block size, during this call; it does not unwind and does not call the
/// driver.
pub unsafe fn potential(
    api: &Api,
    function: CUfunction,
    shared_of_block: CUoccupancyB2DSize,
    shared_bytes: usize,
    limit: i32,
) -> Result<Potential, DriverError> {
    let (mut grid, mut block) = (0, 0);
    // SAFETY: `grid` and `block` outlive the call, which writes one `i32` to each; the caller guarantees that it allows
    // calls of `shared_of_block`.
    unsafe {
        call!(api.cuOccupancyMaxPotentialBlockSize(
            &mut grid,
            &mut block,
            function,
            shared_of_block,
            shared_bytes,
            limit
        ))
    }?;
    Ok(Potential { grid_size: grid, block_size: block })
}

/// [`potential`] with flags as in [`occupancy_flags`](super::occupancy_flags).
///
/// # Safety
/// As for [`potential`].
pub unsafe fn potential_with_flags(
    api: &Api,
    function: CUfunction,
    shared_of_block: CUoccupancyB2DSize,
    shared_bytes: usize,
    limit: i32,
    flags: u32,
) -> Result<Potential, DriverError> {
    let (mut grid, mut block) = (0, 0);
    // SAFETY: as in `potential`.
    unsafe {
        call!(api.cuOccupancyMaxPotentialBlockSizeWithFlags(
            &mut grid,
            &mut block,
            function,
            shared_of_block,
            shared_bytes,
            limit,
            flags
        ))
    }?;
    Ok(Potential { grid_size: grid, block_size: block })
}

/// Returns how much dynamic shared memory each block can have if `blocks` blocks of `block_size` threads fit at once.
pub fn shared_bytes(api: &Api, function: CUfunction, blocks: i32, block_size: i32) -> Result<usize, DriverError> {
    let mut bytes = 0;
    // SAFETY: `bytes` outlives the call, which writes one `usize` to it.
    unsafe { call!(api.cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, function, blocks, block_size)) }?;
    Ok(bytes)
}

/// Returns the largest cluster size that a launch can have.
///
/// # Safety
/// `config` states the correct number of attributes.
pub unsafe fn cluster_size(api: &Api, function: CUfunction, config: &CUlaunchConfig) -> Result<i32, DriverError> {
    let mut size = 0;
    // SAFETY: `size` and `config` outlive the call; the caller guarantees that the attributes are valid.
    unsafe { call!(api.cuOccupancyMaxPotentialClusterSize(&mut size, function, config)) }?;
    Ok(size)
}

/// Returns how many clusters of a launch a device runs at once.
///
/// # Safety
/// As for [`cluster_size`].
pub unsafe fn clusters(api: &Api, function: CUfunction, config: &CUlaunchConfig) -> Result<i32, DriverError> {
    let mut clusters = 0;
    // SAFETY: as in `cluster_size`.
    unsafe { call!(api.cuOccupancyMaxActiveClusters(&mut clusters, function, config)) }?;
    Ok(clusters)
}
