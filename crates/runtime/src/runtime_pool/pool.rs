//! The pool of a device.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use freehold::foreign::{CaptureGate, ExportedChunk, ForeignPool, PendingFree};
use freehold::open;
use freehold_driver::cuda::{
    Api, CUcontext, CUdevice, CUdeviceptr, CUerror, CUevent, CUstream, DriverError, Function, context, device, event,
    event_flags, stream, stream_flags,
};

use super::peers::PeerEvents;
use crate::code::CudaError;
use crate::limit;
use crate::log;
use crate::process::Process;
use crate::ready_blocks::ReadyBlocks;

/// How many blocks, or which part of the device's memory, are freed before an event is recorded for them. A record and its
/// query take as long as five allocations.
const BATCH_BLOCKS: usize = 256;
const BATCH_SHARE: u64 = 1024;

/// The number of events: how many batches can wait for different work. A GPU queues about a thousand launches.
const BATCHES: usize = 16;

/// Which part of the device's memory may wait before an allocation waits for it instead of taking more memory.
const WAITING_SHARE: u64 = 16;

/// Captures in progress. They would be invalidated by an event after all work of the context.
pub(super) static CAPTURES: CaptureGate = CaptureGate::new();

/// When a freed block can be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// When the work submitted before is complete; `cudaFree` returns at once.
    Deferred,
    /// At once: `cudaFree` waits for that work.
    Synchronous,
}

/// The pool of a device.
pub(crate) struct RuntimePool {
    pub(super) process: &'static Process,
    pub(super) api: &'static Api,
    pub(super) ordinal: i32,
    pub(super) pool: &'static ForeignPool,
    pub(super) context: CUcontext,
    /// The stream of the blocks of `cudaMalloc`. Nothing runs in it.
    pub(super) stream: CUstream,
    /// Whether memory was allocated in the order of other streams.
    pub(super) has_stream_order: AtomicBool,
    pub(super) mode: Mode,
    pub(super) freed: Mutex<Freed>,
    device_bytes: u64,
    /// The driver's pitch of a row of one byte, which every pitch is a multiple of.
    pitch_granularity: OnceLock<usize>,
}

/// Blocks that were freed. All but the ready ones may still be in use.
pub(super) struct Freed {
    /// No work uses these.
    ready: ReadyBlocks,
    /// Freed before an event was recorded: the oldest batch first, whose event is complete first.
    recorded: VecDeque<Batch>,
    /// Freed since. Its event is not recorded.
    current: Batch,
    /// For later batches.
    unused: Vec<Batch>,
    /// Of all blocks that are not ready.
    waiting_bytes: u64,
}

/// Freed blocks, and the events after all work that may use them.
struct Batch {
    event: CUevent,
    peers: PeerEvents,
    blocks: Vec<PendingFree>,
    bytes: u64,
}

impl Batch {
    /// Returns the events that are recorded after the batch.
    fn events(&self) -> impl Iterator<Item = CUevent> {
        [self.event].into_iter().chain(self.peers.all())
    }
}

impl Freed {
    /// Creates the events, in the current context, which is that of the device.
    fn new(api: &Api) -> Result<Self, DriverError> {
        let batch = || {
            Ok::<_, DriverError>(Batch {
                event: event::create(api, event_flags::DISABLE_TIMING)?,
                peers: PeerEvents::default(),
                blocks: Vec::with_capacity(2 * BATCH_BLOCKS),
                bytes: 0,
            })
        };
        Ok(Self {
            ready: ReadyBlocks::default(),
            recorded: VecDeque::with_capacity(BATCHES),
            current: batch()?,
            unused: (1..BATCHES).map(|_| batch()).collect::<Result<_, _>>()?,
            waiting_bytes: 0,
        })
    }
}

