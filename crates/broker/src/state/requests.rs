//! What a tenant asks, and what it is answered: which request is whose work, and what is asked of everything alike.

use super::modules::Registered;
use super::names::Publication;
use super::shelf::index;
use super::{CLOCK_WORDS, Effect, Lease, Quota, State, Thing, Touched, Waiting, World};
use crate::wire::{Change, Framed, Id, Memory, Refusal, Reply, Request, Sums};

impl State {
    /// A tenant asks.
    pub(crate) fn request(&mut self, from: Id, asked: Framed<Request>, world: &impl World) {
        let number = asked.number;
        let outcome = match self.tenants.get(from) {
            Some(tenant) if !tenant.is_fenced => self.answer(from, asked, world),
            Some(tenant) if tenant.is_leaving && asked.is_again && asked.message == Request::Bye => {
                Ok(Some(Reply::Done))
            }
            _ => Err(Refusal::NoTenant),
        };
        match outcome {
            Ok(Some(reply)) => self.effects.push(Effect::Reply { to: from, number, reply }),
            Ok(None) => {}
            Err(refusal) => {
                self.effects.push(Effect::Reply { to: from, number, reply: Reply::Refused(refusal) });
            }
        }
    }

    /// The reply, unless it comes later or another way.
    pub(super) fn answer(
        &mut self,
        from: Id,
        asked: Framed<Request>,
        world: &impl World,
    ) -> Result<Option<Reply>, Refusal> {
        let Framed { number, is_again, message } = asked;
        if is_again && let Some(reply) = self.answer_again(from, number, &message) {
            return Ok(Some(reply));
        }
        match message {
            Request::Hello { .. } => Err(Refusal::Malformed),
            Request::Reserve { bytes } => {
                self.reserve(Waiting { tenant: from, user: self.user_of(from), number, bytes, name: None })
            }
            Request::Lease { name, access } => self.lease(from, number, name, access, world),
            Request::Return { lease, .. } if is_again && self.held(from, lease).is_err() => Ok(Some(Reply::Done)),
            Request::Return { lease, point } => {
                self.held(from, lease)?;
                self.give_back(lease, self.own_point(from, point)?, world);
                Ok(Some(Reply::Done))
            }
            // It was given, and the taker has done with it.
            Request::Give { lease, .. } if is_again && self.held(from, lease).is_err() => Ok(Some(Reply::Done)),
            Request::Give { lease, to, point } => self.give(from, number, lease, to, point, world).map(Some),
            Request::Detach { segment } => {
                if !self.tenants.get(from).is_some_and(|tenant| tenant.attached.contains_key(&segment)) {
                    return if is_again { Ok(Some(Reply::Done)) } else { Err(Refusal::NoSegment) };
                }
                self.detach(from, segment);
                Ok(Some(Reply::Done))
            }
            Request::Attach { segment } => self.attach(from, number, segment).map(|()| None),
            Request::Clock { tenant } => {
                let other = self.tenants.get(tenant).ok_or(Refusal::NoTenant)?;
                if other.peer.user != self.user_of(from) {
                    return Err(Refusal::NotAllowed { user: other.peer.user });
                }
                let bytes = u64::from(CLOCK_WORDS) * 8;
                self.effects.push(Effect::Hand { to: from, number, what: Thing::Clock(tenant), bytes });
                Ok(None)
            }
            Request::Publish { lease, policy, point, name } => {
                self.publish(from, Publication { lease, policy, point, name }, is_again, world).map(Some)
            }
            Request::Find { name } => self.find(&name).map(Some),
            Request::List { after } => {
                let text = self.list(after.as_ref());
                self.effects.push(Effect::Text { to: from, number, text });
                Ok(None)
            }
            Request::Drop { name } => {
                let is_done = is_again && self.tenants.get(from).is_some_and(|tenant| tenant.dropped == number);
                if !is_done {
                    self.drop_name(from, &name, is_again)?;
                    self.tenants.get_mut(from).expect("it asks").dropped = number;
                    self.touch(Touched::Tenant(index(from)));
                }
                Ok(Some(Reply::Done))
            }
            Request::Quota { user, memory, change } => self.quota(from, user, memory, change).map(Some),
            Request::Totals => Ok(Some(Reply::Sums(self.sums()))),
            Request::Host { bytes, name } => self.host(from, number, bytes, name).map(|()| None),
            Request::Hire { label } => self.hire(from, number, label).map(|()| None),
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
            Request::DropModule { name } => self.drop_module(from, &name, is_again).map(Some),
            Request::Prove { module } => self.prove(from, module).map(Some),
            Request::Unload { module } => self.unload(from, module).map(Some),
            Request::Finish { tenant } => self.finish(from, tenant, is_again, world).map(Some),
            Request::Bye => {
                self.effects.push(Effect::Reply { to: from, number, reply: Reply::Done });
                self.pass_of(from, world);
                self.go(from);
                Ok(None)
            }
            Request::Stop { is_forced } => self.stop(from, number, is_forced).map(|()| None),
        }
    }

