//! Names: what is published, who may lease it, and what becomes of it.

use super::shelf::index;
use super::{Effect, Host, Named, State, Thing, Touched, Waiting};
use crate::name::{Name, distance};
use crate::wire::{Access, Id, Point, Policy, Refusal, Reply, TAIL_BYTES_MAX};

/// The most bytes of memory of the host under one name.
const HOST_BYTES_MAX: u64 = 1 << 36;

impl State {
    /// Gives leased memory a name. A lease for writing of a name takes the name's place.
    pub(super) fn publish(
        &mut self,
        from: Id,
        lease: Id,
        policy: Policy,
        point: Point,
        name: Name,
        is_again: bool,
    ) -> Result<Reply, Refusal> {
        let point = self.own_point(from, point)?;
        let held = self.held(from, lease)?;
        let (block, of) = (held.block, held.name);
        let known = self.names.get(&name).copied();
        if let Some(known) = known {
            let named = self.named.get_mut(known).expect("a name has a record");
            if is_again && named.block == block {
                return Ok(Reply::Number { id: known, bytes: 0 });
            }
            if of != Some(known) || named.writer != Some(lease) {
                return Err(Refusal::NameTaken);
            }
            named.version += 1;
            named.ready = point;
            named.writer = None;
            named.readers += 1;
            let before = std::mem::replace(&mut named.block, block);
            self.touch(Touched::Name(index(known)));
            if before != block {
                let old = self.blocks.get_mut(before).expect("a name has a block");
                old.is_named = false;
                self.touch(Touched::Block(index(before)));
                self.release(before);
            }
        } else {
            if held.access == Access::Read || of.is_some() {
                return Err(Refusal::ReadOnly);
            }
            let user = self.user_of(from);
            let of_user = self.named.iter().filter(|(_, named)| named.user == user).count();
            let limit = if of_user >= self.limits.user_names { self.limits.user_names } else { self.limits.names };
            if of_user >= limit || self.named.len() >= limit {
                return Err(Refusal::TooMany { limit: limit as u64 });
            }
            let process = self.tenants.get(from).expect("it asks").peer.process;
            let named = Named {
                name: name.clone(),
                block,
                user,
                process,
                policy,
                version: 1,
                since: self.now,
                ready: point,
                readers: 1,
                writer: None,
            };
            let id = self.named.add(named);
            self.names.insert(name.clone(), id);
            self.touch(Touched::Name(index(id)));
        }
        let id = self.names[&name];
        self.blocks.get_mut(block).expect("it is leased").is_named = true;
        self.touch(Touched::Block(index(block)));
        // From now on it is written by who leases the name for that.
        let published = self.leases.get_mut(lease).expect("it is held");
        (published.access, published.name) = (Access::Read, Some(id));
        self.touch(Touched::Lease(index(lease)));
        Ok(Reply::Number { id, bytes: 0 })
    }

    pub(super) fn find(&self, from: Id, name: &Name) -> Result<Reply, Refusal> {
        let id = *self.names.get(name).ok_or(Refusal::NoName)?;
        let named = self.allowed(from, id)?;
        let bytes = self.blocks.get(named.block).expect("a name has a block").bytes;
        Ok(Reply::Number { id, bytes })
    }

    fn allowed(&self, from: Id, name: Id) -> Result<&Named, Refusal> {
        let named = self.named.get(name).ok_or(Refusal::NoName)?;
        if named.user == self.user_of(from) { Ok(named) } else { Err(Refusal::ForeignName) }
    }

    /// A lease of what has a name.
    pub(super) fn lease(&mut self, from: Id, number: u32, name: Id, access: Access) -> Result<Option<Reply>, Refusal> {
        let named = self.allowed(from, name)?;
        let (block, readers) = (named.block, named.readers);
        let busy = Refusal::Busy { readers, writers: u32::from(named.writer.is_some()) };
        self.check_leases(from)?;
        match (named.policy, access) {
            (Policy::Open, _) | (Policy::Restore, Access::Read) => {}
            (Policy::Drop, Access::Read) => {
                if named.writer.is_some() {
                    return Err(busy);
                }
            }
            (Policy::Drop, Access::Write) => {
                if named.writer.is_some() || readers > 0 {
                    return Err(busy);
                }
            }
            (Policy::Restore, Access::Write) => {
                // One may wait for memory to write to.
                if named.writer.is_some() || self.waiting.values().any(|waiting| waiting.name == Some(name)) {
                    return Err(busy);
                }
                let bytes = self.blocks.get(block).expect("a name has a block").bytes;
                return self.reserve(Waiting { tenant: from, number, bytes, name: Some(name) });
            }
        }
        Ok(Some(self.grant(from, number, block, access, Some(name))))
    }

