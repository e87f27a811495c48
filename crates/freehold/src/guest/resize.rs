//! A block of other people's code that gets another size: where it lies, or elsewhere with its contents. What it counts for
//! its name changes with it, and is never more than the name may have.

use std::sync::Arc;

use freehold_driver::cuda::CUstream;

use super::Guest;
use crate::error::{Error, Result};
use crate::ledger::WrongRelease;
use crate::pool::record::{Record, Seen, Stage};
use crate::tags;
use crate::track::Track;

/// A longer block is moved where no more than this is left of it: what it gives up is worth a copy.
const MOVED_BYTES_MAX: u64 = 64 << 10;

/// A block that is to have other bytes.
struct Resized<'a> {
    record: &'a Record,
    seen: Seen,
    /// The name that it counts for.
    tag: u32,
    track: Arc<Track>,
    stream: CUstream,
}

impl Guest {
    /// Gives a block other bytes: where it lies if that can be, or else elsewhere, with its contents copied in the order of
    /// the stream.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc) and [`free`](Self::free), and [`Error::BudgetFull`] where the block counts for a name that may
    /// not have so much more. The block is as it was.
    pub fn realloc(&self, address: u64, bytes: u64, stream: CUstream) -> Result<u64> {
        if self.core.is_child() {
            return Err(WrongRelease::ForkedChild { address, process: self.core.process }.into());
        }
        self.core.check()?;
        if bytes == 0 {
            return Err(Error::NothingAsked);
        }
        let (_, track) = self.stream(stream)?;
        let record = self.lent_at(address)?;
        let seen = record.seen();
        if seen.state.stage() != Stage::Owned || seen.base != address {
            return Err(self.wrong(address));
        }
        if bytes > seen.bytes && bytes > self.core.pool.supply.most_bytes() {
            return Err(Error::Short { wanted_bytes: bytes });
        }
        // Who has a name says so in the same way as who is used elsewhere.
        let tag = if seen.state.is_used_elsewhere() { self.tagged().get(&record.number()).copied() } else { None };
        let block = Resized { record, seen, tag: tag.unwrap_or(tags::NONE), track, stream };
        // Only what is more is counted while the block has two places, and before it has either.
        let more_bytes = bytes.saturating_sub(seen.bytes);
        self.core.charge_more(block.tag, more_bytes)?;
        let resized = self.resize(&block, bytes);
        let uncounted_bytes = if resized.is_ok() { seen.bytes.saturating_sub(bytes) } else { more_bytes };
        self.core.tags.discharge_part(block.tag, uncounted_bytes);
        resized
    }

    fn resize(&self, block: &Resized<'_>, bytes: u64) -> Result<u64> {
        let &Resized { record, seen, ref track, .. } = block;
        // What other streams use is not given up where it lies, nor added to in an order that is not the block's.
        let is_used = seen.state.is_used_elsewhere() && self.uses().contains_key(&record.number());
        let is_worth_moving = seen.capacity_bytes > MOVED_BYTES_MAX && bytes <= MOVED_BYTES_MAX;
        if seen.stream == track.id.0 && !is_used && !is_worth_moving {
            // As where a whole block is given up.
            track.mark_release().map_err(|error| self.core.failed(error))?;
            if self.core.pool.resize(record, seen.state.generation(), bytes) {
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
        let copied = unsafe { self.core.backend.copy(base, seen.base, copied_bytes, stream.into()) };
        let copied = copied.map_err(|error| self.core.failed(error));
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
        let &Resized { record, seen, tag, ref track, .. } = block;
        track.mark_release().map_err(|error| self.core.failed(error))?;
        let to = self.core.pool.book.record_at(base).expect("a block that was just handed out has a record");
        // From here on nobody else releases it.
        let state = record.disown(seen.base).map_err(|_| self.wrong(seen.base))?;
        self.rename(tag, record, to);
        to.note_used_elsewhere(base).expect("nobody else knows the block yet");
        self.free_used(record.number(), state, track).inspect_err(|_| self.rename(tag, to, record))
    }

    fn rename(&self, tag: u32, from: &Record, to: &Record) {
        let mut tagged = self.tagged();
        tagged.remove(&from.number());
        tagged.insert(to.number(), tag);
        self.core.tags.rename(from.number(), to.number());
    }
}
