//! Requests, returned by calls that do not wait. The block is lent to the transfer, not to the request: the caller may
//! use it at once, and that work waits on the device.

use std::marker::PhantomData;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::transfer::Received;
use crate::world_inner::WorldInner;

/// A pending transfer. After a drop the transfer continues; [`World::drop_errors`](crate::World::drop_errors) reports
/// its failure.
#[derive(Debug)]
#[must_use = "a dropped request's transfer continues; `World::drop_errors` reports its failure"]
pub struct Request<R> {
    completion: Arc<Completion>,
    world: Arc<WorldInner>,
    received: PhantomData<R>,
}

/// Receives the outcome of a transfer.
#[derive(Debug)]
pub(crate) struct Completion {
    outcome: Mutex<Outcome>,
    changed: Condvar,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Pending,
    Complete(Result<Received>),
    /// The request was dropped or has returned its outcome.
    Detached,
}

impl Completion {
    pub(crate) fn new(outcome: Outcome) -> Arc<Self> {
        Arc::new(Self { outcome: Mutex::new(outcome), changed: Condvar::new() })
    }

    pub(crate) fn complete(&self, ended: Result<Received>, world: &WorldInner) {
        let mut outcome = self.outcome();
        match (&*outcome, ended) {
            (Outcome::Detached, Err(error)) => world.record_drop_error(error),
            (Outcome::Detached, Ok(_)) => {}
            (_, ended) => *outcome = Outcome::Complete(ended),
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
            match std::mem::replace(&mut *outcome, Outcome::Detached) {
                Outcome::Complete(ended) => return ended,
                Outcome::Pending => *outcome = Outcome::Pending,
                Outcome::Detached => unreachable!("`wait` consumes the request"),
            }
            outcome = self.changed.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<R> Request<R> {
    pub(crate) fn new(slot: Arc<Completion>, world: Arc<WorldInner>) -> Self {
        Self { completion: slot, world, received: PhantomData }
    }

    /// Returns the request of a finished transfer.
    pub(crate) fn completed(ended: Result<Received>, world: Arc<WorldInner>) -> Self {
        Self::new(Completion::new(Outcome::Complete(ended)), world)
    }

    /// Returns whether the transfer has finished or failed.
    pub fn is_complete(&self) -> bool {
        !matches!(*self.completion.outcome(), Outcome::Pending)
    }
}

impl Request<()> {
    /// Waits until the transfer is complete.
    ///
    /// # Errors
    /// The error of the transfer.
    pub fn wait(self) -> Result<()> {
        self.completion.wait().map(drop)
    }
}

impl Request<Received> {
    /// Waits until the message has arrived, and describes it.
    ///
    /// # Errors
    /// The error of the transfer. The block is unchanged, or it is undefined and reads fail.
    pub fn wait(self) -> Result<Received> {
        self.completion.wait()
    }
}

impl<R> Drop for Request<R> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut *self.completion.outcome(), Outcome::Detached);
        if let Outcome::Complete(Err(error)) = outcome {
            self.world.record_drop_error(error);
        }
    }
}