impl RuntimePool {
    /// Opens the pool of the current context, which is the primary one of the device.
    pub(super) fn new(process: &'static Process, ordinal: i32, mode: Mode) -> Result<Self, freehold::Error> {
        let api = &process.api;
        let (context, total) = (context::current(api)?, device::total_bytes(api, CUdevice(ordinal))?);
        let freed = Freed::new(api)?;
        // Drivers before CUDA 12.5 lack the call.
        context::record_event(api, context, freed.current.event)?;
        let stream = stream::create(api, stream_flags::NON_BLOCKING)?;
        // SAFETY: the only stream that is named is the one made here, which is never destroyed.
        let pool = unsafe { open::foreign_pool_on(limit::counted_for_pool(process.api), ordinal) }?;
        let peers: Vec<_> = (0..process.device_count() as i32).filter(|peer| *peer != ordinal).collect();
        pool.set_peers(&peers);
        if !pool.make_exportable() {
            log::say("cudaIpcGetMemHandle fails: this device cannot share memory by descriptors");
        }
        Ok(Self {
            process,
            api,
            ordinal,
            pool,
            context,
            stream,
            has_stream_order: AtomicBool::new(false),
            mode,
            freed: Mutex::new(freed),
            device_bytes: total as u64,
            pitch_granularity: OnceLock::new(),
        })
    }

    /// Allocates memory that any stream may use at once.
    #[inline]
    pub(crate) fn alloc(&self, bytes: usize) -> Result<CUdeviceptr, CudaError> {
        match self.take_ready(bytes as u64) {
            Some(block) => Ok(block),
            None => self.alloc_slow(bytes as u64),
        }
    }

    #[inline]
    pub(super) fn take_ready(&self, bytes: u64) -> Option<CUdeviceptr> {
        let block = self.freed().ready.take(bytes)?;
        Some(CUdeviceptr(self.pool.cancel_free(block)))
    }

    /// Allocates rows of at least this width. Returns the pitch with them.
    pub(crate) fn alloc_rows(&self, width: usize, count: usize) -> Result<(CUdeviceptr, usize), CudaError> {
        let pitch = width.checked_next_multiple_of(self.pitch_granularity()?).ok_or(CudaError::INVALID_VALUE)?;
        let bytes = pitch.checked_mul(count).ok_or(CudaError::INVALID_VALUE)?;
        Ok((self.alloc(bytes)?, pitch))
    }

    fn pitch_granularity(&self) -> Result<usize, CudaError> {
        if let Some(pitch) = self.pitch_granularity.get() {
            return Ok(*pitch);
        }
        let (mut rows, mut pitch) = (CUdeviceptr::NULL, 0);
        // SAFETY: both are valid places for the answer.
        unsafe { (self.api.cuMemAllocPitch_v2)(&raw mut rows, &raw mut pitch, 1, 1, 4) }?;
        // SAFETY: the memory was just allocated, and nothing uses it.
        unsafe { (self.api.cuMemFree_v2)(rows) }?;
        Ok(*self.pitch_granularity.get_or_init(|| pitch.max(1)))
    }

    /// Frees a block of the pool. Returns `None` if there is none at this address, and never was.
    #[inline]
    pub(crate) fn free(&self, address: CUdeviceptr) -> Option<Result<(), CudaError>> {
        let freed = self.free_deferred(address)?;
        Some(if self.mode == Mode::Synchronous { freed.and_then(|()| self.reclaim_now()) } else { freed })
    }

    /// Ends the ownership of a block, whose memory waits for the work submitted before. Returns `None` if there is none at
    /// this address, and never was.
    #[inline]
    pub(super) fn free_deferred(&self, address: CUdeviceptr) -> Option<Result<(), CudaError>> {
        match self.pool.begin_free(address.0) {
            Ok(pending) => {
                let mut freed = self.freed();
                let bytes = pending.bytes();
                freed.waiting_bytes += bytes;
                freed.current.bytes += bytes;
                freed.current.blocks.push(pending);
                if self.is_batch(&freed.current) {
                    // An error of the device remains for a call that can return it.
                    let _ = self.record(&mut freed);
                }
                Some(Ok(()))
            }
            Err(wrong) => self.refuse(address, &wrong),
        }
    }

    /// Gives all memory back to the driver. The context is about to be destroyed, and the pool is not used any more.
    pub(super) fn end(&self) -> Result<(), freehold::Error> {
        // Its blocks end with the pool.
        let batch = &mut self.freed().current;
        let failed = |code| DriverError { call: Function::cuCtxRecordEvent, code };
        batch.peers.record(self.process, self.ordinal).map_err(failed)?;
        context::record_event(self.api, self.context, batch.event)?;
        batch.events().try_for_each(|event| event::synchronize(self.api, event))?;
        // SAFETY: the work is complete, and the program does not use a device that it resets.
        unsafe { open::end_foreign_pool(self.ordinal) }
    }

