//! What all transfers of a process share: the library, its communicators, the device, and who else there is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::copies::Copies;
use crate::error::{Error, Result};
use crate::neighbours::{Ground, Neighbours};
use crate::path::Choice;
use crate::raw::{Comm, Library, Memory};
use crate::settings::{Path, Settings};
use crate::watch::Watch;

#[derive(Debug)]
pub(crate) struct Ranks {
    pub(crate) library: Library,
    pub(crate) rank: i32,
    pub(crate) size: i32,
    /// For messages of the caller's, by their tags.
    pub(crate) data: Comm,
    /// For what comes behind an envelope, by its number.
    pub(crate) chunks: Comm,
    /// For answers to what comes behind an envelope, by its number.
    pub(crate) answers: Comm,
    pub(crate) collectives: Comm,
    pub(crate) copies: Arc<Copies>,
    pub(crate) settings: Settings,
    pub(crate) choice: Choice,
    pub(crate) watch: Watch,
    /// Of this device, and of this machine.
    neighbours: (Neighbours, Neighbours),
    /// For messages in chunks that arrive.
    pub(crate) arriving: Gate,
    /// For messages in chunks that are copied before their receiver says that they are to come.
    pub(crate) ahead: Gate,
    numbers: Arc<Mutex<Numbers>>,
    /// Messages to this rank itself that nobody has received.
    handovers: Mutex<HashMap<u32, Arc<Handover>>>,
    /// What failed with nobody to tell.
    troubles: Mutex<Vec<Error>>,
}

/// How a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Direct,
    Staged,
    Local,
    Shared(Ground),
}

/// Communicators of one kind of message each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comms {
    pub(crate) data: Comm,
    pub(crate) chunks: Comm,
    pub(crate) answers: Comm,
    pub(crate) collectives: Comm,
}

impl Ranks {
    pub(crate) fn new(
        library: Library,
        comms: Comms,
        copies: Arc<Copies>,
        (settings, choice): (Settings, Choice),
        (watch, neighbours): (Watch, (Neighbours, Neighbours)),
    ) -> Result<Self> {
        let Comms { data, chunks, answers, collectives } = comms;
        let (rank, size) = library.rank_and_size(data)?;
        let (numbers, handovers, troubles) = (Arc::default(), Mutex::default(), Mutex::default());
        Ok(Self {
            library,
            rank,
            size,
            data,
            chunks,
            answers,
            collectives,
            copies,
            settings,
            choice,
            watch,
            neighbours,
            arriving: Gate::default(),
            ahead: Gate::default(),
            numbers,
            handovers,
            troubles,
        })
    }

    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        self.choice.transfers == Path::Direct
    }

    /// How messages to a rank go.
    pub(crate) fn route(&self, to: i32) -> Route {
        if self.is_direct() {
            Route::Direct
        } else if to == self.rank {
            Route::Local
        } else {
            let shared = [Ground::Device, Ground::Host].into_iter().find(|&ground| self.neighbours(ground).reaches(to));
            shared.map_or(Route::Staged, Route::Shared)
        }
    }

    /// Those who share such memory.
    pub(crate) fn neighbours(&self, ground: Ground) -> &Neighbours {
        match ground {
            Ground::Device => &self.neighbours.0,
            Ground::Host => &self.neighbours.1,
        }
    }

    /// A number that no other message of this rank has that is under way.
    pub(crate) fn number(&self) -> Number {
        let value = self.numbers.lock().unwrap_or_else(PoisonError::into_inner).take();
        Number { value, numbers: self.numbers.clone() }
    }

    /// The tag of what belongs to a number. Numbers are low: two messages have one tag only where more are under way than the library has
    /// tags, of which Open MPI and MPICH have millions.
    pub(crate) fn tag_of(&self, number: u32) -> i32 {
        (number % (self.library.tag_max as u32 + 1)) as i32
    }

    /// Offers memory to a receiver in this process, by a number.
    pub(crate) fn hand_over(&self, memory: Memory) -> (Number, Arc<Handover>) {
        let (number, handover) = (self.number(), Arc::new(Handover(Mutex::new(Offer::Made(memory)))));
        self.handovers().insert(number.value, handover.clone());
        (number, handover)
    }

    /// What was offered by a number.
    pub(crate) fn taken_over(&self, number: u32) -> Arc<Handover> {
        self.handovers().remove(&number).expect("an envelope of this rank tells of what it offered")
    }

    fn handovers(&self) -> MutexGuard<'_, HashMap<u32, Arc<Handover>>> {
        self.handovers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what failed where nobody asks.
    pub(crate) fn trouble(&self, error: Error) {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    }

    /// Waits for all copies, after a failure.
    pub(crate) fn settle(&self) {
        if let Err(error) = self.copies.settle() {
            // A device whose copies cannot be waited for has failed, and runs none of them any more.
            self.trouble(error);
        }
    }

    pub(crate) fn take_troubles(&self) -> Vec<Error> {
        std::mem::take(&mut *self.troubles.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn check_rank(&self, rank: i32) -> Result<()> {
        if (0..self.size).contains(&rank) { Ok(()) } else { Err(Error::NoSuchRank { rank, size: self.size }) }
    }

    pub(crate) fn check_tag(&self, tag: i32) -> Result<()> {
        let tag_max = self.library.tag_max;
        if (0..=tag_max).contains(&tag) { Ok(()) } else { Err(Error::NoSuchTag { tag, tag_max }) }
    }
}

/// Numbers that nobody has.
#[derive(Debug, Default)]
struct Numbers {
    given_back: Vec<u32>,
    /// The first that nobody had.
    next: u32,
}

impl Numbers {
    fn take(&mut self) -> u32 {
        self.given_back.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// The number of a message, until it is dropped.
#[derive(Debug)]
pub(crate) struct Number {
    value: u32,
    numbers: Arc<Mutex<Numbers>>,
}

impl Number {
    pub(crate) fn value(&self) -> u32 {
        self.value
    }

    /// Lets nobody have it again: what goes by it may be under way.
    pub(crate) fn abandon(self) {
        std::mem::forget(self);
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).given_back.push(self.value);
    }
}

/// Lets few messages at once have buffers: many would have much memory, and none of it in the processor's caches.
#[derive(Debug, Default)]
pub(crate) struct Gate(Arc<AtomicUsize>);

/// The right of a message to have some, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pass(Arc<AtomicUsize>);

impl Gate {
    /// One that goes on, and one that is about to.
    const MESSAGES: usize = 2;

    pub(crate) fn pass(&self) -> Option<Pass> {
        let more = |passed| (passed < Self::MESSAGES).then_some(passed + 1);
        let passed = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        passed.is_ok().then(|| Pass(self.0.clone()))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory that a sender offers to a receiver of the same process.
#[derive(Debug)]
pub(crate) struct Handover(Mutex<Offer>);

#[derive(Debug)]
enum Offer {
    Made(Memory),
    /// The receiver copies from it.
    Taken,
    Over,
}

impl Handover {
    /// The receiver begins to copy, unless the sender has given up.
    pub(crate) fn begin(&self) -> Option<Memory> {
        let mut offer = self.offer();
        let Offer::Made(memory) = *offer else { return None };
        *offer = Offer::Taken;
        Some(memory)
    }

    pub(crate) fn end(&self) {
        *self.offer() = Offer::Over;
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.offer(), Offer::Over)
    }

    /// The sender gives up.
    pub(crate) fn withdraw(&self) {
        let mut offer = self.offer();
        if matches!(*offer, Offer::Made(_)) {
            *offer = Offer::Over;
        }
    }

    fn offer(&self) -> MutexGuard<'_, Offer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
