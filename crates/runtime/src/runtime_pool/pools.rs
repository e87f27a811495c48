//! The pools of the process: one for the primary context of each device, created when the program first allocates there,
//! and destroyed when it resets the device.

use std::env;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use freehold_driver::cuda::{Api, CUcontext, CUdeviceptr, CUerror, CUresult, CUstream, CUstreamCaptureStatus};

use super::pool::{CAPTURES, Mode, RuntimePool};
use super::stream_id::stream_id;
use crate::code::CudaError;
use crate::limit::{self, SpareMemory};
use crate::log;
use crate::process::Process;

/// How `cudaFree` behaves: `deferred`, `synchronous`, or `driver` for the driver's own memory. Set by `freehold run`.
const VARIABLE: &str = "FREEHOLD_CUDAFREE";

/// How many devices of a process have pools.
const DEVICES_MAX: usize = 64;

static SLOTS: [Slot; DEVICES_MAX] = [const { Slot::new() }; DEVICES_MAX];

/// How many slots were used, from the first one on.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The pool of one device.
struct Slot {
    /// Null while there is none. What was here stays until the process ends: other threads may use it.
    pool: AtomicPtr<RuntimePool>,
    /// Whether the pool could not be opened.
    is_refused: AtomicBool,
    /// Held while the pool is opened or ended.
    changing: Mutex<()>,
}

impl Slot {
    const fn new() -> Self {
        Self { pool: AtomicPtr::new(ptr::null_mut()), is_refused: AtomicBool::new(false), changing: Mutex::new(()) }
    }

    #[inline]
    fn get(&self) -> Option<&'static RuntimePool> {
        // SAFETY: null, or a pool that was leaked.
        unsafe { self.pool.load(Ordering::Acquire).as_ref() }
    }

    fn open(&self, process: &'static Process, ordinal: i32, mode: Mode) -> Option<&'static RuntimePool> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.get().is_some() || self.is_refused.load(Ordering::Relaxed) {
            return self.get();
        }
        set_spare_memory();
        match RuntimePool::new(process, ordinal, mode) {
            Ok(pool) => {
                let pool: &'static RuntimePool = Box::leak(Box::new(pool));
                self.pool.store(ptr::from_ref(pool).cast_mut(), Ordering::Release);
                USED.fetch_max(ordinal as usize + 1, Ordering::Release);
                Some(pool)
            }
            Err(error) => {
                log::say(&format!("cudaFree waits: the pool cannot be used here: {error}"));
                self.is_refused.store(true, Ordering::Relaxed);
                None
            }
        }
    }
}

/// Returns what the environment asks for.
fn mode() -> Option<Mode> {
    static MODE: LazyLock<Option<Mode>> = LazyLock::new(|| match env::var(VARIABLE).as_deref() {
        Ok("deferred") => Some(Mode::Deferred),
        Ok("synchronous") => Some(Mode::Synchronous),
        Ok("driver" | "") | Err(_) => None,
        Ok(other) => {
            eprintln!(
                "freehold: {VARIABLE} is {other:?}: use deferred, synchronous or driver. The driver's memory is used"
            );
            None
        }
    });
    *MODE
}

/// Returns all pools.
#[inline]
fn all() -> impl Iterator<Item = &'static RuntimePool> {
    SLOTS.iter().take(USED.load(Ordering::Acquire)).filter_map(Slot::get)
}

/// Returns the pool for an allocation, if it is in use and its context is current in this thread. While a stream is captured
/// the driver allocates, which refuses that in some modes.
#[inline]
pub(crate) fn current(process: &'static Process) -> Option<&'static RuntimePool> {
    if !CAPTURES.is_open() {
        return None;
    }
    let context = process.current().ok()?;
    of_context(context).or_else(|| begin(process))
}

/// Returns the pool of a context.
#[inline]
pub(super) fn of_context(context: CUcontext) -> Option<&'static RuntimePool> {
    all().find(|pool| pool.context == context)
}

