//! The state itself: the tables of its objects, the records that changed, and the effects of the last message.

use std::collections::{BTreeMap, BTreeSet};

use super::accounting::Accounting;
use super::limits::Limits;
use super::slot_map::SlotMap;
use super::types::{
    Attachment, Block, DirtyRecord, Effect, Host, Lease, ModuleEntry, ModuleLoad, ModuleNames, NameEntry, NameTarget,
    PendingReserve, Quota, Segment, Tenant,
};
use crate::protocol::name::Name;
use crate::protocol::types::Id;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(super) limits: Limits,
    /// The user that runs the broker.
    pub(super) own_user: u32,
    pub(super) accounting: Accounting,
    pub(crate) tenants: SlotMap<Tenant>,
    pub(crate) segments: SlotMap<Segment>,
    pub(crate) blocks: SlotMap<Block>,
    pub(crate) leases: SlotMap<Lease>,
    pub(crate) named: SlotMap<NameEntry>,
    pub(crate) hosts: SlotMap<Host>,
    pub(super) names: BTreeMap<Name, NameTarget>,
    pub(super) pending_reserves: BTreeMap<Id, PendingReserve>,
    /// How many leases were created.
    pub(super) order: u64,
    /// Tenants with fences that something waits for.
    pub(super) awaited_tenants: BTreeSet<Id>,
    /// Closing tenants, until their fences are complete and their calls finished.
    pub(super) closing: BTreeSet<Id>,
    pub(super) attachments: SlotMap<Attachment>,
    pub(super) quotas: SlotMap<Quota>,
    pub(crate) modules: SlotMap<ModuleEntry>,
    pub(super) module_names: ModuleNames,
    pub(super) loads: SlotMap<ModuleLoad>,
    /// Unix time in seconds, set by the daemon.
    pub(crate) now: u64,
    pub(super) dirty_records: Vec<DirtyRecord>,
    pub(super) effects: Vec<Effect>,
}

impl State {
    pub(crate) fn new(limits: Limits, own_user: u32) -> Self {
        Self {
            limits,
            own_user,
            accounting: Accounting::default(),
            tenants: SlotMap::default(),
            segments: SlotMap::default(),
            blocks: SlotMap::default(),
            leases: SlotMap::default(),
            named: SlotMap::default(),
            hosts: SlotMap::default(),
            names: BTreeMap::new(),
            pending_reserves: BTreeMap::new(),
            order: 0,
            awaited_tenants: BTreeSet::new(),
            closing: BTreeSet::new(),
            attachments: SlotMap::default(),
            quotas: SlotMap::default(),
            modules: SlotMap::default(),
            module_names: ModuleNames::new(),
            loads: SlotMap::default(),
            now: 0,
            dirty_records: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Returns the effects of the last message. `empty` replaces the list, so that its allocation is reused.
    pub(crate) fn take_effects(&mut self, empty: Vec<Effect>) -> Vec<Effect> {
        debug_assert!(empty.is_empty(), "the previous effects were executed");
        std::mem::replace(&mut self.effects, empty)
    }

    /// Calls `write` for each changed record, in the order of the changes. Called before the effects are executed.
    pub(crate) fn write_dirty(&mut self, mut write: impl FnMut(&Self, DirtyRecord)) {
        let mut dirty = std::mem::take(&mut self.dirty_records);
        dirty.iter().for_each(|&one| write(self, one));
        dirty.clear();
        self.dirty_records = dirty;
    }

    pub(super) fn mark_dirty(&mut self, what: DirtyRecord) {
        if self.dirty_records.last() != Some(&what) {
            self.dirty_records.push(what);
        }
    }
}
