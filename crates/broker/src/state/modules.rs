//! The registry of modules: texts under names, and which worker has which of them loaded. What is in a text is nothing that this
//! knows: workers compile it, and say so.
//!
//! Variables take memory of the device at each worker that has loaded their module. That counts for the worker's user from before
//! the worker loads it until the worker says that it is unloaded, whether or not the module still has a name.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Bound;

use super::accounting::Change;
use super::memory::check_count;
use super::names::nearest_of;
use super::slot_map::index;
use super::{DirtyRecord, Effect, Resource, State};
use crate::name::Name;
use crate::wire::{Hash, Id, Reply, RequestError, TAIL_BYTES_MAX};

/// A module of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModuleEntry {
    pub(crate) name: Name,
    pub(crate) bytes: u64,
    /// Of the device, for its variables, wherever it is loaded. No worker loads one that has more.
    pub(crate) device_bytes: u64,
    /// As who put it says. Who reads the text sees whether it is so.
    pub(crate) hash: Hash,
    pub(crate) user: u32,
    /// Who put it: until it is proved it is there for that one alone, and as long as that one is.
    pub(crate) by: Id,
    /// In seconds, as the broker's shell counts them.
    pub(crate) since: u64,
    /// Whether a driver has compiled it.
    pub(crate) is_compiled: bool,
}

/// A module that a worker has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModuleLoad {
    pub(crate) worker: Id,
    pub(crate) module: Id,
    /// Of the device, for variables.
    pub(crate) bytes: u64,
    /// The worker is to unload it: it was dropped.
    pub(crate) is_unloading: bool,
}

pub(super) type ModuleNames = BTreeMap<Name, Id>;

impl State {
    /// Gives a text a name. The same text again is no error, and one that was not proved makes way. Users share a text that was
    /// proved: a worker has seen that it is what its hash is of.
    pub(super) fn put_module(
        &mut self,
        from: Id,
        bytes: [u64; 2],
        hash: Hash,
        name: Name,
    ) -> Result<Reply, RequestError> {
        let [bytes, device_bytes] = bytes;
        let user = self.user_of(from);
        if let Some(&known) = self.module_names.get(&name) {
            let module = self.modules.get(known).expect("a name has a record");
            let is_own = module.user == user;
            if (module.bytes, module.device_bytes, module.hash) == (bytes, device_bytes, hash)
                && (is_own || module.is_compiled)
            {
                // Whoever puts it last has it proved: who put it before may be gone by then.
                if !module.is_compiled && module.by != from {
                    self.modules.get_mut(known).expect("it was found above").by = from;
                    self.mark_dirty(DirtyRecord::Module(index(known)));
                }
                return Ok(Reply::Number { id: known, bytes });
            }
            if module.is_compiled {
                return Err(if is_own { RequestError::ModuleTaken } else { RequestError::ForeignName });
            }
            self.remove_module(known);
        }
        let usage = self.accounting.user(user);
        let (limit_bytes, had_bytes) = (self.limits.user_module_bytes, usage.module_bytes);
        if bytes > limit_bytes.saturating_sub(had_bytes) {
            return Err(RequestError::UserQuota { limit_bytes, had_bytes, wanted_bytes: bytes });
        }
        // Counted where it is loaded: who could not load it is told at once.
        self.check_user(user, device_bytes, device_bytes)?;
        check_count(usage.modules, self.limits.user_modules)?;
        check_count(self.modules.len() as u64, self.limits.modules)?;
        let (by, since) = (from, self.now);
        let module = ModuleEntry { name: name.clone(), bytes, device_bytes, hash, user, by, since, is_compiled: false };
        self.accounting.module(&module, Change::Add);
        let id = self.modules.insert(module);
        self.module_names.insert(name, id);
        self.mark_dirty(DirtyRecord::Module(index(id)));
        self.effects.push(Effect::StoreFd { what: Resource::Module(id) });
        Ok(Reply::Number { id, bytes })
    }

