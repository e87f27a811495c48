//! The memory of a vector that grows where it is: addresses that are reserved once, and chunks that are mapped to them one
//! behind the other. Knows bytes; elements are the vector's.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::imported::Permission;
use crate::leaving::{Addresses, Ground, Leaving};
use crate::ledger::{BlockId, Entry, Gone, Kind, Mark, Owner};
use crate::pool::{Chunk, Grown, Need, PAGE_BYTES};
use crate::stream::{Stream, Used};
use crate::uses::{Access, Uses};

/// A chunk that is kept serves where it is longer than the wish by so small a part of it at the most.
const SURPLUS_PART: u64 = 8;

#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) context: Context,
    pub(super) uses: Uses,
    pub(super) base: u64,
    /// The addresses, in whole pages.
    room_bytes: u64,
    chunks: Vec<Chunk>,
    pub(super) mapped_bytes: u64,
    /// No work has used what lies behind these.
    pub(super) touched_bytes: u64,
    /// What the ledger knows it by, unless nothing is mapped.
    block: Option<BlockId>,
    allocated_at: &'static Location<'static>,
    leaving: Arc<Leaving>,
}

impl Mapped {
    pub(super) fn new(stream: &Stream, room_bytes: u64, at: &'static Location<'static>) -> Result<Self> {
        let context = &stream.home.context;
        context.inner.check()?;
        let core = &context.inner.core;
        let room_bytes = room_bytes.next_multiple_of(PAGE_BYTES);
        let base = core.mapping().reserve(room_bytes, PAGE_BYTES).map_err(|error| core.failed(error))?;
        Ok(Self {
            context: context.clone(),
            // Memory comes here when nobody uses it any more.
            uses: Uses::begin(Mark { stream: stream.id(), position: 0 }),
            base,
            room_bytes,
            chunks: Vec::new(),
            mapped_bytes: 0,
            touched_bytes: 0,
            block: None,
            allocated_at: at,
            leaving: Arc::default(),
        })
    }

