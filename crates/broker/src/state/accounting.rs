//! Usage, updated with each change: total, per user, per tenant. `recount` computes the same numbers from scratch, and
//! is not used by requests.

use std::collections::{BTreeMap, BTreeSet};

use super::types::{Block, Host, ModuleEntry, ModuleLoad, PendingReserve, Segment, SegmentStage};
use crate::protocol::types::Id;

/// Usage of a user or a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Of segments, also of those that the driver is creating. For a worker and its user, also of the variables of
    /// loaded modules.
    pub(crate) bytes: u64,
    /// Of segments without blocks.
    pub(crate) idle_bytes: u64,
    pub(crate) segments: u64,
    /// Includes leases that were returned and whose fences are not complete.
    pub(crate) leases: u64,
    pub(crate) names: u64,
    pub(crate) connections: u64,
    pub(crate) attachments: u64,
    /// Requests that wait for the driver.
    pub(crate) waiting: u64,
    pub(crate) hosts: u64,
    pub(crate) host_bytes: u64,
    pub(crate) modules: u64,
    pub(crate) module_bytes: u64,
    pub(crate) loads: u64,
}

impl Usage {
    const NONE: Self = Self {
        bytes: 0,
        idle_bytes: 0,
        segments: 0,
        leases: 0,
        names: 0,
        connections: 0,
        attachments: 0,
        waiting: 0,
        hosts: 0,
        host_bytes: 0,
        modules: 0,
        module_bytes: 0,
        loads: 0,
    };
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accounting {
    pub(crate) segment_bytes: u64,
    /// Device memory of the variables of modules, in every worker that has loaded them.
    pub(crate) loaded_bytes: u64,
    /// Free, and not yet reusable.
    pub(crate) reclaiming_bytes: u64,
    /// Being zeroed, or all zeros.
    pub(crate) cached_bytes: u64,
    pub(crate) leased_bytes: u64,
    pub(crate) named_bytes: u64,
    users: BTreeMap<u32, Usage>,
    tenants: BTreeMap<Id, Usage>,
    /// Zeroed segments without an owner, by size.
    pub(crate) zeroed: BTreeSet<(u64, Id)>,
}

/// Whether a count increases or decreases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Add,
    Subtract,
}

impl Change {
    fn apply(self, count: &mut u64, amount: u64) {
        match self {
            Self::Add => *count += amount,
            Self::Subtract => *count -= amount,
        }
    }
}

/// How a segment is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentCount {
    bytes: u64,
    stage: SegmentStage,
    owner: Option<Id>,
    user: u32,
    is_idle: bool,
}

impl SegmentCount {
    pub(crate) fn of(segment: &Segment) -> Self {
        let Segment { bytes, stage, owner, user, .. } = *segment;
        Self { bytes, stage, owner, user, is_idle: stage == SegmentStage::Live && segment.blocks.is_empty() }
    }
}

/// How a block is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockCount {
    bytes: u64,
    is_leased: bool,
    is_named: bool,
    is_dirty: bool,
}

impl BlockCount {
    pub(crate) fn of(block: &Block) -> Self {
        let Block { bytes, is_named, is_scrubbing: is_dirty, leases, .. } = *block;
        Self { bytes, is_leased: leases > 0, is_named, is_dirty }
    }
}

impl Accounting {
    pub(crate) fn user(&self, user: u32) -> &Usage {
        self.users.get(&user).unwrap_or(&Usage::NONE)
    }

    pub(crate) fn tenant(&self, tenant: Id) -> &Usage {
        self.tenants.get(&tenant).unwrap_or(&Usage::NONE)
    }

