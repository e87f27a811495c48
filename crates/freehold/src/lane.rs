//! Lanes: how far the host, or an engine that it drives, has come with memory that it was lent. A lane is to such a transfer what
//! a stream is to work: it has positions, and a word of pinned memory that tells of them, which the host writes and streams await.
//! Knows nothing of the memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use freehold_driver::{CallError, Words};

use crate::counters::{Counters, Slot};
use crate::ledger::{Mark, StreamId};

/// What tells the number of a lane from that of a stream.
const LANE: u32 = 1 << 31;

/// A lane serves one transfer at a time, so that none waits for another's end.
#[derive(Debug)]
pub(crate) struct Lane {
    id: StreamId,
    /// The position of the last transfer that began, and of the last that ended. Written by who has the lane.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The word that streams await, where they can.
    slot: Option<Slot>,
}

/// All lanes of a device. They live as long as it does.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    inside: Mutex<Inside>,
    /// Tells threads that wait of every end.
    ends: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    all: Vec<Arc<Lane>>,
    /// Those without a transfer, the last used one last.
    free: Vec<Arc<Lane>>,
    /// How many threads wait for an end.
    waiters: usize,
}

impl Lane {
    /// Whether a mark is of a lane, and not of a stream.
    pub(crate) fn is_of_one(stream: StreamId) -> bool {
        stream.0 & LANE != 0
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// That of no lane, and of no stream.
    pub(crate) const NONE: StreamId = StreamId(u32::MAX);

    /// Begins a transfer, for who took the lane.
    pub(crate) fn begin(&self) -> Mark {
        let position = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(position, Ordering::Release);
        Mark { stream: self.id, position }
    }

    pub(crate) fn has_passed(&self, position: u64) -> bool {
        self.ended.load(Ordering::Acquire) >= position
    }

    /// Where the device sees the word.
    pub(crate) fn address(&self) -> Option<u64> {
        self.slot.as_ref().map(|slot| slot.address)
    }
}

impl Lanes {
    /// A lane that serves nobody, with a word of `counters` where streams await them.
    pub(crate) fn take(&self, counters: &Counters, words: Option<&dyn Words>) -> Result<Arc<Lane>, CallError> {
        if let Some(lane) = self.inside().free.pop() {
            return Ok(lane);
        }
        let slot = words.map(|words| counters.take(words)).transpose()?;
        let mut inside = self.inside();
        let number = u32::try_from(inside.all.len()).expect("a process lends less often at once than a u32 counts");
        assert_ne!(number | LANE, Lane::NONE.0, "a process lends less often at once than 31 bits count");
        let lane =
            Arc::new(Lane { id: StreamId(number | LANE), begun: AtomicU64::new(0), ended: AtomicU64::new(0), slot });
        inside.all.push(lane.clone());
        Ok(lane)
    }

    /// Takes a lane back whose transfer has not begun.
    pub(crate) fn give_back(&self, lane: Arc<Lane>) {
        self.inside().free.push(lane);
    }

    /// Ends the transfer that a lane serves: streams that await it go on, and threads. Takes the lane back.
    pub(crate) fn end(&self, lane: Arc<Lane>) {
        let position = lane.begun.load(Ordering::Relaxed);
        if let Some(slot) = &lane.slot {
            slot.write(position);
        }
        let mut inside = self.inside();
        lane.ended.store(position, Ordering::Release);
        inside.free.push(lane);
        if inside.waiters > 0 {
            self.ends.notify_all();
        }
    }

    /// Waits on the host until a transfer has ended.
    pub(crate) fn wait(&self, mark: Mark) {
        let lane = self.of(mark.stream);
        let mut inside = self.inside();
        inside.waiters += 1;
        while !lane.has_passed(mark.position) {
            inside = self.ends.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        inside.waiters -= 1;
    }

    /// The lane that a mark is of.
    pub(crate) fn of(&self, stream: StreamId) -> Arc<Lane> {
        self.inside().all[(stream.0 & !LANE) as usize].clone()
    }

    /// Everything that began so far.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        let mark = |lane: &Arc<Lane>| Mark { stream: lane.id, position: lane.begun.load(Ordering::Acquire) };
        self.inside().all.iter().map(mark).collect()
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
