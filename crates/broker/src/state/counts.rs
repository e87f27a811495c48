//! What is had, counted as it changes: by all, by each user, by each tenant. A walk over everything gives the same numbers, and
//! is never made to answer a request.

use std::collections::{BTreeMap, BTreeSet};

use super::{Block, Host, Load, Registered, Segment, Stage, State, Tenant, Waiting};
use crate::wire::Id;

/// What a user has, or a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Of segments, and of those that the driver is making; of a worker, and its user, also of what variables of modules take that
    /// it has loaded.
    pub(crate) bytes: u64,
    /// Of segments without blocks.
    pub(crate) idle_bytes: u64,
    pub(crate) segments: u64,
    /// Those too that were given back, and whose points have not passed.
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

impl Account {
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
pub(crate) struct Counts {
    pub(crate) made_bytes: u64,
    /// What variables of modules take of the device, at each worker that has loaded them.
    pub(crate) loaded_bytes: u64,
    /// Given up, and not yet anybody else's.
    pub(crate) leaving_bytes: u64,
    /// Being overwritten, or all zeros.
    pub(crate) kept_bytes: u64,
    pub(crate) leased_bytes: u64,
    pub(crate) named_bytes: u64,
    users: BTreeMap<u32, Account>,
    tenants: BTreeMap<Id, Account>,
    /// Segments of zeros that are anybody's, by their bytes.
    pub(crate) clean: BTreeSet<(u64, Id)>,
}

/// Whether something comes to what is counted, or goes from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Add,
    Take,
}

impl Step {
    fn apply(self, count: &mut u64, amount: u64) {
        match self {
            Self::Add => *count += amount,
            Self::Take => *count -= amount,
        }
    }
}

/// What a segment counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentCount {
    bytes: u64,
    stage: Stage,
    owner: Option<Id>,
    user: u32,
    is_idle: bool,
}

impl SegmentCount {
    pub(crate) fn of(segment: &Segment) -> Self {
        let Segment { bytes, stage, owner, user, .. } = *segment;
        Self { bytes, stage, owner, user, is_idle: stage == Stage::Live && segment.blocks.is_empty() }
    }
}

/// What a block counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockCount {
    bytes: u64,
    is_leased: bool,
    is_named: bool,
    is_dirty: bool,
}

impl BlockCount {
    pub(crate) fn of(block: &Block) -> Self {
        let Block { bytes, is_named, is_dirty, leases, .. } = *block;
        Self { bytes, is_leased: leases > 0, is_named, is_dirty }
    }
}

impl Counts {
    pub(crate) fn user(&self, user: u32) -> &Account {
        self.users.get(&user).unwrap_or(&Account::NONE)
    }

    pub(crate) fn tenant(&self, tenant: Id) -> &Account {
        self.tenants.get(&tenant).unwrap_or(&Account::NONE)
    }

