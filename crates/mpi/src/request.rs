//! Requests: what a call that does not wait gives back. The block is lent to the transfer, not to the request: it may be used at once,
//! and such work waits on the device.

use std::marker::PhantomData;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::transfer::Received;
use crate::world_inner::WorldInner;

/// A transfer that is under way. Dropped, it goes on; what fails then is told by [`World::troubles`](crate::World::drop_errors).
#[derive(Debug)]
#[must_use = "a transfer whose request is dropped goes on; `World::troubles` tells if it fails"]
pub struct Request<R> {
    completion: Arc<Completion>,
    world: Arc<WorldInner>,
    received: PhantomData<R>,
}

/// Where the outcome of a transfer is put.
#[derive(Debug)]
pub(crate) struct Completion {
    outcome: Mutex<Outcome>,
    changed: Condvar,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Pending,
    Complete(Result<Received>),
    /// Nobody asks, or nobody asks any more.
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
                Outcome::Detached => unreachable!("a request is waited for once"),
            }
            outcome = self.changed.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<R> Request<R> {
    pub(crate) fn new(slot: Arc<Completion>, world: Arc<WorldInner>) -> Self {
        Self { completion: slot, world, received: PhantomData }
    }

    /// Of a transfer that is over.
    pub(crate) fn completed(ended: Result<Received>, world: Arc<WorldInner>) -> Self {
        Self::new(Completion::new(Outcome::Complete(ended)), world)
    }

    /// Whether the transfer is over, well or not.
    pub fn is_complete(&self) -> bool {
        !matches!(*self.completion.outcome(), Outcome::Pending)
    }
}

impl Request<()> {
    /// Waits until the transfer is over.
    ///
    /// # Errors
    /// What went wrong with it.
    pub fn wait(self) -> Result<()> {
        self.completion.wait().map(drop)
    }
}

impl Request<Received> {
    /// Waits until the message is here, and says what came.
    ///
    /// # Errors
    /// What went wrong with it; the block is as it was, or refused to readers as undefined.
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