/// Opens the pool of the current device, unless another context than its primary one is current: then a later call may.
#[cold]
fn begin(process: &'static Process) -> Option<&'static RuntimePool> {
    let mode = mode()?;
    process.make_current().ok()?;
    let context = process.current().ok()?;
    if let Some(pool) = of_context(context) {
        return Some(pool);
    }
    let ordinal = process.ordinal_of_primary(context)?;
    if !can_share(process) {
        return None;
    }
    SLOTS.get(ordinal as usize)?.open(process, ordinal, mode)
}

/// Returns whether the memory of each device can be mapped for all: the program may copy it, or enable peer access.
fn can_share(process: &Process) -> bool {
    static CAN_SHARE: OnceLock<bool> = OnceLock::new();
    *CAN_SHARE.get_or_init(|| {
        let can_share = process.are_all_peers();
        if !can_share {
            log::say("cudaFree waits: not all devices of the process are peers (CUDA_VISIBLE_DEVICES chooses some)");
        }
        can_share
    })
}

/// Returns the pool that an address belongs to.
#[inline]
pub(crate) fn at(address: CUdeviceptr) -> Option<&'static RuntimePool> {
    all().find(|pool| pool.has(address))
}

/// Frees a block of a pool. Returns `None` if no pool has one at this address, and none ever had.
#[inline]
pub(crate) fn free(address: CUdeviceptr) -> Option<Result<(), CudaError>> {
    all().find_map(|pool| pool.free(address))
}

/// Ends the pool of a device, before its context is destroyed: all of its memory goes back to the driver.
pub(crate) fn close(process: &Process, ordinal: i32) {
    if let Some(context) = process.known_primary(ordinal) {
        all().for_each(|pool| pool.forget_peer(context));
    }
    if USED.load(Ordering::Acquire) <= ordinal as usize {
        return;
    }
    let slot = &SLOTS[ordinal as usize];
    let _changing = slot.changing.lock().unwrap_or_else(PoisonError::into_inner);
    slot.is_refused.store(false, Ordering::Relaxed);
    let pool = slot.get();
    slot.pool.store(ptr::null_mut(), Ordering::Release);
    if let Some(pool) = pool
        && let Err(error) = pool.end()
    {
        // The device has failed: its memory is lost to this process.
        log::say(&format!("the pool keeps its memory after cudaDeviceReset: {error}"));
    }
}

/// Announces that the program is about to destroy a stream.
pub(crate) fn retire(api: &Api, stream: CUstream) {
    let is_default = [CUstream::NULL, CUstream::LEGACY, CUstream::PER_THREAD].contains(&stream);
    if !is_default
        && CAPTURES.is_open()
        && all().any(RuntimePool::has_stream_order)
        && let Some(id) = stream_id(api, stream)
    {
        all().for_each(|pool| pool.retire(id));
    }
}

/// Tells the limit of the pools.
fn set_spare_memory() {
    fn of(device: i32) -> Option<&'static RuntimePool> {
        all().find(|pool| pool.ordinal == device)
    }
    limit::set_spare_memory(SpareMemory {
        bytes: |device| of(device).map_or(0, RuntimePool::spare_bytes),
        trim: |device| of(device).is_some_and(RuntimePool::trim),
    });
}

/// Makes a driver call that allocates. If the device has no memory left, gives it what its pool has spare, and calls again.
pub(crate) fn with_spare_memory(process: &Process, call: impl Fn() -> CUresult) -> CUresult {
    match call() {
        Err(CUerror::OUT_OF_MEMORY)
            if process.current().is_ok_and(|context| of_context(context).is_some_and(RuntimePool::trim)) =>
        {
            call()
        }
        result => result,
    }
}

/// Checks that a range lies in one block, if it begins in memory of a pool: the driver only knows the pool's chunks.
#[inline]
pub(crate) fn check_range(start: *const c_void, bytes: usize) -> Result<(), CudaError> {
    match at(CUdeviceptr(start as u64)) {
        Some(pool) => pool.check_range(start as u64, bytes as u64),
        None => Ok(()),
    }
}

/// Like [`check_range`], for rows of a common pitch.
pub(crate) fn check_rows(start: *const c_void, pitch: usize, width: usize, count: usize) -> Result<(), CudaError> {
    let bytes = pitch.checked_mul(count.saturating_sub(1)).and_then(|bytes| bytes.checked_add(width));
    check_range(start, bytes.ok_or(CudaError::INVALID_VALUE)?)
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
    CAPTURES.begin();
    let result = call();
    let ends = 1 + usize::from(was_captured) - usize::from(is_captured());
    (0..ends).for_each(|_| CAPTURES.end());
    result
}
