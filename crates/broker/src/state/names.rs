//! Names: publishing, leasing, dropping and listing. Also named host memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::accounting::Change;
use super::memory::check_count;
use super::slot_map::index;
use super::store::State;
use super::types::{
    DirtyRecord, Effect, Environment, FenceWaiter, Host, NameEntry, NameTarget, PendingReserve, PreviousVersion,
    Resource,
};
use crate::os::seqpacket::TAIL_BYTES_MAX;
use crate::protocol::message::Reply;
use crate::protocol::name::{Name, edit_distance};
use crate::protocol::request_error::RequestError;
use crate::protocol::types::{Access, Fence, Id, MemoryKind, Policy};

/// The limit of character comparisons in a search for similar names, which bounds its time.
const COMPARISONS_MAX: usize = 1 << 19;

/// The arguments of a publish request.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) lease: Id,
    pub(super) policy: Policy,
    pub(super) fence: Fence,
    pub(super) name: Name,
}

impl State {
    /// Publishes leased memory under a name. A write lease of a name replaces its current version.
    pub(super) fn publish(
        &mut self,
        from: Id,
        publication: Publication,
        is_retry: bool,
        environment: &impl Environment,
    ) -> Result<Reply, RequestError> {
        let Publication { lease, policy, fence, name } = publication;
        let fence = self.check_fence(from, fence)?;
        let held = self.held(from, lease)?;
        if held.of.is_some() {
            return Err(RequestError::ReadOnly);
        }
        let (block, of, access) = (held.block, held.name, held.access);
        let id = match self.names.get(&name).copied() {
            Some(NameTarget { memory: MemoryKind::Host, .. }) => return Err(RequestError::NameTaken),
            Some(NameTarget { memory: MemoryKind::Device, id: known }) => {
                let named = self.named.get(known).expect("a name has a record");
                // A previous broker may have recorded the name but not the lease.
                if !is_retry || named.block != block {
                    if of != Some(known) || named.writer != Some(lease) {
                        return Err(RequestError::NameTaken);
                    }
                    self.replace(known, block, fence, environment);
                }
                known
            }
            None if access == Access::Read => return Err(RequestError::ReadOnly),
            None if of.is_some_and(|of| self.named.get(of).is_none()) => return Err(RequestError::NameDropped),
            None if of.is_some() => return Err(RequestError::WrongName),
            None => self.add_name(from, block, policy, fence, name)?,
        };
        self.change_block(block, |block| block.is_named = true);
        self.mark_dirty(DirtyRecord::Block(index(block)));
        // From now on only write leases of the name may write it.
        self.recall(from, lease);
        let published = self.leases.get_mut(lease).expect("a held lease exists");
        let was = (published.access, published.name);
        (published.access, published.name, published.given) = (Access::Read, Some(id), None);
        self.mark_dirty(DirtyRecord::Lease(index(lease)));
        let named = self.named.get_mut(id).expect("it was found or created above");
        named.readers += u32::from(was != (Access::Read, Some(id)));
        named.writer = named.writer.filter(|&writer| writer != lease);
        Ok(Reply::Number { id, bytes: named.version })
    }

    fn add_name(&mut self, from: Id, block: Id, policy: Policy, fence: Fence, name: Name) -> Result<Id, RequestError> {
        let user = self.user_of(from);
        check_count(self.accounting.user(user).names, self.limits.user_names)?;
        check_count(self.named.len() as u64, self.limits.names)?;
        let named = NameEntry {
            name: name.clone(),
            block,
            user,
            creator: from,
            policy,
            version: 1,
            since: self.now,
            ready: Fence::default(),
            previous: None,
            readers: 0,
            writer: None,
        };
        let id = self.named.insert(named);
        self.accounting.name(user, Change::Add);
        self.names.insert(name, NameTarget { memory: MemoryKind::Device, id });
        self.set_ready(id, fence);
        self.mark_dirty(DirtyRecord::Name(index(id)));
        Ok(id)
    }

    /// Replaces the block of a name. The old version is kept until the new one is complete, if it was complete itself.
    fn replace(&mut self, name: Id, block: Id, fence: Fence, environment: &impl Environment) {
        let named = self.named.get_mut(name).expect("the record exists");
        let old = PreviousVersion { block: named.block, version: named.version };
        let older = named.previous.take();
        let is_whole = named.ready.value == 0 || environment.is_complete(named.ready);
        let is_awaited = fence.value > 0 && !environment.is_complete(fence);
        named.previous = match is_awaited && old.block != block {
            true if is_whole => Some(old),
            true => older,
            false => None,
        };
        let kept = named.previous;
        (named.block, named.version) = (block, old.version + 1);
        self.set_ready(name, if is_awaited { fence } else { Fence::default() });
        self.mark_dirty(DirtyRecord::Name(index(name)));
        let gone = [Some(old), older].into_iter().flatten().filter(|&state| Some(state) != kept);
        gone.map(|state| state.block).filter(|&gone| gone != block).for_each(|gone| self.unpublish_block(gone));
    }