    /// Hands a module out. One that is not proved is there for who put it, and for workers; those load it.
    pub(super) fn module(&mut self, from: Id, number: u32, id: Id, name: Option<&Name>) -> Result<(), RequestError> {
        let id = match name {
            Some(name) => *self.module_names.get(name).ok_or(RequestError::NoModule)?,
            None => id,
        };
        let is_worker = self.tenants.get(from).is_some_and(|tenant| tenant.worker_state.is_some());
        let module = self.modules.get(id).filter(|module| module.is_compiled || module.by == from || is_worker);
        let ModuleEntry { bytes, hash, device_bytes, .. } = *module.ok_or(RequestError::NoModule)?;
        if is_worker {
            self.load(from, id, device_bytes)?;
        }
        let (what, reply) = (Resource::Module(id), Reply::Module { id, bytes, hash, device_bytes });
        self.effects.push(Effect::SendFdWith { to: from, number, what, reply });
        Ok(())
    }

    /// Counts what a module takes that a worker is about to load, unless that is counted.
    fn load(&mut self, worker: Id, module: Id, bytes: u64) -> Result<(), RequestError> {
        let worker_state =
            self.tenants.get(worker).and_then(|worker| worker.worker_state.as_ref()).expect("the tenant is a worker");
        if worker_state.loaded.contains_key(&module) {
            return Ok(());
        }
        let (user, served) = (self.user_of(worker), worker_state.serves.keys().copied().collect::<Vec<_>>());
        self.check_user(user, bytes, bytes)?;
        served.into_iter().try_for_each(|tenant| self.check_tenant(tenant, bytes, bytes))?;
        check_count(self.accounting.user(user).loads, self.limits.user_loads)?;
        check_count(self.loads.len() as u64, self.limits.loads)?;
        self.evict_zeroed(bytes);
        if self.accounting.taken_bytes().saturating_add(bytes) > self.limits.budget_bytes {
            return Err(self.out_of_memory(bytes));
        }
        let load = ModuleLoad { worker, module, bytes, is_unloading: false };
        self.accounting.load(&load, user, Change::Add);
        let load = self.loads.insert(load);
        self.worker_state(worker).loaded.insert(module, load);
        self.mark_dirty(DirtyRecord::Load(index(load)));
        Ok(())
    }

    /// A worker has a module loaded no more.
    pub(super) fn unload(&mut self, from: Id, module: Id) -> Result<Reply, RequestError> {
        let worker = self.tenants.get_mut(from).expect("the requesting tenant exists");
        let worker_state = worker.worker_state.as_mut().ok_or(RequestError::NotAWorker)?;
        if let Some(load) = worker_state.loaded.remove(&module) {
            self.remove_load(load);
        }
        Ok(Reply::Done)
    }

    /// Forgets that a worker, which is there, has something loaded.
    pub(super) fn remove_load(&mut self, load: Id) {
        let gone = self.loads.remove(load).expect("every loaded module has a record");
        let user = self.user_of(gone.worker);
        self.accounting.load(&gone, user, Change::Subtract);
        self.mark_dirty(DirtyRecord::Load(index(load)));
    }

    /// A worker's driver has compiled a module.
    pub(super) fn mark_compiled(&mut self, from: Id, id: Id) -> Result<Reply, RequestError> {
        let worker = self.tenants.get(from).expect("the requesting tenant exists");
        if worker.worker_state.is_none() {
            return Err(RequestError::NotAWorker);
        }
        let module = self.modules.get_mut(id).ok_or(RequestError::NoModule)?;
        module.is_compiled = true;
        self.mark_dirty(DirtyRecord::Module(index(id)));
        Ok(Reply::Done)
    }

    /// Takes a module's name away. Its user does that, or who runs the broker. One that is not proved exists for the tenant that
    /// put it alone: that may have been told of its error, and be gone, before its end is noticed here.
    pub(super) fn drop_module(&mut self, from: Id, name: &Name, is_retry: bool) -> Result<Reply, RequestError> {
        let user = self.user_of(from);
        let record = |&id: &Id| (id, self.modules.get(id).expect("a name has a record"));
        let found = self.module_names.get(name).map(record);
        let Some((id, module)) = found.filter(|(_, module)| module.is_compiled || module.by == from) else {
            return if is_retry { Ok(Reply::Done) } else { Err(RequestError::NoModule) };
        };
        let owner = module.user;
        if owner != user && !self.is_operator(user) {
            return Err(RequestError::ForeignName);
        }
        self.remove_module(id);
        Ok(Reply::Done)
    }

