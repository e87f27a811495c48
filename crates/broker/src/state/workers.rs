//! Workers: tenants that the broker starts to run kernels for others. Assigns tenants to workers, and records which
//! leases a worker borrows from its tenants, and when that ends.
//!
//! A borrowed lease is a second lease of the same block with the same access, without a name. So the block lives until
//! both are returned, and the fences of both returns say when it can be reused.

use super::accounting::Change;
use super::slot_map::index;
use super::store::State;
use super::types::{
    Block, CallSession, DirtyRecord, Effect, Environment, FenceWaiter, Lease, Peer, Resource, Tenant, WorkerState,
};
use crate::protocol::message::Reply;
use crate::protocol::request_error::RequestError;
use crate::protocol::types::{Fence, Id, SESSIONS_MAX};

impl State {
    /// Opens a session: at the worker that the tenant has, at a shared one, or at a new one.
    pub(super) fn open_session(&mut self, from: Id, number: u32, label: u64) -> Result<(), RequestError> {
        let tenant = self.tenants.get(from).expect("the requesting tenant exists");
        if tenant.worker_state.is_some() {
            return Err(RequestError::Malformed);
        }
        let session = match tenant.session {
            Some(session) => session,
            None => self.assign_worker(from, label)?,
        };
        // Its process is about to end. Then the tenant gets another worker.
        if self.tenants.get(session.worker).is_none_or(|worker| worker.is_disconnected) {
            return Err(RequestError::NoTenant);
        }
        let CallSession { worker, session_index } = session;
        self.effects.push(Effect::OpenSession { to: from, number, worker, session_index });
        Ok(())
    }

    /// Assigns a tenant to a worker.
    fn assign_worker(&mut self, tenant: Id, label: u64) -> Result<CallSession, RequestError> {
        let user = self.user_of(tenant);
        let worker = match self.shared_worker(user, label) {
            Some(worker) => worker,
            None => self.add_worker(user, label)?,
        };
        let worker_state = self.worker_state(worker);
        let session_index = worker_state.sessions_opened;
        worker_state.sessions_opened += 1;
        worker_state.serves.insert(tenant, session_index);
        // Recorded before the tenant: a recovered broker does not reuse the session index.
        self.mark_dirty(DirtyRecord::Tenant(index(worker)));
        let session = CallSession { worker, session_index };
        self.tenants.get_mut(tenant).expect("the requesting tenant exists").session = Some(session);
        self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        Ok(session)
    }

    /// Finds a worker that processes of a user share by label.
    fn shared_worker(&self, user: u32, label: u64) -> Option<Id> {
        let is_shared = |(_, tenant): &(Id, &Tenant)| {
            let is_open = |worker_state: &WorkerState| {
                worker_state.label == label && !worker_state.is_stopping && worker_state.sessions_opened < SESSIONS_MAX
            };
            label != 0
                && tenant.peer.user == user
                && !tenant.is_disconnected
                && tenant.worker_state.as_ref().is_some_and(is_open)
        };
        self.tenants.iter().find(is_shared).map(|(id, _)| id)
    }

    /// Adds a worker without tenants, whose process must be started.
    fn add_worker(&mut self, user: u32, label: u64) -> Result<Id, RequestError> {
        self.check_connections(user)?;
        let worker_state = Some(WorkerState { label, ..WorkerState::default() });
        let worker = self.tenants.insert(Tenant { worker_state, ..Tenant::new(Peer { user, process: 0 }) });
        self.accounting.connection(user, Change::Add);
        self.mark_dirty(DirtyRecord::Tenant(index(worker)));
        self.effects.push(Effect::StartWorker { worker });
        Ok(worker)
    }

    /// The process of a worker has been started.
    pub(crate) fn worker_started(&mut self, worker: Id, process: u32) {
        if let Some(started) = self.tenants.get_mut(worker) {
            started.peer.process = process;
            self.mark_dirty(DirtyRecord::Tenant(index(worker)));
        }
    }

    pub(super) fn worker_state(&mut self, worker: Id) -> &mut WorkerState {
        self.tenants
            .get_mut(worker)
            .and_then(|worker| worker.worker_state.as_mut())
            .expect("a session belongs to a worker")
    }

