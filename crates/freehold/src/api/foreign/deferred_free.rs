//! Frees in two steps, for code that does not say which streams have used a block: the ownership ends at once, and the
//! memory becomes free when its user knows that all work with it is complete.

use freehold_driver::BlockChange;
use freehold_driver::cuda::CUstream;

use super::lent_block::LentBlock;
use super::pending_free::PendingFree;
use super::{ForeignPool, Hidden};
use crate::error::Result;

impl ForeignPool {
    /// Ends the ownership of the block at an address. Its memory is not reused until
    /// [`finish_free`](Self::finish_free).
    ///
    /// # Errors
    /// [`Error::WrongRelease`](crate::Error::WrongRelease), which explains the mistake; the block at the address is
    /// unchanged.
    #[inline]
    pub fn begin_free(&self, address: u64) -> Result<PendingFree> {
        self.device.check()?;
        let (block, state) = self.disown(address)?;
        // Nothing takes the block before the second step.
        Ok(PendingFree { block: block.number(), state, bytes: block.meta.bytes() })
    }

    /// Makes the block owned again, not necessarily by the same owner. Returns its address.
    #[inline]
    pub fn cancel_free(&self, pending: PendingFree) -> u64 {
        let LentBlock { pool, meta } = LentBlock::numbered(&self.device, pending.block);
        let base = meta.base();
        meta.return_to_owner(pending.state);
        pool.chunks.announce(BlockChange::HandedOut { address: base, bytes: pending.bytes });
        base
    }

    /// Frees blocks in the order of a stream. All other work with them must be complete.
    ///
    /// # Errors
    /// Those of the device. The memory of the remaining blocks is then not reused.
    pub fn finish_free(&self, pending: impl IntoIterator<Item = PendingFree>, stream: CUstream) -> Result<()> {
        let (key, stream_state) = self.stream_in(stream, None)?;
        // A thread that only frees gets a cache, too.
        let _hidden = Hidden { foreign_pool: self, key, stream, stream_state: &stream_state };
        self.device.pool.add_thread_cache(key, &stream_state);
        for PendingFree { block, state, .. } in pending {
            let block = LentBlock::numbered(&self.device, block);
            let is_simple = block.is_in_main_pool() && !state.is_used_in_other_streams();
            if !is_simple || !self.device.pool.try_cache(key, block.meta) {
                self.free_used(block, state, &stream_state)?;
            }
        }
        Ok(())
    }
}