    /// All device memory that counts against the broker's budget.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.segment_bytes + self.loaded_bytes
    }

    pub(crate) fn segment(&mut self, id: Id, counted: SegmentCount, step: Change) {
        let SegmentCount { bytes, stage, owner, user, is_idle } = counted;
        step.apply(&mut self.segment_bytes, bytes);
        if matches!(stage, SegmentStage::Unmapping | SegmentStage::Scrubbing) {
            step.apply(&mut self.reclaiming_bytes, bytes);
        }
        if matches!(stage, SegmentStage::Zeroed | SegmentStage::Scrubbing) {
            step.apply(&mut self.cached_bytes, bytes);
        }
        if stage == SegmentStage::Zeroed {
            match step {
                Change::Add => self.zeroed.insert((bytes, id)),
                Change::Subtract => self.zeroed.remove(&(bytes, id)),
            };
            return;
        }
        change_usage(&mut self.users, user, |usage| {
            step.apply(&mut usage.bytes, bytes);
            step.apply(&mut usage.segments, 1);
        });
        if let Some(owner) = owner {
            change_usage(&mut self.tenants, owner, |usage| {
                step.apply(&mut usage.bytes, bytes);
                step.apply(&mut usage.segments, 1);
                step.apply(&mut usage.idle_bytes, if is_idle { bytes } else { 0 });
            });
        }
    }

    pub(crate) fn block(&mut self, counted: BlockCount, step: Change) {
        if counted.is_leased {
            step.apply(&mut self.leased_bytes, counted.bytes);
        }
        if counted.is_named {
            step.apply(&mut self.named_bytes, counted.bytes);
        }
        if counted.is_dirty {
            step.apply(&mut self.reclaiming_bytes, counted.bytes);
        }
    }

    pub(crate) fn lease(&mut self, holder: Id, user: u32, step: Change) {
        change_usage(&mut self.users, user, |usage| step.apply(&mut usage.leases, 1));
        change_usage(&mut self.tenants, holder, |usage| step.apply(&mut usage.leases, 1));
    }

    pub(crate) fn name(&mut self, user: u32, step: Change) {
        change_usage(&mut self.users, user, |usage| step.apply(&mut usage.names, 1));
    }

    pub(crate) fn connection(&mut self, user: u32, step: Change) {
        change_usage(&mut self.users, user, |usage| step.apply(&mut usage.connections, 1));
    }

    pub(crate) fn attachment(&mut self, user: u32, step: Change) {
        change_usage(&mut self.users, user, |usage| step.apply(&mut usage.attachments, 1));
    }

    pub(crate) fn waiting(&mut self, waiting: &PendingReserve, step: Change) {
        change_usage(&mut self.users, waiting.user, |usage| step.apply(&mut usage.waiting, 1));
        change_usage(&mut self.tenants, waiting.tenant, |usage| {
            step.apply(&mut usage.waiting, 1);
            step.apply(&mut usage.bytes, waiting.segment_bytes());
        });
    }

    pub(crate) fn host(&mut self, host: &Host, step: Change) {
        change_usage(&mut self.users, host.user, |usage| {
            step.apply(&mut usage.hosts, 1);
            step.apply(&mut usage.host_bytes, host.bytes);
        });
    }

    pub(crate) fn module(&mut self, module: &ModuleEntry, step: Change) {
        change_usage(&mut self.users, module.user, |usage| {
            step.apply(&mut usage.modules, 1);
            step.apply(&mut usage.module_bytes, module.bytes);
        });
    }

    pub(crate) fn load(&mut self, load: &ModuleLoad, user: u32, step: Change) {
        step.apply(&mut self.loaded_bytes, load.bytes);
        change_usage(&mut self.users, user, |usage| {
            step.apply(&mut usage.loads, 1);
            step.apply(&mut usage.bytes, load.bytes);
        });
        change_usage(&mut self.tenants, load.worker, |usage| {
            step.apply(&mut usage.loads, 1);
            step.apply(&mut usage.bytes, load.bytes);
        });
    }
}

/// Changes a usage record, and removes it when it is all zeros.
#[inline]
fn change_usage<K: Ord + Copy>(usages: &mut BTreeMap<K, Usage>, whose: K, change: impl FnOnce(&mut Usage)) {
    match usages.get_mut(&whose) {
        Some(usage) => {
            change(usage);
            if *usage == Usage::NONE {
                usages.remove(&whose);
            }
        }
        None => change(usages.entry(whose).or_default()),
    }
}
