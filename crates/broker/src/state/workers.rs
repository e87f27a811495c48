//! Workers: tenants of the broker's own that run kernels for others. Who is served by which, what a worker borrows of those that
//! it serves, and when that is over.
//!
//! A borrowed lease is one of the same block, for the same, without a name. So the block lives until both are returned, and the
//! fences that they are returned with say when it is somebody else's.

use std::collections::{BTreeMap, BTreeSet};

use super::accounting::Change;
use super::slot_map::index;
use super::{Block, DirtyRecord, Effect, Environment, Fence, FenceWaiter, Lease, Peer, Resource, State, Tenant};
use crate::call_ring::SESSIONS_MAX;
use crate::wire::{Id, Reply, RequestError};

/// What makes a tenant a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerState {
    /// Processes of its user that say this share it. Zero: it is one tenant's alone.
    pub(crate) label: u64,
    /// Whom it serves, and at which session_index.
    pub(crate) serves: BTreeMap<Id, u32>,
    /// How many session_indexes were given out. None is twice: the words of the worker's semaphores count on for who has it.
    pub(super) sessions_opened: u32,
    /// What it has of the leases of those: by their lease its own.
    pub(super) borrowed: BTreeMap<Id, Id>,
    /// What it has loaded: by the module the record of that.
    pub(super) loaded: BTreeMap<Id, Id>,
    /// Whoever it served is gone: it ends.
    pub(super) is_stopping: bool,
}

/// Where a tenant's kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallSession {
    pub(crate) worker: Id,
    pub(crate) session_index: u32,
}

impl Tenant {
    pub(super) fn new(peer: Peer) -> Self {
        Self {
            peer,
            attached: BTreeMap::new(),
            leases: BTreeSet::new(),
            segments: BTreeSet::new(),
            fence_waiters: BTreeSet::new(),
            last_drop: 0,
            is_disconnected: false,
            is_closing: false,
            has_exited: false,
            session: None,
            worker_state: None,
        }
    }

    /// Whether nothing is left to be done for a tenant that goes.
    pub(super) fn is_drained(&self) -> bool {
        self.session.is_none() && (self.has_exited || self.fence_waiters.is_empty())
    }
}

impl State {
    /// A worker for a tenant: the one that it has, one that it agreed to share, or a new one.
    pub(super) fn open_session(&mut self, from: Id, number: u32, label: u64) -> Result<(), RequestError> {
        let tenant = self.tenants.get(from).expect("the requesting tenant exists");
        if tenant.worker_state.is_some() {
            return Err(RequestError::Malformed);
        }
        let session = match tenant.session {
            Some(session) => session,
            None => self.assign_worker(from, label)?,
        };
        // Its process is about to end: then there is another.
        if self.tenants.get(session.worker).is_none_or(|worker| worker.is_disconnected) {
            return Err(RequestError::NoTenant);
        }
        let CallSession { worker, session_index } = session;
        self.effects.push(Effect::OpenSession { to: from, number, worker, session_index });
        Ok(())
    }

