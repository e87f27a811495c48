//! The state that all transfers of a process share: the library, its communicators, the device, the other ranks of the
//! machine.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::liveness::Liveness;
use crate::node_peers::{NodePeers, SharedMemoryKind};
use crate::path::PathChoice;
use crate::raw::{Comm, Library, Span};
use crate::settings::{Path, Settings};
use crate::staging::Stager;

#[derive(Debug)]
pub(crate) struct WorldInner {
    pub(crate) library: Library,
    pub(crate) rank: i32,
    pub(crate) size: i32,
    /// For the caller's messages, by their tags.
    pub(crate) data: Comm,
    /// For chunks that follow an envelope, by message id.
    pub(crate) chunks: Comm,
    /// For control words that follow an envelope, by message id.
    pub(crate) answers: Comm,
    pub(crate) collectives: Comm,
    pub(crate) stager: Arc<Stager>,
    pub(crate) settings: Settings,
    pub(crate) path_choice: PathChoice,
    pub(crate) liveness: Liveness,
    /// The ranks that share device memory, and those that share host memory.
    node_peers: (NodePeers, NodePeers),
    /// Limits the chunked messages that are received at once.
    pub(crate) arriving: Semaphore,
    /// Limits the chunked messages that are copied before their receiver has accepted them.
    pub(crate) early_copies: Semaphore,
    message_ids: Arc<Mutex<MessageIds>>,
    /// Messages to this rank itself that are not received yet.
    local_offers: Mutex<HashMap<u32, Arc<LocalOffer>>>,
    /// Errors of transfers whose requests were dropped.
    drop_errors: Mutex<Vec<Error>>,
}

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Direct,
    Staged,
    Local,
    Shared(SharedMemoryKind),
}

/// One communicator for each kind of message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comms {
    pub(crate) data: Comm,
    pub(crate) chunks: Comm,
    pub(crate) answers: Comm,
    pub(crate) collectives: Comm,
}

