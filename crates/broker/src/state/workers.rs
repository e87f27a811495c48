//! Workers: tenants of the broker's own that run kernels for others. Who is served by which, what a worker borrows of those that
//! it serves, and when that is over.
//!
//! A borrowed lease is one of the same block, for the same, without a name. So the block lives until both are returned, and the
//! points that they are returned with say when it is somebody else's.

use std::collections::{BTreeMap, BTreeSet};

use super::counts::Step;
use super::shelf::index;
use super::{Block, Due, Effect, Lease, Peer, Point, State, Tenant, Thing, Touched, World};
use crate::calls::SEATS;
use crate::wire::{Id, Refusal, Reply};

/// What makes a tenant a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Service {
    /// Processes of its user that say this share it. Zero: it is one tenant's alone.
    pub(crate) label: u64,
    /// Whom it serves, and at which seat.
    pub(crate) serves: BTreeMap<Id, u32>,
    /// How many seats were given out. None is twice: the words of the worker's clock count on for who has it.
    pub(super) seats: u32,
    /// What it has of the leases of those: by their lease its own.
    pub(super) borrowed: BTreeMap<Id, Id>,
    /// What it has loaded: by the module the record of that.
    pub(super) loaded: BTreeMap<Id, Id>,
    /// Whoever it served is gone: it ends.
    pub(super) is_dismissed: bool,
}

/// Where a tenant's kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Post {
    pub(crate) worker: Id,
    pub(crate) seat: u32,
}

impl Tenant {
    pub(super) fn new(peer: Peer) -> Self {
        Self {
            peer,
            attached: BTreeMap::new(),
            leases: BTreeSet::new(),
            segments: BTreeSet::new(),
            due: BTreeSet::new(),
            dropped: 0,
            is_fenced: false,
            is_leaving: false,
            is_gone: false,
            post: None,
            service: None,
        }
    }

    /// Whether nothing is left to be done for a tenant that goes.
    pub(super) fn is_over(&self) -> bool {
        self.post.is_none() && (self.is_gone || self.due.is_empty())
    }
}

impl State {
    /// A worker for a tenant: the one that it has, one that it agreed to share, or a new one.
    pub(super) fn hire(&mut self, from: Id, number: u32, label: u64) -> Result<(), Refusal> {
        let tenant = self.tenants.get(from).expect("it asks");
        if tenant.service.is_some() {
            return Err(Refusal::Malformed);
        }
        let post = match tenant.post {
            Some(post) => post,
            None => self.post(from, label)?,
        };
        // Its process is about to end: then there is another.
        if self.tenants.get(post.worker).is_none_or(|worker| worker.is_fenced) {
            return Err(Refusal::NoTenant);
        }
        let Post { worker, seat } = post;
        self.effects.push(Effect::Hire { to: from, number, worker, seat });
        Ok(())
    }

    /// Gives a tenant a seat at a worker.
    fn post(&mut self, tenant: Id, label: u64) -> Result<Post, Refusal> {
        let user = self.user_of(tenant);
        let worker = match self.shared_worker(user, label) {
            Some(worker) => worker,
            None => self.add_worker(user, label)?,
        };
        let service = self.service_of(worker);
        let seat = service.seats;
        service.seats += 1;
        service.serves.insert(tenant, seat);
        // Before who sits there: a broker that comes after gives no seat out again.
        self.touch(Touched::Tenant(index(worker)));
        let post = Post { worker, seat };
        self.tenants.get_mut(tenant).expect("it asks").post = Some(post);
        self.touch(Touched::Tenant(index(tenant)));
        Ok(post)
    }

    /// A worker that processes of a user agreed to share.
    fn shared_worker(&self, user: u32, label: u64) -> Option<Id> {
        let is_shared = |(_, tenant): &(Id, &Tenant)| {
            let is_open = |service: &Service| service.label == label && !service.is_dismissed && service.seats < SEATS;
            label != 0 && tenant.peer.user == user && !tenant.is_fenced && tenant.service.as_ref().is_some_and(is_open)
        };
        self.tenants.iter().find(is_shared).map(|(id, _)| id)
    }

    /// A worker that nobody is served by yet. Its process is to be started.
    fn add_worker(&mut self, user: u32, label: u64) -> Result<Id, Refusal> {
        self.check_connections(user)?;
        let service = Some(Service { label, ..Service::default() });
        let worker = self.tenants.add(Tenant { service, ..Tenant::new(Peer { user, process: 0 }) });
        self.counts.connection(user, Step::Add);
        self.touch(Touched::Tenant(index(worker)));
        self.effects.push(Effect::Start { worker });
        Ok(worker)
    }

    /// A worker's process has been started.
    pub(crate) fn started(&mut self, worker: Id, process: u32) {
        if let Some(started) = self.tenants.get_mut(worker) {
            started.peer.process = process;
            self.touch(Touched::Tenant(index(worker)));
        }
    }

