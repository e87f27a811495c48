//! What the broker knows: tenants, segments, blocks in them, leases of blocks, names. Pure: a message goes in, effects come out,
//! and somebody else carries them out. No time source, no descriptor, no driver.
//!
//! A segment is memory of the device with a descriptor. A block is a span of a segment, and lives as long as a lease or a name
//! does. What nobody has any more leaves: tenants unmap it, it is overwritten with zeros, and then it is anybody's.

mod accounting;
mod fences;
mod free_list;
mod limits;
mod memory;
mod modules;
mod names;
pub(crate) mod record;
mod requests;
pub(crate) mod slot_map;
#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used, reason = "as in any test")]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzzing uses a part of it"))]
pub(crate) mod tests;
mod transfers;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use self::accounting::{Accounting, Change};
use self::fences::FenceWaiter;
use self::free_list::FreeList;
pub(crate) use self::limits::Limits;
use self::modules::{ModuleEntry, ModuleLoad, ModuleNames};
use self::slot_map::{SlotMap, index};
use self::workers::{CallSession, WorkerState};
use crate::name::Name;
use crate::wire::{Access, Fence, Id, MemoryKind, Policy, Reply, RequestError};

/// How many words a semaphores has.
pub(crate) const SEMAPHORES: u32 = 512;

/// Who is at the other end of a connection, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) user: u32,
    pub(crate) process: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub(crate) peer: Peer,
    /// Segments whose descriptors it has, and the record of each.
    pub(crate) attached: BTreeMap<Id, Id>,
    pub(crate) leases: BTreeSet<Id>,
    /// Segments from which it gets memory.
    pub(crate) segments: BTreeSet<Id>,
    /// What waits for words of its semaphores, and for which values.
    fence_waiters: BTreeSet<(u32, u64, FenceWaiter)>,
    /// The number of the last request of its that dropped a name. Asked again, it drops none that came since.
    last_drop: u32,
    /// Its connection is gone, and it may not be: nothing of it is anybody else's before it is.
    pub(crate) is_disconnected: bool,
    /// It goes: it ends when work of its own has passed, and its worker has carried out what it called.
    is_closing: bool,
    /// Its process has ended, and with it all work of its own. Its worker may not have come to the end.
    has_exited: bool,
    /// The worker that runs its kernels.
    pub(crate) session: Option<CallSession>,
    /// It is a worker itself.
    pub(crate) worker_state: Option<WorkerState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentStage {
    /// The driver is making it, for the request that waits.
    Creating,
    Live,
    /// Nobody has anything in it. Tenants are to unmap it.
    Unmapping,
    /// It is being overwritten with zeros.
    Scrubbing,
    /// It is anybody's.
    Zeroed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) bytes: u64,
    pub(crate) stage: SegmentStage,
    /// Whose requests it serves.
    pub(crate) owner: Option<Id>,
    /// Whose quota it counts for.
    pub(crate) user: u32,
    /// A process of another user had its descriptor, and may have kept a mapping whatever it says: nothing new is put into it, and
    /// it goes back to the driver.
    is_exposed: bool,
    free_list: FreeList,
    blocks: BTreeSet<Id>,
    /// Those that could not be overwritten: they go with the segment.
    unscrubbed: BTreeSet<Id>,
    /// Tenants that have its descriptor.
    attached: BTreeSet<Id>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) segment: Id,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    leases: u32,
    is_named: bool,
    /// Somebody other than the segment's owner could write to it: it is the owner's again as zeros.
    is_foreign: bool,
    /// Nobody has it, and it is being overwritten with zeros.
    is_scrubbing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) holder: Id,
    pub(crate) block: Id,
    pub(crate) access: Access,
    /// The name that it is a lease of.
    name: Option<Id>,
    /// The lease that it was borrowed of, by a worker.
    of: Option<Id>,
    /// The request that made it: whose, and which.
    by: (Id, u32),
    /// It was given back, and work of its holder's up to this fence may still use it.
    ending: Option<Fence>,
    /// How many leases were made before it.
    order: u64,
    /// Another tenant gave it, ready at this fence: its holder may not have heard of it.
    given: Option<Fence>,
    /// Who gave it ended before that fence had passed.
    is_unfinished: bool,
}

/// What the state has to ask of those who carry out its effects.
pub(crate) trait Environment {
    /// Whether a tenant can be told of a lease, or else how many it has not looked at.
    fn has_room(&self, tenant: Id) -> Result<(), u32>;
    /// Whether work has come to a fence.
    fn is_complete(&self, fence: Fence) -> bool;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameEntry {
    pub(crate) name: Name,
    pub(crate) block: Id,
    pub(crate) user: u32,
    /// Who published it first, which may be gone.
    pub(crate) creator: Id,
    pub(crate) policy: Policy,
    pub(crate) version: u64,
    /// In seconds, as the broker's shell counts them.
    pub(crate) since: u64,
    ready: Fence,
    /// What it stood for, until what it stands for now is whole.
    previous: Option<PreviousVersion>,
    pub(crate) readers: u32,
    /// The lease of its one writer. Where the policy lets all write, there is none that counts.
    pub(crate) writer: Option<Id>,
}

/// A state of a name that was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreviousVersion {
    block: Id,
    version: u64,
}

