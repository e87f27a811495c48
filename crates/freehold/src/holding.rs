//! A piece of device memory in somebody's hands: where it comes from, and where it goes when it is released.

use std::panic::Location;
use std::sync::Arc;

use freehold_driver::cuda::{CUdeviceptr, CUerror, memory};

use crate::context::Context;
use crate::core::{Books, Core};
use crate::current::within;
use crate::error::{Error, Result};
use crate::ledger::{BlockId, Entry, Gone, Kind, Mark, NotEntered, Release};
use crate::stock::{Found, Piece, capacity_of};
use crate::stream::{Stream, Used};
use crate::timeline::Allocation;
use crate::track::Track;
use crate::uses::{Access, Uses};

/// One block, owned. Dropping it releases it, from any thread, without waiting.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) block: BlockId,
    pub(crate) address: CUdeviceptr,
    pub(crate) bytes: usize,
    capacity_bytes: u64,
    home: Arc<Track>,
    pub(crate) context: Context,
    pub(crate) uses: Uses,
    /// Whether the memory went another way than by a drop.
    is_released: bool,
}

impl Holding {
    pub(crate) fn alloc(
        stream: &Stream,
        bytes: usize,
        tag: Option<&str>,
        at: &'static Location<'static>,
    ) -> Result<Self> {
        let context = &stream.context;
        context.inner.check()?;
        let core = &context.inner.core;
        let asked = core.timeline.is_on().then(|| core.now());
        let recorded = |base, is_reuse| {
            if let Some(asked) = asked {
                let what = Allocation { base, bytes, tag, at, is_reuse, asked };
                let totals = core.books().ledger.totals();
                core.timeline.allocated(what, &stream.track, core.now(), totals);
            }
        };
        let capacity_bytes = capacity_of(bytes as u64).expect("who asks has seen that so many bytes can be");
        let name = tag.map(|tag| core.tag(tag));
        // Nobody has used the memory yet, or its last user was in this stream, or all of its uses have passed.
        let made = |block, address, last_use: u64| Self {
            block,
            address,
            bytes,
            capacity_bytes,
            home: stream.track.clone(),
            context: context.clone(),
            uses: Uses::begin(Mark { stream: stream.track.id, position: last_use }),
            is_released: false,
        };
        core.refresh()?;
        match Self::reuse(core, stream, bytes, capacity_bytes, &name, at) {
            Found::Piece(piece) => {
                let last_use = if piece.home.stream == stream.track.id { piece.home.position } else { 0 };
                recorded(piece.base, true);
                return Ok(made(piece.block, CUdeviceptr(piece.base), last_use));
            }
            Found::Unmarked(marks) => core.mark(&marks)?,
        }
        let address = Self::fresh(stream, capacity_bytes)?;
        // If the context was closed meanwhile, the memory goes with it.
        let _shared = context.inner.enter()?;
        let entry = Entry {
            base: address.0,
            bytes: bytes as u64,
            capacity_bytes,
            context: context.id(),
            stream: Some(stream.track.id),
            process: core.process,
            kind: Kind::Own,
            tag: name,
            allocated_at: at,
        };
        let block = match Self::enter(core, entry) {
            Ok(block) => block,
            Err(error) => {
                // Somebody freed memory of ours behind our back, and it came again.
                within(&core.api, context.inner.hall.raw, || memory::free(&core.api, address))
                    .map_err(|error| core.failed(error))?;
                return Err(error.into());
            }
        };
        recorded(address.0, false);
        Ok(made(block, address, 0))
    }

    /// Enters memory that the driver gave. Memory of others at the same address is theirs no more: they freed it.
    fn enter(core: &Core, entry: Entry) -> std::result::Result<BlockId, NotEntered> {
        let ledger = &mut core.books().ledger;
        loop {
            match ledger.enter(entry.clone()) {
                Err(NotEntered::Overlap { with, .. }) if with.kind != Kind::Own => {
                    ledger.forget(with.block, Gone::GivenBack);
                }
                outcome => return outcome,
            }
        }
    }

    /// Memory of the stock.
    fn reuse(
        core: &Core,
        stream: &Stream,
        bytes: usize,
        capacity_bytes: u64,
        tag: &Option<Arc<str>>,
        at: &'static Location<'static>,
    ) -> Found {
        let (context, id) = (stream.context_id(), stream.track.id);
        let Books { ledger, stock } = &mut *core.books();
        let found = stock.take(ledger, context, id, capacity_bytes, |mark| core.has_passed(mark));
        let Found::Piece(piece) = found else { return found };
        let block = ledger.reuse(piece.block, bytes as u64, context, Some(id), tag.clone(), at);
        Found::Piece(Piece { block, ..piece })
    }