    /// Gives a tenant a session at a worker.
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
        // Before who sits there: a broker that comes after gives no session_index out again.
        self.mark_dirty(DirtyRecord::Tenant(index(worker)));
        let session = CallSession { worker, session_index };
        self.tenants.get_mut(tenant).expect("the requesting tenant exists").session = Some(session);
        self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        Ok(session)
    }

    /// A worker that processes of a user agreed to share.
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

    /// A worker that nobody is served by yet. Its process is to be started.
    fn add_worker(&mut self, user: u32, label: u64) -> Result<Id, RequestError> {
        self.check_connections(user)?;
        let worker_state = Some(WorkerState { label, ..WorkerState::default() });
        let worker = self.tenants.insert(Tenant { worker_state, ..Tenant::new(Peer { user, process: 0 }) });
        self.accounting.connection(user, Change::Add);
        self.mark_dirty(DirtyRecord::Tenant(index(worker)));
        self.effects.push(Effect::StartWorker { worker });
        Ok(worker)
    }

    /// A worker's process has been started.
    pub(crate) fn worker_started(&mut self, worker: Id, process: u32) {
        if let Some(started) = self.tenants.get_mut(worker) {
            started.peer.process = process;
            self.mark_dirty(DirtyRecord::Tenant(index(worker)));
        }
    }

    pub(super) fn worker_state(&mut self, worker: Id) -> &mut WorkerState {
        self.tenants.get_mut(worker).and_then(|worker| worker.worker_state.as_mut()).expect("a session belongs to a worker")
    }

    /// Takes a tenant from its worker, which ends if it serves nobody else.
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

    /// A worker has carried out, or refused, what a tenant that goes had called.
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
        // Whatever fence of the worker's they wait for: it does nothing with them any more.
        let ended = self.ending_at_worker(tenant);
        ended.into_iter().for_each(|lease| self.end_lease(lease, Some(Fence::default())));
        self.close_session(tenant);
        if self.tenants.get(tenant).is_some_and(Tenant::is_drained) {
            self.remove_tenant(tenant, environment);
        }
        Ok(Reply::Done)
    }

    /// Leases of a tenant that it returned, and that wait for work of its worker. What that one uses it has borrowed.
    pub(super) fn ending_at_worker(&self, tenant: Id) -> Vec<Id> {
        let session = self.tenants.get(tenant).and_then(|tenant| tenant.session);
        let Some(worker) = session.and_then(|session| self.tenants.get(session.worker)) else { return Vec::new() };
        let waiter = worker.fence_waiters.iter().filter_map(|&(_, _, waiter)| match waiter {
            FenceWaiter::Lease(lease) => Some(lease),
            FenceWaiter::Name(_) | FenceWaiter::Given(_) => None,
        });
        waiter.filter(|&lease| self.leases.get(lease).is_some_and(|lease| lease.holder == tenant)).collect()
    }

    /// A worker is gone: those that it served have none.
    pub(super) fn clear_sessions(&mut self, worker_state: WorkerState) {
        for (tenant, _) in worker_state.serves {
            self.tenants.get_mut(tenant).expect("a served tenant exists").session = None;
            self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
            self.effects.push(Effect::CloseFd { what: Resource::CallRing(tenant) });
        }
    }

    /// A second lease of what a tenant has leased, for its worker.
    pub(super) fn borrow(&mut self, from: Id, number: u32, lease: Id, of: Id) -> Result<Reply, RequestError> {
        let asking = self.tenants.get(from).expect("the requesting tenant exists");
        let worker_state = asking.worker_state.as_ref().ok_or(RequestError::NotAWorker)?;
        if !worker_state.serves.contains_key(&of) {
            return Err(RequestError::NoTenant);
        }
        // One that was returned behind a call is not over before that has passed.
        let Lease { holder, block, access, name, .. } = *match self.leases.get(lease) {
            Some(lent) => lent,
            None if self.leases.was_removed(lease) => return Err(RequestError::LeaseEnded),
            None => return Err(RequestError::NoLease),
        };
        if holder != of {
            return Err(RequestError::ForeignLease);
        }
        // What is still written by others is awaited by who borrows it, too.
        let named = name.and_then(|name| self.named.get(name)).filter(|named| named.block == block);
        let fence = named.map_or(Fence::default(), |named| named.ready);
        if let Some(&known) = worker_state.borrowed.get(&lease) {
            let Block { segment, offset, bytes, .. } = *self.blocks.get(block).expect("a leased block exists");
            return Ok(Reply::Granted { lease: known, segment, offset, bytes, fence, access });
        }
        self.check_leases(from)?;
        // The block is no other tenant's by that: who borrows works for who has it.
        let reply = self.grant_with(from, number, block, access, None, Some(lease));
        let Reply::Granted { lease: borrowed, segment, offset, bytes, .. } = reply else {
            unreachable!("what is granted is told so")
        };
        self.worker_state(from).borrowed.insert(lease, borrowed);
        Ok(Reply::Granted { lease: borrowed, segment, offset, bytes, fence, access })
    }

    /// A lease is over, or for less than it was: what its holder's worker borrowed of it is to be returned.
    pub(super) fn recall(&mut self, holder: Id, lease: Id) {
        let Some(CallSession { worker, .. }) = self.tenants.get(holder).and_then(|holder| holder.session) else {
            return;
        };
        if let Some(borrowed) = self.worker_state(worker).borrowed.remove(&lease) {
            self.effects.push(Effect::Notify { to: worker, reply: Reply::Recall { lease: borrowed } });
        }
    }

    /// Forgets what a worker borrowed and has returned.
    pub(super) fn forget_borrowed(&mut self, ended: &Lease, lease: Id) {
        let Some(of) = ended.of else { return };
        let holder = self.tenants.get_mut(ended.holder).expect("the holder of a lease exists");
        if let Some(worker_state) = &mut holder.worker_state
            && worker_state.borrowed.get(&of) == Some(&lease)
        {
            worker_state.borrowed.remove(&of);
        }
    }

    /// Puts together what records tell of workers one by one.
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
        // A fence is of who says it, or of its worker.
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
            // Neither of what is over, nor for more than it is for: the broker that is gone may not have said so.
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
        // The broker that is gone may not have said so.
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