/// A request whose reply has to wait for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingReserve {
    tenant: Id,
    user: u32,
    number: u32,
    bytes: u64,
    /// The name that is to be written.
    name: Option<Id>,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Reply {
        to: Id,
        number: u32,
        reply: Reply,
    },
    /// Unasked, over the ring.
    Notify {
        to: Id,
        reply: Reply,
    },
    /// Names and what is known of them, in lines.
    Text {
        to: Id,
        number: u32,
        text: String,
    },
    /// A descriptor, beside the reply.
    SendFd {
        to: Id,
        number: u32,
        what: Resource,
        bytes: u64,
    },
    CreateSegment {
        segment: Id,
        bytes: u64,
    },
    /// Overwrite bytes of a segment with zeros.
    Scrub {
        what: ScrubTarget,
        segment: Id,
        offset: u64,
        bytes: u64,
    },
    /// A descriptor, beside a reply that says more of it.
    SendFdWith {
        to: Id,
        number: u32,
        what: Resource,
        reply: Reply,
    },
    /// Hold the descriptor that came with the request.
    StoreFd {
        what: Resource,
    },
    /// Start a worker's process.
    StartWorker {
        worker: Id,
    },
    /// Give a tenant its session at a worker.
    OpenSession {
        to: Id,
        number: u32,
        worker: Id,
        session_index: u32,
    },
    /// A tenant goes: its worker is to carry out what it called, and to say so.
    DrainSession {
        worker: Id,
        tenant: Id,
    },
    /// A worker serves nobody any more: it is to end.
    StopWorker {
        worker: Id,
    },
    /// Nobody is to wait for words of a tenant's semaphores any more.
    CompleteFences {
        tenant: Id,
    },
    /// End a worker's process, whatever it does.
    KillWorker {
        worker: Id,
    },
    CloseFd {
        what: Resource,
    },
    /// A connection is over, by its own wish.
    RemoveTenant {
        tenant: Id,
    },
    /// The broker ends, and its fdstore with it.
    Stop,
}

/// What is overwritten with zeros: all of a segment, or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ScrubTarget {
    Segment(Id),
    Block(Id),
}

/// What has a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Resource {
    Segment(Id),
    Semaphores(Id),
    Host(Id),
    /// The ring of calls of a tenant.
    CallRing(Id),
    Module(Id),
}

/// Memory of the host under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: Name,
    pub(crate) bytes: u64,
    pub(crate) user: u32,
    /// Who asked for it first, which may be gone.
    pub(crate) creator: Id,
    /// In seconds, as the broker's shell counts them.
    pub(crate) since: u64,
}

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameTarget {
    pub(crate) memory: MemoryKind,
    pub(crate) id: Id,
}

/// Which record of the journal is to be written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DirtyRecord {
    Tenant(usize),
    Segment(usize),
    Block(usize),
    Lease(usize),
    Name(usize),
    Host(usize),
    Attachment(usize),
    Quota(usize),
    Module(usize),
    Load(usize),
}

/// A tenant has the descriptor of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    tenant: Id,
    segment: Id,
}

