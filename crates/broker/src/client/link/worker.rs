//! A worker's connection: it is a tenant that the broker itself made, and may borrow what those that it serves have leased.

use std::os::fd::OwnedFd;

use super::{Granted, Link, LinkError};
use crate::wire::{Id, Request};

impl Link {
    /// The connection of a worker, over what the broker gave it: a socket, and ring, semaphores and doorbell.
    pub(crate) fn for_worker(
        tenant: Id,
        device: u128,
        socket: OwnedFd,
        descriptors: [OwnedFd; 3],
    ) -> Result<Self, LinkError> {
        Self::from_parts(socket, tenant, device, descriptors)
    }

    /// A second lease of what a tenant has leased that this worker serves.
    pub(crate) fn borrow(&mut self, lease: Id, of: Id) -> Result<Granted, LinkError> {
        self.request_lease(Request::Borrow { lease, of })
    }

    /// The next borrowed lease that is to be returned: what it was borrowed of is over.
    pub(crate) fn next_recalled(&mut self) -> Option<Id> {
        self.drain();
        self.recalled.pop_front()
    }

    /// The next module that was dropped, and is to be unloaded behind the calls that were put in before.
    pub(crate) fn next_dropped(&mut self) -> Option<Id> {
        self.drain();
        self.dropped_modules.pop_front()
    }
}