    pub(super) fn service_of(&mut self, worker: Id) -> &mut Service {
        self.tenants.get_mut(worker).and_then(|worker| worker.service.as_mut()).expect("a post is at a worker")
    }

    /// Takes a tenant from its worker, which ends if it serves nobody else.
    pub(super) fn unpost(&mut self, tenant: Id) {
        let left = self.tenants.get_mut(tenant).and_then(|tenant| tenant.post.take());
        let Some(Post { worker, .. }) = left else { return };
        self.touch(Touched::Tenant(index(tenant)));
        self.effects.push(Effect::Close { what: Thing::Calls(tenant) });
        let held = |lease: &Id| self.leases.get(*lease).is_some_and(|lease| lease.holder == tenant);
        let service = self.tenants.get(worker).and_then(|worker| worker.service.as_ref());
        let borrowed = service.map_or_else(Vec::new, |service| service.borrowed.keys().copied().collect());
        let borrowed: Vec<Id> = borrowed.into_iter().filter(held).collect();
        let service = self.service_of(worker);
        service.serves.remove(&tenant);
        let recalled: Vec<Id> = borrowed.iter().filter_map(|lease| service.borrowed.remove(lease)).collect();
        service.is_dismissed |= service.serves.is_empty();
        let is_dismissed = service.is_dismissed;
        let recalls = recalled.into_iter().map(|lease| Effect::Tell { to: worker, reply: Reply::Recall { lease } });
        self.effects.extend(recalls);
        if is_dismissed {
            self.effects.push(Effect::Retire { worker });
        }
    }

    /// A worker has carried out, or refused, what a tenant that goes had called.
    pub(super) fn finish(
        &mut self,
        from: Id,
        tenant: Id,
        is_again: bool,
        world: &impl World,
    ) -> Result<Reply, Refusal> {
        let worker = self.tenants.get(from).expect("it asks");
        let serves = worker.service.as_ref().ok_or(Refusal::NotAWorker)?.serves.contains_key(&tenant);
        if !serves || !self.tenants.get(tenant).is_some_and(|tenant| tenant.is_leaving) {
            return if is_again { Ok(Reply::Done) } else { Err(Refusal::NoTenant) };
        }
        // Whatever point of the worker's they wait for: it does nothing with them any more.
        let ended = self.ending_at_worker(tenant);
        ended.into_iter().for_each(|lease| self.end_lease(lease, Some(Point::default())));
        self.unpost(tenant);
        if self.tenants.get(tenant).is_some_and(Tenant::is_over) {
            self.end(tenant, world);
        }
        Ok(Reply::Done)
    }

    /// Leases of a tenant that it returned, and that wait for work of its worker. What that one uses it has borrowed.
    pub(super) fn ending_at_worker(&self, tenant: Id) -> Vec<Id> {
        let post = self.tenants.get(tenant).and_then(|tenant| tenant.post);
        let Some(worker) = post.and_then(|post| self.tenants.get(post.worker)) else { return Vec::new() };
        let due = worker.due.iter().filter_map(|&(_, _, due)| match due {
            Due::Lease(lease) => Some(lease),
            Due::Name(_) | Due::Gift(_) => None,
        });
        due.filter(|&lease| self.leases.get(lease).is_some_and(|lease| lease.holder == tenant)).collect()
    }

    /// A worker is gone: those that it served have none.
    pub(super) fn unserve(&mut self, service: Service) {
        for (tenant, _) in service.serves {
            self.tenants.get_mut(tenant).expect("who is served is there").post = None;
            self.touch(Touched::Tenant(index(tenant)));
            self.effects.push(Effect::Close { what: Thing::Calls(tenant) });
        }
    }

    /// A second lease of what a tenant has leased, for its worker.
    pub(super) fn borrow(&mut self, from: Id, number: u32, lease: Id, of: Id) -> Result<Reply, Refusal> {
        let asking = self.tenants.get(from).expect("it asks");
        let service = asking.service.as_ref().ok_or(Refusal::NotAWorker)?;
        if !service.serves.contains_key(&of) {
            return Err(Refusal::NoTenant);
        }
        // One that was returned behind a call is not over before that has passed.
        let Lease { holder, block, access, name, .. } = *match self.leases.get(lease) {
            Some(lent) => lent,
            None if self.leases.is_over(lease) => return Err(Refusal::LeaseOver),
            None => return Err(Refusal::NoLease),
        };
        if holder != of {
            return Err(Refusal::ForeignLease);
        }
        // What is still written by others is awaited by who borrows it, too.
        let named = name.and_then(|name| self.named.get(name)).filter(|named| named.block == block);
        let point = named.map_or(Point::default(), |named| named.ready);
        if let Some(&known) = service.borrowed.get(&lease) {
            let Block { segment, offset, bytes, .. } = *self.blocks.get(block).expect("it is leased");
            return Ok(Reply::Granted { lease: known, segment, offset, bytes, point, access });
        }
        self.check_leases(from)?;
        // The block is no other tenant's by that: who borrows works for who has it.
        let reply = self.grant_of(from, number, block, access, None, Some(lease));
        let Reply::Granted { lease: borrowed, segment, offset, bytes, .. } = reply else {
            unreachable!("what is granted is told so")
        };
        self.service_of(from).borrowed.insert(lease, borrowed);
        Ok(Reply::Granted { lease: borrowed, segment, offset, bytes, point, access })
    }

