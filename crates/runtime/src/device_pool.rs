//! Device memory from Freehold's pool, with frees that do not wait.
//!
//! NVIDIA's `cudaFree` waits for all work of the context, because any of it may use the block. Here it ends the ownership of
//! the block, appends the block to a list, and returns. For each batch of freed blocks, an event is recorded after all work of
//! the context (`cuCtxRecordEvent`); when that event is complete, the batch is free. So nothing is tracked when work is
//! submitted, and launches cost the same.
//!
//! Blocks that are free again are kept by size ([`ReadyBlocks`]), because programs ask for the same sizes again and again; the
//! rest return to the pool, which splits and merges them.
//!
//! All blocks belong to one stream of the pool, in which nothing runs: a free block of it can be used by any stream at once.
//!
//! The pool is used if `FREEHOLD_CUDAFREE` asks for it (`freehold run` sets it), for the primary context of a process that sees
//! one device: memory of the pool cannot be shared with a peer yet. Everything else comes from the driver.

use std::env;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use freehold::foreign::{ForeignPool, PendingFree};
use freehold::open;
use freehold_driver::cuda::{
    Api, CUcontext, CUdevice, CUdeviceptr, CUerror, CUevent, CUresult, CUstream, CUstreamCaptureStatus, context,
    device, event, event_flags, stream, stream_flags,
};

use crate::code::CudaError;
use crate::log;
use crate::process::Process;
use crate::ready_blocks::ReadyBlocks;

/// How `cudaFree` behaves: `deferred`, `synchronous`, or `driver` for the driver's own memory. Set by `freehold run`.
const VARIABLE: &str = "FREEHOLD_CUDAFREE";

/// How many blocks, or which part of the device's memory, are freed before an event is recorded for them: a record and its
/// queries take as long as ten allocations.
const BATCH_BLOCKS: usize = 64;
const BATCH_SHARE: u64 = 256;

/// Which part of the device's memory may wait before an allocation waits for it instead of taking more memory.
const WAITING_SHARE: u64 = 16;

/// The device whose memory is pooled.
const ORDINAL: i32 = 0;

static POOL: OnceLock<Option<DevicePool>> = OnceLock::new();

/// Captures in progress. They would be invalidated by an event after all work of the context.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// When a freed block can be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// When the work submitted before is complete; `cudaFree` returns at once.
    Deferred,
    /// At once: `cudaFree` waits for that work.
    Synchronous,
}

/// The pool of the device.
pub(crate) struct DevicePool {
    api: &'static Api,
    pool: &'static ForeignPool,
    context: CUcontext,
    /// The stream of all blocks. Nothing runs in it.
    stream: CUstream,
    mode: Mode,
    freed: Mutex<Freed>,
    device_bytes: u64,
    /// The driver's pitch of a row of one byte, which every pitch is a multiple of.
    pitch_granularity: OnceLock<usize>,
    /// The context was reset.
    is_closed: AtomicBool,
}

/// Blocks that were freed. All but the ready ones may still be in use.
struct Freed {
    event: CUevent,
    /// No work uses these.
    ready: ReadyBlocks,
    /// Freed before the event was recorded. Empty if no record is pending.
    before_event: Vec<PendingFree>,
    before_event_bytes: u64,
    /// Freed since.
    after_event: Vec<PendingFree>,
    after_event_bytes: u64,
}

impl Freed {
    fn new(event: CUevent) -> Self {
        let (before_event, after_event) = (Vec::new(), Vec::new());
        let ready = ReadyBlocks::default();
        Self { event, ready, before_event, before_event_bytes: 0, after_event, after_event_bytes: 0 }
    }
}

