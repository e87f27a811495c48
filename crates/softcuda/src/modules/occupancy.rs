//! Occupancy: how many blocks of a kernel fit on one multiprocessor of the hardware. Pure arithmetic.

use crate::objects::attributes::Multiprocessor;

/// Number of multiprocessors of the device.
pub(crate) const MULTIPROCESSORS: u64 = 132;

/// Maximum number of threads of a block.
pub(crate) const THREADS_MAX: u32 = 1024;

/// Maximum shared memory of a block, static and dynamic, without an opt-in.
pub(crate) const SHARED_BYTES_DEFAULT: u32 = 48 << 10;

const WARP_THREADS: u64 = 32;
const REGISTERS: u64 = 65_536;
/// Unit in which registers are allocated to a warp.
const REGISTERS_UNIT: u64 = 256;
/// Warps are distributed over the four partitions of a multiprocessor.
const WARPS_UNIT: u64 = 4;
const SHARED_BYTES_UNIT: u64 = 128;

/// The resources that one block needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockResources {
    /// At least one.
    pub(crate) threads: u64,
    /// Per thread.
    pub(crate) registers: u64,
    /// Static and dynamic.
    pub(crate) shared_bytes: u64,
}

/// Returns the number of blocks that fit on one multiprocessor.
pub(crate) fn max_active_blocks(of: Multiprocessor, need: BlockResources) -> u64 {
    if need.threads > u64::from(THREADS_MAX) || need.shared_bytes > of.block_shared_bytes_max() {
        return 0;
    }
    let warps = need.threads.div_ceil(WARP_THREADS);
    let of_warp = (need.registers.max(1) * WARP_THREADS).next_multiple_of(REGISTERS_UNIT);
    let warps_with_registers = REGISTERS / of_warp / WARPS_UNIT * WARPS_UNIT;
    let shared = need.shared_bytes.next_multiple_of(SHARED_BYTES_UNIT) + of.reserved_bytes;
    let with_shared = of.shared_bytes.checked_div(shared).unwrap_or(u64::MAX);
    let with_threads = of.threads_max / WARP_THREADS / warps;
    of.blocks_max.min(with_threads).min(warps_with_registers / warps).min(with_shared)
}

/// The multiprocessors of each processing cluster of the hardware: a cluster of blocks runs within one.
const PROCESSING_CLUSTERS: [u64; 8] = [18, 18, 16, 16, 16, 16, 16, 16];

/// Returns how many clusters of `size` blocks run at once, if `blocks` fit on each multiprocessor.
pub(crate) fn max_active_clusters(blocks: u64, size: u64) -> u64 {
    PROCESSING_CLUSTERS.iter().map(|multiprocessors| multiprocessors * blocks / size.max(1)).sum()
}

/// Returns the dynamic shared memory of each of `count` blocks that share a multiprocessor, next to `static_bytes`. It
/// does not subtract the reserved memory, because the real driver does not either.
pub(crate) fn available_shared_bytes(of: Multiprocessor, count: u64, static_bytes: u64) -> u64 {
    let of_each = of.shared_bytes / count.max(1) / SHARED_BYTES_UNIT * SHARED_BYTES_UNIT;
    of_each.saturating_sub(static_bytes)
}

/// Returns the block size of up to `limit` threads with the most active threads, and its number of blocks per
/// multiprocessor, which `blocks_of` computes. Prefers the larger of equally good blocks.
pub(crate) fn best_block_size(limit: u64, blocks_of: impl Fn(u64) -> u64) -> (u64, u64) {
    let limit = limit.clamp(1, THREADS_MAX.into());
    let mut sizes: Vec<_> = (1..=limit / WARP_THREADS).map(|warps| warps * WARP_THREADS).collect();
    if !limit.is_multiple_of(WARP_THREADS) {
        sizes.push(limit);
    }
    let mut best = (0, 0);
    for threads in sizes.into_iter().rev() {
        let blocks = blocks_of(threads);
        if blocks * threads > best.0 * best.1 {
            best = (threads, blocks);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const SM_90: Multiprocessor = Multiprocessor::of(90);

    fn need(threads: u64, registers: u64, shared_bytes: u64) -> BlockResources {
        BlockResources { threads, registers, shared_bytes }
    }

    #[test]
    fn threads_bound_blocks() {
        assert_eq!(max_active_blocks(SM_90, need(1024, 16, 0)), 2);
        assert_eq!(max_active_blocks(SM_90, need(256, 32, 0)), 8);
        assert_eq!(max_active_blocks(SM_90, need(32, 16, 0)), 32);
        assert_eq!(max_active_blocks(SM_90, need(1, 16, 0)), 32);
        assert_eq!(max_active_blocks(SM_90, need(1025, 16, 0)), 0);
        assert_eq!(max_active_blocks(SM_90, need(96, 16, 0)), 21);
    }

    #[test]
    fn registers_bound_blocks() {
        assert_eq!(max_active_blocks(SM_90, need(1024, 64, 0)), 1);
        assert_eq!(max_active_blocks(SM_90, need(256, 128, 0)), 2);
        assert_eq!(max_active_blocks(SM_90, need(1024, 65, 0)), 0);
    }

    #[test]
    fn shared_memory_bounds_blocks_with_a_kibibyte_for_the_system() {
        assert_eq!(max_active_blocks(SM_90, need(128, 16, 227 << 10)), 1);
        assert_eq!(max_active_blocks(SM_90, need(128, 16, (227 << 10) + 1)), 0);
        assert_eq!(max_active_blocks(SM_90, need(128, 16, 48 << 10)), 4);
        assert_eq!(max_active_blocks(SM_90, need(128, 16, 113 << 10)), 2);
    }

    #[test]
    fn the_compute_capability_decides_what_fits() {
        assert_eq!(max_active_blocks(Multiprocessor::of(75), need(256, 16, 0)), 4);
        assert_eq!(max_active_blocks(Multiprocessor::of(75), need(32, 16, 64 << 10)), 1);
        assert_eq!(max_active_blocks(Multiprocessor::of(120), need(1024, 16, 0)), 1);
        assert_eq!(max_active_blocks(Multiprocessor::of(120), need(32, 16, 100 << 10)), 0);
    }

    #[test]
    fn a_cluster_runs_within_a_processing_cluster() {
        assert_eq!(PROCESSING_CLUSTERS.iter().sum::<u64>(), MULTIPROCESSORS);
        assert_eq!(max_active_clusters(1, 1), 132);
        assert_eq!(max_active_clusters(1, 2), 66);
        assert_eq!(max_active_clusters(1, 16), 8);
        assert_eq!(max_active_clusters(2, 16), 16);
        assert_eq!(max_active_clusters(0, 2), 0);
    }

    #[test]
    fn blocks_share_all_shared_memory_between_them() {
        assert_eq!(available_shared_bytes(SM_90, 8, 0), 29_184);
        assert_eq!(available_shared_bytes(SM_90, 8, 1024), 28_160);
        assert_eq!(available_shared_bytes(SM_90, 7, 0), 33_280);
        assert_eq!(available_shared_bytes(SM_90, 32, 8192), 0);
    }

    #[test]
    fn the_best_block_is_the_largest_of_those_that_fill_a_multiprocessor() {
        assert_eq!(best_block_size(1024, |threads| max_active_blocks(SM_90, need(threads, 32, 0))), (1024, 2));
        assert_eq!(best_block_size(100, |threads| max_active_blocks(SM_90, need(threads, 32, 0))), (64, 32));
        assert_eq!(best_block_size(1024, |threads| max_active_blocks(SM_90, need(threads, 64, 0))), (1024, 1));
    }
}