    /// A lease is over, or for less than it was: what its holder's worker borrowed of it is to be returned.
    pub(super) fn recall(&mut self, holder: Id, lease: Id) {
        let Some(Post { worker, .. }) = self.tenants.get(holder).and_then(|holder| holder.post) else { return };
        if let Some(borrowed) = self.service_of(worker).borrowed.remove(&lease) {
            self.effects.push(Effect::Tell { to: worker, reply: Reply::Recall { lease: borrowed } });
        }
    }

    /// Forgets what a worker borrowed and has returned.
    pub(super) fn forget_borrowed(&mut self, ended: &Lease, lease: Id) {
        let Some(of) = ended.of else { return };
        let holder = self.tenants.get_mut(ended.holder).expect("who has a lease is there");
        if let Some(service) = &mut holder.service
            && service.borrowed.get(&of) == Some(&lease)
        {
            service.borrowed.remove(&of);
        }
    }

    /// Puts together what records tell of workers one by one.
    pub(super) fn mend_workers(&mut self) {
        let posts: Vec<(Id, Post)> = self.tenants.iter().filter_map(|(id, tenant)| Some((id, tenant.post?))).collect();
        for (tenant, Post { worker, seat }) in posts {
            let service = self.tenants.get_mut(worker).and_then(|worker| worker.service.as_mut());
            let is_free =
                |service: &&mut Service| seat < service.seats && !service.serves.values().any(|&taken| taken == seat);
            match service.filter(is_free).filter(|_| worker != tenant) {
                Some(service) => drop(service.serves.insert(tenant, seat)),
                None => self.tenants.get_mut(tenant).expect("it was listed").post = None,
            }
        }
        // A point is of who says it, or of its worker.
        let is_foreign = |lease: &Lease| {
            let worker = self.tenants.get(lease.holder).and_then(|holder| holder.post).map(|post| post.worker);
            lease.ending.is_some_and(|point| point.tenant != lease.holder && Some(point.tenant) != worker)
        };
        let foreign: Vec<Id> = self.leases.iter().filter(|(_, lease)| is_foreign(lease)).map(|(id, _)| id).collect();
        foreign.into_iter().for_each(|lease| self.end_lease(lease, Some(Point::default())));
        let lent = self.leases.iter().filter(|(_, lease)| lease.of.is_some() && lease.ending.is_none());
        let lent: Vec<(Id, Lease)> = lent.map(|(id, lease)| (id, lease.clone())).collect();
        for (borrowed, Lease { holder: worker, access, of, .. }) in lent {
            let Some(of) = of else { continue };
            // Neither of what is over, nor for more than it is for: the broker that is gone may not have said so.
            let serves = self.tenants.get(worker).and_then(|worker| worker.service.as_ref());
            let principal = self.leases.get(of).filter(|principal| principal.access == access);
            let is_lent =
                principal.zip(serves).is_some_and(|(lease, service)| service.serves.contains_key(&lease.holder));
            match is_lent {
                true => drop(self.service_of(worker).borrowed.insert(of, borrowed)),
                false => self.effects.push(Effect::Tell { to: worker, reply: Reply::Recall { lease: borrowed } }),
            }
        }
        let leaving: Vec<Id> = self.loads.iter().filter(|(_, load)| load.is_leaving).map(|(id, _)| id).collect();
        leaving.into_iter().for_each(|load| self.leave_load(load));
        // The broker that is gone may not have said so.
        let going = self.tenants.iter().filter(|(_, tenant)| tenant.is_leaving);
        let going: Vec<(Id, Id)> = going.filter_map(|(id, tenant)| Some((tenant.post?.worker, id))).collect();
        for (worker, tenant) in going {
            self.effects.push(Effect::Dismiss { worker, tenant });
            if self.tenants.get(tenant).is_some_and(|tenant| tenant.is_gone) {
                self.effects.push(Effect::LetPass { tenant });
            }
        }
        let is_idle = |tenant: &Tenant| tenant.service.as_ref().is_some_and(|service| service.serves.is_empty());
        let idle: Vec<Id> = self.tenants.iter().filter(|(_, tenant)| is_idle(tenant)).map(|(id, _)| id).collect();
        for worker in idle {
            self.service_of(worker).is_dismissed = true;
            self.effects.push(Effect::Kill { worker });
        }
    }
}