    pub(super) fn drop_name(&mut self, from: Id, name: &Name, is_again: bool) -> Result<(), Refusal> {
        let Some(&id) = self.names.get(name) else {
            return if is_again { Ok(()) } else { Err(Refusal::NoName) };
        };
        self.allowed(from, id)?;
        self.unname(id);
        Ok(())
    }

    /// Takes a name from its block, which goes with the last lease of it.
    pub(super) fn unname(&mut self, id: Id) {
        let Some(named) = self.named.remove(id) else { return };
        self.touch(Touched::Name(index(id)));
        self.names.remove(&named.name);
        if let Some(block) = self.blocks.get_mut(named.block) {
            block.is_named = false;
            self.touch(Touched::Block(index(named.block)));
            self.release(named.block);
        }
    }

    /// The names behind one, a line each, as many as a message holds: name, bytes, user, process, readers, writers, seconds,
    /// version. Fields are set apart by tabs.
    pub(super) fn list(&self, after: Option<&Name>) -> String {
        let mut text = String::new();
        for (name, &id) in &self.names {
            if after.is_some_and(|after| name <= after) {
                continue;
            }
            let named = self.named.get(id).expect("a name has a record");
            let bytes = self.blocks.get(named.block).map_or(0, |block| block.bytes);
            let (writers, seconds) = (u32::from(named.writer.is_some()), self.now.saturating_sub(named.since));
            let line = format!(
                "{name}\t{bytes}\t{}\t{}\t{}\t{writers}\t{seconds}\t{}\n",
                named.user, named.process, named.readers, named.version
            );
            if text.len() + line.len() > TAIL_BYTES_MAX {
                break;
            }
            text.push_str(&line);
        }
        text
    }

    pub(crate) fn is_nameless(&self, name: &Name) -> bool {
        !self.names.contains_key(name)
    }

    /// The names that are most like one that is not there.
    pub(crate) fn nearest(&self, name: &Name, count: usize) -> Vec<&Name> {
        let mut all: Vec<_> = self.names.keys().map(|known| (distance(known.as_str(), name.as_str()), known)).collect();
        all.sort();
        all.into_iter().take(count).map(|(_, known)| known).collect()
    }

    /// Memory of the host under a name.
    pub(super) fn host(&mut self, from: Id, number: u32, bytes: u64, name: Name) -> Result<(), Refusal> {
        let user = self.user_of(from);
        let id = match self.host_names.get(&name) {
            Some(&id) => {
                let host = self.hosts.get(id).expect("a name has a record");
                if host.user != user {
                    return Err(Refusal::ForeignName);
                }
                if bytes > 0 && bytes != host.bytes {
                    return Err(Refusal::OtherBytes { bytes: host.bytes });
                }
                id
            }
            None => {
                if bytes == 0 {
                    return Err(Refusal::NoName);
                }
                if bytes > HOST_BYTES_MAX {
                    return Err(Refusal::TooMany { limit: HOST_BYTES_MAX });
                }
                let of_user = self.hosts.iter().filter(|(_, host)| host.user == user).count();
                let limit = if of_user >= self.limits.user_names { self.limits.user_names } else { self.limits.hosts };
                if of_user >= limit || self.hosts.len() >= limit {
                    return Err(Refusal::TooMany { limit: limit as u64 });
                }
                let id = self.hosts.add(Host { name: name.clone(), bytes, user });
                self.host_names.insert(name, id);
                self.touch(Touched::Host(index(id)));
                id
            }
        };
        let bytes = self.hosts.get(id).expect("it was found or made").bytes;
        self.effects.push(Effect::Hand { to: from, number, what: Thing::Host(id), bytes });
        Ok(())
    }
}
