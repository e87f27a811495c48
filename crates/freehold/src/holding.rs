//! A piece of device memory in somebody's hands: where it comes from, and where it goes when it is released.

use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::{Arc, RwLockReadGuard};

use crate::error::{Error, Result};
use crate::home::Home;
use crate::imported::Permission;
use crate::ledger::{Mark, Owner};
use crate::pause::{self, Point};
use crate::pool::record::Record;
use crate::pool::{BLOCKS_MAX, Held, Pool, Reach, Refusal, Taken};
use crate::sharing::Exported;
use crate::stream::{Stream, Used};
use crate::timeline::Allocation;
use crate::uses::{Access, Uses};

/// One block, owned. Dropping it releases it, from any thread, without waiting.
#[derive(Debug)]
pub(crate) struct Holding {
    place: Place,
    /// Which ownership of the record this is.
    generation: u64,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    /// With a count that goes the way of the memory where a thread keeps both.
    pub(crate) home: ManuallyDrop<Arc<Home>>,
    pub(crate) uses: Uses,
}

/// Which pool a block is of, the number of its record there, and whether the memory went another way than by a drop. One word: bytes
/// that are nothing but zero or one would be where a `Result` says that it is an error, and split each copy of a block there.
#[derive(Clone, Copy, Debug)]
struct Place(u32);

const OTHERS: u32 = 1 << 30;
const RELEASED: u32 = 1 << 31;

impl Place {
    #[inline]
    fn new(reach: Reach, record: u32) -> Self {
        Self(if reach == Reach::Others { record | OTHERS } else { record })
    }

    #[inline]
    fn reach(self) -> Reach {
        if self.0 & OTHERS == 0 { Reach::Process } else { Reach::Others }
    }

    #[inline]
    fn record(self) -> u32 {
        self.0 & !(OTHERS | RELEASED)
    }

    #[inline]
    fn is_released(self) -> bool {
        self.0 & RELEASED != 0
    }
}

impl Holding {
    #[inline]
    pub(crate) fn alloc(
        stream: &Stream,
        bytes: usize,
        reach: Reach,
        tag: Option<&str>,
        at: &'static Location<'static>,
    ) -> Result<Self> {
        let at_once =
            if tag.is_none() && reach == Reach::Process { held_at_once(&stream.home, bytes, at) } else { None };
        let held = match at_once {
            Some(held) => held,
            None => Self::hold_anyhow(stream, bytes, reach, tag, at)?,
        };
        Ok(Self::new(reach, held, bytes, &stream.home))
    }

    #[inline(never)]
    fn hold_anyhow(
        stream: &Stream,
        bytes: usize,
        reach: Reach,
        tag: Option<&str>,
        at: &'static Location<'static>,
    ) -> Result<Held> {
        stream.home.context.inner.check()?;
        let core = &stream.home.context.inner.core;
        let charged = core.charge(tag, bytes as u64)?;
        let outcome = Self::hold_charged(stream, bytes, reach, (charged, tag), at);
        outcome.inspect_err(|_| core.tags.discharge(charged, u32::MAX, bytes as u64))
    }

    #[inline]
    fn new(reach: Reach, held: Held, bytes: usize, home: &Arc<Home>) -> Self {
        let Held { record, base, generation, position, has_home } = held;
        // SAFETY: the count is that of a block of the same home which this thread took back, and was just given out.
        let home = if has_home { unsafe { home.kept() } } else { home.clone() };
        Self {
            place: Place::new(reach, record),
            generation,
            address: base,
            bytes,
            // Whoever had the memory before used it in this stream up to there, or has passed.
            uses: Uses::begin(Mark { stream: home.track.id, position }),
            home: ManuallyDrop::new(home),
        }
    }

    /// As [`hold_anyhow`](Self::hold_anyhow), with a tag for which the bytes are counted already.
    fn hold_charged(
        stream: &Stream,
        bytes: usize,
        reach: Reach,
        (charged, tag): (u32, Option<&str>),
        at: &'static Location<'static>,
    ) -> Result<Held> {
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
        Ok(Held::of(record))
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
        self.home.context.inner.core.pool_of(self.place.reach())
    }

    /// What another process needs to have the memory.
    pub(crate) fn export(&self) -> Result<Exported> {
        self.home.context.inner.check()?;
        if self.place.reach() == Reach::Process {
            return Err(Error::NotShareable { address: self.address });
        }
        // The chunk stays while the block does, and the block while its context is not closed.
        let _shared = self.home.context.inner.enter()?;
        let (core, pool) = (&self.home.context.inner.core, self.pool());
        let chunk = pool.chunk_of(pool.book.records.at(self.place.record()));
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
        if core.is_child() { None } else { core.owner_of_record(self.pool(), self.place.record(), self.generation) }
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
        pause::reach(Point::Retag);
        let (pool, record) = (self.pool(), self.record());
        let number = pool.number_of(record.number());
        let renamed = pool.while_owned(record, self.generation, || {
            core.tags.discharge(record.tag(), number, bytes);
            core.tags.name_uncounted(tag, number, Some(name));
            record.set_tag(tag);
        });
        if renamed.is_none() {
            core.tags.discharge_part(tag, bytes);
        }
    }

