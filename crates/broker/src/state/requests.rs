//! Dispatches the requests of tenants to the other modules. Also has quotas, totals and the stop of the broker.

use super::modules::is_librarys_own;
use super::names::Publication;
use super::slot_map::index;
use super::store::State;
use super::types::{DirtyRecord, Effect, Environment, Lease, PendingReserve, Quota, Resource};
use crate::protocol::message::{BrokerStats, Frame, Reply, Request};
use crate::protocol::request_error::RequestError;
use crate::protocol::types::{Id, MemoryKind, QuotaChange, SEMAPHORES, pair};

impl State {
    /// Handles a request of a tenant.
    pub(crate) fn request(&mut self, from: Id, asked: Frame<Request>, environment: &impl Environment) {
        let number = asked.number;
        let outcome = match self.tenants.get(from) {
            Some(tenant) if !tenant.is_disconnected => self.answer(from, asked, environment),
            Some(tenant) if tenant.is_closing && asked.is_retry && asked.message == Request::Bye => {
                Ok(Some(Reply::Done))
            }
            _ => Err(RequestError::NoTenant),
        };
        match outcome {
            Ok(Some(reply)) => self.effects.push(Effect::Reply { to: from, number, reply }),
            Ok(None) => {}
            Err(error) => {
                self.effects.push(Effect::Reply { to: from, number, reply: Reply::Error(error) });
            }
        }
    }

    /// Returns the reply, unless it comes later or another way.
    pub(super) fn answer(
        &mut self,
        from: Id,
        asked: Frame<Request>,
        environment: &impl Environment,
    ) -> Result<Option<Reply>, RequestError> {
        let Frame { number, is_retry, message } = asked;
        if is_retry && let Some(reply) = self.answer_retry(from, number, &message) {
            return Ok(Some(reply));
        }
        match message {
            Request::Hello { .. } => Err(RequestError::Malformed),
            Request::Reserve { bytes } => {
                self.reserve(PendingReserve { tenant: from, user: self.user_of(from), number, bytes, name: None })
            }
            Request::Lease { name, access, bytes } => self.lease(from, number, (name, access, bytes), environment),
            Request::Return { lease, .. } if is_retry && self.held(from, lease).is_err() => Ok(Some(Reply::Done)),
            Request::Return { lease, fence } => {
                self.held(from, lease)?;
                self.return_lease(lease, self.check_fence(from, fence)?, environment);
                Ok(Some(Reply::Done))
            }
            // The lease was given, and the receiver has returned it.
            Request::Give { lease, .. } if is_retry && self.held(from, lease).is_err() => Ok(Some(Reply::Done)),
            Request::Give { lease, to, fence } => self.give(from, number, lease, to, fence, environment).map(Some),
            Request::Detach { segment } => {
                if !self.tenants.get(from).is_some_and(|tenant| tenant.attached.contains_key(&segment)) {
                    return if is_retry { Ok(Some(Reply::Done)) } else { Err(RequestError::NoSegment) };
                }
                self.detach(from, segment);
                Ok(Some(Reply::Done))
            }
            Request::Attach { segment } => self.attach(from, number, segment).map(|()| None),
            Request::Semaphores { tenant } => {
                let other = self.tenants.get(tenant).ok_or(RequestError::NoTenant)?;
                if other.peer.user != self.user_of(from) {
                    return Err(RequestError::NotAllowed { user: other.peer.user });
                }
                let bytes = u64::from(SEMAPHORES) * 8;
                self.effects.push(Effect::SendFd { to: from, number, what: Resource::Semaphores(tenant), bytes });
                Ok(None)
            }
            Request::Publish { lease, policy, fence, name } => {
                self.publish(from, Publication { lease, policy, fence, name }, is_retry, environment).map(Some)
            }
            Request::Find { name } => self.find(&name).map(Some),
            Request::List { after } => {
                let text = self.list(after.as_ref());
                self.effects.push(Effect::Text { to: from, number, text });
                Ok(None)
            }
            Request::Drop { name } => {
                let is_done = is_retry && self.tenants.get(from).is_some_and(|tenant| tenant.last_drop == number);
                if !is_done {
                    self.drop_name(from, &name, is_retry)?;
                    self.tenants.get_mut(from).expect("the requesting tenant exists").last_drop = number;
                    self.mark_dirty(DirtyRecord::Tenant(index(from)));
                }
                Ok(Some(Reply::Done))
            }
            Request::Quota { user, memory, change } => self.quota(from, user, memory, change).map(Some),
            Request::Stats => Ok(Some(Reply::Stats(self.stats()))),
            Request::Host { bytes, name } => self.host(from, number, bytes, name).map(|()| None),
            Request::OpenSession { label } => self.open_session(from, number, label).map(|()| None),
            Request::Borrow { lease, of } => self.borrow(from, number, lease, of).map(Some),
            Request::PutModule { bytes, device_bytes, hash, name } => {
                self.put_module(from, [bytes, device_bytes], hash, name).map(Some)
            }
            Request::Module { id, name } => self.module(from, number, id, name.as_ref()).map(|()| None),
            Request::Modules { after } => {
                let text = self.list_modules(after.as_ref());
                self.effects.push(Effect::Text { to: from, number, text });
                Ok(None)
            }
            Request::DropModule { name } => self.drop_module(from, &name, is_retry).map(Some),
            Request::Compiled { module } => self.mark_compiled(from, module).map(Some),
            Request::Unload { module } => self.unload(from, module).map(Some),
            Request::Drained { tenant } => self.session_drained(from, tenant, is_retry, environment).map(Some),
            Request::Bye => {
                self.effects.push(Effect::Reply { to: from, number, reply: Reply::Done });
                self.poll_fences_of(from, environment);
                self.begin_close(from);
                Ok(None)
            }
            Request::Stop { is_forced } => self.stop(from, number, is_forced).map(|()| None),
        }
    }

