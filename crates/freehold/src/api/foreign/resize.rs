//! A block of other people's code that gets another size: where it lies, or elsewhere with its contents. What it counts for
//! its name changes with it, and is never more than the name may have.

use std::sync::Arc;

use freehold_driver::cuda::CUstream;

use super::ForeignPool;
use crate::base::tags;
use crate::error::{Error, Result};
use crate::ledger::WrongRelease;
use crate::ordering::stream_state::StreamState;
use crate::pool::block_meta::{BlockMeta, BlockState, MetaSnapshot};

/// A longer block is moved where no more than this is left of it: what it gives up is worth a copy.
const MOVED_BYTES_MAX: u64 = 64 << 10;

/// A block that is to have other bytes.
struct Resized<'a> {
    meta: &'a BlockMeta,
    seen: MetaSnapshot,
    /// The name that it counts for.
    tag: u32,
    stream_state: Arc<StreamState>,
    stream: CUstream,
}

impl ForeignPool {
    /// Gives a block other bytes: where it lies if that can be, or else elsewhere, with its contents copied in the order of
    /// the stream.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc) and [`free`](Self::free), and [`Error::BudgetFull`] where the block counts for a name that may
    /// not have so much more. The block is as it was.
    pub fn realloc(&self, address: u64, bytes: u64, stream: CUstream) -> Result<u64> {
        if self.device.is_child() {
            return Err(WrongRelease::ForkedChild { address, process: self.device.process }.into());
        }
        self.device.check()?;
        if bytes == 0 {
            return Err(Error::NothingAsked);
        }
        let (_, stream_state) = self.stream(stream)?;
        let meta = self.lent_at(address)?;
        let seen = meta.snapshot();
        if seen.state.state() != BlockState::Owned || seen.base != address {
            return Err(self.wrong(address));
        }
        if bytes > seen.bytes && bytes > self.device.pool.chunks.most_bytes() {
            return Err(Error::Short { wanted_bytes: bytes });
        }
        // Who has a name says so in the same way as who is used elsewhere.
        let tag = if seen.state.is_used_in_other_streams() { self.tagged().get(&meta.number()).copied() } else { None };
        let block = Resized { meta, seen, tag: tag.unwrap_or(tags::NONE), stream_state, stream };
        // Only what is more is counted while the block has two places, and before it has either.
        let more_bytes = bytes.saturating_sub(seen.bytes);
        self.device.charge_more(block.tag, more_bytes)?;
        let resized = self.resize(&block, bytes);
        let uncounted_bytes = if resized.is_ok() { seen.bytes.saturating_sub(bytes) } else { more_bytes };
        self.device.tags.discharge_part(block.tag, uncounted_bytes);
        resized
    }

    fn resize(&self, block: &Resized<'_>, bytes: u64) -> Result<u64> {
        let &Resized { meta, seen, ref stream_state, .. } = block;
        // What other streams use is not given up where it lies, nor added to in an order that is not the block's.
        let is_used = seen.state.is_used_in_other_streams() && self.uses().contains_key(&meta.number());
        let is_worth_moving = seen.capacity_bytes > MOVED_BYTES_MAX && bytes <= MOVED_BYTES_MAX;
        if seen.stream == stream_state.id.0 && !is_used && !is_worth_moving {
            // As where a whole block is given up.
            stream_state.fence_release().map_err(|error| self.device.failed(error))?;
            if self.device.pool.resize(meta, seen.state.generation(), bytes) {
                return Ok(seen.base);
            }
        }
        self.move_elsewhere(block, bytes)
    }

    fn move_elsewhere(&self, block: &Resized<'_>, bytes: u64) -> Result<u64> {
        let &Resized { seen, stream, .. } = block;
        let base = self.alloc(bytes, stream)?;
        let copied_bytes = seen.bytes.min(bytes) as usize;
        // SAFETY: both blocks have so many bytes, and are used in the order of this stream, for which its user vouches.
        let copied = unsafe { self.device.backend.copy(base, seen.base, copied_bytes, stream.into()) };
        let copied = copied.map_err(|error| self.device.failed(error));
        let outcome = copied.and_then(|()| match block.tag {
            tags::NONE => self.free(seen.base, stream),
            _ => self.free_for(block, base),
        });
        match outcome {
            Ok(()) => Ok(base),
            Err(error) => self.free(base, stream).and(Err(error)),
        }
    }

    /// Takes a block back whose name is that of the block at `base` from now on, with all that was counted.
    fn free_for(&self, block: &Resized<'_>, base: u64) -> Result<()> {
        let &Resized { meta, seen, tag, ref stream_state, .. } = block;
        stream_state.fence_release().map_err(|error| self.device.failed(error))?;
        let to = self.device.pool.table.meta_at(base).expect("a block that was just handed out has a meta");
        // From here on nobody else releases it.
        let state = meta.disown(seen.base).map_err(|_| self.wrong(seen.base))?;
        self.rename(tag, meta, to);
        to.note_used_in_other_stream(base).expect("nobody else knows the block yet");
        self.free_used(meta.number(), state, stream_state).inspect_err(|_| self.rename(tag, to, meta))
    }

    fn rename(&self, tag: u32, from: &BlockMeta, to: &BlockMeta) {
        let mut tagged = self.tagged();
        tagged.remove(&from.number());
        tagged.insert(to.number(), tag);
        self.device.tags.rename(from.number(), to.number());
    }
}
