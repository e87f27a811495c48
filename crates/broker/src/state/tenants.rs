//! Tenants: how they connect and disconnect, and the state that is kept until their work is complete.

use super::accounting::Change;
use super::slot_map::index;
use super::store::State;
use super::types::{
    CallSession, DirtyRecord, Effect, Environment, FenceWaiter, Peer, PendingReserve, Resource, Tenant,
};
use crate::protocol::request_error::RequestError;
use crate::protocol::types::Id;

impl State {
    /// A process has connected.
    pub(crate) fn connect(&mut self, peer: Peer) -> Result<Id, RequestError> {
        self.check_connections(peer.user)?;
        let tenant = self.tenants.insert(Tenant::new(peer));
        self.accounting.connection(peer.user, Change::Add);
        self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        Ok(tenant)
    }

    /// Checks the limits of connections, in all and of one user.
    pub(super) fn check_connections(&self, user: u32) -> Result<(), RequestError> {
        if self.tenants.len() >= self.limits.tenants {
            return Err(RequestError::TooMany { limit: self.limits.tenants as u64 });
        }
        if self.accounting.user(user).connections >= self.limits.user_tenants as u64 {
            return Err(RequestError::TooMany { limit: self.limits.user_tenants as u64 });
        }
        Ok(())
    }

    /// Marks a tenant whose connection has ended: its requests are refused from now on. Its leases end in
    /// [`remove_tenant`](Self::remove_tenant), after its process has ended: until then it can access their memory.
    pub(crate) fn disconnect(&mut self, tenant: Id) {
        if let Some(gone) = self.tenants.get_mut(tenant) {
            gone.is_disconnected = true;
            self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        }
    }

    /// A tenant's process has ended, and its work on the device. It stays until its worker has finished its calls.
    pub(crate) fn process_exited(&mut self, tenant: Id, environment: &impl Environment) {
        let Some(known) = self.tenants.get(tenant).filter(|known| !known.has_exited) else { return };
        if known.session.is_none() {
            self.remove_tenant(tenant, environment);
            return;
        }
        self.poll_fences_of(tenant, environment);
        self.abandon_incomplete(tenant);
        self.tenants.get_mut(tenant).expect("it was found above").has_exited = true;
        self.begin_close(tenant);
        // Its worker may wait for fences that will never be reached.
        self.effects.push(Effect::CompleteFences { tenant });
    }

    /// Removes a tenant as soon as nothing is left to do for it.
    pub(super) fn begin_close(&mut self, tenant: Id) {
        let going = self.tenants.get_mut(tenant).expect("a closing tenant exists");
        (going.is_disconnected, going.is_closing) = (true, true);
        let (session, is_idle) = (going.session, going.fence_waiters.is_empty());
        match session {
            Some(CallSession { worker, .. }) => self.effects.push(Effect::DrainSession { worker, tenant }),
            None if is_idle => self.effects.push(Effect::RemoveTenant { tenant }),
            None => {}
        }
        // Recorded before the worker is told: the next broker continues the close.
        self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        self.closing.insert(tenant);
    }

    /// Withdraws the request of a tenant that waits for the driver. The segment that is created for it will have no
    /// owner.
    pub(crate) fn withdraw(&mut self, tenant: Id) {
        let of_tenant = |(&segment, waiting): (&Id, &PendingReserve)| (waiting.tenant == tenant).then_some(segment);
        let waiting: Vec<Id> = self.pending_reserves.iter().filter_map(of_tenant).collect();
        for segment in waiting {
            self.remove_pending(segment);
        }
    }

    /// Removes a tenant: it has returned everything, or its process has ended and its worker no longer holds anything
    /// of it.
    pub(crate) fn remove_tenant(&mut self, tenant: Id, environment: &impl Environment) {
        self.closing.remove(&tenant);
        self.poll_fences_of(tenant, environment);
        self.abandon_incomplete(tenant);
        let Some(gone) = self.tenants.get(tenant).cloned() else { return };
        self.withdraw(tenant);
        let ending = gone.fence_waiters.iter().filter_map(|&(_, _, waiter)| match waiter {
            FenceWaiter::Lease(lease) => Some(lease),
            FenceWaiter::Name(_) | FenceWaiter::Given(_) => None,
        });
        let at_worker = self.ending_at_worker(tenant);
        let leases: Vec<Id> = ending.chain(at_worker).chain(gone.leases).collect();
        leases.into_iter().for_each(|lease| self.end_lease(lease, None));
        for (segment, _) in gone.attached {
            self.detach(tenant, segment);
        }
        for segment in gone.segments {
            if self.segments.get(segment).is_some() {
                self.change_segment(segment, |left| left.owner = None);
                self.mark_dirty(DirtyRecord::Segment(index(segment)));
                self.reclaim_segment(segment);
            }
        }
        self.abandon_modules(tenant);
        if let Some(CallSession { worker, .. }) = gone.session {
            self.effects.push(Effect::DrainSession { worker, tenant });
            self.close_session(tenant);
        }
        let loaded = gone.worker_state.iter().flat_map(|worker_state| worker_state.loaded.values());
        loaded.for_each(|&load| self.remove_load(load));
        self.tenants.remove(tenant);
        self.accounting.connection(gone.peer.user, Change::Subtract);
        self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        self.effects.push(Effect::CloseFd { what: Resource::Semaphores(tenant) });
        if let Some(worker_state) = gone.worker_state {
            self.clear_sessions(worker_state);
        }
    }
}
