//! Blocks that go from stream to stream: memory of one stream's lot for work in another, when the first has passed it, or
//! behind a wait on the device. A lot may become another stream's at any moment that its lock is not held.
//!
//! `tests/it/pool_lots_loom.rs` has this file, and those of lots, under a checker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Pool;
use super::class::Class;
use super::lot::Lot;
use super::outside::{CallError, Core, Mark, Point, Track, pause};

/// How many other lots a stream that needs a block looks at.
const OTHERS_MAX: usize = 16;

impl Pool {
    /// A block of the stream's own lot that waits for other streams: the device waits for them, before the stream's next work.
    pub(super) fn take_behind(
        &self,
        core: &Core,
        lot: &Lot,
        track: &Track,
        bytes: u64,
    ) -> Result<Option<u32>, CallError> {
        if lot.home().id != track.id {
            return Ok(None);
        }
        for mark in lot.awaited() {
            if let Some(other) = core.track(mark.stream)
                && track.can_wait_for(&other)?
            {
                track.wait_for(&other, mark.position)?;
            }
        }
        let is_before = |mark: Mark| core.has_passed(mark) || track.has_waited(mark.stream, mark.position);
        lot.settle_behind(&self.book, track, is_before);
        Ok(lot.take_large(&self.book, bytes))
    }

    /// A block of another lot of the context, which that one's stream has passed.
    pub(super) fn borrow(&self, core: &Core, lot: &Lot, track: &Track, bytes: u64) -> Result<Option<u32>, CallError> {
        self.idle_others(core, lot)?;
        for other in self.others(lot) {
            if let Some(record) = other.lend(&self.book, bytes, track.id.0, |mark| core.has_passed(mark)) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// As [`borrow`](Self::borrow), of a class.
    pub(super) fn borrow_small(
        &self,
        core: &Core,
        lot: &Lot,
        track: &Track,
        class: Class,
    ) -> Result<Option<u32>, CallError> {
        let idle = self.idle_others(core, lot)?;
        pause::reach(Point::LendSmall);
        let has_passed = |mark| core.has_passed(mark);
        Ok(idle.iter().find_map(|other| other.lend_small(&self.book, class, track.id.0, has_passed)))
    }

    /// Some other lots of the context whose streams have passed all of their work, with all that is theirs and nobody has.
    /// Those that have not are marked, so that a later request finds them.
    fn idle_others(&self, core: &Core, lot: &Lot) -> Result<Vec<Arc<Lot>>, CallError> {
        let others: Vec<_> = self.others(lot).collect();
        // Another part of them each time.
        let turn = self.turn.fetch_add(OTHERS_MAX, Ordering::Relaxed);
        let mut idle = Vec::new();
        for index in 0..others.len().min(OTHERS_MAX) {
            let other = &others[turn.wrapping_add(index) % others.len()];
            match other.is_idle(|mark| core.has_passed(mark)) {
                Ok(()) => {
                    other.all_racks().iter().for_each(|rack| rack.empty(false));
                    other.settle(&self.book, |mark| core.has_passed(mark));
                    idle.push(other.clone());
                }
                Err(Some(mark)) => core.mark_each_in_turn(&[mark])?,
                Err(None) => {}
            }
        }
        Ok(idle)
    }

    /// A block of another lot of the context that the device waits for, before the stream's next work.
    pub(super) fn borrow_behind(&self, lot: &Lot, track: &Track, bytes: u64) -> Result<Option<u32>, CallError> {
        for other in self.others(lot) {
            if let Some(record) = self.lent_behind(&other, track, bytes)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// A block of another lot, behind the work of the stream whose lot that is when the block is lent.
    fn lent_behind(&self, other: &Lot, track: &Track, bytes: u64) -> Result<Option<u32>, CallError> {
        loop {
            let home = other.home();
            // Asks the driver, and so without the lot's lock: another stream may have the lot afterwards.
            if !track.can_wait_for(&home)? {
                return Ok(None);
            }
            pause::reach(Point::LendBehind);
            let Some((record, mark)) = other.lend_unpassed(&self.book, bytes, track.id.0, home.id) else {
                if other.home().id == home.id {
                    return Ok(None);
                }
                continue;
            };
            if let Err(error) = track.wait_for(&home, mark.position) {
                other.give(&self.book, record, &home, &[]);
                return Err(error);
            }
            // Who uses it in a third stream does so behind the wait.
            self.book.records.at(record).set_position(track.now().position);
            return Ok(Some(record));
        }
    }

    fn others(&self, lot: &Lot) -> impl Iterator<Item = Arc<Lot>> {
        let (number, context) = (lot.number, lot.context());
        self.book.lots().into_iter().filter(move |other| other.number != number && other.context() == context)
    }
}
