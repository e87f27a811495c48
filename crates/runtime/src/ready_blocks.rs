//! Freed blocks by their size, for allocations of exactly that size.
//!
//! A direct-mapped table of sizes: a size replaces another one with the same index. A size that is not requested while
//! blocks are added many times loses its blocks.

use std::mem;

use freehold::foreign::PendingFree;

const PLACES: usize = 64;

/// How many blocks of a size are kept.
const BLOCKS_MAX: usize = 4096;

/// How often blocks are added before a size that is not asked for loses its own.
const IDLE_ADDS_MAX: u32 = 16;

/// The blocks of one size.
#[derive(Default)]
struct Place {
    block_bytes: u64,
    blocks: Vec<PendingFree>,
    /// How often blocks were added, of any size, since one of this size was asked for.
    idle_adds: u32,
}

/// Blocks that no work uses, by size.
pub(crate) struct ReadyBlocks {
    places: Box<[Place; PLACES]>,
    /// Of all blocks.
    pub(crate) bytes: u64,
}

impl Default for ReadyBlocks {
    fn default() -> Self {
        Self {
            places: Box::new([const { Place { block_bytes: 0, blocks: Vec::new(), idle_adds: 0 } }; PLACES]),
            bytes: 0,
        }
    }
}

fn index(bytes: u64) -> usize {
    // The high bits of a product with the golden ratio are spread evenly.
    (bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
}

impl ReadyBlocks {
    /// Takes a block of exactly this size.
    #[inline]
    pub(crate) fn take(&mut self, bytes: u64) -> Option<PendingFree> {
        let place = &mut self.places[index(bytes)];
        if place.block_bytes != bytes {
            return None;
        }
        place.idle_adds = 0;
        let block = place.blocks.pop()?;
        self.bytes -= bytes;
        Some(block)
    }

    /// Adds blocks. Returns those that are not kept: blocks of sizes that nobody asks for, and those beyond the limit.
    pub(crate) fn add_all(&mut self, blocks: impl Iterator<Item = PendingFree>) -> Vec<PendingFree> {
        let mut rest = Vec::new();
        for place in self.places.iter_mut() {
            place.idle_adds = place.idle_adds.saturating_add(1);
            if place.idle_adds > IDLE_ADDS_MAX {
                self.bytes -= place.block_bytes * place.blocks.len() as u64;
                rest.append(&mut place.blocks);
            }
        }
        for block in blocks {
            let place = &mut self.places[index(block.bytes())];
            if place.block_bytes != block.bytes() {
                self.bytes -= place.block_bytes * place.blocks.len() as u64;
                rest.append(&mut place.blocks);
                (place.block_bytes, place.idle_adds) = (block.bytes(), 0);
            }
            if place.blocks.len() < BLOCKS_MAX {
                self.bytes += block.bytes();
                place.blocks.push(block);
            } else {
                rest.push(block);
            }
        }
        rest
    }

    /// Takes all blocks.
    pub(crate) fn take_all(&mut self) -> Vec<PendingFree> {
        self.bytes = 0;
        self.places.iter_mut().flat_map(|place| mem::take(&mut place.blocks)).collect()
    }
}
