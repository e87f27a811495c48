//! The limit of the process, and the calls that count against it.

use std::env;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use freehold_driver::cuda::{
    self, Api, CUcontext, CUdevice, CUdeviceptr, CUerror, CUgraphMem_attribute, CUmemPool_attribute, CUmemoryPool,
    CUresult, CUstream,
};

use super::usage::{Charge, Key, Usage};

const VARIABLE: &str = "FREEHOLD_LIMIT";

/// What rows are assumed to be aligned to, before the driver tells their pitch.
pub(super) const PITCH_BYTES: u64 = 512;

static LIMIT: OnceLock<Option<Limit>> = OnceLock::new();
pub(super) static SPARE: OnceLock<SpareMemory> = OnceLock::new();

/// Memory that the runtime's own pool has from a device and does not need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpareMemory {
    pub(crate) bytes: fn(i32) -> u64,
    /// Returns it to the device. Waits for freed blocks that are still in use.
    pub(crate) trim: fn(i32) -> bool,
}

/// Tells of the runtime's own pool, whose spare memory is free for other allocations.
pub(crate) fn set_spare_memory(spare: SpareMemory) {
    let _ = SPARE.set(spare);
}

/// What returns unused memory to the device if there is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// The runtime's own pool, and the driver's.
    TrimsAll,
    /// The driver's pools. The runtime's own pool asks: its locks are held.
    TrimsDriver,
}

/// The limit, and what is in use.
pub(super) struct Limit {
    /// The driver, without the wrappers.
    pub(super) api: Api,
    /// For each device.
    pub(super) bytes: u64,
    pub(super) usage: Mutex<Usage>,
    /// Pools that may have memory, and their devices.
    pub(super) pools: Mutex<Vec<(CUmemoryPool, i32)>>,
    /// Held while a pool may grow: meanwhile its growth is counted twice.
    growing: Mutex<()>,
    has_graph_memory: AtomicBool,
}

pub(super) fn get() -> Option<&'static Limit> {
    LIMIT.get_or_init(Limit::open).as_ref()
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the runtime's own pool return memory of a device that nothing uses. Waits for freed blocks.
fn trim_own_pool(device: i32) {
    if let Some(spare) = SPARE.get() {
        (spare.trim)(device);
    }
}

impl Limit {
    fn open() -> Option<Self> {
        let value = env::var_os(VARIABLE).filter(|value| !value.is_empty())?;
        let Some(bytes) = value.to_str().and_then(|text| text.parse().ok()) else {
            eprintln!(
                "freehold: {VARIABLE} is {value:?}: set it to a number of bytes. The program runs without a limit"
            );
            return None;
        };
        // SAFETY: as for the table of the process, which is loaded from the same library.
        let api = unsafe { cuda::load::load(Path::new(cuda::load::LIBRARY)) }.ok()?;
        Some(Self {
            api,
            bytes,
            usage: Mutex::default(),
            pools: Mutex::default(),
            growing: Mutex::default(),
            has_graph_memory: AtomicBool::new(false),
        })
    }

    /// Returns the device and the context of this thread. Without one the driver refuses an allocation.
    pub(super) fn current(&self) -> Option<(i32, usize)> {
        let (mut context, mut device) = (CUcontext::NULL, CUdevice(0));
        // SAFETY: `context` is a valid place for the answer.
        unsafe { (self.api.cuCtxGetCurrent)(&raw mut context) }.ok()?;
        // SAFETY: `device` is a valid place for the answer.
        unsafe { (self.api.cuCtxGetDevice)(&raw mut device) }.ok()?;
        Some((device.0, context.0))
    }

    /// Returns what a device has in use, in the program and in the driver's pools.
    fn used_bytes(&self, usage: &Usage, device: i32) -> u64 {
        let pools = lock(&self.pools);
        let reserved = pools.iter().filter(|(_, of)| *of == device);
        let reserved = reserved.map(|(pool, _)| self.pool_bytes(*pool, CUmemPool_attribute::RESERVED_MEM_CURRENT));
        usage.used_bytes(device) + reserved.sum::<u64>() + self.graph_bytes(device)
    }

    fn pool_bytes(&self, pool: CUmemoryPool, attribute: CUmemPool_attribute) -> u64 {
        let mut bytes = 0_u64;
        // SAFETY: `bytes` is a valid place for the answer, and a pool is removed from the list before it is destroyed.
        let asked = unsafe { (self.api.cuMemPoolGetAttribute)(pool, attribute, (&raw mut bytes).cast()) };
        asked.map_or(0, |()| bytes)
    }

    fn graph_bytes(&self, device: i32) -> u64 {
        if !self.has_graph_memory.load(Ordering::Relaxed) {
            return 0;
        }
        let (mut bytes, attribute) = (0_u64, CUgraphMem_attribute::RESERVED_MEM_CURRENT);
        let place = (&raw mut bytes).cast();
        // SAFETY: `bytes` is a valid place for the answer.
        unsafe { (self.api.cuDeviceGetGraphMemAttribute)(CUdevice(device), attribute, place) }.map_or(0, |()| bytes)
    }

    /// Returns how much more the program may have of a device.
    pub(super) fn free_bytes(&self, device: i32) -> u64 {
        let usage = lock(&self.usage);
        self.bytes.saturating_sub(self.used_bytes(&usage, device))
    }

    pub(super) fn try_charge(&self, device: i32, bytes: u64) -> CUresult {
        let mut usage = lock(&self.usage);
        if self.used_bytes(&usage, device).saturating_add(bytes) > self.bytes {
            return Err(CUerror::OUT_OF_MEMORY);
        }
        usage.charge(device, bytes);
        Ok(())
    }

