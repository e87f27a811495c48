//! Streams identified by their ids, for code that is not told when a stream is destroyed: an id is never reused, and a
//! handle is not used after the call that it was passed to.
//!
//! Memory freed in such a stream can be reused by that stream at once. Another stream can reuse it once an event that
//! was recorded after all work of the context has completed; that includes the work of destroyed streams.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use freehold_driver::cuda::CUstream;
use freehold_driver::handle;

use super::lent_block::LentBlock;
use super::stream_by_id::StreamById;
use super::{ForeignPool, IN_MAGAZINES, is_legacy, thread_of};
use crate::error::Result;
use crate::ordering::stream_origin::StreamOrigin;
use crate::ordering::stream_state::StreamState;
use crate::pool::block_meta::OwnedBy;
use crate::pool::{CacheKey, Pool};

impl ForeignPool {
    /// Allocates memory for work in the stream with this id from memory that is free in its order. Makes no driver
    /// call. Returns `None` if nothing fits, or if the stream is unknown.
    #[inline]
    pub fn try_alloc_by_id(&self, bytes: u64, id: u64) -> Option<u64> {
        let key = CacheKey::foreign_id(self.ordinal, id);
        if !IN_MAGAZINES.contains(&bytes) {
            return None;
        }
        Pool::try_alloc_address(key, bytes)
            .or_else(|| Pool::try_alloc_local(key, bytes, OwnedBy::Address).map(|block| block.base))
    }

    /// Allocates memory for work in a stream, from any source.
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc).
    #[cold]
    pub fn alloc_by_id(&self, bytes: u64, stream: StreamById) -> Result<u64> {
        self.check_request(bytes)?;
        let stream_state = self.stream_by_id(stream)?;
        self.alloc_anywhere(&self.device.pool, bytes, CacheKey::foreign_id(self.ordinal, stream.id), &stream_state)
    }

    /// Frees the block at an address in the order of the stream with this id, if it was allocated there. Makes no
    /// driver call. Returns whether it freed the block; otherwise nothing has changed.
    #[inline]
    pub fn try_free_by_id(&self, address: u64, id: u64) -> bool {
        let key = CacheKey::foreign_id(self.ordinal, id);
        Pool::try_free_address(key, address) || Pool::try_free_local(key, address)
    }

    /// Like [`try_free_by_id`](Self::try_free_by_id), for a thread that has not named the stream before.
    ///
    /// # Errors
    /// Those of the device.
    #[cold]
    pub fn free_by_id(&self, address: u64, stream: StreamById) -> Result<bool> {
        self.device.check()?;
        let key = CacheKey::foreign_id(self.ordinal, stream.id);
        let stream_state = self.stream_by_id(stream)?;
        self.device.pool.add_thread_cache(key, &stream_state);
        Ok(Pool::try_free_local(key, address) || self.free_uncached_by_id(address, &stream_state)?)
    }

    /// Frees a block in the order of the stream that allocated it, in a checked process, where threads cache no blocks.
    fn free_uncached_by_id(&self, address: u64, stream_state: &Arc<StreamState>) -> Result<bool> {
        let is_its =
            |block: LentBlock<'_>| block.meta.owned_at(address).is_some() && block.meta.stream() == stream_state.id.0;
        if !self.device.pool.chunks.is_checked() || !self.lent_at(address).is_ok_and(is_its) {
            return Ok(false);
        }
        let (block, state) = self.disown(address)?;
        self.free_used(block, state, stream_state)?;
        Ok(true)
    }

    /// Announces that the stream with this id is about to be destroyed, so that other streams get its memory earlier.
    /// If this is never called, or is called during a capture, other streams get the memory when memory is short.
    ///
    /// # Errors
    /// Those of the device.
    pub fn retire_id(&self, id: u64) -> Result<()> {
        self.device.check()?;
        let known = self.by_id().get(&id).cloned();
        let Some(stream_state) = known else { return Ok(()) };
        self.retire_states(&[(id, stream_state)])
    }

    /// Waits on the host for all work that was submitted so far to the streams that are known by their ids, so that
    /// other streams can reuse memory that was freed there.
    ///
    /// # Errors
    /// Those of the device. While a capture runs, the driver refuses.
    pub fn wait_for_ids(&self) -> Result<()> {
        self.device.check()?;
        let known: Vec<_> = self.by_id().values().cloned().collect();
        // What threads have cached is free after the work until now.
        self.device.pools().for_each(Pool::flush_caches);
        for stream_state in known.iter().filter(|stream_state| !stream_state.is_retired()) {
            let waited = stream_state.wait_on_host(stream_state.next_seq());
            waited.map_err(|error| self.device.failed(error))?;
        }
        Ok(())
    }

    fn stream_by_id(&self, stream: StreamById) -> Result<Arc<StreamState>> {
        // A thread's default stream is retired when the thread is ending; its last destructors may use it once more.
        if let Some(known) = self.by_id().get(&stream.id).filter(|known| !known.is_retired()) {
            return Ok(known.clone());
        }
        self.retire_replaced(stream)?;
        let origin = StreamOrigin::ById(stream.gate);
        let made = self.device.add_foreign_stream(stream.handle.into(), thread_of(stream.handle), origin)?;
        let mut by_id = self.by_id();
        match by_id.get(&stream.id).filter(|known| !known.is_retired()) {
            None => {
                by_id.insert(stream.id, made.clone());
                Ok(made)
            }
            Some(known) => {
                // Another thread was faster. Nothing was allocated or freed in the order of the new state.
                made.lose();
                Ok(known.clone())
            }
        }
    }

    /// Forgets earlier streams whose handle now names another stream, and the default streams of threads that have
    /// ended.
    fn retire_replaced(&self, stream: StreamById) -> Result<()> {
        self.by_id().retain(|_, known| !known.is_retired());
        let raw = handle::Stream::from(stream.handle);
        // Each thread has its own default stream, and all have one handle.
        let has_own_handle = !is_legacy(stream.handle) && stream.handle != CUstream::PER_THREAD;
        let is_replaced = |known: &StreamState| has_own_handle && known.raw == raw;
        let replaced: Vec<_> = self
            .by_id()
            .iter()
            .filter(|(_, known)| is_replaced(known))
            .map(|(&id, known)| (id, known.clone()))
            .collect();
        self.retire_states(&replaced)?;
        self.device.forget_ended_streams()
    }

    /// Records the last fences of streams that are no longer named, and takes back the blocks that threads cache for
    /// them.
    fn retire_states(&self, states: &[(u64, Arc<StreamState>)]) -> Result<()> {
        for (id, stream_state) in states {
            self.device.pools().for_each(|pool| pool.close_caches(stream_state));
            let can_record = stream_state.can_record_fence().map_err(|error| self.device.failed(error))?;
            if can_record {
                stream_state.retire().map_err(|error| self.device.failed(error))?;
                self.by_id().remove(id);
            }
        }
        if states.is_empty() { Ok(()) } else { self.device.run_deferred() }
    }

    pub(super) fn by_id(&self) -> MutexGuard<'_, HashMap<u64, Arc<StreamState>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
