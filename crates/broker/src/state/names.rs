//! Names: what is published, who may lease it, and what becomes of it.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::counts::Step;
use super::memory::within;
use super::shelf::index;
use super::{Before, Called, Due, Effect, Host, Named, State, Thing, Touched, Waiting, World};
use crate::name::{Name, distance};
use crate::wire::{Access, Id, Memory, Point, Policy, Refusal, Reply, TAIL_BYTES_MAX};

/// How many pairs of letters are compared to find names that are like one: a millisecond's work, whatever names there are.
const LETTERS_MAX: usize = 1 << 19;

/// What a tenant publishes, and how.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) lease: Id,
    pub(super) policy: Policy,
    pub(super) point: Point,
    pub(super) name: Name,
}

impl State {
    /// Gives leased memory a name. A lease for writing of a name takes the name's place.
    pub(super) fn publish(
        &mut self,
        from: Id,
        publication: Publication,
        is_again: bool,
        world: &impl World,
    ) -> Result<Reply, Refusal> {
        let Publication { lease, policy, point, name } = publication;
        let point = self.own_point(from, point)?;
        let held = self.held(from, lease)?;
        if held.of.is_some() {
            return Err(Refusal::ReadOnly);
        }
        let (block, of, access) = (held.block, held.name, held.access);
        let id = match self.names.get(&name).copied() {
            Some(Called { memory: Memory::Host, .. }) => return Err(Refusal::NameTaken),
            Some(Called { memory: Memory::Device, id: known }) => {
                let named = self.named.get(known).expect("a name has a record");
                // A broker that is gone may have written the name, and not the lease.
                if !is_again || named.block != block {
                    if of != Some(known) || named.writer != Some(lease) {
                        return Err(Refusal::NameTaken);
                    }
                    self.replace(known, block, point, world);
                }
                known
            }
            None if access == Access::Read => return Err(Refusal::ReadOnly),
            None if of.is_some_and(|of| self.named.get(of).is_none()) => return Err(Refusal::NameGone),
            None if of.is_some() => return Err(Refusal::OtherName),
            None => self.add_name(from, block, policy, point, name)?,
        };
        self.change_block(block, |block| block.is_named = true);
        self.touch(Touched::Block(index(block)));
        // From now on it is written by who leases the name for that.
        self.recall(from, lease);
        let published = self.leases.get_mut(lease).expect("it is held");
        let was = (published.access, published.name);
        (published.access, published.name, published.given) = (Access::Read, Some(id), None);
        self.touch(Touched::Lease(index(lease)));
        let named = self.named.get_mut(id).expect("it was found or made");
        named.readers += u32::from(was != (Access::Read, Some(id)));
        named.writer = named.writer.filter(|&writer| writer != lease);
        Ok(Reply::Number { id, bytes: 0 })
    }

    fn add_name(&mut self, from: Id, block: Id, policy: Policy, point: Point, name: Name) -> Result<Id, Refusal> {
        let user = self.user_of(from);
        within(self.counts.user(user).names, self.limits.user_names)?;
        within(self.named.len() as u64, self.limits.names)?;
        let named = Named {
            name: name.clone(),
            block,
            user,
            maker: from,
            policy,
            version: 1,
            since: self.now,
            ready: Point::default(),
            before: None,
            readers: 0,
            writer: None,
        };
        let id = self.named.add(named);
        self.counts.name(user, Step::Add);
        self.names.insert(name, Called { memory: Memory::Device, id });
        self.set_ready(id, point);
        self.touch(Touched::Name(index(id)));
        Ok(id)
    }

    /// Has a name stand for another block. What it stood for stays until that is whole, if it was whole itself.
    fn replace(&mut self, name: Id, block: Id, point: Point, world: &impl World) {
        let named = self.named.get_mut(name).expect("it is there");
        let old = Before { block: named.block, version: named.version };
        let older = named.before.take();
        let is_whole = named.ready.value == 0 || world.has_passed(named.ready);
        let is_awaited = point.value > 0 && !world.has_passed(point);
        named.before = match is_awaited && old.block != block {
            true if is_whole => Some(old),
            true => older,
            false => None,
        };
        let kept = named.before;
        (named.block, named.version) = (block, old.version + 1);
        self.set_ready(name, if is_awaited { point } else { Point::default() });
        self.touch(Touched::Name(index(name)));
        let gone = [Some(old), older].into_iter().flatten().filter(|&state| Some(state) != kept);
        gone.map(|state| state.block).filter(|&gone| gone != block).for_each(|gone| self.unname_block(gone));
    }