    /// Memory of the driver. Where it has none left, what is in stock goes back first, if nothing is pending.
    fn fresh(stream: &Stream, capacity_bytes: u64) -> Result<CUdeviceptr> {
        let inner = &stream.context.inner;
        let (core, hall) = (&inner.core, &inner.hall);
        let wanted = usize::try_from(capacity_bytes).expect("an address has 64 bits");
        let alloc = || {
            let _shared = inner.enter()?;
            match within(&core.api, hall.raw, || memory::alloc(&core.api, wanted)) {
                Ok(address) => Ok(Some(address)),
                Err(error) if error.code == CUerror::OUT_OF_MEMORY => Ok(None),
                Err(error) => Err(core.failed(error)),
            }
        };
        if let Some(address) = alloc()? {
            return Ok(address);
        }
        core.tidy()?;
        if core.trim(hall)? > 0
            && let Some(address) = alloc()?
        {
            return Ok(address);
        }
        let _shared = inner.enter()?;
        let info = within(&core.api, hall.raw, || memory::info(&core.api)).map_err(|error| core.failed(error))?;
        let totals = core.books().ledger.totals();
        Err(Error::OutOfMemory {
            wanted_bytes: capacity_bytes,
            free_bytes: info.free_bytes as u64,
            cached_bytes: totals.free_bytes + totals.released_bytes,
        })
    }

    pub(crate) fn used(&self, access: Access) -> Used<'_> {
        Used { uses: &self.uses, context: &self.context, base: self.address.0, access, is_ordered: true }
    }

    /// All uses that may be pending, and the last one at home.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        let mut marks = self.uses.abroad();
        marks.push(self.uses.at_home());
        marks
    }

    /// Releases the memory: its marks are made first, then it is in stock. An error changes nothing.
    pub(crate) fn release(&mut self, at: Option<&'static Location<'static>>) -> Result<()> {
        self.context.inner.check()?;
        let core = &self.context.inner.core;
        let marks = self.pending_abroad();
        core.mark_in_turn(&marks)?;
        self.enter_stock(marks, at);
        Ok(())
    }

    /// Waits for all uses of the memory and gives it back to the driver. An error changes nothing.
    pub(crate) fn release_now(&mut self, at: Option<&'static Location<'static>>) -> Result<()> {
        self.context.inner.check()?;
        let inner = &self.context.inner;
        let core = &inner.core;
        let asked = core.now();
        for mark in self.marks() {
            if let Some(track) = core.track(mark.stream) {
                track.wait_on_host(&core.api, mark.position).map_err(|error| core.failed(error))?;
            }
        }
        let _shared = inner.enter()?;
        within(&core.api, inner.hall.raw, || memory::free(&core.api, self.address))
            .map_err(|error| core.failed(error))?;
        let mut books = core.books();
        if books.ledger.owner(self.block).is_some() {
            books.ledger.release(self.block, Release { marks: Vec::new(), released_at: at, when: core.now() });
            books.ledger.forget(self.block, Gone::GivenBack);
        }
        let totals = books.ledger.totals();
        drop(books);
        self.is_released = true;
        if core.timeline.is_on() {
            core.timeline.released(self.address.0, at, asked, core.now(), totals);
        }
        Ok(())
    }

    /// The uses in other streams that the next use at home would have to wait for.
    fn pending_abroad(&self) -> Vec<Mark> {
        let mut marks = self.uses.abroad();
        let core = &self.context.inner.core;
        marks.retain(|mark| !self.home.has_waited(mark.stream, mark.position) && !core.has_passed(*mark));
        marks
    }

    /// The position at home behind which nobody uses the memory any more, but for the marks of the release: where the home
    /// stream waited for others, that is behind its waits.
    fn last_at_home(&self) -> Mark {
        if self.uses.abroad().is_empty() { self.uses.at_home() } else { self.home.now() }
    }

    fn enter_stock(&mut self, marks: Vec<Mark>, at: Option<&'static Location<'static>>) {
        let core = &self.context.inner.core;
        let when = core.now();
        let piece = Piece {
            block: self.block,
            base: self.address.0,
            capacity_bytes: self.capacity_bytes,
            home: self.last_at_home(),
        };
        self.is_released = true;
        let mut books = core.books();
        let Books { ledger, stock } = &mut *books;
        // Another thread may have closed the context meanwhile, and the block with it.
        if ledger.owner(self.block).is_none() {
            return;
        }
        ledger.release(self.block, Release { marks, released_at: at, when });
        stock.put(ledger, self.context.id(), piece);
        let totals = ledger.totals();
        drop(books);
        if core.timeline.is_on() {
            core.timeline.released(self.address.0, at, when, core.now(), totals);
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let inner = &self.context.inner;
        // The memory of a closed context went with it; a forked child has none; and a device that has failed gives and
        // takes nothing any more.
        if self.is_released || inner.is_closed() || inner.core.is_child() {
            return;
        }
        let marks = self.pending_abroad();
        if inner.core.is_good()
            && let Err(error) = inner.core.mark_in_turn(&marks)
        {
            // The marks are still to be made. Until somebody makes them the memory waits in the stock.
            inner.core.trouble(error);
        }
        self.enter_stock(marks, None);
    }
}
