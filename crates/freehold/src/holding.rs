//! A piece of device memory in somebody's hands: where it comes from, and where it goes when it is released.

use std::panic::Location;
use std::sync::{Arc, RwLockReadGuard};

use crate::error::{Error, Result};
use crate::home::Home;
use crate::imported::Permission;
use crate::ledger::{Mark, Owner};
use crate::pool::{BLOCKS_MAX, Held, Pool, Reach, Refusal, Taken};
use crate::sharing::Exported;
use crate::stream::{Stream, Used};
use crate::timeline::Allocation;
use crate::uses::{Access, Uses};

/// One block, owned. Dropping it releases it, from any thread, without waiting.
#[derive(Debug)]
pub(crate) struct Holding {
    /// Which pool it is of, the number of its record there, and which ownership of it this is.
    reach: Reach,
    record: u32,
    generation: u64,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    pub(crate) home: Arc<Home>,
    pub(crate) uses: Uses,
    /// Whether the memory went another way than by a drop.
    is_released: bool,
}

impl Holding {
    pub(crate) fn alloc(
        stream: &Stream,
        bytes: usize,
        reach: Reach,
        tag: Option<&str>,
        at: &'static Location<'static>,
    ) -> Result<Self> {
        if tag.is_none()
            && reach == Reach::Process
            && let Some(holding) = Self::alloc_at_once(&stream.home, bytes, at)
        {
            return Ok(holding);
        }
        Self::alloc_anyhow(stream, bytes, reach, tag, at)
    }

    /// A block without a name that this thread keeps: the warm path. It calls nothing.
    #[inline]
    fn alloc_at_once(home: &Arc<Home>, bytes: usize, at: &'static Location<'static>) -> Option<Self> {
        if !home.is_plain() {
            return None;
        }
        let held = Pool::hold_at_once(home.key, bytes as u64, at)?;
        Some(Self::new(Reach::Process, held, bytes, home))
    }

    #[inline(never)]
    fn alloc_anyhow(
        stream: &Stream,
        bytes: usize,
        reach: Reach,
        tag: Option<&str>,
        at: &'static Location<'static>,
    ) -> Result<Self> {
        stream.home.context.inner.check()?;
        let core = &stream.home.context.inner.core;
        let charged = core.charge(tag, bytes as u64)?;
        let outcome = Self::alloc_charged(stream, bytes, reach, (charged, tag), at);
        outcome.inspect_err(|_| core.tags.discharge(charged, u32::MAX, bytes as u64))
    }

    #[inline]
    fn new(reach: Reach, held: Held, bytes: usize, home: &Arc<Home>) -> Self {
        let Held { record, base, generation, position } = held;
        Self {
            reach,
            record,
            generation,
            address: base,
            bytes,
            home: home.clone(),
            // Whoever had the memory before used it in this stream up to there, or has passed.
            uses: Uses::begin(Mark { stream: home.track.id, position }),
            is_released: false,
        }
    }

    /// As [`alloc`](Self::alloc), with a tag for which the bytes are counted already.
    fn alloc_charged(
        stream: &Stream,
        bytes: usize,
        reach: Reach,
        (charged, tag): (u32, Option<&str>),
        at: &'static Location<'static>,
    ) -> Result<Self> {
        let context = &stream.home.context;
        let core = &context.inner.core;
        let (pool, track) = (core.pool_for(reach)?, &stream.home.track);
        let asked = core.timeline.is_on().then(|| (core.now(), pool.supply.reserved_bytes()));
        let wanted_bytes = bytes as u64;
        let key = pool.key(track);
        let mut shared = context.inner.kept_open();
        let taken = match Pool::take_kept(key, wanted_bytes) {
            Some(taken) => Ok(taken),
            None => take_unkept(stream, pool, wanted_bytes, &mut shared),
        };
        let owned = taken.and_then(|taken| {
            let record = pool.book.records.at(taken.record);
            // Another thread may have closed the context meanwhile, and the block with it.
            let is_owned = record.own_described(wanted_bytes, at, charged);
            if is_owned { Ok((taken, record)) } else { Err(Error::ContextClosed { context: context.id() }) }
        });
        let (taken, record) = owned?;
        core.tags.name_uncounted(charged, pool.number_of(taken.record), tag);
        if let Some((asked, reserved_bytes)) = asked {
            let is_reuse = pool.supply.reserved_bytes() == reserved_bytes;
            let what = Allocation { base: taken.base, bytes, tag, at, is_reuse, asked };
            core.timeline.allocated(what, track, core.now(), core.totals());
        }
        Ok(Self::new(reach, Held::of(record), bytes, &stream.home))
    }

