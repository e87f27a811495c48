//! Memory of a vector or an import that is no longer needed but that work in streams may still use. It is unmapped
//! after that work: unmapping does not wait, and work that still uses the memory would fault.

use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold_driver::handle::Memory;

use crate::ledger::{BlockId, Fence};
use crate::ordering::access_history::note_latest;
use crate::pool::Chunk;

/// The memory that one vector or import gives back. A vector that grows before the memory is unmapped takes it back.
#[derive(Debug, Default)]
pub(crate) struct PendingUnmap {
    locked: Mutex<UnmapState>,
}

#[derive(Debug, Default)]
pub(super) struct UnmapState {
    pub(super) mappings: Mappings,
    /// The work that has to complete first.
    pub(super) fences: Vec<Fence>,
    /// Whether it is in the deferred queue.
    pub(super) is_listed: bool,
    /// Whether the vector or import itself is gone.
    pub(super) has_ended: bool,
}

/// Resources to free, in this order. Each is removed as soon as it is freed, so that after a failure the next attempt
/// frees the rest.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// Memory of the pool, by address, without gaps; the last one goes first.
    pub(crate) chunks: Vec<Chunk>,
    /// Memory of another process. A mapping of it outlives the handle.
    pub(crate) handle: Option<Memory>,
    /// Where it is mapped.
    pub(crate) mapping: Option<AddressRange>,
    /// The addresses of a vector or an import that is gone.
    pub(crate) addresses: Option<AddressRange>,
    /// Their block in the ledger.
    pub(crate) block: Option<BlockId>,
}

/// Addresses that were reserved together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressRange {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
}

impl PendingUnmap {
    /// Returns the chunks that are still mapped, which then stay mapped, and their fences.
    pub(crate) fn take_back(&self) -> (Vec<Chunk>, Vec<Fence>) {
        let mut locked = self.lock();
        (std::mem::take(&mut locked.mappings.chunks), std::mem::take(&mut locked.fences))
    }

    /// Whether it is in the deferred queue.
    pub(crate) fn is_listed(&self) -> bool {
        self.lock().is_listed
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, UnmapState> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnmapState {
    pub(super) fn add(&mut self, mut chunks: Vec<Chunk>, fences: &[Fence]) {
        chunks.append(&mut self.mappings.chunks);
        self.mappings.chunks = chunks;
        for &fence in fences {
            note_latest(&mut self.fences, fence);
        }
    }
}
