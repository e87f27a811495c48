//! Memory that a vector has no use for any more, and that work in streams may still use. It is unmapped behind that work:
//! unmapping waits for nothing, and what is still used then is lost with the process (fact 2.4).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold_driver::cuda::{CUdeviceptr, CallError, address};

use crate::core::Core;
use crate::later::Later;
use crate::ledger::{BlockId, Gone, Mark};
use crate::pool::Chunk;
use crate::uses::note_in;

/// What one vector gives back. The vector takes it again where it grows before that has happened.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// By address, without gaps; the last one goes first.
    chunks: Vec<Chunk>,
    /// The work that has to pass before.
    marks: Vec<Mark>,
    /// Of a vector that is gone.
    addresses: Option<Addresses>,
    /// Whether it waits among what is to be done later.
    is_listed: bool,
}

/// Addresses to give back when nothing is mapped to them, and what the ledger has of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) base: u64,
    pub(super) bytes: u64,
    pub(super) block: Option<BlockId>,
}

impl Leaving {
    /// Has chunks unmapped when marks have passed. They lie before those that are leaving already.
    pub(super) fn leave(self: &Arc<Self>, core: &Core, chunks: Vec<Chunk>, marks: &[Mark]) {
        self.inside().leave(chunks, marks);
        self.list(core);
    }

    /// [`leave`](Self::leave) with the last chunks of a vector, and its addresses.
    pub(super) fn end(self: &Arc<Self>, core: &Core, chunks: Vec<Chunk>, marks: &[Mark], addresses: Addresses) {
        let mut inside = self.inside();
        inside.leave(chunks, marks);
        inside.addresses = Some(addresses);
        drop(inside);
        self.list(core);
    }

    /// The chunks that have not left, which do not leave any more, and their marks.
    pub(super) fn take_back(&self) -> (Vec<Chunk>, Vec<Mark>) {
        let mut inside = self.inside();
        (std::mem::take(&mut inside.chunks), std::mem::take(&mut inside.marks))
    }

    /// Unmaps what its work has passed. Whether nothing is left.
    pub(crate) fn attempt(&self, core: &Core) -> Result<bool, CallError> {
        let mut inside = self.inside();
        for &Mark { stream, position } in &inside.marks {
            // A track that is gone has passed everything.
            let Some(track) = core.track(stream) else { continue };
            if !track.has_passed(position) {
                track.ask(&core.api)?;
            }
            if !track.has_passed(position) {
                return Ok(false);
            }
        }
        inside.marks.clear();
        while let Some(&chunk) = inside.chunks.last() {
            core.pool.unmap_beyond(core, chunk)?;
            inside.chunks.pop();
        }
        if let Some(Addresses { base, bytes, block }) = inside.addresses {
            address::free(&core.api, CUdeviceptr(base), bytes as usize)?;
            inside.addresses = None;
            let mut ledger = core.ledger();
            // It is there no more where its context is gone.
            if let Some(block) = block.filter(|&block| ledger.owner(block).is_some()) {
                ledger.forget(block, Gone::GivenBack);
            }
        }
        inside.is_listed = false;
        Ok(true)
    }

    /// Whether it waits among what is to be done later.
    pub(crate) fn is_listed(&self) -> bool {
        self.inside().is_listed
    }

    fn list(self: &Arc<Self>, core: &Core) {
        if !std::mem::replace(&mut self.inside().is_listed, true) {
            core.later(Later::Unmap { leaving: self.clone() });
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn leave(&mut self, mut chunks: Vec<Chunk>, marks: &[Mark]) {
        chunks.append(&mut self.chunks);
        self.chunks = chunks;
        for &mark in marks {
            note_in(&mut self.marks, mark);
        }
    }
}
