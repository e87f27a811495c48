//! The connection of a worker: a tenant that the broker created, and that may borrow leases of the tenants that it
//! serves.

use std::os::fd::OwnedFd;

use super::connection::{Granted, Link};
use super::error::LinkError;
use crate::protocol::message::Request;
use crate::protocol::types::Id;

impl Link {
    /// The connection of a worker, from its socket, ring, semaphores and doorbell.
    pub(crate) fn for_worker(
        tenant: Id,
        device: u128,
        socket: OwnedFd,
        descriptors: [OwnedFd; 3],
    ) -> Result<Self, LinkError> {
        Self::from_parts(socket, tenant, device, descriptors)
    }

    /// Borrows a lease of a tenant that this worker serves.
    pub(crate) fn borrow(&mut self, lease: Id, of: Id) -> Result<Granted, LinkError> {
        self.request_lease(Request::Borrow { lease, of })
    }

    /// The next borrowed lease that must be returned, because the original has ended.
    pub(crate) fn next_recalled(&mut self) -> Option<Id> {
        self.drain();
        self.recalled.pop_front()
    }

    /// The next dropped module, which must be unloaded after the calls that were queued before.
    pub(crate) fn next_dropped(&mut self) -> Option<Id> {
        self.drain();
        self.dropped_modules.pop_front()
    }
}