/// What a user may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    user: u32,
    memory: MemoryKind,
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    limits: Limits,
    /// Who runs the broker.
    own_user: u32,
    accounting: Accounting,
    pub(crate) tenants: SlotMap<Tenant>,
    pub(crate) segments: SlotMap<Segment>,
    pub(crate) blocks: SlotMap<Block>,
    pub(crate) leases: SlotMap<Lease>,
    pub(crate) named: SlotMap<NameEntry>,
    pub(crate) hosts: SlotMap<Host>,
    names: BTreeMap<Name, NameTarget>,
    pending_reserves: BTreeMap<Id, PendingReserve>,
    /// How many leases were made.
    order: u64,
    /// Tenants for whose work something waits.
    awaited_tenants: BTreeSet<Id>,
    /// Tenants that go, until their fences have passed and their calls are carried out.
    closing: BTreeSet<Id>,
    attachments: SlotMap<Attachment>,
    quotas: SlotMap<Quota>,
    pub(crate) modules: SlotMap<ModuleEntry>,
    module_names: ModuleNames,
    loads: SlotMap<ModuleLoad>,
    /// Seconds, as the shell counts them.
    pub(crate) now: u64,
    dirty_records: Vec<DirtyRecord>,
    effects: Vec<Effect>,
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

    /// What is to be done for what was said last. Gets an empty list in its place, whose room is used again.
    pub(crate) fn take_effects(&mut self, empty: Vec<Effect>) -> Vec<Effect> {
        debug_assert!(empty.is_empty(), "what was to be done was done");
        std::mem::replace(&mut self.effects, empty)
    }

    /// Calls `write` for each record that changed, in that order. Before the effects are carried out.
    pub(crate) fn write_dirty(&mut self, mut write: impl FnMut(&Self, DirtyRecord)) {
        let mut dirty = std::mem::take(&mut self.dirty_records);
        dirty.iter().for_each(|&one| write(self, one));
        dirty.clear();
        self.dirty_records = dirty;
    }

    fn mark_dirty(&mut self, what: DirtyRecord) {
        if self.dirty_records.last() != Some(&what) {
            self.dirty_records.push(what);
        }
    }

    /// A process has connected.
    pub(crate) fn connect(&mut self, peer: Peer) -> Result<Id, RequestError> {
        self.check_connections(peer.user)?;
        let tenant = self.tenants.insert(Tenant::new(peer));
        self.accounting.connection(peer.user, Change::Add);
        self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        Ok(tenant)
    }

    /// Refuses one more tenant than there may be, or than its user may have.
    fn check_connections(&self, user: u32) -> Result<(), RequestError> {
        if self.tenants.len() >= self.limits.tenants {
            return Err(RequestError::TooMany { limit: self.limits.tenants as u64 });
        }
        if self.accounting.user(user).connections >= self.limits.user_tenants as u64 {
            return Err(RequestError::TooMany { limit: self.limits.user_tenants as u64 });
        }
        Ok(())
    }

    /// A tenant's connection is gone. All of its leases end in this one step; the memory is nobody else's before the process
    /// has ended.
    pub(crate) fn disconnect(&mut self, tenant: Id) {
        if let Some(gone) = self.tenants.get_mut(tenant) {
            gone.is_disconnected = true;
            self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        }
    }

    /// A tenant's process has ended, and the device has done with it. It stays until its worker has carried out what it called.
    pub(crate) fn process_exited(&mut self, tenant: Id, environment: &impl Environment) {
        let Some(known) = self.tenants.get(tenant).filter(|known| !known.has_exited) else { return };
        if known.session.is_none() {
            self.remove_tenant(tenant, environment);
            return;
        }
        self.poll_fences_of(tenant, environment);
        self.abandon_incomplete(tenant);
        self.tenants.get_mut(tenant).expect("it was found above").has_exited = true;
        self.begin_close(tenant);
        // Its worker may wait for work that nobody does any more.
        self.effects.push(Effect::CompleteFences { tenant });
    }

    /// A tenant is to end as soon as nothing is left to be done for it.
    pub(super) fn begin_close(&mut self, tenant: Id) {
        let going = self.tenants.get_mut(tenant).expect("a closing tenant exists");
        (going.is_disconnected, going.is_closing) = (true, true);
        let (session, is_idle) = (going.session, going.fence_waiters.is_empty());
        match session {
            Some(CallSession { worker, .. }) => self.effects.push(Effect::DrainSession { worker, tenant }),
            None if is_idle => self.effects.push(Effect::RemoveTenant { tenant }),
            None => {}
        }
        // Written before it is told: a broker that comes after lets it go too.
        self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        self.closing.insert(tenant);
    }

    /// Forgets what a tenant waits for. What is made for it is nobody's.
    pub(crate) fn withdraw(&mut self, tenant: Id) {
        let of_tenant = |(&segment, waiting): (&Id, &PendingReserve)| (waiting.tenant == tenant).then_some(segment);
        let waiting: Vec<Id> = self.pending_reserves.iter().filter_map(of_tenant).collect();
        for segment in waiting {
            self.remove_pending(segment);
        }
    }

    /// Nothing is left of a tenant: it has given up everything, or its process has ended and its worker has nothing of it.
    pub(crate) fn remove_tenant(&mut self, tenant: Id, environment: &impl Environment) {
        self.closing.remove(&tenant);
        self.poll_fences_of(tenant, environment);
        self.abandon_incomplete(tenant);
        let Some(gone) = self.tenants.get(tenant).cloned() else { return };
        self.withdraw(tenant);
        let ending = gone.fence_waiters.iter().filter_map(|&(_, _, waiter)| match waiter {
            FenceWaiter::Lease(lease) => Some(lease),
            FenceWaiter::Name(_) | FenceWaiter::Given(_) => None,
        });
        let at_worker = self.ending_at_worker(tenant);
        let leases: Vec<Id> = ending.chain(at_worker).chain(gone.leases).collect();
        leases.into_iter().for_each(|lease| self.end_lease(lease, None));
        for (segment, _) in gone.attached {
            self.detach(tenant, segment);
        }
        for segment in gone.segments {
            if self.segments.get(segment).is_some() {
                self.change_segment(segment, |left| left.owner = None);
                self.mark_dirty(DirtyRecord::Segment(index(segment)));
                self.reclaim_segment(segment);
            }
        }
        self.abandon_modules(tenant);
        if let Some(CallSession { worker, .. }) = gone.session {
            self.effects.push(Effect::DrainSession { worker, tenant });
            self.close_session(tenant);
        }
        let loaded = gone.worker_state.iter().flat_map(|worker_state| worker_state.loaded.values());
        loaded.for_each(|&load| self.remove_load(load));
        self.tenants.remove(tenant);
        self.accounting.connection(gone.peer.user, Change::Subtract);
        self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        self.effects.push(Effect::CloseFd { what: Resource::Semaphores(tenant) });
        if let Some(worker_state) = gone.worker_state {
            self.clear_sessions(worker_state);
        }
    }
}
