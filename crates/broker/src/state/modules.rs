//! The registry of modules: texts under names. What is in a text is nothing that this knows: workers compile it, and say so.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Bound;

use super::counts::Step;
use super::memory::within;
use super::names::nearest_of;
use super::shelf::index;
use super::{Effect, State, Thing, Touched};
use crate::name::Name;
use crate::wire::{Hash, Id, Memory, Refusal, Reply, TAIL_BYTES_MAX};

/// A module of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) name: Name,
    pub(crate) bytes: u64,
    /// Of the device, for its own variables. No worker loads one that has more.
    pub(crate) device_bytes: u64,
    /// As who put it says. Who reads the text sees whether it is so.
    pub(crate) hash: Hash,
    pub(crate) user: u32,
    /// Who put it: until it is proved it is there for that one alone, and as long as that one is.
    pub(crate) by: Id,
    /// In seconds, as the broker's shell counts them.
    pub(crate) since: u64,
    /// Whether a driver has compiled it.
    pub(crate) is_proved: bool,
}

pub(super) type ModuleNames = BTreeMap<Name, Id>;

impl State {
    /// Gives a text a name. The same text again is no error, and one that was not proved makes way. Users share a text that was
    /// proved: a worker has seen that it is what its hash is of.
    pub(super) fn put_module(&mut self, from: Id, bytes: [u64; 2], hash: Hash, name: Name) -> Result<Reply, Refusal> {
        let [bytes, device_bytes] = bytes;
        let user = self.user_of(from);
        if let Some(&known) = self.module_names.get(&name) {
            let module = self.modules.get(known).expect("a name has a record");
            let is_own = module.user == user;
            if (module.bytes, module.device_bytes, module.hash) == (bytes, device_bytes, hash)
                && (is_own || module.is_proved)
            {
                // Whoever puts it last has it proved: who put it before may be gone by then.
                if !module.is_proved && module.by != from {
                    self.modules.get_mut(known).expect("it was found").by = from;
                    self.touch(Touched::Module(index(known)));
                }
                return Ok(Reply::Number { id: known, bytes });
            }
            if module.is_proved {
                return Err(if is_own { Refusal::ModuleTaken } else { Refusal::ForeignName });
            }
            self.remove_module(known);
        }
        let account = self.counts.user(user);
        let (limit_bytes, had_bytes) = (self.limits.user_module_bytes, account.module_bytes);
        if bytes > limit_bytes.saturating_sub(had_bytes) {
            return Err(Refusal::UserQuota { limit_bytes, had_bytes, wanted_bytes: bytes });
        }
        let (limit_bytes, had_bytes) = (self.quota_of(user, Memory::Device), account.bytes);
        if device_bytes > limit_bytes.saturating_sub(had_bytes) {
            return Err(Refusal::UserQuota { limit_bytes, had_bytes, wanted_bytes: device_bytes });
        }
        within(account.modules, self.limits.user_modules)?;
        within(self.modules.len() as u64, self.limits.modules)?;
        let (by, since) = (from, self.now);
        let module = Registered { name: name.clone(), bytes, device_bytes, hash, user, by, since, is_proved: false };
        self.counts.module(&module, Step::Add);
        let id = self.modules.add(module);
        self.module_names.insert(name, id);
        self.touch(Touched::Module(index(id)));
        self.effects.push(Effect::Keep { what: Thing::Module(id) });
        Ok(Reply::Number { id, bytes })
    }

    /// Hands a module out. One that is not proved is there for who put it, and for workers.
    pub(super) fn module(&mut self, from: Id, number: u32, id: Id, name: Option<&Name>) -> Result<(), Refusal> {
        let id = match name {
            Some(name) => *self.module_names.get(name).ok_or(Refusal::NoModule)?,
            None => id,
        };
        let is_worker = self.tenants.get(from).is_some_and(|tenant| tenant.service.is_some());
        let module = self.modules.get(id).filter(|module| module.is_proved || module.by == from || is_worker);
        let Registered { bytes, hash, device_bytes, .. } = *module.ok_or(Refusal::NoModule)?;
        let (what, reply) = (Thing::Module(id), Reply::Module { id, bytes, hash, device_bytes });
        self.effects.push(Effect::HandWith { to: from, number, what, reply });
        Ok(())
    }

