//! Calls that do not wait: launches, owner lookups, allocations from the pool.

use std::hint::black_box;
use std::ops::Range;

use freehold::{Block, Grid};
use freehold_driver::cuda::{CUcontext, CUdeviceptr, context, memory};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::error::Result;
use super::rig::{Rig, VALUES};
use super::stats::timed;

/// Calls timed together, so that the cost of the clock does not count.
const BATCH: usize = 100;

const PAIR_BYTES: usize = 64 << 10;

const BLOCKS: usize = 1_000_000;
/// Most blocks are small; one in this many is too large for the pool's size classes.
const LARGE_EVERY: usize = 100;
const SMALL_BYTES: (u64, u64) = (1, 2048);
const LARGE_BYTES: (u64, u64) = (66 << 10, 192 << 10);

/// The blocks of the look-ups that stay within a few blocks.
const NEAR_BLOCKS: Range<u64> = 500_000..501_000;

/// The seed of the addresses.
const SEED: u64 = 0x5eed_0f00_b10c;

/// Times of the library's calls, and of the driver's.
pub(super) struct Comparison {
    pub(super) ours: Vec<f64>,
    pub(super) driver: Vec<f64>,
}

/// Times launches of one kernel with the same arguments, in alternating batches, with a context current.
pub(super) fn launches(rig: &Rig, batches: usize) -> Result<Comparison> {
    let stream = &rig.stream;
    let mut x = stream.zeros::<f32>(VALUES as usize)?;
    let address = CUdeviceptr(x.address());
    let mut beside = Comparison { ours: Vec::new(), driver: Vec::new() };
    // The first batch of each warms the driver's caches, and does not count.
    for batch in 0..=batches {
        let (launched, ours) = timed(|| {
            (0..BATCH).try_for_each(|_| stream.launch(&rig.scale, Grid::line(1, VALUES), (&mut x, 1.0_f32, VALUES)))
        });
        launched?;
        stream.synchronize()?;
        let (launched, drivers) = timed(|| (0..BATCH).try_for_each(|_| rig.raw_scale(address, stream.raw().into())));
        launched?;
        stream.foreign_work();
        stream.synchronize()?;
        if batch > 0 {
            beside.ours.push(ours / BATCH as f64);
            beside.driver.push(drivers / BATCH as f64);
        }
    }
    Ok(beside)
}

/// Times [`launches`] in a thread without a current context.
pub(super) fn bare_launches(rig: &Rig, batches: usize) -> Result<Comparison> {
    context::set_current(&rig.opened.api, CUcontext::NULL)?;
    let beside = launches(rig, batches);
    context::set_current(&rig.opened.api, rig.context)?;
    beside
}

/// Times look-ups of an address's owner among a million pool blocks, alternating between first addresses and inner
/// ones: first over all blocks, then over a few of them, as in a program that works with those.
pub(super) fn owners(rig: &Rig, batches: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut random = SplitMix64::seed_from_u64(SEED);
    let field = BlockSet::new(rig, &mut random)?;
    let mut ask = |blocks: Range<u64>| {
        let addresses: Vec<u64> = (0..BATCH).map(|at| field.address(&blocks, at % 2 == 0, &mut random)).collect();
        let owner_of = |&&address: &&u64| black_box(rig.device.owner_of(address)).is_some();
        let (found, time) = timed(|| addresses.iter().filter(owner_of).count());
        assert_eq!(found, BATCH, "every address lies in a live block");
        time / BATCH as f64
    };
    let anywhere = (0..batches).map(|_| ask(0..BLOCKS as u64)).collect();
    let near = (0..batches).map(|_| ask(NEAR_BLOCKS)).collect();
    Ok((anywhere, near))
}

/// Times an allocation and its release: from the pool, and with `cuMemAlloc` and `cuMemFree`.
pub(super) fn pairs(rig: &Rig, batches: usize) -> Result<Comparison> {
    let api = &rig.opened.api;
    let mut beside = Comparison { ours: Vec::new(), driver: Vec::new() };
    drop(rig.stream.alloc::<u8>(PAIR_BYTES)?);
    for _ in 0..batches {
        let (done, ours) = timed(|| {
            (0..BATCH).try_for_each(|_| rig.stream.alloc::<u8>(PAIR_BYTES).map(|block| drop(black_box(block))))
        });
        done?;
        let (done, drivers) = timed(|| {
            (0..BATCH).try_for_each(|_| memory::alloc(api, PAIR_BYTES).and_then(|block| memory::free(api, block)))
        });
        done?;
        beside.ours.push(ours / BATCH as f64);
        beside.driver.push(drivers / BATCH as f64);
    }
    Ok(beside)
}

/// A million pool blocks.
struct BlockSet {
    blocks: Vec<Block<u8>>,
}

impl BlockSet {
    fn new(rig: &Rig, random: &mut SplitMix64) -> Result<Self> {
        let mut blocks = Vec::with_capacity(BLOCKS);
        for at in 0..BLOCKS {
            let (least, most) = if at % LARGE_EVERY == 0 { LARGE_BYTES } else { SMALL_BYTES };
            blocks.push(rig.stream.alloc((least + random.next_u64() % (most - least)) as usize)?);
        }
        Ok(Self { blocks })
    }

    /// Returns the first address of one of these blocks, or any address in it.
    fn address(&self, blocks: &Range<u64>, is_beginning: bool, random: &mut SplitMix64) -> u64 {
        let at = (blocks.start + random.next_u64() % (blocks.end - blocks.start)) as usize;
        let block = &self.blocks[at];
        if is_beginning { block.address() } else { block.address() + random.next_u64() % block.len() as u64 }
    }
}