/// Returns the pool for an allocation, if it is in use and its context is current in this thread. While a stream is captured
/// the driver allocates, which refuses that in some modes.
#[inline]
pub(crate) fn current(process: &'static Process) -> Option<&'static DevicePool> {
    if CAPTURES.load(Ordering::SeqCst) > 0 {
        return None;
    }
    let Some(pool) = POOL.get() else { return begin(process) };
    let pool = pool.as_ref()?;
    let is_usable = !pool.is_closed.load(Ordering::Relaxed)
        && match process.current() {
            Ok(CUcontext::NULL) => process.make_current().is_ok() && process.current() == Ok(pool.context),
            context => context == Ok(pool.context),
        };
    is_usable.then_some(pool)
}

/// Opens the pool, unless another context than the primary one is current: then a later call may.
#[cold]
fn begin(process: &'static Process) -> Option<&'static DevicePool> {
    process.make_current().ok()?;
    (process.current() == process.primary(ORDINAL)).then(|| POOL.get_or_init(|| DevicePool::open(process)).as_ref())?
}

/// Returns the pool, if one was made.
#[inline]
pub(crate) fn known() -> Option<&'static DevicePool> {
    POOL.get()?.as_ref().filter(|pool| !pool.is_closed.load(Ordering::Relaxed))
}

/// Stops using the pool, before its context is destroyed.
pub(crate) fn close() {
    if let Some(pool) = POOL.get().and_then(Option::as_ref) {
        pool.is_closed.store(true, Ordering::Relaxed);
    }
}

/// Makes a driver call that allocates. If the device has no memory left, gives it what the pool has spare, and calls again.
pub(crate) fn with_spare_memory(call: impl Fn() -> CUresult) -> CUresult {
    match call() {
        Err(CUerror::OUT_OF_MEMORY) if known().is_some_and(DevicePool::trim) => call(),
        result => result,
    }
}

/// Makes a driver call that begins a capture or ends it, and counts captures.
pub(crate) fn count_captures(api: &Api, stream: CUstream, call: impl FnOnce() -> CUresult) -> CUresult {
    let is_captured = || {
        let mut status = CUstreamCaptureStatus::NONE;
        // SAFETY: `status` is a valid place for the answer, and the C caller guarantees that the stream is valid.
        unsafe { (api.cuStreamIsCapturing)(stream, &raw mut status) }.is_ok() && status != CUstreamCaptureStatus::NONE
    };
    let was_captured = is_captured();
    // Counted before it begins: a record between the two would invalidate it.
    CAPTURES.fetch_add(1, Ordering::SeqCst);
    let result = call();
    let ends = 1 + usize::from(was_captured) - usize::from(is_captured());
    CAPTURES.fetch_sub(ends, Ordering::SeqCst);
    result
}

impl DevicePool {
    /// Returns `None` if the pool is not asked for, or cannot be used here.
    fn open(process: &'static Process) -> Option<Self> {
        let mode = match env::var(VARIABLE).as_deref() {
            Ok("deferred") => Mode::Deferred,
            Ok("synchronous") => Mode::Synchronous,
            Ok("driver" | "") | Err(_) => return None,
            Ok(other) => {
                eprintln!(
                    "freehold: {VARIABLE} is {other:?}: use deferred, synchronous or driver. The driver's memory is used"
                );
                return None;
            }
        };
        if process.device_count() > 1 {
            log::say("cudaFree waits: the pool needs a process that sees one device (CUDA_VISIBLE_DEVICES)");
            return None;
        }
        match Self::new(process, mode) {
            Ok(pool) => Some(pool),
            Err(error) => {
                log::say(&format!("cudaFree waits: the pool cannot be used here: {error}"));
                None
            }
        }
    }

    fn new(process: &'static Process, mode: Mode) -> Result<Self, freehold::Error> {
        let api = &process.api;
        let (context, total) = (context::current(api)?, device::total_bytes(api, CUdevice(ORDINAL))?);
        let event = event::create(api, event_flags::DISABLE_TIMING)?;
        // Drivers before CUDA 12.5 lack the call.
        context::record_event(api, context, event)?;
        let stream = stream::create(api, stream_flags::NON_BLOCKING)?;
        // SAFETY: the only stream that is named is the one made here, which is never destroyed.
        let pool = unsafe { open::foreign_pool(ORDINAL) }?;
        Ok(Self {
            api,
            pool,
            context,
            stream,
            mode,
            freed: Mutex::new(Freed::new(event)),
            device_bytes: total as u64,
            pitch_granularity: OnceLock::new(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Allocates memory that any stream may use at once.
    #[inline]
    pub(crate) fn alloc(&self, bytes: usize) -> Result<CUdeviceptr, CudaError> {
        let mut freed = self.freed();
        match freed.ready.take(bytes as u64) {
            Some(block) => Ok(CUdeviceptr(self.pool.cancel_free(block))),
            None => self.alloc_slow(&mut freed, bytes as u64),
        }
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
        match self.pool.begin_free(address.0) {
            Ok(pending) => {
                let mut freed = self.freed();
                freed.after_event_bytes += pending.bytes();
                freed.after_event.push(pending);
                Some(match self.mode {
                    Mode::Synchronous => self.reclaim_now(&mut freed),
                    // Early, so that the event is complete when an allocation asks. An error of the device stays until then.
                    Mode::Deferred => self.record_batch(&mut freed).map_or(Ok(()), |_| Ok(())),
                })
            }
            Err(wrong) => self.refuse(address, &wrong),
        }
    }

    /// Returns whether an address is in memory of the pool.
    pub(crate) fn has(&self, address: CUdeviceptr) -> bool {
        self.pool.has(address.0)
    }

    #[cold]
    fn refuse(&self, address: CUdeviceptr, wrong: &freehold::Error) -> Option<Result<(), CudaError>> {
        if !self.pool.has(address.0) && !self.pool.had(address.0) {
            return None;
        }
        log::say(&format!("cudaFree returns cudaErrorInvalidValue: {wrong}"));
        Some(Err(CudaError::INVALID_VALUE))
    }

    fn freed(&self) -> MutexGuard<'_, Freed> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes blocks ready whose work is complete. Waits only if too much memory would be waiting otherwise.
    fn reclaim(&self, freed: &mut Freed) -> Result<(), CudaError> {
        if freed.before_event_bytes + freed.after_event_bytes > self.device_bytes / WAITING_SHARE {
            return self.reclaim_oldest(freed).map(drop);
        }
        if !freed.before_event.is_empty() && !self.reclaim_before_event(freed)? {
            return Ok(());
        }
        if self.record_batch(freed)? {
            self.reclaim_before_event(freed)?;
        }
        Ok(())
    }

    /// Records the event if no record is pending and enough blocks were freed since the last one. Returns whether it did.
    fn record_batch(&self, freed: &mut Freed) -> Result<bool, CudaError> {
        let is_batch =
            freed.after_event.len() >= BATCH_BLOCKS || freed.after_event_bytes > self.device_bytes / BATCH_SHARE;
        Ok(is_batch && freed.before_event.is_empty() && self.record(freed)?)
    }

    /// Returns all freed blocks to the pool: waits for the work submitted until now.
    fn reclaim_all(&self, freed: &mut Freed) -> Result<(), CudaError> {
        self.reclaim_now(freed)?;
        let ready = freed.ready.take_all();
        self.pool.finish_free(ready, self.stream).map_err(|_| CudaError::UNKNOWN)
    }

    /// Makes all freed blocks ready: waits for the work submitted until now.
    fn reclaim_now(&self, freed: &mut Freed) -> Result<(), CudaError> {
        while self.reclaim_oldest(freed)? {}
        Ok(())
    }

    /// Waits for an event after the oldest freed blocks, and makes these free. Returns whether there were any.
    fn reclaim_oldest(&self, freed: &mut Freed) -> Result<bool, CudaError> {
        if freed.before_event.is_empty() && !self.record(freed)? {
            return Ok(false);
        }
        // SAFETY: the event is not destroyed.
        unsafe { (self.api.cuEventSynchronize)(freed.event) }?;
        self.reclaim_before_event(freed)
    }

    /// Records the event after all work, for all blocks freed so far. Returns whether there are any, and no capture is in
    /// progress.
    fn record(&self, freed: &mut Freed) -> Result<bool, CudaError> {
        if freed.after_event.is_empty() || CAPTURES.load(Ordering::SeqCst) > 0 {
            return Ok(false);
        }
        // SAFETY: neither the context nor the event is destroyed while the pool is open.
        match unsafe { (self.api.cuCtxRecordEvent)(self.context, freed.event) } {
            // A capture of the driver API, which nothing announces.
            Err(CUerror::STREAM_CAPTURE_UNSUPPORTED) => return Ok(false),
            recorded => recorded?,
        }
        mem::swap(&mut freed.before_event, &mut freed.after_event);
        freed.before_event_bytes = mem::take(&mut freed.after_event_bytes);
        Ok(true)
    }

    /// Makes the blocks free that were freed before the event. Returns whether the event is complete.
    fn reclaim_before_event(&self, freed: &mut Freed) -> Result<bool, CudaError> {
        // SAFETY: the event is not destroyed.
        match unsafe { (self.api.cuEventQuery)(freed.event) } {
            Err(CUerror::NOT_READY) => return Ok(false),
            complete => complete?,
        }
        freed.before_event_bytes = 0;
        let unwanted = freed.ready.add_all(freed.before_event.drain(..));
        self.pool.finish_free(unwanted, self.stream).map_err(|_| CudaError::UNKNOWN)?;
        Ok(true)
    }

    /// Allocates if no block of this size is ready.
    #[cold]
    fn alloc_slow(&self, freed: &mut Freed, bytes: u64) -> Result<CUdeviceptr, CudaError> {
        self.reclaim(freed)?;
        if let Some(block) = freed.ready.take(bytes) {
            return Ok(CUdeviceptr(self.pool.cancel_free(block)));
        }
        let alloc = || self.pool.alloc(bytes, self.stream);
        let taken = match alloc() {
            Err(freehold::Error::Short { .. }) => {
                self.reclaim_all(freed)?;
                alloc()
            }
            taken => taken,
        };
        taken.map(CUdeviceptr).map_err(|error| {
            log::say(&format!("cudaMalloc fails: {error}"));
            self.fault(freed).unwrap_or(CudaError::MEMORY_ALLOCATION)
        })
    }

    /// Returns the error of the device, if it has failed.
    fn fault(&self, freed: &Freed) -> Option<CudaError> {
        // SAFETY: the event is not destroyed.
        let query = unsafe { (self.api.cuEventQuery)(freed.event) };
        query.err().filter(|error| *error != CUerror::NOT_READY).map(Into::into)
    }

    /// Returns how many bytes of the device are free for allocations although the pool has them.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let freed = self.freed();
        let freed_bytes = freed.before_event_bytes + freed.after_event_bytes + freed.ready.bytes;
        (self.pool.reserved_bytes() + freed_bytes).saturating_sub(self.pool.live_bytes())
    }

    /// Gives free memory back to the device, for an allocation of the driver that failed. Returns whether there was any.
    pub(crate) fn trim(&self) -> bool {
        self.reclaim_all(&mut self.freed()).is_ok() && self.pool.trim(0).is_ok_and(|bytes| bytes > 0)
    }
}
