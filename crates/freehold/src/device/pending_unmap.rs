//! Memory that nobody here has a use for any more, and that work in streams may still use: a vector's, or another process's. It
//! is unmapped behind that work: unmapping waits for nothing, and what is still used then is lost with the process (fact 2.4).

use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold_driver::handle::Memory;

use crate::ledger::{BlockId, Fence};
use crate::ordering::access_history::note_latest;
use crate::pool::Chunk;

/// What one vector or import gives back. A vector takes it again where it grows before that has happened.
#[derive(Debug, Default)]
pub(crate) struct PendingUnmap {
    locked: Mutex<Locked>,
}

#[derive(Debug, Default)]
pub(super) struct Locked {
    pub(super) mappings: Mappings,
    /// The work that has to pass before.
    pub(super) fences: Vec<Fence>,
    /// Whether it waits among what is to be done later.
    pub(super) is_listed: bool,
    /// Whether the last of it was to go.
    pub(super) has_ended: bool,
}

/// What goes, in this order. What is gone is struck at once, so that after a failure the rest goes the next time.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// Memory of the pool, by address, without gaps; the last one goes first.
    pub(crate) chunks: Vec<Chunk>,
    /// Memory of another process. What is mapped of it stays when the handle goes.
    pub(crate) handle: Option<Memory>,
    /// Where it is mapped.
    pub(crate) mapping: Option<AddressRange>,
    /// Of a vector or an import that is gone.
    pub(crate) addresses: Option<AddressRange>,
    /// What the ledger has of them.
    pub(crate) block: Option<BlockId>,
}

/// Addresses that were reserved together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressRange {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
}

impl PendingUnmap {
    /// The chunks that have not left, which do not leave any more, and their fences.
    pub(crate) fn take_back(&self) -> (Vec<Chunk>, Vec<Fence>) {
        let mut inside = self.lock();
        (std::mem::take(&mut inside.mappings.chunks), std::mem::take(&mut inside.fences))
    }

    /// Whether it waits among what is to be done later.
    pub(crate) fn is_listed(&self) -> bool {
        self.lock().is_listed
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Locked {
    pub(super) fn add(&mut self, mut chunks: Vec<Chunk>, fences: &[Fence]) {
        chunks.append(&mut self.mappings.chunks);
        self.mappings.chunks = chunks;
        for &fence in fences {
            note_latest(&mut self.fences, fence);
        }
    }
}
