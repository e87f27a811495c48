//! `cudaMallocAsync` and `cudaFreeAsync` from the pool.
//!
//! Memory that is freed in a stream serves the same stream at once, through the pool's heap of that stream. Blocks that are
//! freed in another stream than they were allocated in join the batches of `cudaFree`; other streams get memory only after an
//! event that follows all work of the context. So a stream handle is used only during the program's own call with it, and the
//! program may destroy streams through the driver API. A stream is identified by its id, because the driver reuses handles.
//!
//! The driver allocates in captured streams, in streams of other contexts, and once the program has requested a device's
//! pool: its settings and queries of that pool apply to the driver's memory.

use std::sync::atomic::{AtomicBool, Ordering};

use freehold::foreign::StreamById;
use freehold_driver::cuda::{CUcontext, CUdeviceptr, CUerror, CUstream};

use super::pool::{CAPTURES, RuntimePool};
use super::pools;
use super::stream_id::{LEGACY_ID, stream_id};
use crate::code::CudaError;
use crate::log;

/// Whether the program has asked for the pool of a device.
static ASKS_FOR_POOLS: AtomicBool = AtomicBool::new(false);

/// Notes that the program asks for the pool of a device, or replaces it: the driver serves later stream-ordered allocations.
pub(crate) fn leave_to_driver() {
    if !ASKS_FOR_POOLS.swap(true, Ordering::Relaxed) {
        log::say("cudaMallocAsync uses the driver's pool from now on: the program asks for it");
    }
}

fn by_id(stream: CUstream, id: u64) -> StreamById {
    StreamById { id, handle: stream, gate: &CAPTURES }
}

impl RuntimePool {
    /// Allocates memory in the order of a stream. Returns `None` if the driver has to.
    #[inline]
    pub(crate) fn alloc_in(&self, stream: CUstream, bytes: usize) -> Option<Result<CUdeviceptr, CudaError>> {
        if ASKS_FOR_POOLS.load(Ordering::Relaxed) {
            return None;
        }
        let id = stream_id(self.api, stream)?;
        match self.pool.try_alloc_by_id(bytes as u64, id) {
            Some(block) => Some(Ok(CUdeviceptr(block))),
            None => self.alloc_in_slow(stream, id, bytes),
        }
    }

    /// Allocates if nothing that is free in the stream's order fits. Memory comes from the device of the stream.
    #[cold]
    fn alloc_in_slow(&self, stream: CUstream, id: u64, bytes: usize) -> Option<Result<CUdeviceptr, CudaError>> {
        let context = self.context_of(stream)?;
        if context != self.context {
            return pools::of_context(context)?.alloc_in(stream, bytes);
        }
        let (stream, bytes) = (by_id(stream, id), bytes as u64);
        self.has_stream_order.store(true, Ordering::Relaxed);
        // This does not wait, as cudaMalloc does when much memory is pending: the stream itself can wait later.
        if let Err(error) = self.reclaim_complete(&mut self.freed()) {
            return Some(Err(error));
        }
        if let Some(block) = self.take_ready(bytes) {
            return Some(Ok(block));
        }
        let alloc = || self.pool.alloc_by_id(bytes, stream);
        Some(self.with_all_freed("cudaMallocAsync", alloc))
    }

    /// Frees a block in the order of a stream. Returns `None` if the stream is captured, or if the pool has no block at the
    /// address: the driver answers such a call.
    #[inline]
    pub(crate) fn free_in(&self, stream: CUstream, address: CUdeviceptr) -> Option<Result<(), CudaError>> {
        let id = stream_id(self.api, stream)?;
        // Each context has a legacy default stream.
        let is_known = id != LEGACY_ID || self.is_current();
        if is_known && self.pool.try_free_by_id(address.0, id) {
            Some(Ok(()))
        } else {
            self.free_in_slow(stream, id, address)
        }
    }

    /// Frees a block of another stream, or one that this thread cannot cache.
    fn free_in_slow(&self, stream: CUstream, id: u64, address: CUdeviceptr) -> Option<Result<(), CudaError>> {
        let context = self.context_of(stream)?;
        if context == self.context {
            // Failures of the device come back with the next call that can return them.
            let is_free = || self.pool.free_by_id(address.0, by_id(stream, id)).is_ok_and(|is_free| is_free);
            if CAPTURES.is_open() && is_free() {
                return Some(Ok(()));
            }
        } else if self.process.ordinal_of_primary(context).is_none() {
            // Its work is in no context that events follow.
            // SAFETY: the C caller guarantees that the stream is valid.
            if let Err(error) = unsafe { (self.api.cuStreamSynchronize)(stream) } {
                return Some(Err(error.into()));
            }
        }
        self.free_deferred(address)
    }

    /// Returns whether the pool's context is current in this thread.
    fn is_current(&self) -> bool {
        let mut context = CUcontext::NULL;
        // SAFETY: `context` is a valid place for the answer.
        unsafe { (self.api.cuCtxGetCurrent)(&raw mut context) }.is_ok() && context == self.context
    }

    fn context_of(&self, stream: CUstream) -> Option<CUcontext> {
        let mut context = CUcontext::NULL;
        // SAFETY: `context` is a valid place for the answer, and the C caller guarantees that the stream is valid.
        unsafe { (self.api.cuStreamGetCtx)(stream, &raw mut context) }.ok()?;
        Some(context)
    }

    /// Returns whether memory was allocated in the order of a stream of the program.
    pub(super) fn has_stream_order(&self) -> bool {
        self.has_stream_order.load(Ordering::Relaxed)
    }

    /// Announces that the stream with this id is about to be destroyed.
    pub(super) fn retire(&self, id: u64) {
        // Without this its memory serves others when memory is short. An error of the device remains for a call that can
        // return it.
        let _ = self.pool.retire_id(id);
    }

    /// Waits for the stream of the blocks that every stream may use at once: it may wait for memory of other streams.
    pub(super) fn wait_for_borrowed(&self) -> Result<(), CudaError> {
        if !self.has_stream_order() {
            return Ok(());
        }
        // SAFETY: the stream is not destroyed.
        match unsafe { (self.api.cuStreamQuery)(self.stream) } {
            // SAFETY: as above.
            Err(CUerror::NOT_READY) => Ok(unsafe { (self.api.cuStreamSynchronize)(self.stream) }?),
            is_complete => Ok(is_complete?),
        }
    }
}