    /// Forgets a context of another device that is about to be destroyed.
    pub(super) fn forget_peer(&self, context: CUcontext) {
        let freed = &mut *self.freed();
        let batches = freed.recorded.iter_mut().chain(&mut freed.unused).chain([&mut freed.current]);
        batches.for_each(|batch| batch.peers.forget(context));
    }

    /// Returns whether an address is in memory of the pool.
    pub(crate) fn has(&self, address: CUdeviceptr) -> bool {
        self.pool.has(address.0)
    }

    /// Returns the address and the length of the block at an address.
    pub(crate) fn block_around(&self, address: CUdeviceptr) -> Result<(u64, u64), CudaError> {
        self.pool.block_around(address.0).ok_or(CudaError::INVALID_VALUE)
    }

    /// Returns the chunks of the block at an address, for another process.
    ///
    /// # Safety
    /// The block is not freed during the call.
    pub(crate) unsafe fn export_chunks(&self, address: u64) -> Vec<ExportedChunk> {
        // SAFETY: the condition is the same.
        unsafe { self.pool.export_block(address) }.unwrap_or_else(|error| {
            log::say(&format!("another process cannot open a block of this one: {error}"));
            Vec::new()
        })
    }

    /// Returns whether a block at an address was freed, and no other one is there.
    pub(crate) fn is_freed(&self, address: CUdeviceptr) -> bool {
        self.pool.block_around(address.0).is_none() && self.pool.had(address.0)
    }