    /// What a tenant that is gone put, and nobody proved.
    pub(super) fn abandon_modules(&mut self, tenant: Id) {
        let is_left = |module: &ModuleEntry| module.by == tenant && !module.is_compiled;
        let left: Vec<Id> = self.modules.iter().filter(|(_, module)| is_left(module)).map(|(id, _)| id).collect();
        left.into_iter().for_each(|id| self.remove_module(id));
    }

    /// Ends modules of those that are gone. Of two of a name, which no broker writes, one is left.
    pub(super) fn repair_modules(&mut self) {
        let is_good = |id: Id, module: &ModuleEntry| {
            (module.is_compiled || self.tenants.get(module.by).is_some())
                && self.module_names.get(&module.name) == Some(&id)
        };
        let bad: Vec<Id> = self.modules.iter().filter(|&(id, module)| !is_good(id, module)).map(|(id, _)| id).collect();
        bad.into_iter().for_each(|id| self.remove_module(id));
        self.module_names = self.modules.iter().map(|(id, module)| (module.name.clone(), id)).collect();
    }

    fn remove_module(&mut self, id: Id) {
        let user = self.modules.get(id).expect("it was found above").user;
        // Those of other users keep what they have loaded, and it counts for them: nobody takes from them what they call.
        let is_told = |load: &ModuleLoad| load.module == id && self.user_of(load.worker) == user;
        let told: Vec<Id> = self.loads.iter().filter(|(_, load)| is_told(load)).map(|(load, _)| load).collect();
        // Written before the module goes: a broker that comes after tells it again.
        told.into_iter().for_each(|load| self.request_unload(load));
        let gone = self.modules.remove(id).expect("it was found above");
        self.accounting.module(&gone, Change::Subtract);
        self.module_names.remove(&gone.name);
        self.mark_dirty(DirtyRecord::Module(index(id)));
        self.effects.push(Effect::CloseFd { what: Resource::Module(id) });
    }

    /// Has a worker unload what was dropped.
    pub(super) fn request_unload(&mut self, load: Id) {
        let leaving = self.loads.get_mut(load).expect("it was found above");
        leaving.is_unloading = true;
        let ModuleLoad { worker, module, .. } = *leaving;
        self.mark_dirty(DirtyRecord::Load(index(load)));
        self.effects.push(Effect::Notify { to: worker, reply: Reply::Unload { module } });
    }

    /// The modules behind a name, a line each, as many as a message holds: name, bytes, user, hash, seconds. Fields are set apart
    /// by tabs.
    pub(super) fn list_modules(&self, after: Option<&Name>) -> String {
        let mut text = String::new();
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (name, &id) in self.module_names.range::<Name, _>((behind, Bound::Unbounded)) {
            let module = self.modules.get(id).expect("a name has a record");
            if !module.is_compiled {
                continue;
            }
            let mut line = format!("{name}\t{}\t{}\t", module.bytes, module.user);
            for byte in module.hash.iter().flat_map(|word| word.to_le_bytes()) {
                write!(line, "{byte:02x}").expect("writing to a String succeeds");
            }
            writeln!(line, "\t{}", self.now.saturating_sub(module.since)).expect("writing to a String succeeds");
            if text.len() + line.len() > TAIL_BYTES_MAX {
                break;
            }
            text.push_str(&line);
        }
        text
    }

    pub(crate) fn is_unknown_module(&self, name: &Name) -> bool {
        !self.module_names.contains_key(name)
    }

    /// The names of modules that are most like one that is not there.
    pub(crate) fn nearest_modules(&self, name: &Name, count: usize) -> Vec<&Name> {
        // Some of them may not be proved, and are nobody's to know.
        let is_proved =
            |near: &&Name| self.modules.get(self.module_names[*near]).is_some_and(|module| module.is_compiled);
        nearest_of(&self.module_names, name, 2 * count).into_iter().filter(is_proved).take(count).collect()
    }
}
