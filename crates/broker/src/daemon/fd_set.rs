//! The descriptors of the broker, which the fdstore holds too, and the fdstore itself.

use std::io;
use std::ops::Index;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::backoff::Backoff;
use crate::protocol::fd_channel::{self, FdKey, FdTable, Outbox};
use crate::state::Resource;

/// An fdstore that exits sooner counts as a failed start.
const FDSTORE_LIFE_MIN: Duration = Duration::from_millis(20);

/// How often a start of the fdstore is retried at the most.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct FdSet {
    /// Every descriptor that the fdstore holds too.
    fds: FdTable,
    /// Messages that have not been sent to the fdstore yet.
    outbox: Outbox,
    /// `None` while none could be started.
    fdstore: Option<OwnedFd>,
    fdstore_started: Instant,
    fdstore_backoff: Backoff,
}

impl FdSet {
    /// The descriptors of a previous broker, as its fdstore sent them.
    pub(super) fn new(fdstore: OwnedFd, fds: FdTable) -> Self {
        Self {
            fds,
            outbox: Outbox::default(),
            fdstore: Some(fdstore),
            fdstore_started: Instant::now(),
            fdstore_backoff: Backoff::NONE,
        }
    }

    pub(super) fn table(&self) -> &FdTable {
        &self.fds
    }

    pub(super) fn get(&self, what: &FdKey) -> Option<&Arc<OwnedFd>> {
        self.fds.get(what)
    }

    pub(super) fn contains_key(&self, what: &FdKey) -> bool {
        self.fds.contains_key(what)
    }

    /// Stores a descriptor here and in the fdstore, which gets it as soon as it reads.
    pub(super) fn store(&mut self, what: FdKey, descriptor: Arc<OwnedFd>) {
        self.fds.insert(what, descriptor.clone());
        self.outbox.hold(what, descriptor);
        self.flush();
    }

    /// Removes a descriptor here and in the fdstore.
    pub(super) fn remove(&mut self, what: FdKey) -> Option<Arc<OwnedFd>> {
        let descriptor = self.fds.remove(&what)?;
        self.outbox.drop(what);
        self.flush();
        Some(descriptor)
    }

    /// Tells the fdstore that it has everything.
    pub(super) fn complete(&mut self) {
        self.outbox.complete();
    }

    /// Sends the messages that the fdstore has not taken yet.
    pub(super) fn flush(&mut self) {
        if let Some(fdstore) = &self.fdstore {
            // A lost fdstore is noticed as an event, and the next one is sent everything.
            let _ = self.outbox.flush(fdstore);
        }
    }

    /// Whether this descriptor was sent to the fdstore, which reads it even if the broker dies.
    pub(super) fn is_stored(&self, what: &FdKey) -> bool {
        !self.outbox.contains(what)
    }

    /// Whether the fdstore was sent everything.
    pub(super) fn is_flushed(&self) -> bool {
        self.outbox.is_empty()
    }

    pub(super) fn fdstore(&self) -> Option<&OwnedFd> {
        self.fdstore.as_ref()
    }

    /// Whether another fdstore must be started now.
    pub(super) fn needs_fdstore(&self, now: Instant) -> bool {
        self.fdstore.is_none() && self.fdstore_backoff.has_elapsed(now)
    }

    /// How long the event loop may sleep.
    pub(super) fn timeout(&self, now: Instant) -> Option<Duration> {
        match self.fdstore {
            Some(_) => None,
            None => self.fdstore_backoff.remaining(now).or(Some(RETRY_INTERVAL)),
        }
    }

    /// The fdstore has exited. If it died at once, the next start is delayed.
    pub(super) fn fdstore_lost(&mut self, now: Instant) {
        self.fdstore = None;
        match now.duration_since(self.fdstore_started) < FDSTORE_LIFE_MIN {
            true => self.fdstore_backoff.start(now),
            false => self.fdstore_backoff.reset(),
        }
    }

    /// Another fdstore has started: queues everything for it.
    pub(super) fn fdstore_started(&mut self, fdstore: OwnedFd, now: Instant) {
        (self.fdstore, self.fdstore_started) = (Some(fdstore), now);
        self.outbox = Outbox::default();
        for (&what, descriptor) in &self.fds {
            self.outbox.hold(what, descriptor.clone());
        }
        self.outbox.complete();
        self.flush();
    }

    /// No fdstore could be started.
    pub(super) fn start_failed(&mut self, now: Instant) {
        self.fdstore_backoff.start(now);
    }

    /// Stops the fdstore.
    pub(super) fn stop_fdstore(&mut self) -> io::Result<()> {
        // A client that sees its connection end can serve this path at once.
        self.fds.remove(&FdKey::Lock);
        match self.fdstore.as_ref().map_or(Ok(()), fd_channel::send_stop) {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Index<&FdKey> for FdSet {
    type Output = Arc<OwnedFd>;

    fn index(&self, what: &FdKey) -> &Arc<OwnedFd> {
        &self.fds[what]
    }
}

/// The key under which the descriptor of a resource is held.
pub(super) fn fd_key(resource: Resource) -> FdKey {
    match resource {
        Resource::Segment(id) => FdKey::Segment(id),
        Resource::Semaphores(id) => FdKey::Semaphores(id),
        Resource::Host(id) => FdKey::Host(id),
        Resource::CallRing(id) => FdKey::CallRing(id),
        Resource::Module(id) => FdKey::Module(id),
    }
}