    pub(super) fn find(&self, name: &Name) -> Result<Reply, RequestError> {
        let NameTarget { memory, id } = *self.names.get(name).ok_or(RequestError::NoName)?;
        if memory == MemoryKind::Host {
            return Err(RequestError::WrongMemoryKind { memory });
        }
        let named = self.named.get(id).expect("a name has a record");
        let bytes = self.blocks.get(named.block).expect("a name has a block").bytes;
        Ok(Reply::Number { id, bytes })
    }

    /// The version of a name whose block this is, or 0.
    pub(super) fn version_of(&self, name: Option<Id>, block: Id) -> u64 {
        let Some(named) = name.and_then(|name| self.named.get(name)) else { return 0 };
        let current = PreviousVersion { block: named.block, version: named.version };
        let known = [Some(current), named.previous].into_iter().flatten();
        known.filter(|known| known.block == block).map(|known| known.version).next().unwrap_or(0)
    }

    /// Leases a name. Every user may read it, only its own user may write it. A writer that gets new memory gets
    /// `wanted_bytes` of it, or as much as the current version has.
    pub(super) fn lease(
        &mut self,
        from: Id,
        number: u32,
        (name, access, wanted_bytes): (Id, Access, u64),
        environment: &impl Environment,
    ) -> Result<Option<Reply>, RequestError> {
        let named = self.named.get(name).ok_or(RequestError::NoName)?;
        let (block, readers, user) = (named.block, named.readers, self.user_of(from));
        let busy = RequestError::Busy { readers, writers: u32::from(named.writer.is_some()) };
        if named.user != user {
            if access == Access::Write {
                return Err(RequestError::ForeignName);
            }
            // Another user cannot map these semaphores, and so cannot wait for them.
            if named.ready.value > 0 && !environment.is_complete(named.ready) {
                return Err(RequestError::Busy { readers, writers: 1 });
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
                // A request that waits for the driver counts as a writer.
                if named.writer.is_some() || self.pending_reserves.values().any(|waiting| waiting.name == Some(name)) {
                    return Err(busy);
                }
                let bytes = match wanted_bytes {
                    0 => self.blocks.get(block).expect("a name has a block").bytes,
                    bytes => bytes,
                };
                return self.reserve(PendingReserve { tenant: from, user, number, bytes, name: Some(name) });
            }
        }
        Ok(Some(self.grant(from, number, block, access, Some(name))))
    }

    /// Drops a name of device or host memory, for its user or the user that runs the broker.
    pub(super) fn drop_name(&mut self, from: Id, name: &Name, is_retry: bool) -> Result<(), RequestError> {
        let user = self.user_of(from);
        let Some(&NameTarget { memory, id }) = self.names.get(name) else {
            return if is_retry { Ok(()) } else { Err(RequestError::NoName) };
        };
        let owner = match memory {
            MemoryKind::Device => self.named.get(id).expect("a name has a record").user,
            MemoryKind::Host => self.hosts.get(id).expect("a name has a record").user,
        };
        if owner != user && !self.is_operator(user) {
            return Err(RequestError::ForeignName);
        }
        match memory {
            MemoryKind::Device => self.remove_name(id),
            MemoryKind::Host => self.remove_host(id),
        }
        Ok(())
    }

    fn remove_host(&mut self, id: Id) {
        let gone = self.hosts.remove(id).expect("a name has a record");
        self.accounting.host(&gone, Change::Subtract);
        self.names.remove(&gone.name);
        self.mark_dirty(DirtyRecord::Host(index(id)));
        self.effects.push(Effect::CloseFd { what: Resource::Host(id) });
    }

    /// Detaches a name from its block, which is freed with its last lease.
    pub(super) fn remove_name(&mut self, id: Id) {
        let Some(named) = self.named.remove(id) else { return };
        self.accounting.name(named.user, Change::Subtract);
        self.mark_dirty(DirtyRecord::Name(index(id)));
        self.names.remove(&named.name);
        self.remove_fence_waiter(named.ready, FenceWaiter::Name(id));
        let blocks = [Some(named.block), named.previous.map(|before| before.block)];
        blocks.into_iter().flatten().for_each(|block| self.unpublish_block(block));
    }

    /// The names after one, one line each, as many as fit into a message: name, bytes, user, process, readers, writers,
    /// seconds, version, memory. Fields are separated by tabs.
    pub(super) fn list(&self, after: Option<&Name>) -> String {
        let mut text = String::new();
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (_, &called) in self.names.range::<Name, _>((behind, Bound::Unbounded)) {
            let line = self.list_line(called);
            if text.len() + line.len() > TAIL_BYTES_MAX {
                break;
            }
            text.push_str(&line);
        }
        text
    }