    pub(crate) fn used(&self, access: Access) -> Used<'_> {
        Used {
            uses: &self.uses,
            context: &self.home.context,
            base: self.address,
            start: self.address,
            bytes: self.bytes as u64,
            access,
            is_ordered: true,
            permission: Permission::ReadWrite,
        }
    }

    fn pool(&self) -> &Pool {
        self.home.context.inner.core.pool_of(self.reach)
    }

    /// What another process needs to have the memory.
    pub(crate) fn export(&self) -> Result<Exported> {
        self.home.context.inner.check()?;
        if self.reach == Reach::Process {
            return Err(Error::NotShareable { address: self.address });
        }
        // The chunk stays while the block does, and the block while its context is not closed.
        let _shared = self.home.context.inner.enter()?;
        let (core, pool) = (&self.home.context.inner.core, self.pool());
        let chunk = pool.chunk_of(pool.book.records.at(self.record));
        let exported = pool.supply.export(chunk);
        Ok(Exported {
            descriptor: exported.map_err(|error| core.failed(error))?,
            chunk_bytes: chunk.bytes,
            offset_bytes: self.address - chunk.base,
            bytes: self.bytes as u64,
        })
    }

    /// What the ledger has of it, unless it went with its context.
    pub(crate) fn owner(&self) -> Option<Owner> {
        let core = &self.home.context.inner.core;
        // The locks may be held for ever in a fork, by threads that are not there.
        if core.is_child() { None } else { core.owner_of_record(self.pool(), self.record, self.generation) }
    }

    /// Gives the block another name.
    pub(crate) fn retag(&self, name: &str) {
        let core = &self.home.context.inner.core;
        if self.owner().is_none() {
            return;
        }
        let bytes = self.bytes as u64;
        // A name is no reason to refuse what is there already.
        let tag = core.tags.charge_anyway(name, bytes);
        let (record, number) = (self.pool().book.records.at(self.record), self.pool().number_of(self.record));
        core.tags.discharge(record.tag(), number, bytes);
        core.tags.name_uncounted(tag, number, Some(name));
        record.set_tag(tag);
    }

    /// Lets the memory be of other bytes where it lies. Whether it could.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<bool> {
        self.home.context.inner.check()?;
        let core = &self.home.context.inner.core;
        let (record, had) = (self.pool().book.records.at(self.record), self.bytes);
        if self.owner().is_none() {
            return Ok(false);
        }
        // What is given up is free in the order of the home stream alone.
        if bytes < had && !self.pending_abroad().is_empty() {
            return Ok(false);
        }
        let (tag, more_bytes) = (record.tag(), bytes.saturating_sub(had) as u64);
        core.charge_more(tag, more_bytes)?;
        if !self.pool().resize(record, bytes as u64) {
            core.tags.discharge_part(tag, more_bytes);
            return Ok(false);
        }
        core.tags.discharge_part(tag, had.saturating_sub(bytes) as u64);
        self.bytes = bytes;
        // Whoever had what was added used it at home, up to now at the most.
        self.uses.note_unordered(self.home.track.now(), Access::Write);
        Ok(true)
    }

    /// Other memory under the same name, filled by `fill`, which this gives its place to. Only what is more is counted while the name
    /// has both. An error changes nothing.
    pub(crate) fn move_elsewhere(
        &mut self,
        stream: &Stream,
        bytes: usize,
        at: &'static Location<'static>,
        fill: impl FnOnce(&Self, &mut Self) -> Result<()>,
    ) -> Result<()> {
        let name = self.owner().and_then(|owner| owner.tag);
        let core = self.home.context.inner.core.clone();
        let (tag, more_bytes) = match name {
            Some(_) => (self.pool().book.records.at(self.record).tag(), bytes.saturating_sub(self.bytes) as u64),
            None => (crate::tags::NONE, 0),
        };
        core.charge_more(tag, more_bytes)?;
        let moved = Self::alloc_charged(stream, bytes, self.reach, (tag, name.as_deref()), at).and_then(|mut other| {
            fill(self, &mut other).inspect_err(|_| other.lose_name())?;
            Ok(other)
        });
        let other = moved.inspect_err(|_| core.tags.discharge_part(tag, more_bytes))?;
        core.tags.discharge_part(tag, self.bytes.saturating_sub(bytes) as u64);
        self.lose_name();
        *self = other;
        Ok(())
    }

    /// Has no name any more. What was counted for it stays counted.
    fn lose_name(&self) {
        let (record, number) = (self.pool().book.records.at(self.record), self.pool().number_of(self.record));
        self.home.context.inner.core.tags.discharge(record.tag(), number, 0);
        record.set_tag(crate::tags::NONE);
    }

    /// All uses that may be pending, and the last one at home.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        let mut marks = self.uses.abroad();
        marks.push(self.uses.at_home());
        marks
    }

    /// Releases the memory: its marks are made first, then the pool has it. An error changes nothing.
    pub(crate) fn release(&mut self, at: Option<&'static Location<'static>>) -> Result<()> {
        self.home.context.inner.check()?;
        let core = &self.home.context.inner.core;
        let marks = self.pending_abroad();
        core.mark_in_turn(&marks)?;
        self.give_up(&marks, at);
        Ok(())
    }

    /// Waits for all uses of the memory and gives it back to the driver, as far as nothing else lies in the same chunks. An
    /// error changes nothing. What the driver does not take the pool keeps.
    pub(crate) fn release_now(&mut self, at: Option<&'static Location<'static>>) -> Result<()> {
        self.home.context.inner.check()?;
        let inner = self.home.context.inner.clone();
        let core = &inner.core;
        for mark in self.marks() {
            core.wait_for_mark(mark)?;
        }
        let shared = inner.enter()?;
        let span = self.address..self.address + self.bytes as u64;
        self.give_up(&[], at);
        let pool = core.pool_of(self.reach);
        let kept_bytes = pool.supply.kept_bytes();
        let given = pool.give_back(core, span);
        drop(shared);
        let more_bytes = pool.supply.kept_bytes().saturating_sub(kept_bytes);
        let keep_bytes = pool.supply.reserved_bytes().saturating_sub(more_bytes);
        if let Err(error) = given.and_then(|()| pool.release_alone(core, keep_bytes)) {
            core.trouble(core.failed(error));
        }
        Ok(())
    }

    /// The uses in other streams that the next use at home would have to wait for.
    fn pending_abroad(&self) -> Vec<Mark> {
        let mut marks = self.uses.abroad();
        let core = &self.home.context.inner.core;
        marks.retain(|mark| !self.home.track.has_waited(mark.stream, mark.position) && !core.has_passed(*mark));
        marks
    }

    /// The position at home behind which nobody uses the memory any more, but for the marks of the release: where the home
    /// stream waited for others, that is behind its waits.
    fn last_at_home(&self) -> Mark {
        if self.uses.abroad().is_empty() { self.uses.at_home() } else { self.home.track.now() }
    }

    fn give_up(&mut self, marks: &[Mark], at: Option<&'static Location<'static>>) {
        let core = &self.home.context.inner.core;
        self.is_released = true;
        // Until the pool has the block, which is nobody's meanwhile.
        let _shared = self.home.context.inner.kept_open();
        let when = core.now();
        let pool = core.pool_of(self.reach);
        let record = pool.book.records.at(self.record);
        let tag = record.tag();
        // Another thread may have closed the context meanwhile, and the block with it.
        if !record.disown_described(self.generation, at, when) {
            return;
        }
        record.set_position(self.last_at_home().position);
        core.tags.discharge(tag, pool.number_of(self.record), self.bytes as u64);
        if !marks.is_empty() || !pool.put_own(pool.key(&self.home.track), record) {
            core.put_back(pool, self.record, marks);
        }
        if core.timeline.is_on() {
            core.timeline.released(self.address, at, when, core.now(), core.totals());
        }
    }
}

