//! Occupancy queries.

use std::sync::Arc;

use freehold_driver::cuda::{CUerror, CUfunction, CUlaunchConfig, CUoccupancyB2DSize, CUresult, occupancy_flags};

use super::launch::read_config;
use crate::ffi::args::{In, Out};
use crate::modules::function::{Function, block_resources, threads_max};
use crate::modules::occupancy::{self, MULTIPROCESSORS};
use crate::objects::attributes::Multiprocessor;
use crate::objects::context::current;
use crate::state::driver_state::driver;

/// Returns the function with a handle, or a library kernel's function in the current context.
fn find(function: CUfunction) -> Result<Arc<Function>, CUerror> {
    let driver = driver()?;
    driver.code.find_function(&driver.space, function, current)
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<i32>,
    function: CUfunction,
    block_size: i32,
    shared_bytes: usize,
) -> CUresult {
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared_bytes, 0)
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: Out<i32>,
    function: CUfunction,
    block_size: i32,
    shared_bytes: usize,
    flags: u32,
) -> CUresult {
    let function = find(function)?;
    check_flags(flags)?;
    let threads = u64::try_from(block_size).ok().filter(|&threads| threads > 0).ok_or(CUerror::INVALID_VALUE)?;
    blocks.set(function.max_active_blocks(threads, shared_bytes as u64) as i32);
    Ok(())
}

fn check_flags(flags: u32) -> CUresult {
    if flags > occupancy_flags::DISABLE_CACHING_OVERRIDE { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuOccupancyMaxPotentialBlockSize(
    grid_size: Out<i32>,
    block_size: Out<i32>,
    function: CUfunction,
    shared_of_block: CUoccupancyB2DSize,
    shared_bytes: usize,
    block_size_limit: i32,
) -> CUresult {
    cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid_size,
        block_size,
        function,
        shared_of_block,
        shared_bytes,
        block_size_limit,
        0,
    )
}

pub(crate) fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid_size: Out<i32>,
    block_size: Out<i32>,
    function: CUfunction,
    shared_of_block: CUoccupancyB2DSize,
    shared_bytes: usize,
    block_size_limit: i32,
    flags: u32,
) -> CUresult {
    let function = find(function)?;
    check_flags(flags)?;
    let most = u64::from(threads_max(function.kernel()));
    let limit = match u64::try_from(block_size_limit).map_err(|_| CUerror::INVALID_VALUE)? {
        0 => most,
        limit => limit.min(most),
    };
    let dynamic_of = |threads: u64| match shared_of_block {
        // SAFETY: the program guaranteed, when it passed the function, that it may be called.
        Some(shared_of_block) => unsafe { shared_of_block(threads as i32) as u64 },
        None => shared_bytes as u64,
    };
    let (threads, blocks) =
        occupancy::best_block_size(limit, |threads| function.max_active_blocks(threads, dynamic_of(threads)));
    grid_size.set((blocks * MULTIPROCESSORS) as i32);
    block_size.set(threads as i32);
    Ok(())
}

pub(crate) fn cuOccupancyAvailableDynamicSMemPerBlock(
    shared_bytes: Out<usize>,
    function: CUfunction,
    blocks: i32,
    block_size: i32,
) -> CUresult {
    let function = find(function)?;
    let positive = |number: i32| u64::try_from(number).ok().filter(|&number| number > 0);
    let (blocks, threads) = positive(blocks).zip(positive(block_size)).ok_or(CUerror::INVALID_VALUE)?;
    if blocks > occupancy::max_active_blocks(Multiprocessor::own(), block_resources(function.kernel(), threads, 0)) {
        return Err(CUerror::INVALID_VALUE);
    }
    let most = u64::from(function.settings().dynamic_bytes_max);
    shared_bytes.set(
        occupancy::available_shared_bytes(Multiprocessor::own(), blocks, function.kernel().shared_bytes).min(most)
            as usize,
    );
    Ok(())
}

/// The sizes of clusters, largest first.
const CLUSTER_SIZES: [u64; 5] = [16, 8, 4, 2, 1];

pub(crate) fn cuOccupancyMaxPotentialClusterSize(
    size: Out<i32>,
    function: CUfunction,
    config: In<CUlaunchConfig>,
) -> CUresult {
    let function = find(function)?;
    let (shape, _) = read_config(&config.0)?;
    if shape.threads() == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let most = function.settings().cluster_blocks_max(function.kernel());
    let blocks = function.max_active_blocks(shape.threads(), shape.shared_bytes.into());
    let fits = |&size: &u64| size <= most && occupancy::max_active_clusters(blocks, size) > 0;
    let required = function.settings().required_cluster(function.kernel());
    let found = match required {
        Some(required) => Some(required.iter().map(|&side| u64::from(side)).product()),
        None => CLUSTER_SIZES.into_iter().find(fits),
    };
    size.set(found.unwrap_or(0) as i32);
    Ok(())
}

pub(crate) fn cuOccupancyMaxActiveClusters(
    clusters: Out<i32>,
    function: CUfunction,
    config: In<CUlaunchConfig>,
) -> CUresult {
    let function = find(function)?;
    let (shape, _) = read_config(&config.0)?;
    if shape.threads() == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    shape.check_cluster(&function)?;
    let cluster = shape.cluster_of(&function).unwrap_or([1; 3]);
    let blocks = function.max_active_blocks(shape.threads(), shape.shared_bytes.into());
    let size = cluster.iter().map(|&side| u64::from(side)).product();
    clusters.set(occupancy::max_active_clusters(blocks, size) as i32);
    Ok(())
}