    fn list_line(&self, called: NameTarget) -> String {
        // The process id of a tenant that is gone may be reused.
        let process = |creator: Id| self.tenants.get(creator).map_or(0, |creator| creator.peer.process);
        let seconds = |since: u64| self.now.saturating_sub(since);
        let memory = called.memory.to_word();
        match called.memory {
            MemoryKind::Device => {
                let named = self.named.get(called.id).expect("a name has a record");
                let NameEntry { name, user, creator, readers, version, since, .. } = named;
                let bytes = self.blocks.get(named.block).map_or(0, |block| block.bytes);
                let (process, seconds, writers) =
                    (process(*creator), seconds(*since), u32::from(named.writer.is_some()));
                format!("{name}\t{bytes}\t{user}\t{process}\t{readers}\t{writers}\t{seconds}\t{version}\t{memory}\n")
            }
            MemoryKind::Host => {
                let Host { name, bytes, user, creator, since } =
                    self.hosts.get(called.id).expect("a name has a record");
                let (process, seconds) = (process(*creator), seconds(*since));
                format!("{name}\t{bytes}\t{user}\t{process}\t0\t0\t{seconds}\t1\t{memory}\n")
            }
        }
    }

    pub(crate) fn is_unknown_name(&self, name: &Name) -> bool {
        !self.names.contains_key(name)
    }

    /// The names that are similar to an unknown one, the most similar first: among its neighbours in order, as many as
    /// [`COMPARISONS_MAX`] allows.
    pub(crate) fn nearest(&self, name: &Name, count: usize) -> Vec<&Name> {
        nearest_of(&self.names, name, count)
    }

    /// Opens or creates named host memory.
    pub(super) fn host(&mut self, from: Id, number: u32, bytes: u64, name: Name) -> Result<(), RequestError> {
        let user = self.user_of(from);
        let id = match self.names.get(&name) {
            Some(&NameTarget { memory: MemoryKind::Device, .. }) => {
                return Err(RequestError::WrongMemoryKind { memory: MemoryKind::Device });
            }
            Some(&NameTarget { memory: MemoryKind::Host, id }) => {
                let host = self.hosts.get(id).expect("a name has a record");
                if host.user != user {
                    return Err(RequestError::ForeignName);
                }
                if bytes > 0 && bytes != host.bytes {
                    return Err(RequestError::SizeMismatch { bytes: host.bytes });
                }
                id
            }
            None if bytes == 0 => return Err(RequestError::NoName),
            None => self.add_host(from, bytes, name)?,
        };
        let bytes = self.hosts.get(id).expect("it was found or created above").bytes;
        self.effects.push(Effect::SendFd { to: from, number, what: Resource::Host(id), bytes });
        Ok(())
    }

    fn add_host(&mut self, from: Id, bytes: u64, name: Name) -> Result<Id, RequestError> {
        let user = self.user_of(from);
        let usage = self.accounting.user(user);
        let (limit_bytes, had_bytes) = (self.quota_of(user, MemoryKind::Host), usage.host_bytes);
        // A quota may have been set below the current usage.
        if bytes > limit_bytes.saturating_sub(had_bytes) {
            return Err(RequestError::HostQuota { limit_bytes, had_bytes, wanted_bytes: bytes });
        }
        check_count(usage.hosts, self.limits.user_hosts)?;
        check_count(self.hosts.len() as u64, self.limits.hosts)?;
        let host = Host { name: name.clone(), bytes, user, creator: from, since: self.now };
        self.accounting.host(&host, Change::Add);
        let id = self.hosts.insert(host);
        self.names.insert(name, NameTarget { memory: MemoryKind::Host, id });
        self.mark_dirty(DirtyRecord::Host(index(id)));
        Ok(id)
    }
}

/// The keys that are similar to an unknown name, the most similar first.
pub(super) fn nearest_of<'a, T>(names: &'a BTreeMap<Name, T>, name: &Name, count: usize) -> Vec<&'a Name> {
    let mut before = names.range::<Name, _>(..name).rev().map(|(known, _)| known);
    let mut behind = names.range::<Name, _>(name..).map(|(known, _)| known);
    let mut found: Vec<(usize, &Name)> = Vec::with_capacity(count + 1);
    let mut letters = 0;
    let mut is_left = true;
    while is_left && letters < COMPARISONS_MAX {
        let around = [before.next(), behind.next()];
        is_left = around.iter().any(Option::is_some);
        for known in around.into_iter().flatten() {
            letters += (known.as_str().len() + 1) * (name.as_str().len() + 1);
            let most = if found.len() < count { usize::MAX } else { found[count - 1].0 };
            // A lower bound of the distance.
            if known.as_str().len().abs_diff(name.as_str().len()) > most {
                continue;
            }
            found.push((edit_distance(known.as_str(), name.as_str()), known));
            found.sort();
            found.truncate(count);
        }
    }
    let is_near = |&(distance, known): &(usize, &Name)| known.is_similar(name, distance);
    found.into_iter().filter(is_near).map(|(_, known)| known).collect()
}