    /// All that is taken of what the broker may have of the device.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.made_bytes + self.loaded_bytes
    }

    pub(crate) fn segment(&mut self, id: Id, counted: SegmentCount, step: Step) {
        let SegmentCount { bytes, stage, owner, user, is_idle } = counted;
        step.apply(&mut self.made_bytes, bytes);
        if matches!(stage, Stage::Leaving | Stage::Cleaning) {
            step.apply(&mut self.leaving_bytes, bytes);
        }
        if matches!(stage, Stage::Clean | Stage::Cleaning) {
            step.apply(&mut self.kept_bytes, bytes);
        }
        if stage == Stage::Clean {
            match step {
                Step::Add => self.clean.insert((bytes, id)),
                Step::Take => self.clean.remove(&(bytes, id)),
            };
            return;
        }
        account(&mut self.users, user, |account| {
            step.apply(&mut account.bytes, bytes);
            step.apply(&mut account.segments, 1);
        });
        if let Some(owner) = owner {
            account(&mut self.tenants, owner, |account| {
                step.apply(&mut account.bytes, bytes);
                step.apply(&mut account.segments, 1);
                step.apply(&mut account.idle_bytes, if is_idle { bytes } else { 0 });
            });
        }
    }

    pub(crate) fn block(&mut self, counted: BlockCount, step: Step) {
        if counted.is_leased {
            step.apply(&mut self.leased_bytes, counted.bytes);
        }
        if counted.is_named {
            step.apply(&mut self.named_bytes, counted.bytes);
        }
        if counted.is_dirty {
            step.apply(&mut self.leaving_bytes, counted.bytes);
        }
    }

    pub(crate) fn lease(&mut self, holder: Id, user: u32, step: Step) {
        account(&mut self.users, user, |account| step.apply(&mut account.leases, 1));
        account(&mut self.tenants, holder, |account| step.apply(&mut account.leases, 1));
    }

    pub(crate) fn name(&mut self, user: u32, step: Step) {
        account(&mut self.users, user, |account| step.apply(&mut account.names, 1));
    }

    pub(crate) fn connection(&mut self, user: u32, step: Step) {
        account(&mut self.users, user, |account| step.apply(&mut account.connections, 1));
    }

    pub(crate) fn attachment(&mut self, user: u32, step: Step) {
        account(&mut self.users, user, |account| step.apply(&mut account.attachments, 1));
    }

    pub(crate) fn waiting(&mut self, waiting: &Waiting, step: Step) {
        account(&mut self.users, waiting.user, |account| step.apply(&mut account.waiting, 1));
        account(&mut self.tenants, waiting.tenant, |account| {
            step.apply(&mut account.waiting, 1);
            step.apply(&mut account.bytes, waiting.segment_bytes());
        });
    }

    pub(crate) fn host(&mut self, host: &Host, step: Step) {
        account(&mut self.users, host.user, |account| {
            step.apply(&mut account.hosts, 1);
            step.apply(&mut account.host_bytes, host.bytes);
        });
    }

    pub(crate) fn module(&mut self, module: &Registered, step: Step) {
        account(&mut self.users, module.user, |account| {
            step.apply(&mut account.modules, 1);
            step.apply(&mut account.module_bytes, module.bytes);
        });
    }

    pub(crate) fn load(&mut self, load: &Load, user: u32, step: Step) {
        step.apply(&mut self.loaded_bytes, load.bytes);
        account(&mut self.users, user, |account| {
            step.apply(&mut account.loads, 1);
            step.apply(&mut account.bytes, load.bytes);
        });
        account(&mut self.tenants, load.worker, |account| {
            step.apply(&mut account.loads, 1);
            step.apply(&mut account.bytes, load.bytes);
        });
    }
}

/// Changes an account. Who has nothing has none.
#[inline]
fn account<K: Ord + Copy>(accounts: &mut BTreeMap<K, Account>, whose: K, change: impl FnOnce(&mut Account)) {
    match accounts.get_mut(&whose) {
        Some(account) => {
            change(account);
            if *account == Account::NONE {
                accounts.remove(&whose);
            }
        }
        None => change(accounts.entry(whose).or_default()),
    }
}

impl State {
    /// Changes a segment, and what it counts as.
    pub(super) fn change_segment<R>(&mut self, id: Id, change: impl FnOnce(&mut Segment) -> R) -> R {
        let segment = self.segments.get_mut(id).expect("it is there");
        let before = SegmentCount::of(segment);
        let outcome = change(segment);
        let after = SegmentCount::of(segment);
        if before != after {
            self.counts.segment(id, before, Step::Take);
            self.counts.segment(id, after, Step::Add);
        }
        outcome
    }

    /// Changes a block, and what it counts as.
    pub(super) fn change_block<R>(&mut self, id: Id, change: impl FnOnce(&mut Block) -> R) -> R {
        let block = self.blocks.get_mut(id).expect("it is there");
        let before = BlockCount::of(block);
        let outcome = change(block);
        let after = BlockCount::of(block);
        if before != after {
            self.counts.block(before, Step::Take);
            self.counts.block(after, Step::Add);
        }
        outcome
    }

    /// Everything, counted by a walk.
    pub(super) fn recounted(&self) -> Counts {
        let mut counts = Counts::default();
        let user_of = |tenant: Id| self.tenants.get(tenant).expect("who has something is there").peer.user;
        self.tenants.iter().for_each(|(_, Tenant { peer, .. })| counts.connection(peer.user, Step::Add));
        self.segments.iter().for_each(|(id, segment)| counts.segment(id, SegmentCount::of(segment), Step::Add));
        self.blocks.iter().for_each(|(_, block)| counts.block(BlockCount::of(block), Step::Add));
        self.leases.iter().for_each(|(_, lease)| counts.lease(lease.holder, user_of(lease.holder), Step::Add));
        self.named.iter().for_each(|(_, named)| counts.name(named.user, Step::Add));
        self.attachments.iter().for_each(|(_, attached)| counts.attachment(user_of(attached.tenant), Step::Add));
        self.hosts.iter().for_each(|(_, host)| counts.host(host, Step::Add));
        self.modules.iter().for_each(|(_, module)| counts.module(module, Step::Add));
        self.loads.iter().for_each(|(_, load)| counts.load(load, user_of(load.worker), Step::Add));
        self.waiting.values().for_each(|waiting| counts.waiting(waiting, Step::Add));
        counts
    }
}
