//! The module registry: texts under names, and which worker has loaded which of them. It does not parse texts: workers
//! compile them and report that.
//!
//! The variables of a module take device memory in each worker that has loaded it. They count against the worker's user
//! from before the load until the worker reports the unload, even if the module's name was dropped before.

use std::fmt::Write as _;
use std::ops::Bound;

use super::accounting::Change;
use super::memory::check_count;
use super::names::nearest_of;
use super::slot_map::index;
use super::store::State;
use super::types::{DirtyRecord, Effect, ModuleEntry, ModuleLoad, Resource};
use crate::os::seqpacket::TAIL_BYTES_MAX;
use crate::protocol::message::Reply;
use crate::protocol::name::Name;
use crate::protocol::request_error::RequestError;
use crate::protocol::types::{Hash, Id};

/// How many digits the digest in the name of a module has at least that the library puts itself.
const DIGEST_DIGITS_MIN: usize = 16;

/// Returns whether the library has put a module, and puts it again when it is needed: nobody lists it, or loses it.
pub(super) fn is_librarys_own(name: &Name) -> bool {
    let digest = ["freehold/copy-", "gpu/"].iter().find_map(|prefix| name.as_str().strip_prefix(prefix));
    let is_digit = |letter: u8| letter.is_ascii_digit() || matches!(letter, b'a'..=b'f');
    digest.is_some_and(|digest| digest.len() >= DIGEST_DIGITS_MIN && digest.bytes().all(is_digit))
}

impl State {
    /// Stores a text under a name. The same text again is not an error, and one that was not compiled is replaced.
    /// Users share a compiled text: a worker has verified its hash.
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
                // The last tenant that put it now owns it: the previous one may exit before it is compiled.
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
        // It is counted where it is loaded. If it could not be loaded, the caller learns it here.
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

    /// Sends a module. One that is not compiled is sent only to the tenant that put it, and to workers, which load it.
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

    /// Counts a module that a worker is about to load, unless it is counted already.
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

    /// A worker has unloaded a module.
    pub(super) fn unload(&mut self, from: Id, module: Id) -> Result<Reply, RequestError> {
        let worker = self.tenants.get_mut(from).expect("the requesting tenant exists");
        let worker_state = worker.worker_state.as_mut().ok_or(RequestError::NotAWorker)?;
        if let Some(load) = worker_state.loaded.remove(&module) {
            self.remove_load(load);
        }
        Ok(Reply::Done)
    }

    /// Removes the record of a loaded module, whose worker must exist.
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

    /// Drops a module, for its user or the user that runs the broker. One that was not compiled exists only for the
    /// tenant that put it, which may have seen the compile error and exited before the broker notices its end.
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

    /// Drops the modules of a dead tenant that were never compiled.
    pub(super) fn abandon_modules(&mut self, tenant: Id) {
        let is_left = |module: &ModuleEntry| module.by == tenant && !module.is_compiled;
        let left: Vec<Id> = self.modules.iter().filter(|(_, module)| is_left(module)).map(|(id, _)| id).collect();
        left.into_iter().for_each(|id| self.remove_module(id));
    }

    /// Drops modules of dead tenants. Of two with the same name, which no broker writes, one stays.
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
        // Workers of other users keep it loaded, and it counts against those users: nobody can take a module away from
        // them.
        let is_told = |load: &ModuleLoad| load.module == id && self.user_of(load.worker) == user;
        let told: Vec<Id> = self.loads.iter().filter(|(_, load)| is_told(load)).map(|(load, _)| load).collect();
        // Recorded before the module is removed: a recovered broker notifies the workers again.
        told.into_iter().for_each(|load| self.request_unload(load));
        let gone = self.modules.remove(id).expect("it was found above");
        self.accounting.module(&gone, Change::Subtract);
        self.module_names.remove(&gone.name);
        self.mark_dirty(DirtyRecord::Module(index(id)));
        self.effects.push(Effect::CloseFd { what: Resource::Module(id) });
    }

    /// Asks a worker to unload a dropped module.
    pub(super) fn request_unload(&mut self, load: Id) {
        let leaving = self.loads.get_mut(load).expect("it was found above");
        leaving.is_unloading = true;
        let ModuleLoad { worker, module, .. } = *leaving;
        self.mark_dirty(DirtyRecord::Load(index(load)));
        self.effects.push(Effect::Notify { to: worker, reply: Reply::Unload { module } });
    }

    /// The modules after a name, one line each, as many as fit into a message: name, bytes, user, hash, seconds. Fields
    /// are separated by tabs.
    pub(super) fn list_modules(&self, after: Option<&Name>) -> String {
        let mut text = String::new();
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (name, &id) in self.module_names.range::<Name, _>((behind, Bound::Unbounded)) {
            let module = self.modules.get(id).expect("a name has a record");
            if !module.is_compiled || is_librarys_own(name) {
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

    /// The names of modules that are most similar to an unknown one.
    pub(crate) fn nearest_modules(&self, name: &Name, count: usize) -> Vec<&Name> {
        // Modules that are not compiled are not revealed.
        let is_proved =
            |near: &&Name| self.modules.get(self.module_names[*near]).is_some_and(|module| module.is_compiled);
        nearest_of(&self.module_names, name, 2 * count).into_iter().filter(is_proved).take(count).collect()
    }
}
