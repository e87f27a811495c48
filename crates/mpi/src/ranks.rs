//! What all transfers of a process share: the library, its communicators, the device, and who else there is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::copies::Copies;
use crate::error::{Error, Result};
use crate::neighbours::Neighbours;
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
    pub(crate) neighbours: Neighbours,
    /// For messages in chunks that arrive.
    pub(crate) arriving: Gate,
    /// For messages in chunks that are copied before their receiver says that they are to come.
    pub(crate) ahead: Gate,
    /// Of the next message with an envelope.
    next: AtomicU32,
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
    Shared,
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
        (watch, neighbours): (Watch, Neighbours),
    ) -> Result<Self> {
        let Comms { data, chunks, answers, collectives } = comms;
        let (rank, size) = library.rank_and_size(data)?;
        let (next, handovers, troubles) = (AtomicU32::new(0), Mutex::default(), Mutex::default());
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
            next,
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
        } else if self.neighbours.reaches(to) {
            Route::Shared
        } else {
            Route::Staged
        }
    }

    /// A number that no other message of this rank has that is under way.
    pub(crate) fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The tag of what belongs to a number.
    pub(crate) fn tag_of(number: u32) -> i32 {
        // Every library has so many tags. That many messages to one rank are not under way at once.
        (number & 0x7fff) as i32
    }

    /// Offers memory to a receiver in this process, by a number.
    pub(crate) fn hand_over(&self, memory: Memory) -> (u32, Arc<Handover>) {
        let (number, handover) = (self.number(), Arc::new(Handover(Mutex::new(Offer::Made(memory)))));
        self.handovers().insert(number, handover.clone());
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