impl WorldInner {
    pub(crate) fn new(
        library: Library,
        comms: Comms,
        copies: Arc<Stager>,
        (settings, choice): (Settings, PathChoice),
        (watch, neighbours): (Liveness, (NodePeers, NodePeers)),
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
            stager: copies,
            settings,
            path_choice: choice,
            liveness: watch,
            node_peers: neighbours,
            arriving: Semaphore::default(),
            early_copies: Semaphore::default(),
            message_ids: numbers,
            local_offers: handovers,
            drop_errors: troubles,
        })
    }

    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        self.path_choice.transfers == Path::Direct
    }

    /// Returns how messages to a rank travel.
    pub(crate) fn route(&self, to: i32) -> Route {
        if self.is_direct() {
            Route::Direct
        } else if to == self.rank {
            Route::Local
        } else {
            let shared = [SharedMemoryKind::Device, SharedMemoryKind::Host]
                .into_iter()
                .find(|&kind| self.node_peers(kind).reaches(to));
            shared.map_or(Route::Staged, Route::Shared)
        }
    }

    /// Returns the ranks that share this kind of memory.
    pub(crate) fn node_peers(&self, kind: SharedMemoryKind) -> &NodePeers {
        match kind {
            SharedMemoryKind::Device => &self.node_peers.0,
            SharedMemoryKind::Host => &self.node_peers.1,
        }
    }

    /// Returns an id that no other pending message of this rank uses.
    pub(crate) fn new_message_id(&self) -> MessageId {
        let value = self.message_ids.lock().unwrap_or_else(PoisonError::into_inner).alloc();
        MessageId { value, numbers: self.message_ids.clone() }
    }

    /// Returns the tag for a message id. The smallest free ids are used, so two messages share a tag only if more
    /// messages are pending than the library has tags: millions in Open MPI and MPICH.
    pub(crate) fn tag_of(&self, number: u32) -> i32 {
        (number % (self.library.tag_max as u32 + 1)) as i32
    }

    /// Offers memory to a receiver in this process, under a new message id.
    pub(crate) fn offer_local(&self, memory: Span) -> (MessageId, Arc<LocalOffer>) {
        let (number, offer) = (self.new_message_id(), Arc::new(LocalOffer(Mutex::new(OfferState::Offered(memory)))));
        self.local_offers().insert(number.value, offer.clone());
        (number, offer)
    }

    /// Returns the offer with a message id.
    pub(crate) fn accept_local(&self, number: u32) -> Arc<LocalOffer> {
        self.local_offers().remove(&number).expect("an envelope from this rank names an offer")
    }

    fn local_offers(&self) -> MutexGuard<'_, HashMap<u32, Arc<LocalOffer>>> {
        self.local_offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an error that no request returns.
    pub(crate) fn record_drop_error(&self, error: Error) {
        self.drop_errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    }

    /// Waits for all copies, after a failure.
    pub(crate) fn synchronize_copies(&self) {
        if let Err(error) = self.stager.synchronize() {
            // A device whose copies cannot be waited for has failed, and runs no more copies.
            self.record_drop_error(error);
        }
    }

    pub(crate) fn take_drop_errors(&self) -> Vec<Error> {
        std::mem::take(&mut *self.drop_errors.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn check_rank(&self, rank: i32) -> Result<()> {
        if (0..self.size).contains(&rank) { Ok(()) } else { Err(Error::NoSuchRank { rank, size: self.size }) }
    }

    pub(crate) fn check_tag(&self, tag: i32) -> Result<()> {
        let tag_max = self.library.tag_max;
        if (0..=tag_max).contains(&tag) { Ok(()) } else { Err(Error::NoSuchTag { tag, tag_max }) }
    }
}

/// Message ids: free ones, and the next unused one.
#[derive(Debug, Default)]
struct MessageIds {
    free: Vec<u32>,
    /// The smallest id never used.
    next: u32,
}

impl MessageIds {
    fn alloc(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// A message id, free again after a drop.
#[derive(Debug)]
pub(crate) struct MessageId {
    value: u32,
    numbers: Arc<Mutex<MessageIds>>,
}

impl MessageId {
    pub(crate) fn value(&self) -> u32 {
        self.value
    }

    /// Never reuses the id: messages with its tag may still be in flight.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for MessageId {
    fn drop(&mut self) {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).free.push(self.value);
    }
}

/// Limits how many messages have buffers at once: the buffers of many would use much memory, and none of it would stay
/// in the processor's caches.
#[derive(Debug, Default)]
pub(crate) struct Semaphore(Arc<AtomicUsize>);

/// A message's right to use buffers, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Semaphore {
    /// One message in progress, and one about to start.
    const MESSAGES: usize = 2;

    pub(crate) fn try_acquire(&self) -> Option<Permit> {
        let more = |passed| (passed < Self::MESSAGES).then_some(passed + 1);
        let passed = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        passed.is_ok().then(|| Permit(self.0.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory that a sender offers to a receiver of the same process.
#[derive(Debug)]
pub(crate) struct LocalOffer(Mutex<OfferState>);

#[derive(Debug)]
enum OfferState {
    Offered(Span),
    /// The receiver is copying from it.
    Taken,
    Done,
}

impl LocalOffer {
    /// Returns the memory to copy from, unless the sender has withdrawn it.
    pub(crate) fn accept(&self) -> Option<Span> {
        let mut offer = self.offer();
        let OfferState::Offered(memory) = *offer else { return None };
        *offer = OfferState::Taken;
        Some(memory)
    }

    pub(crate) fn finish(&self) {
        *self.offer() = OfferState::Done;
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(*self.offer(), OfferState::Done)
    }

    /// Ends the offer, if the receiver has not accepted it.
    pub(crate) fn withdraw(&self) {
        let mut offer = self.offer();
        if matches!(*offer, OfferState::Offered(_)) {
            *offer = OfferState::Done;
        }
    }

    fn offer(&self) -> MutexGuard<'_, OfferState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
