//! Lanes: how far the host, or an engine that it drives, has come with memory that it was lent. A lane is to such a transfer what
//! a stream is to work: it has positions, and a word of pinned memory that tells of them, which the host writes and streams await.
//! Knows nothing of the memory.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use freehold_driver::cuda::{Api, CUcontext, CUdeviceptr, CallError};

use crate::counters::{Counters, Slot};
use crate::ledger::{Mark, StreamId};

/// What tells the number of a lane from that of a stream.
const LANE: u32 = 1 << 31;

/// A lane serves one transfer at a time, so that none waits for another's end.
#[derive(Debug)]
pub(crate) struct Lane {
    id: StreamId,
    /// The position of the last transfer that began, and of the last that ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The word that streams await, where they can.
    slot: Option<Slot>,
    /// How many threads wait here.
    waiters: AtomicUsize,
    lock: Mutex<()>,
    news: Condvar,
}

/// All lanes of a device. They live as long as it does.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    all: Vec<Arc<Lane>>,
    /// Those without a transfer, the last used one last.
    free: Vec<Arc<Lane>>,
}

impl Lane {
    /// Whether a mark is of a lane, and not of a stream.
    pub(crate) fn is_of_one(stream: StreamId) -> bool {
        stream.0 & LANE != 0
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// Begins a transfer, for who took the lane.
    pub(crate) fn begin(&self) -> Mark {
        Mark { stream: self.id, position: self.begun.fetch_add(1, Ordering::AcqRel) + 1 }
    }

    /// Ends the transfer of `position`: streams that await it go on, and threads.
    pub(crate) fn end(&self, position: u64) {
        if let Some(slot) = &self.slot {
            slot.write(position);
        }
        // In one order with the waiters' own steps: who counts as waiting after this was looked at sees the position.
        self.ended.store(position, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.news.notify_all();
        }
    }

    pub(crate) fn has_passed(&self, position: u64) -> bool {
        self.ended.load(Ordering::SeqCst) >= position
    }

    /// Waits on the host until the transfer of `position` has ended.
    pub(crate) fn wait(&self, position: u64) {
        if self.has_passed(position) {
            return;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.has_passed(position) {
            held = self.news.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        drop(held);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Where the device sees the word.
    pub(crate) fn address(&self) -> Option<CUdeviceptr> {
        self.slot.as_ref().map(|slot| slot.address)
    }
}

impl Lanes {
    /// A lane that serves nobody, with a word of `counters` where streams await them.
    pub(crate) fn take(
        &self,
        counters: Option<&Counters>,
        api: &Api,
        primary: CUcontext,
    ) -> Result<Arc<Lane>, CallError> {
        if let Some(lane) = self.inside().free.pop() {
            return Ok(lane);
        }
        let slot = counters.map(|counters| counters.take(api, primary)).transpose()?;
        let mut inside = self.inside();
        let number = u32::try_from(inside.all.len()).expect("a process lends less often at once than a u32 counts");
        let lane = Arc::new(Lane {
            id: StreamId(number | LANE),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            slot,
            waiters: AtomicUsize::new(0),
            lock: Mutex::new(()),
            news: Condvar::new(),
        });
        inside.all.push(lane.clone());
        Ok(lane)
    }

    /// Takes a lane back whose transfer has ended.
    pub(crate) fn give_back(&self, lane: Arc<Lane>) {
        self.inside().free.push(lane);
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
