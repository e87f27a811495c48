//! A device: its memory, and its pools.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use freehold_driver::cuda::CUerror;

use super::pool::{Grant, Pool};
use crate::base::config::Config;
use crate::base::sync::lock;
use crate::engine::queue::Queue;
use crate::memory::device_memory::DeviceMemory;

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) ordinal: usize,
    pub(crate) memory: Arc<DeviceMemory>,
    pools: Mutex<DevicePools>,
}

/// The pools of one device.
#[derive(Debug, Default)]
pub(crate) struct DevicePools {
    /// Created on first use.
    pub(crate) default: Option<Arc<Pool>>,
    /// The pool of `cuMemAllocAsync`, if not the default one.
    pub(crate) current: Option<Arc<Pool>>,
    /// All pools that hold memory, including destroyed ones with live blocks.
    pub(crate) all: Vec<Arc<Pool>>,
}

impl Device {
    pub(crate) fn open(config: &Config, ordinal: usize) -> io::Result<Self> {
        let memory = Arc::new(DeviceMemory::open(config, ordinal)?);
        Ok(Self { ordinal, memory, pools: Mutex::default() })
    }

    pub(crate) fn pools(&self) -> MutexGuard<'_, DevicePools> {
        lock(&self.pools)
    }

    /// Returns the memory that no process uses.
    pub(crate) fn free_bytes(&self) -> Result<u64, CUerror> {
        self.memory.usage.free_bytes().map_err(|_| CUerror::OPERATING_SYSTEM)
    }

    /// Allocates `bytes` of memory. Takes unused memory from pools if nothing else is left.
    pub(crate) fn alloc(&self, bytes: u64, owner: u64) -> Result<u64, CUerror> {
        let try_alloc = || self.memory.alloc(bytes, owner).map_err(|_| CUerror::OUT_OF_MEMORY);
        if bytes > self.memory.bytes {
            return Err(CUerror::OUT_OF_MEMORY);
        }
        let address = match try_alloc()? {
            Some(address) => Some(address),
            None => {
                self.trim_pools(|_| 0);
                try_alloc()?
            }
        };
        address.ok_or(CUerror::OUT_OF_MEMORY)
    }

    /// Allocates memory of a pool of this device for `queue`. Takes unused memory from other pools before the queue has
    /// to wait.
    pub(crate) fn alloc_from(&self, pool: &Pool, bytes: u64, queue: &Queue) -> Result<Grant, CUerror> {
        let trimmed = || {
            self.trim_pools(|_| 0);
            pool.alloc_after_trim(bytes, queue)
        };
        pool.try_alloc(bytes, queue).or_else(trimmed).ok_or(CUerror::OUT_OF_MEMORY)
    }

    /// Makes every pool return its unused memory beyond the amount it may keep.
    pub(crate) fn trim_pools(&self, keep_bytes: impl Fn(&Pool) -> u64) {
        let mut pools = self.pools();
        for pool in &pools.all {
            pool.trim(keep_bytes(pool));
        }
        pools.all.retain(|pool| !pool.is_drained());
    }
}