    /// A worker's driver has compiled a module.
    pub(super) fn prove(&mut self, from: Id, id: Id) -> Result<Reply, Refusal> {
        let worker = self.tenants.get(from).expect("it asks");
        if worker.service.is_none() {
            return Err(Refusal::NotAWorker);
        }
        let module = self.modules.get_mut(id).ok_or(Refusal::NoModule)?;
        module.is_proved = true;
        self.touch(Touched::Module(index(id)));
        Ok(Reply::Done)
    }

    /// Takes a module's name away. Its user does that, or who runs the broker. One that is not proved exists for the tenant that
    /// put it alone: that may have been told of its refusal, and be gone, before its end is noticed here.
    pub(super) fn drop_module(&mut self, from: Id, name: &Name, is_again: bool) -> Result<Reply, Refusal> {
        let user = self.user_of(from);
        let record = |&id: &Id| (id, self.modules.get(id).expect("a name has a record"));
        let found = self.module_names.get(name).map(record);
        let Some((id, module)) = found.filter(|(_, module)| module.is_proved || module.by == from) else {
            return if is_again { Ok(Reply::Done) } else { Err(Refusal::NoModule) };
        };
        let owner = module.user;
        if owner != user && !self.is_own(user) {
            return Err(Refusal::ForeignName);
        }
        self.remove_module(id);
        Ok(Reply::Done)
    }

    /// What a tenant that is gone put, and nobody proved.
    pub(super) fn abandon_modules(&mut self, tenant: Id) {
        let is_left = |module: &Registered| module.by == tenant && !module.is_proved;
        let left: Vec<Id> = self.modules.iter().filter(|(_, module)| is_left(module)).map(|(id, _)| id).collect();
        left.into_iter().for_each(|id| self.remove_module(id));
    }

    /// Ends modules of those that are gone. Of two of a name, which no broker writes, one is left.
    pub(super) fn mend_modules(&mut self) {
        let is_good = |id: Id, module: &Registered| {
            (module.is_proved || self.tenants.get(module.by).is_some())
                && self.module_names.get(&module.name) == Some(&id)
        };
        let bad: Vec<Id> = self.modules.iter().filter(|&(id, module)| !is_good(id, module)).map(|(id, _)| id).collect();
        bad.into_iter().for_each(|id| self.remove_module(id));
        self.module_names = self.modules.iter().map(|(id, module)| (module.name.clone(), id)).collect();
    }

    fn remove_module(&mut self, id: Id) {
        let gone = self.modules.remove(id).expect("it was found");
        self.counts.module(&gone, Step::Take);
        self.module_names.remove(&gone.name);
        self.touch(Touched::Module(index(id)));
        self.effects.push(Effect::Close { what: Thing::Module(id) });
    }

    /// The modules behind a name, a line each, as many as a message holds: name, bytes, user, hash, seconds. Fields are set apart
    /// by tabs.
    pub(super) fn list_modules(&self, after: Option<&Name>) -> String {
        let mut text = String::new();
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (name, &id) in self.module_names.range::<Name, _>((behind, Bound::Unbounded)) {
            let module = self.modules.get(id).expect("a name has a record");
            if !module.is_proved {
                continue;
            }
            let mut line = format!("{name}\t{}\t{}\t", module.bytes, module.user);
            for byte in module.hash.iter().flat_map(|word| word.to_le_bytes()) {
                write!(line, "{byte:02x}").expect("a text takes what is written to it");
            }
            writeln!(line, "\t{}", self.now.saturating_sub(module.since)).expect("as above");
            if text.len() + line.len() > TAIL_BYTES_MAX {
                break;
            }
            text.push_str(&line);
        }
        text
    }

    pub(crate) fn is_moduleless(&self, name: &Name) -> bool {
        !self.module_names.contains_key(name)
    }

    /// The names of modules that are most like one that is not there.
    pub(crate) fn nearest_modules(&self, name: &Name, count: usize) -> Vec<&Name> {
        // Some of them may not be proved, and are nobody's to know.
        let is_proved =
            |near: &&Name| self.modules.get(self.module_names[*near]).is_some_and(|module| module.is_proved);
        nearest_of(&self.module_names, name, 2 * count).into_iter().filter(is_proved).take(count).collect()
    }
}