    /// Lets the memory be of other bytes where it lies. Whether it could.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<bool> {
        self.home.context.inner.check()?;
        let core = &self.home.context.inner.core;
        let (record, had) = (self.record(), self.bytes);
        if self.owner().is_none() {
            return Ok(false);
        }
        // What is given up is free in the order of the home stream alone.
        if bytes < had && !self.pending_abroad().is_empty() {
            return Ok(false);
        }
        let (tag, more_bytes) = (self.tag(), bytes.saturating_sub(had) as u64);
        core.charge_more(tag, more_bytes)?;
        pause::reach(Point::Resize);
        if !self.pool().resize(record, self.generation, bytes as u64) {
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
            Some(_) => (self.tag(), bytes.saturating_sub(self.bytes) as u64),
            None => (crate::tags::NONE, 0),
        };
        core.charge_more(tag, more_bytes)?;
        let reach = self.place.reach();
        let moved = Self::hold_charged(stream, bytes, reach, (tag, name.as_deref()), at).and_then(|held| {
            let mut other = Self::new(reach, held, bytes, &stream.home);
            fill(self, &mut other).inspect_err(|_| other.lose_name(tag))?;
            Ok(other)
        });
        let other = moved.inspect_err(|_| core.tags.discharge_part(tag, more_bytes))?;
        pause::reach(Point::LoseName);
        self.lose_name(tag);
        core.tags.discharge_part(tag, self.bytes.saturating_sub(bytes) as u64);
        *self = other;
        Ok(())
    }

    /// Has no name any more. What was counted for it stays counted: also where its context was closed meanwhile, which took it off.
    fn lose_name(&self, tag: u32) {
        let (pool, record) = (self.pool(), self.record());
        let tags = &self.home.context.inner.core.tags;
        let lost = pool.while_owned(record, self.generation, || {
            tags.discharge(record.tag(), pool.number_of(record.number()), 0);
            record.set_tag(crate::tags::NONE);
        });
        if lost.is_none() {
            tags.charge_more_anyway(tag, self.bytes as u64);
        }
    }

    /// The tag of the block while its ownership lasts, and none afterwards: its record may be another block's.
    fn tag(&self) -> u32 {
        let described = self.record().owned_as(self.generation).and_then(|seen| seen.described);
        described.map_or(crate::tags::NONE, |described| described.tag)
    }

    fn record(&self) -> &Record {
        self.pool().book.records.at(self.place.record())
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
        let pool = core.pool_of(self.place.reach());
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
        self.place.0 |= RELEASED;
        // Until the pool has the block, which is nobody's meanwhile.
        let _shared = self.home.context.inner.kept_open();
        let when = core.now();
        let pool = core.pool_of(self.place.reach());
        let record = pool.book.records.at(self.place.record());
        let tag = record.tag();
        // Another thread may have closed the context meanwhile, and the block with it.
        if !record.disown_described(self.generation, at, when) {
            return;
        }
        record.set_position(self.last_at_home().position);
        core.tags.discharge(tag, pool.number_of(self.place.record()), self.bytes as u64);
        if !marks.is_empty() || !pool.put_own(pool.key(&self.home.track), record) {
            core.put_back(pool, self.place.record(), marks);
        }
        if core.timeline.is_on() {
            core.timeline.released(self.address, at, when, core.now(), core.totals());
        }
    }
}

/// A block without a name that this thread keeps: the warm path. It calls nothing. Apart from who makes a handle of it, so that a
/// handle is made where it is to lie, and not moved.
#[inline(never)]
fn held_at_once(home: &Home, bytes: usize, at: &'static Location<'static>) -> Option<Held> {
    if home.is_plain() { Pool::hold_at_once(home.key, bytes as u64, at) } else { None }
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
    /// a clock. Nothing if it could not: then nothing has changed. Else whether the thread keeps the count of the home, too.
    fn drop_at_once(&self) -> Option<bool> {
        if !self.home.is_plain() || self.place.reach() != Reach::Process || self.uses.has_elsewhere() {
            return None;
        }
        let block = (self.place.record(), self.generation);
        Pool::unhold_at_once(self.home.key, block, self.uses.at_home().position, || self.home.lends())
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
        if !self.place.is_released() {
            match self.drop_at_once() {
                Some(true) => return,
                Some(false) => {}
                None => self.drop_anyhow(),
            }
        }
        // SAFETY: this is the only place that drops it, and nobody uses it afterwards.
        unsafe { ManuallyDrop::drop(&mut self.home) };
    }
}

#[cfg(test)]
mod tests;