    /// Counts memory that is about to be allocated.
    pub(super) fn charge(&self, device: i32, bytes: u64, shortage: Shortage) -> CUresult {
        let alone = || {
            let _growing = lock(&self.growing);
            self.try_charge(device, bytes)
        };
        self.try_charge(device, bytes).or_else(|_| alone()).or_else(|_| {
            if shortage == Shortage::TrimsAll {
                trim_own_pool(device);
            }
            self.trim_driver(device);
            alone()
        })
    }

    pub(super) fn uncharge(&self, device: i32, bytes: u64) {
        lock(&self.usage).uncharge(device, bytes);
    }

    /// Makes the driver return memory of its pools and of graphs that nothing uses.
    fn trim_driver(&self, device: i32) {
        for (pool, _) in lock(&self.pools).iter().filter(|(_, of)| *of == device) {
            // SAFETY: a pool is removed from the list before it is destroyed. What it keeps stays counted.
            let _ = unsafe { (self.api.cuMemPoolTrimTo)(*pool, 0) };
        }
        if self.has_graph_memory.load(Ordering::Relaxed) {
            // SAFETY: the call takes no pointer.
            let _ = unsafe { (self.api.cuDeviceGraphMemTrim)(CUdevice(device)) };
        }
    }

    /// Makes a call that allocates `bytes`. Returns what to note for the memory; without a context, nothing was counted.
    pub(super) fn alloc(
        &self,
        bytes: u64,
        shortage: Shortage,
        call: impl FnOnce() -> CUresult,
    ) -> Result<Option<Charge>, CUerror> {
        let Some((device, context)) = self.current() else { return call().map(|()| None) };
        self.charge(device, bytes, shortage)?;
        call().inspect_err(|_| self.uncharge(device, bytes))?;
        Ok(Some(Charge { device, bytes, context }))
    }

    pub(super) fn note(&self, key: Key, charge: Option<Charge>) {
        if let Some(charge) = charge {
            lock(&self.usage).insert(key, charge);
        }
    }

    /// Makes a call that frees. Another allocation may have the key when the call returns.
    pub(super) fn free(&self, key: Key, call: impl FnOnce() -> CUresult) -> CUresult {
        let taken = lock(&self.usage).remove(key);
        let result = call();
        if let Some(charge) = taken {
            match result {
                Ok(()) => self.uncharge(charge.device, charge.bytes),
                Err(_) => lock(&self.usage).insert(key, charge),
            }
        }
        result
    }

    pub(super) fn add_pool(&self, pool: CUmemoryPool, device: i32) {
        let mut pools = lock(&self.pools);
        if !pools.iter().any(|(known, _)| *known == pool) {
            pools.push((pool, device));
        }
    }

    pub(super) fn device_of_pool(&self, pool: CUmemoryPool) -> Option<i32> {
        lock(&self.pools).iter().find(|(known, _)| *known == pool).map(|(_, device)| *device)
    }

    /// Makes a call that allocates from a pool of the driver. The pool grows by an amount that only the driver knows.
    ///
    /// # Safety
    /// The call writes an address of the stream's pool to `start`, and the stream is valid.
    pub(super) unsafe fn alloc_from_pool(
        &self,
        (pool, device): (CUmemoryPool, i32),
        bytes: u64,
        (start, stream): (*mut CUdeviceptr, CUstream),
        call: impl Fn() -> CUresult,
    ) -> CUresult {
        self.add_pool(pool, device);
        let attempt = || {
            // SAFETY: the conditions are the same.
            unsafe { self.try_alloc_from_pool((pool, device), bytes, (start, stream), &call) }
        };
        match attempt() {
            Err(CUerror::OUT_OF_MEMORY) => {
                trim_own_pool(device);
                self.trim_driver(device);
                attempt()
            }
            result => result,
        }
    }

    /// # Safety
    /// As for [`Self::alloc_from_pool`].
    unsafe fn try_alloc_from_pool(
        &self,
        (pool, device): (CUmemoryPool, i32),
        bytes: u64,
        (start, stream): (*mut CUdeviceptr, CUstream),
        call: impl Fn() -> CUresult,
    ) -> CUresult {
        let growing = lock(&self.growing);
        let reserved = self.pool_bytes(pool, CUmemPool_attribute::RESERVED_MEM_CURRENT);
        let used = self.pool_bytes(pool, CUmemPool_attribute::USED_MEM_CURRENT);
        let growth = bytes.saturating_sub(reserved.saturating_sub(used));
        self.try_charge(device, growth)?;
        let result = call();
        self.uncharge(device, growth);
        drop(growing);
        result?;
        let usage = lock(&self.usage);
        if self.used_bytes(&usage, device) <= self.bytes {
            return Ok(());
        }
        drop(usage);
        // The pool has grown by more. Nothing uses the memory yet.
        // SAFETY: the call has written the address.
        let start = unsafe { *start };
        // SAFETY: the block was just allocated in the stream.
        unsafe { (self.api.cuMemFreeAsync)(start, stream) }?;
        // SAFETY: the caller guarantees that the stream is valid; it is not captured.
        unsafe { (self.api.cuStreamSynchronize)(stream) }?;
        // SAFETY: the pool was just used.
        unsafe { (self.api.cuMemPoolTrimTo)(pool, 0) }?;
        Err(CUerror::OUT_OF_MEMORY)
    }

    /// Checks the size of memory that a graph will have. It is counted when the driver allocates it, for a launch.
    pub(super) fn check_graph_memory(&self, device: i32, bytes: u64) -> CUresult {
        self.has_graph_memory.store(true, Ordering::Relaxed);
        if bytes <= self.free_bytes(device) {
            return Ok(());
        }
        trim_own_pool(device);
        self.trim_driver(device);
        if bytes <= self.free_bytes(device) { Ok(()) } else { Err(CUerror::OUT_OF_MEMORY) }
    }
}