    /// Takes a tenant from its worker, which exits if it serves no other.
    pub(super) fn close_session(&mut self, tenant: Id) {
        let left = self.tenants.get_mut(tenant).and_then(|tenant| tenant.session.take());
        let Some(CallSession { worker, .. }) = left else { return };
        self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        self.effects.push(Effect::CloseFd { what: Resource::CallRing(tenant) });
        let held = |lease: &Id| self.leases.get(*lease).is_some_and(|lease| lease.holder == tenant);
        let worker_state = self.tenants.get(worker).and_then(|worker| worker.worker_state.as_ref());
        let borrowed =
            worker_state.map_or_else(Vec::new, |worker_state| worker_state.borrowed.keys().copied().collect());
        let borrowed: Vec<Id> = borrowed.into_iter().filter(held).collect();
        let worker_state = self.worker_state(worker);
        worker_state.serves.remove(&tenant);
        let recalled: Vec<Id> = borrowed.iter().filter_map(|lease| worker_state.borrowed.remove(lease)).collect();
        worker_state.is_stopping |= worker_state.serves.is_empty();
        let is_dismissed = worker_state.is_stopping;
        let recalls = recalled.into_iter().map(|lease| Effect::Notify { to: worker, reply: Reply::Recall { lease } });
        self.effects.extend(recalls);
        if is_dismissed {
            self.effects.push(Effect::StopWorker { worker });
        }
    }

    /// A worker has finished all calls of a closing tenant.
    pub(super) fn session_drained(
        &mut self,
        from: Id,
        tenant: Id,
        is_retry: bool,
        environment: &impl Environment,
    ) -> Result<Reply, RequestError> {
        let worker = self.tenants.get(from).expect("the requesting tenant exists");
        let serves = worker.worker_state.as_ref().ok_or(RequestError::NotAWorker)?.serves.contains_key(&tenant);
        if !serves || !self.tenants.get(tenant).is_some_and(|tenant| tenant.is_closing) {
            return if is_retry { Ok(Reply::Done) } else { Err(RequestError::NoTenant) };
        }
        // Whichever fence of the worker they wait for: it no longer uses them.
        let ended = self.ending_at_worker(tenant);
        ended.into_iter().for_each(|lease| self.end_lease(lease, Some(Fence::default())));
        self.close_session(tenant);
        if self.tenants.get(tenant).is_some_and(Tenant::is_drained) {
            self.remove_tenant(tenant, environment);
        }
        Ok(Reply::Done)
    }

    /// Leases that a tenant has returned and that wait for work of its worker. What the worker still uses, it has
    /// borrowed.
    pub(super) fn ending_at_worker(&self, tenant: Id) -> Vec<Id> {
        let session = self.tenants.get(tenant).and_then(|tenant| tenant.session);
        let Some(worker) = session.and_then(|session| self.tenants.get(session.worker)) else { return Vec::new() };
        let waiter = worker.fence_waiters.iter().filter_map(|&(_, _, waiter)| match waiter {
            FenceWaiter::Lease(lease) => Some(lease),
            FenceWaiter::Name(_) | FenceWaiter::Given(_) => None,
        });
        waiter.filter(|&lease| self.leases.get(lease).is_some_and(|lease| lease.holder == tenant)).collect()
    }

    /// A worker is gone: its tenants have no session.
    pub(super) fn clear_sessions(&mut self, worker_state: WorkerState) {
        for (tenant, _) in worker_state.serves {
            self.tenants.get_mut(tenant).expect("a served tenant exists").session = None;
            self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
            self.effects.push(Effect::CloseFd { what: Resource::CallRing(tenant) });
        }
    }

    /// Lends a tenant's lease to its worker: a second lease of the same block.
    pub(super) fn borrow(&mut self, from: Id, number: u32, lease: Id, of: Id) -> Result<Reply, RequestError> {
        let asking = self.tenants.get(from).expect("the requesting tenant exists");
        let worker_state = asking.worker_state.as_ref().ok_or(RequestError::NotAWorker)?;
        if !worker_state.serves.contains_key(&of) {
            return Err(RequestError::NoTenant);
        }
        // A lease that was returned after a call ends only when the call is complete.
        let Lease { holder, block, access, name, .. } = *match self.leases.get(lease) {
            Some(lent) => lent,
            None if self.leases.was_removed(lease) => return Err(RequestError::LeaseEnded),
            None => return Err(RequestError::NoLease),
        };
        if holder != of {
            return Err(RequestError::ForeignLease);
        }
        // A borrower also waits for a version that is still being written.
        let named = name.and_then(|name| self.named.get(name)).filter(|named| named.block == block);
        let fence = named.map_or(Fence::default(), |named| named.ready);
        if let Some(&known) = worker_state.borrowed.get(&lease) {
            let Block { segment, offset, bytes, .. } = *self.blocks.get(block).expect("a leased block exists");
            return Ok(Reply::Granted { lease: known, segment, offset, bytes, fence, access, version: 0 });
        }
        self.check_leases(from)?;
        // The block does not count as another tenant's: the borrower works for its holder.
        let reply = self.grant_with(from, number, block, access, None, Some(lease));
        let Reply::Granted { lease: borrowed, segment, offset, bytes, .. } = reply else {
            unreachable!("grant_with returns Granted")
        };
        self.worker_state(from).borrowed.insert(lease, borrowed);
        Ok(Reply::Granted { lease: borrowed, segment, offset, bytes, fence, access, version: 0 })
    }

