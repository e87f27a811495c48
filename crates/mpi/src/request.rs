//! Requests: what a call that does not wait gives back. The block is lent to the transfer, not to the request: it may be used at once,
//! and such work waits on the device.

use std::marker::PhantomData;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::ranks::Ranks;
use crate::transfer::Received;

/// A transfer that is under way. Dropped, it goes on; what fails then is told by [`World::troubles`](crate::World::troubles).
#[derive(Debug)]
#[must_use = "a transfer whose request is dropped goes on; `World::troubles` tells if it fails"]
pub struct Request<R> {
    slot: Arc<Slot>,
    ranks: Arc<Ranks>,
    received: PhantomData<R>,
}

/// Where the outcome of a transfer is put.
#[derive(Debug)]
pub(crate) struct Slot {
    outcome: Mutex<Outcome>,
    changed: Condvar,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Pending,
    Ended(Result<Received>),
    /// Nobody asks, or nobody asks any more.
    Unasked,
}

impl Slot {
    pub(crate) fn new(outcome: Outcome) -> Arc<Self> {
        Arc::new(Self { outcome: Mutex::new(outcome), changed: Condvar::new() })
    }

    pub(crate) fn end(&self, ended: Result<Received>, ranks: &Ranks) {
        let mut outcome = self.outcome();
        match (&*outcome, ended) {
            (Outcome::Unasked, Err(error)) => ranks.trouble(error),
            (Outcome::Unasked, Ok(_)) => {}
            (_, ended) => *outcome = Outcome::Ended(ended),
        }
        drop(outcome);
        self.changed.notify_all();
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Result<Received> {
        let mut outcome = self.outcome();
        loop {
            match std::mem::replace(&mut *outcome, Outcome::Unasked) {
                Outcome::Ended(ended) => return ended,
                Outcome::Pending => *outcome = Outcome::Pending,
                Outcome::Unasked => unreachable!("a request is waited for once"),
            }
            outcome = self.changed.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<R> Request<R> {
    pub(crate) fn new(slot: Arc<Slot>, ranks: Arc<Ranks>) -> Self {
        Self { slot, ranks, received: PhantomData }
    }

    /// Of a transfer that is over.
    pub(crate) fn ended(ended: Result<Received>, ranks: Arc<Ranks>) -> Self {
        Self::new(Slot::new(Outcome::Ended(ended)), ranks)
    }

    /// Whether the transfer is over, well or not.
    pub fn is_done(&self) -> bool {
        !matches!(*self.slot.outcome(), Outcome::Pending)
    }
}

impl Request<()> {
    /// Waits until the transfer is over.
    ///
    /// # Errors
    /// What went wrong with it.
    pub fn wait(self) -> Result<()> {
        self.slot.wait().map(drop)
    }
}

impl Request<Received> {
    /// Waits until the message is here, and says what came.
    ///
    /// # Errors
    /// What went wrong with it; the block is as it was, or refused to readers as undefined.
    pub fn wait(self) -> Result<Received> {
        self.slot.wait()
    }
}

impl<R> Drop for Request<R> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut *self.slot.outcome(), Outcome::Unasked);
        if let Outcome::Ended(Err(error)) = outcome {
            self.ranks.trouble(error);
        }
    }
}
