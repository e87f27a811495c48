//! The state of the broker: tenants, segments, blocks, leases and names. Pure: a message goes in, effects come out, and
//! the daemon executes them. No clock, no descriptor, no driver.
//!
//! A segment is device memory with a descriptor. A block is a range of a segment, and lives as long as a lease or a
//! name refers to it. When the last one ends, tenants unmap the segment, it is zeroed, and then any tenant may get it.

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
#[cfg_attr(not(test), allow(dead_code, reason = "fuzzing uses only a part"))]
pub(crate) mod tests;
mod transfers;
mod workers;

use crate::protocol::scrub::ScrubTarget;
use std::collections::{BTreeMap, BTreeSet};

use self::accounting::{Accounting, Change};
use self::fences::FenceWaiter;
use self::free_list::FreeList;
pub(crate) use self::limits::Limits;
use self::modules::{ModuleEntry, ModuleLoad, ModuleNames};
use self::slot_map::{SlotMap, index};
use self::workers::{CallSession, WorkerState};
use crate::protocol::message::Reply;
use crate::protocol::name::Name;
use crate::protocol::request_error::RequestError;
use crate::protocol::types::{Access, Fence, Id, MemoryKind, Policy};

/// The other end of a connection, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) user: u32,
    pub(crate) process: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub(crate) peer: Peer,
    /// Segments whose descriptors it has, and the record of each attachment.
    pub(crate) attached: BTreeMap<Id, Id>,
    pub(crate) leases: BTreeSet<Id>,
    /// Segments that its memory comes from.
    pub(crate) segments: BTreeSet<Id>,
    /// What waits for its semaphores: the semaphore, the value, and the waiter.
    fence_waiters: BTreeSet<(u32, u64, FenceWaiter)>,
    /// The number of its last request that dropped a name. A retry of it does not drop a newer name.
    last_drop: u32,
    /// Its connection has ended, but its process may run. Until that has ended, nothing of it is reused.
    pub(crate) is_disconnected: bool,
    /// It said `Bye`, or its process has ended: it is removed when its work is complete and its worker has finished its
    /// calls.
    is_closing: bool,
    /// Its process has ended, and with it all of its own work. Its worker may still run its calls.
    has_exited: bool,
    /// Its session at the worker that runs its kernels.
    pub(crate) session: Option<CallSession>,
    /// Present if it is a worker itself.
    pub(crate) worker_state: Option<WorkerState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentStage {
    /// The driver is creating it, for the request that waits.
    Creating,
    Live,
    /// No block is left in it. Tenants have been asked to unmap it.
    Unmapping,
    /// It is being zeroed.
    Scrubbing,
    /// All zeros: any tenant may get it.
    Zeroed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) bytes: u64,
    pub(crate) stage: SegmentStage,
    /// The tenant whose requests it serves.
    pub(crate) owner: Option<Id>,
    /// The user whose quota it counts against.
    pub(crate) user: u32,
    /// A process of another user had its descriptor and may have kept a mapping. So nothing new is put into it, and it
    /// goes back to the driver.
    is_exposed: bool,
    free_list: FreeList,
    blocks: BTreeSet<Id>,
    /// Blocks that could not be zeroed: they are freed with the segment.
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
    /// A tenant other than the segment's owner could write to it: it must be zeroed before the owner gets it again.
    is_foreign: bool,
    /// It is free, and is being zeroed.
    is_scrubbing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) holder: Id,
    pub(crate) block: Id,
    pub(crate) access: Access,
    /// The name that was leased.
    name: Option<Id>,
    /// The lease that a worker borrowed it of.
    of: Option<Id>,
    /// The request that created it: tenant and number.
    by: (Id, u32),
    /// It was returned, and work of its holder up to this fence may still use it.
    ending: Option<Fence>,
    /// How many leases were created before it.
    order: u64,
    /// Another tenant gave it, ready at this fence. Its holder may not have been notified.
    given: Option<Fence>,
    /// The giver ended before that fence was complete.
    is_unfinished: bool,
}

/// What the state asks the daemon.
pub(crate) trait Environment {
    /// Whether a tenant can be notified of a given lease. Otherwise, how many it has not accepted.
    fn has_room(&self, tenant: Id) -> Result<(), u32>;
    /// Whether a fence is complete.
    fn is_complete(&self, fence: Fence) -> bool;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameEntry {
    pub(crate) name: Name,
    pub(crate) block: Id,
    pub(crate) user: u32,
    /// The tenant that first published it, which may be gone.
    pub(crate) creator: Id,
    pub(crate) policy: Policy,
    pub(crate) version: u64,
    /// Unix time in seconds.
    pub(crate) since: u64,
    ready: Fence,
    /// The version before the current one, until that is complete.
    previous: Option<PreviousVersion>,
    pub(crate) readers: u32,
    /// The lease of its only writer. `None` under a policy that lets everyone write.
    pub(crate) writer: Option<Id>,
}

/// A complete version of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreviousVersion {
    block: Id,
    version: u64,
}

/// A request that waits for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingReserve {
    tenant: Id,
    user: u32,
    number: u32,
    bytes: u64,
    /// The name that it will write.
    name: Option<Id>,
}