    /// A lease has ended, or lost write access: the worker must return the lease that it borrowed from it.
    pub(super) fn recall(&mut self, holder: Id, lease: Id) {
        let Some(CallSession { worker, .. }) = self.tenants.get(holder).and_then(|holder| holder.session) else {
            return;
        };
        if let Some(borrowed) = self.worker_state(worker).borrowed.remove(&lease) {
            self.effects.push(Effect::Notify { to: worker, reply: Reply::Recall { lease: borrowed } });
        }
    }

    /// Removes a borrowed lease that was returned.
    pub(super) fn forget_borrowed(&mut self, ended: &Lease, lease: Id) {
        let Some(of) = ended.of else { return };
        let holder = self.tenants.get_mut(ended.holder).expect("the holder of a lease exists");
        if let Some(worker_state) = &mut holder.worker_state
            && worker_state.borrowed.get(&of) == Some(&lease)
        {
            worker_state.borrowed.remove(&of);
        }
    }

    /// Connects the records of workers with those of their tenants.
    pub(super) fn repair_workers(&mut self) {
        let sessions: Vec<(Id, CallSession)> =
            self.tenants.iter().filter_map(|(id, tenant)| Some((id, tenant.session?))).collect();
        for (tenant, CallSession { worker, session_index }) in sessions {
            let worker_state = self.tenants.get_mut(worker).and_then(|worker| worker.worker_state.as_mut());
            let is_free = |worker_state: &&mut WorkerState| {
                session_index < worker_state.sessions_opened
                    && !worker_state.serves.values().any(|&taken| taken == session_index)
            };
            match worker_state.filter(is_free).filter(|_| worker != tenant) {
                Some(worker_state) => drop(worker_state.serves.insert(tenant, session_index)),
                None => self.tenants.get_mut(tenant).expect("it was listed above").session = None,
            }
        }
        // A fence must belong to the tenant that named it, or to its worker.
        let is_foreign = |lease: &Lease| {
            let worker = self.tenants.get(lease.holder).and_then(|holder| holder.session).map(|session| session.worker);
            lease.ending.is_some_and(|fence| fence.tenant != lease.holder && Some(fence.tenant) != worker)
        };
        let foreign: Vec<Id> = self.leases.iter().filter(|(_, lease)| is_foreign(lease)).map(|(id, _)| id).collect();
        foreign.into_iter().for_each(|lease| self.end_lease(lease, Some(Fence::default())));
        let lent = self.leases.iter().filter(|(_, lease)| lease.of.is_some() && lease.ending.is_none());
        let lent: Vec<(Id, Lease)> = lent.map(|(id, lease)| (id, lease.clone())).collect();
        for (borrowed, Lease { holder: worker, access, of, .. }) in lent {
            let Some(of) = of else { continue };
            // A previous broker may not have recalled it: the original has ended, or allows less.
            let serves = self.tenants.get(worker).and_then(|worker| worker.worker_state.as_ref());
            let principal = self.leases.get(of).filter(|principal| principal.access == access);
            let is_lent = principal
                .zip(serves)
                .is_some_and(|(lease, worker_state)| worker_state.serves.contains_key(&lease.holder));
            match is_lent {
                true => drop(self.worker_state(worker).borrowed.insert(of, borrowed)),
                false => self.effects.push(Effect::Notify { to: worker, reply: Reply::Recall { lease: borrowed } }),
            }
        }
        let leaving: Vec<Id> = self.loads.iter().filter(|(_, load)| load.is_unloading).map(|(id, _)| id).collect();
        leaving.into_iter().for_each(|load| self.request_unload(load));
        // A previous broker may not have told the worker.
        let going = self.tenants.iter().filter(|(_, tenant)| tenant.is_closing);
        let going: Vec<(Id, Id)> = going.filter_map(|(id, tenant)| Some((tenant.session?.worker, id))).collect();
        for (worker, tenant) in going {
            self.effects.push(Effect::DrainSession { worker, tenant });
            if self.tenants.get(tenant).is_some_and(|tenant| tenant.has_exited) {
                self.effects.push(Effect::CompleteFences { tenant });
            }
        }
        let is_idle =
            |tenant: &Tenant| tenant.worker_state.as_ref().is_some_and(|worker_state| worker_state.serves.is_empty());
        let idle: Vec<Id> = self.tenants.iter().filter(|(_, tenant)| is_idle(tenant)).map(|(id, _)| id).collect();
        for worker in idle {
            self.worker_state(worker).is_stopping = true;
            self.effects.push(Effect::KillWorker { worker });
        }
    }
}