/// A block of a pool, where this thread keeps none, for who may keep the context open.
fn take_unkept<'a>(
    stream: &'a Stream,
    pool: &Pool,
    wanted_bytes: u64,
    shared: &mut Option<RwLockReadGuard<'a, ()>>,
) -> Result<Taken> {
    let inner = &stream.home.context.inner;
    let (core, key) = (&inner.core, pool.key(&stream.home.track));
    // If the context is closed meanwhile, the memory goes with it.
    let take = || inner.enter().map(|_shared| core.take(pool, key, &stream.home.track, wanted_bytes));
    let mut taken = take()?;
    if matches!(taken, Err(Refusal::Short)) && !pool.supply.maps() {
        // Memory goes back to the driver where nobody is in a gate.
        drop(shared.take());
        let has_room = core.make_room_alone(pool, wanted_bytes).map_err(|error| core.failed(error))?;
        *shared = inner.kept_open();
        if has_room {
            taken = take()?;
        }
    }
    taken.map_err(|refusal| match refusal {
        Refusal::Short => core.short_of(pool, wanted_bytes),
        Refusal::TooMany => Error::TooManyBlocks { blocks_max: BLOCKS_MAX },
        Refusal::Call(error) => core.failed(error),
    })
}

impl Holding {
    /// Lets this thread keep a block without a name that was used at home alone: the warm path. It calls nothing, not even
    /// a clock. Whether it could: otherwise nothing has changed.
    fn drop_at_once(&self) -> bool {
        if !self.home.is_plain() || self.reach != Reach::Process || self.uses.has_elsewhere() {
            return false;
        }
        Pool::unhold_at_once(self.home.key, (self.record, self.generation), self.uses.at_home().position)
    }

    #[inline(never)]
    fn drop_anyhow(&mut self) {
        let inner = &self.home.context.inner;
        // The memory of a closed context went with it; a forked child has none; and a device that has failed gives and
        // takes nothing any more.
        if inner.is_closed() || inner.core.is_child() {
            return;
        }
        let marks = self.pending_abroad();
        if inner.core.is_good()
            && let Err(error) = inner.core.mark_in_turn(&marks)
        {
            // The marks are still to be made. Until somebody makes them the memory waits in the pool.
            inner.core.trouble(error);
        }
        self.give_up(&marks, None);
    }
}

impl Drop for Holding {
    #[inline]
    fn drop(&mut self) {
        if !self.is_released && !self.drop_at_once() {
            self.drop_anyhow();
        }
    }
}
