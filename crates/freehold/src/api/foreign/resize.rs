//! Resizing a block of foreign code: in place, or by moving it with its content. The bytes of its tag change
//! with it, and never exceed the tag's limit.

use std::sync::Arc;

use freehold_driver::cuda::CUstream;

use super::ForeignPool;
use super::lent_block::LentBlock;
use crate::base::tags;
use crate::error::{Error, Result};
use crate::ledger::WrongRelease;
use crate::ordering::stream_state::StreamState;
use crate::pool::block_meta::{BlockState, MetaSnapshot};

/// A longer block that shrinks to at most this size is moved, because the memory that this frees is worth a copy.
const MOVED_BYTES_MAX: u64 = 64 << 10;

/// A block that is being resized.
struct Resized<'a> {
    block: LentBlock<'a>,
    seen: MetaSnapshot,
    /// The name under which it is counted.
    tag: u32,
    stream_state: Arc<StreamState>,
    stream: CUstream,
}

impl ForeignPool {
    /// Resizes a block: in place if possible, otherwise by moving it and copying its content in the order of the
    /// stream.
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc); [`Error::WrongUse`] if no block begins at the address; [`Error::BudgetFull`] if
    /// the block's name would exceed its limit. The block is unchanged.
    pub fn realloc(&self, address: u64, bytes: u64, stream: CUstream) -> Result<u64> {
        self.try_realloc(address, bytes, stream).map_err(Error::into_use)
    }

    fn try_realloc(&self, address: u64, bytes: u64, stream: CUstream) -> Result<u64> {
        if self.device.is_child() {
            return Err(WrongRelease::ForkedChild { address, process: self.device.process }.into());
        }
        self.device.check()?;
        if bytes == 0 {
            return Err(Error::NothingAsked);
        }
        let (_, stream_state) = self.stream(stream)?;
        let block = self.lent_at(address)?;
        let seen = block.meta.snapshot();
        if seen.state.state() != BlockState::Owned || seen.base != address {
            return Err(self.wrong(address));
        }
        if bytes > seen.bytes && bytes > self.device.pool.chunks.most_bytes() {
            return Err(Error::Short { wanted_bytes: bytes });
        }
        // A block with a name has the same flag as one that other streams use.
        let tag =
            if seen.state.is_used_in_other_streams() { self.tagged().get(&block.number()).copied() } else { None };
        let block = Resized { block, seen, tag: tag.unwrap_or(tags::NONE), stream_state, stream };
        // Only the difference is counted while the block exists twice, and it is counted before it does.
        let more_bytes = bytes.saturating_sub(seen.bytes);
        self.device.charge_more(block.tag, more_bytes)?;
        let resized = self.resize(&block, bytes);
        let uncounted_bytes = if resized.is_ok() { seen.bytes.saturating_sub(bytes) } else { more_bytes };
        self.device.tags.discharge_part(block.tag, uncounted_bytes);
        resized
    }

    fn resize(&self, resized: &Resized<'_>, bytes: u64) -> Result<u64> {
        let &Resized { block, seen, ref stream_state, .. } = resized;
        // A block that other streams use is neither shrunk in place nor extended in an order that is not its own.
        let is_used = seen.state.is_used_in_other_streams() && self.uses().contains_key(&block.number());
        let is_worth_moving = seen.capacity_bytes > MOVED_BYTES_MAX && bytes <= MOVED_BYTES_MAX;
        if seen.stream == stream_state.id.0 && !is_used && !is_worth_moving {
            // As when a whole block is freed.
            stream_state.fence_release().map_err(|error| self.device.failed(error))?;
            if block.pool.resize(block.meta, seen.state.generation(), bytes) {
                return Ok(seen.base);
            }
        }
        self.move_elsewhere(resized, bytes)
    }

    fn move_elsewhere(&self, resized: &Resized<'_>, bytes: u64) -> Result<u64> {
        let &Resized { block, seen, stream, .. } = resized;
        let sleepers = &self.device.sleepers;
        sleepers.check_awake(seen.base)?;
        let base = match block.is_in_main_pool() {
            true => self.alloc(bytes, stream)?,
            false => self.alloc_sleepable(block.pool.index, bytes, stream)?,
        };
        let copied_bytes = seen.bytes.min(bytes) as usize;
        let awake = match sleepers.keep_awake(std::iter::once(seen.base)) {
            Ok(awake) => awake,
            Err(error) => return self.free(base, stream).and(Err(error)),
        };
        // SAFETY: both blocks have that many bytes, and are used in the order of this stream, which its user guarantees
        // to be valid.
        let copied = unsafe { self.device.backend.copy(base, seen.base, copied_bytes, stream.into()) };
        let copied = copied.map_err(|error| self.device.failed(error));
        drop(awake);
        let outcome = copied.and_then(|()| match resized.tag {
            tags::NONE => self.free(seen.base, stream),
            _ => self.free_for(resized, base),
        });
        match outcome {
            Ok(()) => Ok(base),
            Err(error) => self.free(base, stream).and(Err(error)),
        }
    }

    /// Frees a block whose name, with all that was counted, passes to the block at `base`.
    fn free_for(&self, resized: &Resized<'_>, base: u64) -> Result<()> {
        let &Resized { block, seen, tag, ref stream_state, .. } = resized;
        stream_state.fence_release().map_err(|error| self.device.failed(error))?;
        let to = LentBlock::at(&self.device, base).expect("a block that was just allocated has a meta");
        // No other thread can release it from here on.
        let (_, state) = self.disown(seen.base)?;
        self.rename(tag, block, to);
        to.meta.note_used_in_other_stream(base).expect("no other thread has the block yet");
        self.free_used(block, state, stream_state).inspect_err(|_| self.rename(tag, to, block))
    }

    fn rename(&self, tag: u32, from: LentBlock<'_>, to: LentBlock<'_>) {
        let mut tagged = self.tagged();
        tagged.remove(&from.number());
        tagged.insert(to.number(), tag);
        self.device.tags.rename(from.number(), to.number());
    }
}