    /// Checks that a range lies in one block of the pool.
    pub(super) fn check_range(&self, start: u64, bytes: u64) -> Result<(), CudaError> {
        let block = self.pool.block_around(start);
        let is_inside = block
            .is_some_and(|(base, block_bytes)| start.checked_add(bytes).is_some_and(|end| end <= base + block_bytes));
        if is_inside { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
    }

    #[cold]
    fn refuse(&self, address: CUdeviceptr, wrong: &freehold::Error) -> Option<Result<(), CudaError>> {
        if !self.pool.has(address.0) && !self.pool.had(address.0) {
            return None;
        }
        log::say(&format!("a free returns cudaErrorInvalidValue: {wrong}"));
        Some(Err(CudaError::INVALID_VALUE))
    }

    pub(super) fn freed(&self) -> MutexGuard<'_, Freed> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes blocks ready whose work is complete. Waits only if too much memory would be waiting otherwise.
    fn reclaim(&self) -> Result<(), CudaError> {
        let mut freed = self.freed();
        if freed.waiting_bytes > self.device_bytes / WAITING_SHARE {
            drop(freed);
            return self.reclaim_oldest().map(drop);
        }
        self.reclaim_complete(&mut freed)
    }

    /// Returns all freed blocks to the pool: waits for the work submitted until now.
    fn reclaim_all(&self) -> Result<(), CudaError> {
        self.reclaim_now()?;
        let ready = self.freed().ready.take_all();
        let returned = self.pool.finish_free(ready, self.stream).and_then(|()| self.pool.wait_for_ids());
        returned.map_err(|_| CudaError::UNKNOWN)
    }

    /// Makes all freed blocks ready: waits for the work submitted until now.
    fn reclaim_now(&self) -> Result<(), CudaError> {
        let mut freed = self.freed();
        if freed.unused.is_empty() {
            drop(freed);
            self.reclaim_oldest()?;
            freed = self.freed();
        }
        self.record(&mut freed)?;
        let newest: Vec<_> = freed.recorded.back().into_iter().flat_map(Batch::events).collect();
        drop(freed);
        self.wait(&newest)
    }

    /// Waits for the oldest batch, and makes it free. Returns whether there was one.
    fn reclaim_oldest(&self) -> Result<bool, CudaError> {
        let mut freed = self.freed();
        if freed.recorded.is_empty() {
            self.record(&mut freed)?;
        }
        let oldest: Vec<_> = freed.recorded.front().into_iter().flat_map(Batch::events).collect();
        drop(freed);
        self.wait(&oldest)?;
        Ok(!oldest.is_empty())
    }

    /// Waits for events, and makes the blocks ready that were freed before. Other threads allocate and free meanwhile.
    pub(super) fn wait(&self, events: &[CUevent]) -> Result<(), CudaError> {
        for &event in events {
            // SAFETY: the event is not destroyed.
            unsafe { (self.api.cuEventSynchronize)(event) }?;
        }
        self.reclaim_complete(&mut self.freed())
    }

    fn is_batch(&self, batch: &Batch) -> bool {
        batch.blocks.len() >= BATCH_BLOCKS || batch.bytes > self.device_bytes / BATCH_SHARE
    }

    /// Records an event after all work, for the blocks freed since the last one. Does not if there are none, all events are in
    /// use, or a capture is in progress.
    pub(super) fn record(&self, freed: &mut Freed) -> Result<(), CudaError> {
        if freed.current.blocks.is_empty() {
            return Ok(());
        }
        let Some(next) = freed.unused.pop() else { return Ok(()) };
        let record = || {
            freed.current.peers.record(self.process, self.ordinal)?;
            // SAFETY: neither the context nor the event is destroyed while the pool is open.
            unsafe { (self.api.cuCtxRecordEvent)(self.context, freed.current.event) }
        };
        match CAPTURES.while_open(record).unwrap_or(Err(CUerror::STREAM_CAPTURE_UNSUPPORTED)) {
            Ok(()) => {
                freed.recorded.push_back(mem::replace(&mut freed.current, next));
                Ok(())
            }
            error => {
                freed.unused.push(next);
                // Unsupported during a capture, and nothing announces those of the driver API.
                if error == Err(CUerror::STREAM_CAPTURE_UNSUPPORTED) { Ok(()) } else { Ok(error?) }
            }
        }
    }

    /// Makes the blocks ready whose event is complete.
    pub(super) fn reclaim_complete(&self, freed: &mut Freed) -> Result<(), CudaError> {
        if freed.recorded.is_empty() && self.is_batch(&freed.current) {
            self.record(freed)?;
        }
        let mut complete = 0;
        for batch in &freed.recorded {
            // SAFETY: the events are not destroyed.
            match batch.events().try_for_each(|event| unsafe { (self.api.cuEventQuery)(event) }) {
                Err(CUerror::NOT_READY) => break,
                is_complete => is_complete?,
            }
            complete += 1;
        }
        if complete == 0 {
            return Ok(());
        }
        let Freed { ready, recorded, unused, waiting_bytes, .. } = freed;
        let blocks = recorded.iter_mut().take(complete).flat_map(|batch| {
            *waiting_bytes -= mem::take(&mut batch.bytes);
            batch.blocks.drain(..)
        });
        let unwanted = ready.add_all(blocks);
        unused.extend(recorded.drain(..complete));
        self.pool.finish_free(unwanted, self.stream).map_err(|_| CudaError::UNKNOWN)
    }

    /// Allocates if no block of this size is ready.
    #[cold]
    fn alloc_slow(&self, bytes: u64) -> Result<CUdeviceptr, CudaError> {
        self.reclaim()?;
        if let Some(block) = self.take_ready(bytes) {
            return Ok(block);
        }
        let block = self.with_all_freed("cudaMalloc", || self.pool.alloc(bytes, self.stream))?;
        self.wait_for_borrowed().map(|()| block)
    }

    /// Makes an allocation from the pool. If there is not enough memory, waits for all freed blocks and makes it again.
    pub(super) fn with_all_freed(
        &self,
        function: &str,
        alloc: impl Fn() -> freehold::Result<u64>,
    ) -> Result<CUdeviceptr, CudaError> {
        let taken = match alloc() {
            Err(freehold::Error::Short { .. }) => {
                self.reclaim_all()?;
                alloc()
            }
            taken => taken,
        };
        taken.map(CUdeviceptr).map_err(|error| {
            log::say(&format!("{function} fails: {error}"));
            self.fault().unwrap_or(CudaError::MEMORY_ALLOCATION)
        })
    }

    /// Returns the error of the device, if it has failed.
    fn fault(&self) -> Option<CudaError> {
        let event = self.freed().current.event;
        // SAFETY: the event is not destroyed.
        let query = unsafe { (self.api.cuEventQuery)(event) };
        query.err().filter(|error| *error != CUerror::NOT_READY).map(Into::into)
    }

    /// Returns how many bytes of the device are free for allocations although the pool has them.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let freed = self.freed();
        let freed_bytes = freed.waiting_bytes + freed.ready.bytes;
        (self.pool.reserved_bytes() + freed_bytes).saturating_sub(self.pool.live_bytes())
    }

    /// Gives free memory back to the device, for an allocation of the driver that failed. Returns whether there was any.
    pub(crate) fn trim(&self) -> bool {
        self.reclaim_all().is_ok() && self.pool.trim(0).is_ok_and(|bytes| bytes > 0)
    }
}