/// What the daemon must do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Reply {
        to: Id,
        number: u32,
        reply: Reply,
    },
    /// A notification, over the ring.
    Notify {
        to: Id,
        reply: Reply,
    },
    /// Text lines, such as a list of names.
    Text {
        to: Id,
        number: u32,
        text: String,
    },
    /// A descriptor, with a plain reply.
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
    /// Zero a range of a segment.
    Scrub {
        what: ScrubTarget,
        segment: Id,
        offset: u64,
        bytes: u64,
    },
    /// A descriptor, with the given reply.
    SendFdWith {
        to: Id,
        number: u32,
        what: Resource,
        reply: Reply,
    },
    /// Store the descriptor that came with the request.
    StoreFd {
        what: Resource,
    },
    /// Start the process of a worker.
    StartWorker {
        worker: Id,
    },
    /// Open a session of a tenant at a worker.
    OpenSession {
        to: Id,
        number: u32,
        worker: Id,
        session_index: u32,
    },
    /// A tenant is closing: its worker must finish its calls and report it.
    DrainSession {
        worker: Id,
        tenant: Id,
    },
    /// A worker serves no tenant any more and must exit.
    StopWorker {
        worker: Id,
    },
    /// Complete every fence of a tenant.
    CompleteFences {
        tenant: Id,
    },
    /// Kill the process of a worker.
    KillWorker {
        worker: Id,
    },
    CloseFd {
        what: Resource,
    },
    /// Remove the connection of a tenant that said `Bye`.
    RemoveTenant {
        tenant: Id,
    },
    /// Stop the broker and its fdstore.
    Stop,
}

/// What has a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Resource {
    Segment(Id),
    Semaphores(Id),
    Host(Id),
    /// The call ring of a tenant.
    CallRing(Id),
    Module(Id),
}

/// Named host memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: Name,
    pub(crate) bytes: u64,
    pub(crate) user: u32,
    /// The tenant that created it, which may be gone.
    pub(crate) creator: Id,
    /// Unix time in seconds.
    pub(crate) since: u64,
}

/// What a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameTarget {
    pub(crate) memory: MemoryKind,
    pub(crate) id: Id,
}

/// A record of the journal that must be rewritten.
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

/// A tenant that has the descriptor of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    tenant: Id,
    segment: Id,
}

/// The quota of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    user: u32,
    memory: MemoryKind,
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    limits: Limits,
    /// The user that runs the broker.
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
    /// How many leases were created.
    order: u64,
    /// Tenants with fences that something waits for.
    awaited_tenants: BTreeSet<Id>,
    /// Closing tenants, until their fences are complete and their calls finished.
    closing: BTreeSet<Id>,
    attachments: SlotMap<Attachment>,
    quotas: SlotMap<Quota>,
    pub(crate) modules: SlotMap<ModuleEntry>,
    module_names: ModuleNames,
    loads: SlotMap<ModuleLoad>,
    /// Unix time in seconds, set by the daemon.
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

    /// Checks the limits of connections, in all and of one user.
    fn check_connections(&self, user: u32) -> Result<(), RequestError> {
        if self.tenants.len() >= self.limits.tenants {
            return Err(RequestError::TooMany { limit: self.limits.tenants as u64 });
        }
        if self.accounting.user(user).connections >= self.limits.user_tenants as u64 {
            return Err(RequestError::TooMany { limit: self.limits.user_tenants as u64 });
        }
        Ok(())
    }

    /// A tenant's connection has ended. All of its leases end in this one step; its memory is not reused until its
    /// process has ended.
    pub(crate) fn disconnect(&mut self, tenant: Id) {
        if let Some(gone) = self.tenants.get_mut(tenant) {
            gone.is_disconnected = true;
            self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        }
    }

    /// A tenant's process has ended, and its work on the device. It stays until its worker has finished its calls.
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
        // Its worker may wait for fences that will never be reached.
        self.effects.push(Effect::CompleteFences { tenant });
    }

    /// Removes a tenant as soon as nothing is left to do for it.
    pub(super) fn begin_close(&mut self, tenant: Id) {
        let going = self.tenants.get_mut(tenant).expect("a closing tenant exists");
        (going.is_disconnected, going.is_closing) = (true, true);
        let (session, is_idle) = (going.session, going.fence_waiters.is_empty());
        match session {
            Some(CallSession { worker, .. }) => self.effects.push(Effect::DrainSession { worker, tenant }),
            None if is_idle => self.effects.push(Effect::RemoveTenant { tenant }),
            None => {}
        }
        // Recorded before the worker is told: the next broker continues the close.
        self.mark_dirty(DirtyRecord::Tenant(index(tenant)));
        self.closing.insert(tenant);
    }

    /// Withdraws the request of a tenant that waits for the driver. The segment that is created for it will have no
    /// owner.
    pub(crate) fn withdraw(&mut self, tenant: Id) {
        let of_tenant = |(&segment, waiting): (&Id, &PendingReserve)| (waiting.tenant == tenant).then_some(segment);
        let waiting: Vec<Id> = self.pending_reserves.iter().filter_map(of_tenant).collect();
        for segment in waiting {
            self.remove_pending(segment);
        }
    }

    /// Removes a tenant: it has returned everything, or its process has ended and its worker has nothing of it.
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
