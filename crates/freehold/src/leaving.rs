//! Memory that nobody here has a use for any more, and that work in streams may still use: a vector's, or another process's. It
//! is unmapped behind that work: unmapping waits for nothing, and what is still used then is lost with the process (fact 2.4).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold_driver::handle::Memory;
use freehold_driver::{CallError, Mapping};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::later::Later;
use crate::ledger::{BlockId, Gone, Kind, Ledger, Mark, NotEntered, Release, State};
use crate::pool::Chunk;
use crate::uses::note_in;

/// What one vector or import gives back. A vector takes it again where it grows before that has happened.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    ground: Ground,
    /// The work that has to pass before.
    marks: Vec<Mark>,
    /// Whether it waits among what is to be done later.
    is_listed: bool,
    /// Whether the last of it was to go.
    has_ended: bool,
}

/// What goes, in this order. What is gone is struck at once, so that after a failure the rest goes the next time.
#[derive(Debug, Default)]
pub(crate) struct Ground {
    /// Memory of the pool, by address, without gaps; the last one goes first.
    pub(crate) chunks: Vec<Chunk>,
    /// Memory of another process. What is mapped of it stays when the handle goes.
    pub(crate) handle: Option<Memory>,
    /// Where it is mapped.
    pub(crate) mapping: Option<Addresses>,
    /// Of a vector or an import that is gone.
    pub(crate) addresses: Option<Addresses>,
    /// What the ledger has of them.
    pub(crate) block: Option<BlockId>,
}

/// Addresses that were reserved together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
}

impl Leaving {
    /// Has chunks unmapped when marks have passed. They lie before those that are leaving already.
    pub(crate) fn leave(self: &Arc<Self>, core: &Core, chunks: Vec<Chunk>, marks: &[Mark]) {
        self.inside().leave(chunks, marks);
        self.list(core);
    }

    /// Has the last of it go when marks have passed, and sees to it that the host hears of them.
    pub(crate) fn end(self: &Arc<Self>, core: &Core, ground: Ground, marks: &[Mark]) {
        if core.is_good()
            && let Err(error) = core.mark(marks)
        {
            // Without them it is heard of when their streams have nothing left to do.
            core.trouble(error);
        }
        let mut ledger = core.ledger();
        // It is there no more where its context is gone.
        if let Some(block) = ground.block.filter(|&block| ledger.owner(block).is_some()) {
            ledger.release(block, Release { marks: marks.to_vec(), released_at: None, when: core.now() });
        }
        drop(ledger);
        let mut inside = self.inside();
        inside.leave(ground.chunks, marks);
        // Only a vector has left chunks before, and a vector has nothing else.
        let chunks = std::mem::take(&mut inside.ground.chunks);
        inside.ground = Ground { chunks, ..ground };
        inside.has_ended = true;
        drop(inside);
        self.list(core);
        if core.is_good() {
            self.go(core);
        }
    }

    /// The chunks that have not left, which do not leave any more, and their marks.
    pub(crate) fn take_back(&self) -> (Vec<Chunk>, Vec<Mark>) {
        let mut inside = self.inside();
        (std::mem::take(&mut inside.ground.chunks), std::mem::take(&mut inside.marks))
    }

    /// Unmaps what its work has passed by now. What fails is done later.
    pub(crate) fn go(&self, core: &Core) {
        if let Err(error) = self.attempt(core) {
            core.trouble(core.failed(error));
        }
    }

    /// Unmaps what its work has passed. Whether nothing is left.
    pub(crate) fn attempt(&self, core: &Core) -> std::result::Result<bool, CallError> {
        let mut inside = self.inside();
        for &mark in &inside.marks {
            if !core.has_passed(mark)
                && let Some(track) = core.track(mark.stream)
            {
                track.ask()?;
            }
            if !core.has_passed(mark) {
                return Ok(false);
            }
        }
        inside.marks.clear();
        inside.ground.give_back(core)?;
        inside.is_listed = false;
        Ok(true)
    }

    /// Whether it waits among what is to be done later.
    pub(crate) fn is_listed(&self) -> bool {
        self.inside().is_listed
    }

    /// Whether all of it has gone, for ever. What its work has passed by now goes first.
    pub(crate) fn is_over(&self, core: &Core) -> std::result::Result<bool, CallError> {
        if !self.inside().has_ended {
            return Ok(false);
        }
        self.attempt(core)
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
        chunks.append(&mut self.ground.chunks);
        self.ground.chunks = chunks;
        for &mark in marks {
            note_in(&mut self.marks, mark);
        }
    }
}

impl Ground {
    fn give_back(&mut self, core: &Core) -> std::result::Result<(), CallError> {
        let mapping = || core.mapping();
        while let Some(&chunk) = self.chunks.last() {
            core.pool.unmap_beyond(chunk)?;
            self.chunks.pop();
        }
        if let Some(handle) = self.handle {
            // SAFETY: the handle was imported here, and is named for the last time.
            unsafe { mapping().release(handle) }?;
            self.handle = None;
        }
        if let Some(Addresses { base, bytes }) = self.mapping {
            // SAFETY: it is one mapping, and all work with it has passed.
            unsafe { mapping().unmap(base, bytes) }?;
            self.mapping = None;
        }
        if let Some(Addresses { base, bytes }) = self.addresses {
            // SAFETY: they were reserved as a whole, and what was mapped there is not any more.
            unsafe { mapping().unreserve(base, bytes) }?;
            self.addresses = None;
        }
        let mut ledger = core.ledger();
        // It is there no more where its context is gone, or others were given its addresses meanwhile.
        if let Some(block) = self.block.take().filter(|&block| ledger.owner(block).is_some()) {
            ledger.forget(block, Gone::GivenBack);
        }
        Ok(())
    }
}

impl Core {
    /// For who has something that is mapped.
    pub(crate) fn mapping(&self) -> &dyn Mapping {
        self.backend.mapping().expect("what is mapped is of a device that maps")
    }

    /// Enters addresses in the ledger that are reserved here. Whatever else it has there is theirs no more: memory of others
    /// that they freed, or our own whose addresses went a moment ago.
    pub(crate) fn entering<R>(&self, mut enter: impl FnMut(&mut Ledger) -> Result<R>) -> Result<R> {
        let mut ledger = self.ledger();
        loop {
            match enter(&mut ledger) {
                Err(Error::NotEntered(NotEntered::Overlap { with, .. }))
                    if with.kind != Kind::Own || with.state != State::Owned =>
                {
                    ledger.forget(with.block, Gone::GivenBack);
                }
                outcome => return outcome,
            }
        }
    }
}
