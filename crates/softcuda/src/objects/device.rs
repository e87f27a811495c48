//! A device: its memory, and its pools.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use freehold_driver::cuda::{CUerror, CUgraphMem_attribute, CUresult};

use super::pool::{Grant, Pool};
use crate::base::config::Config;
use crate::base::sync::lock;
use crate::engine::queue::Queue;
use crate::memory::device_memory::DeviceMemory;

#[derive(Debug)]
pub(crate) struct Device {
    /// Its number in this process.
    pub(crate) ordinal: usize,
    /// Its number on the machine, which other processes know it by.
    pub(crate) index: usize,
    pub(crate) memory: Arc<DeviceMemory>,
    pools: Mutex<DevicePools>,
    graph_memory: Mutex<GraphMemory>,
}

/// The memory of allocation nodes, in bytes.
#[derive(Debug, Default)]
pub(crate) struct GraphMemory {
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
}

impl GraphMemory {
    pub(super) fn take(&mut self, bytes: u64) {
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
    }

    pub(super) fn give_back(&mut self, bytes: u64) {
        self.used -= bytes;
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.reserved_high = self.reserved_high.max(self.reserved);
    }

    pub(super) fn release(&mut self, bytes: u64) {
        self.reserved -= bytes;
    }

    pub(crate) fn attribute(&self, attribute: CUgraphMem_attribute) -> Result<u64, CUerror> {
        Ok(match attribute {
            CUgraphMem_attribute::USED_MEM_CURRENT => self.used,
            CUgraphMem_attribute::USED_MEM_HIGH => self.used_high,
            CUgraphMem_attribute::RESERVED_MEM_CURRENT => self.reserved,
            CUgraphMem_attribute::RESERVED_MEM_HIGH => self.reserved_high,
            _ => return Err(CUerror::INVALID_VALUE),
        })
    }

    /// Sets a high-water mark to the current amount.
    pub(crate) fn reset(&mut self, attribute: CUgraphMem_attribute) -> CUresult {
        match attribute {
            CUgraphMem_attribute::USED_MEM_HIGH => self.used_high = self.used,
            CUgraphMem_attribute::RESERVED_MEM_HIGH => self.reserved_high = self.reserved,
            _ => return Err(CUerror::INVALID_VALUE),
        }
        Ok(())
    }
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
    pub(crate) fn open(config: &Config, ordinal: usize, index: usize) -> io::Result<Self> {
        let memory = Arc::new(DeviceMemory::open(config, index)?);
        Ok(Self { ordinal, index, memory, pools: Mutex::default(), graph_memory: Mutex::default() })
    }

    pub(crate) fn pools(&self) -> MutexGuard<'_, DevicePools> {
        lock(&self.pools)
    }

    pub(crate) fn graph_memory(&self) -> MutexGuard<'_, GraphMemory> {
        lock(&self.graph_memory)
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