    pub(super) fn user_of(&self, tenant: Id) -> u32 {
        self.tenants.get(tenant).expect("a tenant that asks is there").peer.user
    }

    /// A lease that a tenant has.
    pub(super) fn held(&self, tenant: Id, lease: Id) -> Result<&Lease, Refusal> {
        let held = self.leases.get(lease).filter(|held| held.holder == tenant && held.ending.is_none());
        held.ok_or(Refusal::NoLease)
    }

    fn quota(&mut self, from: Id, user: u32, memory: Memory, change: Change) -> Result<Reply, Refusal> {
        let asking = self.user_of(from);
        if (change != Change::Keep || user != asking) && !self.is_own(asking) {
            return Err(Refusal::NotAllowed { user: self.own_user });
        }
        let known = self.quotas.iter().find(|(_, quota)| (quota.user, quota.memory) == (user, memory));
        let known = known.map(|(id, _)| id);
        match change {
            Change::Keep => {}
            Change::Set { bytes } if bytes < memory.least_bytes() => {
                return Err(Refusal::SmallQuota { least_bytes: memory.least_bytes() });
            }
            Change::Set { bytes } => {
                if known.is_none() && self.quotas.len() >= self.limits.quotas {
                    return Err(Refusal::TooMany { limit: self.limits.quotas as u64 });
                }
                let id = known.unwrap_or_else(|| self.quotas.add(Quota { user, memory, bytes }));
                self.quotas.get_mut(id).expect("it was found or made").bytes = bytes;
                self.touch(Touched::Quota(index(id)));
            }
            Change::Clear => {
                if let Some(id) = known {
                    self.quotas.remove(id);
                    self.touch(Touched::Quota(index(id)));
                }
            }
        }
        let had = self.counts.user(user);
        let bytes = match memory {
            Memory::Device => had.bytes,
            Memory::Host => had.host_bytes,
        };
        Ok(Reply::Number { id: Id(self.quota_of(user, memory)), bytes })
    }

    /// Ends the broker, if who asks may. What has a name is lost only to who wants that.
    fn stop(&mut self, from: Id, number: u32, is_forced: bool) -> Result<(), Refusal> {
        if !self.is_own(self.user_of(from)) {
            return Err(Refusal::NotAllowed { user: self.own_user });
        }
        let host_bytes: u64 = self.hosts.iter().map(|(_, host)| host.bytes).sum();
        // Those of the library's own are made anew when they are wanted.
        let is_put =
            |module: &Registered| !["freehold/", "gpu/"].iter().any(|own| module.name.as_str().starts_with(own));
        let modules = self.modules.iter().filter(|(_, module)| is_put(module)).count();
        let names = (self.names.len() + modules) as u64;
        let bytes = self.counts.named_bytes + host_bytes;
        if names > 0 && !is_forced {
            return Err(Refusal::HasNames { names, bytes });
        }
        self.effects.push(Effect::Reply { to: from, number, reply: Reply::Number { id: Id(names), bytes } });
        self.effects.push(Effect::Stop);
        Ok(())
    }

    /// Whether a user runs the broker, or could as well.
    pub(super) fn is_own(&self, user: u32) -> bool {
        user == self.own_user || user == 0
    }

    pub(super) fn quota_of(&self, user: u32, memory: Memory) -> u64 {
        let own = self.quotas.iter().find(|(_, quota)| (quota.user, quota.memory) == (user, memory));
        let anybodys = match memory {
            Memory::Device => self.limits.user_bytes,
            Memory::Host => self.limits.user_host_bytes,
        };
        own.map_or(anybodys, |(_, quota)| quota.bytes)
    }

    pub(crate) fn sums(&self) -> Sums {
        Sums {
            budget_bytes: self.limits.budget_bytes,
            made_bytes: self.counts.made_bytes,
            leased_bytes: self.counts.leased_bytes,
            named_bytes: self.counts.named_bytes,
            leaving_bytes: self.counts.leaving_bytes,
            tenants: self.tenants.len() as u32,
            names: self.named.len() as u32,
            leases: self.leases.len() as u32,
        }
    }
}
