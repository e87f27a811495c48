//! Memory of other processes that this process has opened.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use freehold_driver::cuda::CUerror;

use crate::base::sync::lock;
use crate::memory::arena::HOST_READ_WRITE;
use crate::memory::backing::Backing;
use crate::memory::ipc_token::Token;
use crate::objects::device::Device;
use crate::objects::pool::Pool;

/// Memory of another process, attached at addresses of a device until it is dropped.
#[derive(Debug)]
pub(crate) struct ImportedMapping {
    device: Arc<Device>,
    _memory: Arc<Backing>,
    /// The first address.
    start: u64,
    /// The offset in the memory at which it begins, and the attached size.
    offset: u64,
    bytes: u64,
}

impl ImportedMapping {
    /// Attaches the part of `memory` that holds `bytes` from `offset` on.
    pub(crate) fn new(device: &Arc<Device>, memory: Arc<Backing>, offset: u64, bytes: u64) -> Result<Self, CUerror> {
        const GRAIN: u64 = 4096;
        let first = offset - offset % GRAIN;
        let bytes = (offset + bytes - first).next_multiple_of(GRAIN);
        let start = device.memory.reserve(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        if device.memory.arena.attach(start, &memory, first, bytes, HOST_READ_WRITE).is_err() {
            device.memory.unreserve(start, bytes);
            return Err(CUerror::OUT_OF_MEMORY);
        }
        Ok(Self { device: Arc::clone(device), _memory: memory, start, offset: first, bytes })
    }

    /// Returns whether it contains the block that a token names.
    pub(crate) fn contains(&self, token: &Token) -> bool {
        let end = token.offset.checked_add(token.bytes);
        let lies_within = token.offset >= self.offset && end.is_some_and(|end| end <= self.offset + self.bytes);
        token.bytes > 0 && lies_within && token.device as usize == self.device.index
    }

    /// Returns the address of `offset` of the memory.
    pub(crate) fn address(&self, offset: u64) -> u64 {
        self.start + (offset - self.offset)
    }
}

impl Drop for ImportedMapping {
    fn drop(&mut self) {
        self.device.memory.unreserve(self.start, self.bytes);
    }
}

/// A block of another process. Its memory stays attached until the last user, including work, has dropped it.
#[derive(Debug)]
pub(crate) struct ImportedBlock {
    pub(crate) token: Token,
    /// The pool of the block, if it was not allocated by `cuMemAlloc`.
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) _mapping: Arc<ImportedMapping>,
}

/// The memory and pools of other processes that are open here.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    blocks: Mutex<Blocks>,
    /// Pools by their memory, each with the number of its imports.
    pools: Mutex<BTreeMap<u64, (Arc<Pool>, usize)>>,
}

/// Blocks by their memory and their offset in it.
type Blocks = BTreeMap<(u64, u64), ImportEntry>;

/// An open block.
#[derive(Debug, Clone)]
pub(crate) struct ImportEntry {
    pub(crate) address: u64,
    pub(crate) mapping: Arc<ImportedMapping>,
    /// The id of the context that opened it. `None` for blocks of pools.
    pub(crate) context: Option<u64>,
    pub(crate) open_count: usize,
}

impl Imports {
    pub(crate) fn blocks(&self) -> MutexGuard<'_, Blocks> {
        lock(&self.blocks)
    }

    /// Returns any block in this memory.
    pub(crate) fn find_by_inode(blocks: &Blocks, inode: u64) -> Option<&ImportEntry> {
        blocks.range((inode, 0)..=(inode, u64::MAX)).next().map(|(_, import)| import)
    }

    /// Removes a block.
    pub(crate) fn remove(&self, opened: &ImportedBlock) {
        self.blocks().remove(&opened.token.key());
    }

    /// Removes the blocks of a context that is being destroyed.
    pub(crate) fn remove_context(&self, context_id: u64) {
        self.blocks().retain(|_, import| import.context != Some(context_id));
    }

    /// Returns the imported pool with this memory and counts one more import, or inserts a new one.
    pub(crate) fn pool(&self, inode: u64, make: impl FnOnce() -> Arc<Pool>) -> Arc<Pool> {
        let mut pools = lock(&self.pools);
        let (pool, open_count) = pools.entry(inode).or_insert_with(|| (make(), 0));
        *open_count += 1;
        Arc::clone(pool)
    }

    /// Drops one import of a pool, and returns whether it was the last.
    ///
    /// # Errors
    /// Blocks of the pool are open.
    pub(crate) fn release_pool(&self, inode: u64) -> Result<bool, CUerror> {
        if Self::find_by_inode(&self.blocks(), inode).is_some() {
            return Err(CUerror::INVALID_VALUE);
        }
        let mut pools = lock(&self.pools);
        let (_, open_count) = pools.get_mut(&inode).ok_or(CUerror::INVALID_VALUE)?;
        *open_count -= 1;
        let is_last = *open_count == 0;
        if is_last {
            pools.remove(&inode);
        }
        Ok(is_last)
    }
}