    pub(super) fn user_of(&self, tenant: Id) -> u32 {
        self.tenants.get(tenant).expect("the requesting tenant exists").peer.user
    }

    /// Looks up a lease of a tenant.
    pub(super) fn held(&self, tenant: Id, lease: Id) -> Result<&Lease, RequestError> {
        let held = self.leases.get(lease).filter(|held| held.holder == tenant && held.ending.is_none());
        held.ok_or(RequestError::NoLease)
    }

    fn quota(&mut self, from: Id, user: u32, memory: MemoryKind, change: QuotaChange) -> Result<Reply, RequestError> {
        let asking = self.user_of(from);
        if (change != QuotaChange::Keep || user != asking) && !self.is_operator(asking) {
            return Err(RequestError::NotAllowed { user: self.own_user });
        }
        let known = self.quotas.iter().find(|(_, quota)| (quota.user, quota.memory) == (user, memory));
        let known = known.map(|(id, _)| id);
        match change {
            QuotaChange::Keep => {}
            QuotaChange::Set { bytes } if bytes < memory.least_bytes() => {
                return Err(RequestError::QuotaTooSmall { least_bytes: memory.least_bytes() });
            }
            QuotaChange::Set { bytes } => {
                if known.is_none() && self.quotas.len() >= self.limits.quotas {
                    return Err(RequestError::TooMany { limit: self.limits.quotas as u64 });
                }
                let id = known.unwrap_or_else(|| self.quotas.insert(Quota { user, memory, bytes }));
                self.quotas.get_mut(id).expect("it was found or created above").bytes = bytes;
                self.mark_dirty(DirtyRecord::Quota(index(id)));
            }
            QuotaChange::Clear => {
                if let Some(id) = known {
                    self.quotas.remove(id);
                    self.mark_dirty(DirtyRecord::Quota(index(id)));
                }
            }
        }
        let had = self.accounting.user(user);
        let bytes = match memory {
            MemoryKind::Device => had.bytes,
            MemoryKind::Host => had.host_bytes,
        };
        Ok(Reply::Number { id: Id(self.quota_of(user, memory)), bytes })
    }

    /// Stops the broker, if the user may do that. Names and modules are lost only if the stop is forced.
    fn stop(&mut self, from: Id, number: u32, is_forced: bool) -> Result<(), RequestError> {
        if !self.is_operator(self.user_of(from)) {
            return Err(RequestError::NotAllowed { user: self.own_user });
        }
        let host_bytes: u64 = self.hosts.iter().map(|(_, host)| host.bytes).sum();
        let modules = self.modules.iter().filter(|(_, module)| !is_librarys_own(&module.name)).count();
        let (names, modules) = (self.names.len() as u32, modules as u32);
        let bytes = self.accounting.named_bytes + host_bytes;
        if names + modules > 0 && !is_forced {
            return Err(RequestError::NamesPublished { names, modules, bytes });
        }
        let lost = Id(pair(names, modules));
        self.effects.push(Effect::Reply { to: from, number, reply: Reply::Number { id: lost, bytes } });
        self.effects.push(Effect::Stop);
        Ok(())
    }

    /// Whether a user runs the broker, or is root.
    pub(super) fn is_operator(&self, user: u32) -> bool {
        user == self.own_user || user == 0
    }

    pub(super) fn quota_of(&self, user: u32, memory: MemoryKind) -> u64 {
        let own = self.quotas.iter().find(|(_, quota)| (quota.user, quota.memory) == (user, memory));
        let default_bytes = match memory {
            MemoryKind::Device => self.limits.user_bytes,
            MemoryKind::Host => self.limits.user_host_bytes,
        };
        own.map_or(default_bytes, |(_, quota)| quota.bytes)
    }

    pub(crate) fn stats(&self) -> BrokerStats {
        BrokerStats {
            budget_bytes: self.limits.budget_bytes,
            segment_bytes: self.accounting.segment_bytes,
            leased_bytes: self.accounting.leased_bytes,
            named_bytes: self.accounting.named_bytes,
            reclaiming_bytes: self.accounting.reclaiming_bytes,
            tenants: self.tenants.len() as u32,
            names: self.named.len() as u32,
            leases: self.leases.len() as u32,
        }
    }
}