    pub(super) fn find(&self, name: &Name) -> Result<Reply, Refusal> {
        let Called { memory, id } = *self.names.get(name).ok_or(Refusal::NoName)?;
        if memory == Memory::Host {
            return Err(Refusal::OtherMemory { memory });
        }
        let named = self.named.get(id).expect("a name has a record");
        let bytes = self.blocks.get(named.block).expect("a name has a block").bytes;
        Ok(Reply::Number { id, bytes })
    }

    /// A lease of what has a name. All users read, and its own writes.
    pub(super) fn lease(
        &mut self,
        from: Id,
        number: u32,
        name: Id,
        access: Access,
        world: &impl World,
    ) -> Result<Option<Reply>, Refusal> {
        let named = self.named.get(name).ok_or(Refusal::NoName)?;
        let (block, readers, user) = (named.block, named.readers, self.user_of(from));
        let busy = Refusal::Busy { readers, writers: u32::from(named.writer.is_some()) };
        if named.user != user {
            if access == Access::Write {
                return Err(Refusal::ForeignName);
            }
            // A clock is its user's alone, so that another cannot wait for it.
            if named.ready.value > 0 && !world.has_passed(named.ready) {
                return Err(Refusal::Busy { readers, writers: 1 });
            }
        }
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
                return self.reserve(Waiting { tenant: from, user, number, bytes, name: Some(name) });
            }
        }
        Ok(Some(self.grant(from, number, block, access, Some(name))))
    }

    /// Takes a name away, of memory of the device or of the host. Its user does that, or who runs the broker.
    pub(super) fn drop_name(&mut self, from: Id, name: &Name, is_again: bool) -> Result<(), Refusal> {
        let user = self.user_of(from);
        let Some(&Called { memory, id }) = self.names.get(name) else {
            return if is_again { Ok(()) } else { Err(Refusal::NoName) };
        };
        let owner = match memory {
            Memory::Device => self.named.get(id).expect("a name has a record").user,
            Memory::Host => self.hosts.get(id).expect("a name has a record").user,
        };
        if owner != user && !self.is_own(user) {
            return Err(Refusal::ForeignName);
        }
        match memory {
            Memory::Device => self.unname(id),
            Memory::Host => self.unname_host(id),
        }
        Ok(())
    }

    fn unname_host(&mut self, id: Id) {
        let gone = self.hosts.remove(id).expect("a name has a record");
        self.counts.host(&gone, Step::Take);
        self.names.remove(&gone.name);
        self.touch(Touched::Host(index(id)));
        self.effects.push(Effect::Close { what: Thing::Host(id) });
    }

    /// Takes a name from its block, which goes with the last lease of it.
    pub(super) fn unname(&mut self, id: Id) {
        let Some(named) = self.named.remove(id) else { return };
        self.counts.name(named.user, Step::Take);
        self.touch(Touched::Name(index(id)));
        self.names.remove(&named.name);
        self.remove_due(named.ready, Due::Name(id));
        let blocks = [Some(named.block), named.before.map(|before| before.block)];
        blocks.into_iter().flatten().for_each(|block| self.unname_block(block));
    }

    /// The names behind one, a line each, as many as a message holds: name, bytes, user, process, readers, writers, seconds,
    /// version, memory. Fields are set apart by tabs.
    pub(super) fn list(&self, after: Option<&Name>) -> String {
        let mut text = String::new();
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (_, &called) in self.names.range::<Name, _>((behind, Bound::Unbounded)) {
            let line = self.line(called);
            if text.len() + line.len() > TAIL_BYTES_MAX {
                break;
            }
            text.push_str(&line);
        }
        text
    }

    fn line(&self, called: Called) -> String {
        // The number of a process that has gone may be another's by now.
        let process = |maker: Id| self.tenants.get(maker).map_or(0, |maker| maker.peer.process);
        let seconds = |since: u64| self.now.saturating_sub(since);
        let memory = called.memory.word();
        match called.memory {
            Memory::Device => {
                let named = self.named.get(called.id).expect("a name has a record");
                let Named { name, user, maker, readers, version, since, .. } = named;
                let bytes = self.blocks.get(named.block).map_or(0, |block| block.bytes);
                let (process, seconds, writers) = (process(*maker), seconds(*since), u32::from(named.writer.is_some()));
                format!("{name}\t{bytes}\t{user}\t{process}\t{readers}\t{writers}\t{seconds}\t{version}\t{memory}\n")
            }
            Memory::Host => {
                let Host { name, bytes, user, maker, since } = self.hosts.get(called.id).expect("a name has a record");
                let (process, seconds) = (process(*maker), seconds(*since));
                format!("{name}\t{bytes}\t{user}\t{process}\t0\t0\t{seconds}\t1\t{memory}\n")
            }
        }
    }

    pub(crate) fn is_nameless(&self, name: &Name) -> bool {
        !self.names.contains_key(name)
    }

    /// The names that are most like one that is not there: of those that lie around it in their order, which begin as it does, as
    /// many as [`LETTERS_MAX`] allows.
    pub(crate) fn nearest(&self, name: &Name, count: usize) -> Vec<&Name> {
        nearest_of(&self.names, name, count)
    }

    /// Memory of the host under a name.
    pub(super) fn host(&mut self, from: Id, number: u32, bytes: u64, name: Name) -> Result<(), Refusal> {
        let user = self.user_of(from);
        let id = match self.names.get(&name) {
            Some(&Called { memory: Memory::Device, .. }) => {
                return Err(Refusal::OtherMemory { memory: Memory::Device });
            }
            Some(&Called { memory: Memory::Host, id }) => {
                let host = self.hosts.get(id).expect("a name has a record");
                if host.user != user {
                    return Err(Refusal::ForeignName);
                }
                if bytes > 0 && bytes != host.bytes {
                    return Err(Refusal::OtherBytes { bytes: host.bytes });
                }
                id
            }
            None if bytes == 0 => return Err(Refusal::NoName),
            None => self.add_host(from, bytes, name)?,
        };
        let bytes = self.hosts.get(id).expect("it was found or made").bytes;
        self.effects.push(Effect::Hand { to: from, number, what: Thing::Host(id), bytes });
        Ok(())
    }

    fn add_host(&mut self, from: Id, bytes: u64, name: Name) -> Result<Id, Refusal> {
        let user = self.user_of(from);
        let account = self.counts.user(user);
        let (limit_bytes, had_bytes) = (self.quota_of(user, Memory::Host), account.host_bytes);
        // A quota may have become less than what is had.
        if bytes > limit_bytes.saturating_sub(had_bytes) {
            return Err(Refusal::HostQuota { limit_bytes, had_bytes, wanted_bytes: bytes });
        }
        within(account.hosts, self.limits.user_hosts)?;
        within(self.hosts.len() as u64, self.limits.hosts)?;
        let host = Host { name: name.clone(), bytes, user, maker: from, since: self.now };
        self.counts.host(&host, Step::Add);
        let id = self.hosts.add(host);
        self.names.insert(name, Called { memory: Memory::Host, id });
        self.touch(Touched::Host(index(id)));
        Ok(id)
    }
}

/// The names of a list that are most like one that is not there.
pub(super) fn nearest_of<'a, T>(names: &'a BTreeMap<Name, T>, name: &Name, count: usize) -> Vec<&'a Name> {
    let mut before = names.range::<Name, _>(..name).rev().map(|(known, _)| known);
    let mut behind = names.range::<Name, _>(name..).map(|(known, _)| known);
    let mut found: Vec<(usize, &Name)> = Vec::with_capacity(count + 1);
    let mut letters = 0;
    let mut is_left = true;
    while is_left && letters < LETTERS_MAX {
        let around = [before.next(), behind.next()];
        is_left = around.iter().any(Option::is_some);
        for known in around.into_iter().flatten() {
            letters += (known.as_str().len() + 1) * (name.as_str().len() + 1);
            let most = if found.len() < count { usize::MAX } else { found[count - 1].0 };
            // So many letters have to be added at the least.
            if known.as_str().len().abs_diff(name.as_str().len()) > most {
                continue;
            }
            found.push((distance(known.as_str(), name.as_str()), known));
            found.sort();
            found.truncate(count);
        }
    }
    found.into_iter().map(|(_, known)| known).collect()
}