    pub(super) fn used(&self, access: Access) -> Used<'_> {
        Used {
            uses: &self.uses,
            context: &self.context,
            base: self.base,
            start: self.base,
            bytes: self.mapped_bytes,
            access,
            is_ordered: true,
            permission: Permission::ReadWrite,
        }
    }

    pub(super) fn owner(&self) -> Option<Owner> {
        let core = &self.context.inner.core;
        if core.is_child() { None } else { core.ledger().owner(self.block?) }
    }

    /// Sees to it that at least `least_bytes` are mapped, and `wish_bytes` if they can be had easily. An error changes
    /// nothing.
    pub(super) fn grow(&mut self, least_bytes: u64, wish_bytes: u64) -> Result<()> {
        self.context.inner.check()?;
        let pages = |bytes: u64| bytes.next_multiple_of(PAGE_BYTES).min(self.room_bytes);
        let (least_bytes, wish_bytes) = (pages(least_bytes), pages(wish_bytes));
        if least_bytes <= self.mapped_bytes {
            return Ok(());
        }
        let core = self.context.inner.core.clone();
        let asked = core.timeline.is_on().then(|| core.now());
        let (mut chunks, marks) = self.leaving.take_back();
        let had_bytes = self.mapped_bytes + length(&chunks);
        let mut outcome = Ok(());
        if had_bytes < least_bytes {
            match self.map(&core, had_bytes, least_bytes, wish_bytes) {
                Ok(mut mapped) => chunks.append(&mut mapped),
                Err(error) => outcome = Err(error),
            }
        }
        let outcome = outcome.and_then(|()| self.enter(&core, self.mapped_bytes + length(&chunks)));
        if outcome.is_err() {
            if !chunks.is_empty() {
                self.leaving.leave(&core, chunks, &marks);
            }
            return outcome;
        }
        let mapped_bytes = self.mapped_bytes + length(&chunks);
        self.chunks.append(&mut chunks);
        self.has(&core, mapped_bytes, asked);
        Ok(())
    }

    /// Notes how much is mapped from now on; `asked` is there when it is recorded.
    fn has(&mut self, core: &Core, mapped_bytes: u64, asked: Option<Duration>) {
        let had_bytes = std::mem::replace(&mut self.mapped_bytes, mapped_bytes);
        if let Some(asked) = asked {
            core.timeline.resized(self.base, had_bytes, mapped_bytes, asked, core.now(), core.totals());
        }
    }

    /// Maps memory behind `had_bytes`.
    fn map(&self, core: &Core, had_bytes: u64, least_bytes: u64, wish_bytes: u64) -> Result<Vec<Chunk>> {
        let room_bytes = self.room_bytes - had_bytes;
        let need =
            |bytes: u64| Need::beyond(self.base + had_bytes, bytes, room_bytes.min(bytes + surplus_bytes(bytes)));
        let failed = |error| core.failed(error);
        let wish = need(wish_bytes.max(least_bytes) - had_bytes);
        if let Grown::Chunks(chunks) = core.pool.map_beyond(wish).map_err(failed)? {
            return Ok(chunks);
        }
        let missing_bytes = least_bytes - had_bytes;
        if let Grown::Chunks(chunks) = core.pool.gather_beyond(core, need(missing_bytes)).map_err(failed)? {
            return Ok(chunks);
        }
        // Other vectors may have memory that their work has passed, and a chunk that is too long is better than none.
        core.unmap_passed().map_err(failed)?;
        core.make_room(&core.pool, missing_bytes).map_err(failed)?;
        let any = Need::beyond(self.base + had_bytes, missing_bytes, room_bytes);
        match core.pool.gather_beyond(core, any).map_err(failed)? {
            Grown::Chunks(chunks) => Ok(chunks),
            Grown::Nothing => Err(core.short_of(&core.pool, missing_bytes)),
        }
    }

    /// Tells the ledger how much is mapped.
    fn enter(&mut self, core: &Core, bytes: u64) -> Result<()> {
        // Nothing is entered for a context that is closed.
        let _shared = self.context.inner.enter()?;
        let block = core.entering(|ledger| match self.block {
            // The context is being closed by another thread.
            Some(block) if ledger.owner(block).is_none() => Err(Error::ContextClosed { context: self.context.id() }),
            Some(block) => Ok(ledger.resize(block, bytes).map(|()| block)?),
            None => Ok(ledger.enter(self.entry(core, bytes))?),
        })?;
        self.block = Some(block);
        Ok(())
    }

    fn entry(&self, core: &Core, bytes: u64) -> Entry {
        Entry {
            base: self.base,
            bytes,
            capacity_bytes: bytes,
            context: self.context.id(),
            stream: Some(self.uses.at_home().stream),
            process: core.process,
            kind: Kind::Own,
            tag: None,
            allocated_at: self.allocated_at,
        }
    }

    /// Gives chunks back that hold none of the first `used_bytes`, as soon as all work so far has passed. An error changes
    /// nothing.
    pub(super) fn shrink(&mut self, used_bytes: u64) -> Result<()> {
        self.context.inner.check()?;
        let core = self.context.inner.core.clone();
        let end = self.base + used_bytes;
        let kept = self.chunks.partition_point(|chunk| chunk.base < end);
        if kept == self.chunks.len() {
            return Ok(());
        }
        let asked = core.timeline.is_on().then(|| core.now());
        let marks = self.pending(&core);
        core.mark(&marks)?;
        if kept > 0 {
            self.enter(&core, self.mapped_bytes - length(&self.chunks[kept..]))?;
        } else {
            self.forget(&core);
        }
        let chunks = self.chunks.split_off(kept);
        let mapped_bytes = self.mapped_bytes - length(&chunks);
        self.leaving.leave(&core, chunks, &marks);
        self.leaving.go(&core);
        self.has(&core, mapped_bytes, asked);
        Ok(())
    }

    /// Strikes what the ledger has, unless it went with its context.
    fn forget(&mut self, core: &Core) {
        let mut ledger = core.ledger();
        if let Some(block) = self.block.take().filter(|&block| ledger.owner(block).is_some()) {
            ledger.forget(block, Gone::GivenBack);
        }
    }

    /// The uses that may be pending.
    fn pending(&self, core: &Core) -> Vec<Mark> {
        let mut marks = self.uses.all();
        marks.retain(|&mark| !core.has_passed(mark));
        marks
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let core = self.context.inner.core.clone();
        if core.is_child() {
            return;
        }
        let asked = core.timeline.is_on().then(|| core.now()).filter(|_| self.mapped_bytes > 0);
        let marks = self.pending(&core);
        let addresses = Some(Addresses { base: self.base, bytes: self.room_bytes });
        let chunks = std::mem::take(&mut self.chunks);
        self.leaving.end(&core, Ground { chunks, addresses, block: self.block, ..Ground::default() }, &marks);
        self.has(&core, 0, asked);
    }
}

fn length(chunks: &[Chunk]) -> u64 {
    chunks.iter().map(|chunk| chunk.bytes).sum()
}

fn surplus_bytes(bytes: u64) -> u64 {
    bytes / SURPLUS_PART / PAGE_BYTES * PAGE_BYTES
}
