//! Memory that nobody here has a use for any more, and that work in streams may still use: a vector's, or another process's. It
//! is unmapped behind that work: unmapping waits for nothing, and what is still used then is lost with the process (fact 2.4).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold_driver::handle::Memory;
use freehold_driver::{CallError, VirtualMemory};

use crate::device::deferred::Deferred;
use crate::device::device_inner::DeviceInner;
use crate::error::{Error, Result};
use crate::ledger::{BlockId, Fence, Gone, Kind, Ledger, NotEntered, Release, State};
use crate::ordering::access_history::note_latest;
use crate::pool::Chunk;

/// What one vector or import gives back. A vector takes it again where it grows before that has happened.
#[derive(Debug, Default)]
pub(crate) struct PendingUnmap {
    locked: Mutex<Locked>,
}

#[derive(Debug, Default)]
struct Locked {
    mappings: Mappings,
    /// The work that has to pass before.
    fences: Vec<Fence>,
    /// Whether it waits among what is to be done later.
    is_listed: bool,
    /// Whether the last of it was to go.
    has_ended: bool,
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
    /// Has chunks unmapped when fences have passed. They lie before those that are leaving already.
    pub(crate) fn unmap_after(self: &Arc<Self>, device: &DeviceInner, chunks: Vec<Chunk>, fences: &[Fence]) {
        self.lock().add(chunks, fences);
        self.list(device);
    }

    /// Has the last of it go when fences have passed, and sees to it that the host hears of them.
    pub(crate) fn end(self: &Arc<Self>, device: &DeviceInner, ground: Mappings, fences: &[Fence]) {
        if device.is_good()
            && let Err(error) = device.record_fences(fences)
        {
            // Without them it is heard of when their streams have nothing left to do.
            device.note_drop_error(error);
        }
        let mut ledger = device.ledger();
        // It is there no more where its context is gone.
        if let Some(block) = ground.block.filter(|&block| ledger.owner(block).is_some()) {
            ledger.release(block, Release { fences: fences.to_vec(), released_at: None, when: device.now() });
        }
        drop(ledger);
        let mut inside = self.lock();
        inside.add(ground.chunks, fences);
        // Only a vector has left chunks before, and a vector has nothing else.
        let chunks = std::mem::take(&mut inside.mappings.chunks);
        inside.mappings = Mappings { chunks, ..ground };
        inside.has_ended = true;
        drop(inside);
        self.list(device);
        if device.is_good() {
            self.unmap_now(device);
        }
    }

    /// The chunks that have not left, which do not leave any more, and their fences.
    pub(crate) fn take_back(&self) -> (Vec<Chunk>, Vec<Fence>) {
        let mut inside = self.lock();
        (std::mem::take(&mut inside.mappings.chunks), std::mem::take(&mut inside.fences))
    }

    /// Unmaps what its work has passed by now. What fails is done later.
    pub(crate) fn unmap_now(&self, device: &DeviceInner) {
        if let Err(error) = self.attempt(device) {
            device.note_drop_error(device.failed(error));
        }
    }

    /// Unmaps what its work has passed. Whether nothing is left.
    pub(crate) fn attempt(&self, device: &DeviceInner) -> std::result::Result<bool, CallError> {
        let mut inside = self.lock();
        for &fence in &inside.fences {
            if !device.streams.is_complete(fence)
                && let Some(stream_state) = device.streams.get(fence.stream)
            {
                stream_state.query()?;
            }
            if !device.streams.is_complete(fence) {
                return Ok(false);
            }
        }
        inside.fences.clear();
        inside.mappings.give_back(device)?;
        inside.is_listed = false;
        Ok(true)
    }

    /// Whether it waits among what is to be done later.
    pub(crate) fn is_listed(&self) -> bool {
        self.lock().is_listed
    }

    /// Whether all of it has gone, for ever. What its work has passed by now goes first.
    pub(crate) fn is_over(&self, device: &DeviceInner) -> std::result::Result<bool, CallError> {
        if !self.lock().has_ended {
            return Ok(false);
        }
        self.attempt(device)
    }

    fn list(self: &Arc<Self>, device: &DeviceInner) {
        if !std::mem::replace(&mut self.lock().is_listed, true) {
            device.defer(Deferred::Unmap { leaving: self.clone() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Locked {
    fn add(&mut self, mut chunks: Vec<Chunk>, fences: &[Fence]) {
        chunks.append(&mut self.mappings.chunks);
        self.mappings.chunks = chunks;
        for &fence in fences {
            note_latest(&mut self.fences, fence);
        }
    }
}

impl Mappings {
    fn give_back(&mut self, device: &DeviceInner) -> std::result::Result<(), CallError> {
        let mapping = || device.mapping();
        while let Some(&chunk) = self.chunks.last() {
            device.pool.unmap_outside(chunk)?;
            self.chunks.pop();
        }
        if let Some(handle) = self.handle {
            // SAFETY: the handle was imported here, and is named for the last time.
            unsafe { mapping().release(handle) }?;
            self.handle = None;
        }
        if let Some(AddressRange { base, bytes }) = self.mapping {
            // SAFETY: it is one mapping, and all work with it has passed.
            unsafe { mapping().unmap(base, bytes) }?;
            self.mapping = None;
        }
        if let Some(AddressRange { base, bytes }) = self.addresses {
            // SAFETY: they were reserved as a whole, and what was mapped there is not any more.
            unsafe { mapping().unreserve(base, bytes) }?;
            self.addresses = None;
        }
        let mut ledger = device.ledger();
        // It is there no more where its context is gone, or others were given its addresses meanwhile.
        if let Some(block) = self.block.take().filter(|&block| ledger.owner(block).is_some()) {
            ledger.forget(block, Gone::GivenBack);
        }
        Ok(())
    }
}

impl DeviceInner {
    /// For who has something that is mapped.
    pub(crate) fn mapping(&self) -> &dyn VirtualMemory {
        self.backend.virtual_memory().expect("what is mapped is of a device that maps")
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
