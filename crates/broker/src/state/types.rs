//! The objects of the state, and the effects that the daemon executes. Data only: other modules change them.

use std::collections::{BTreeMap, BTreeSet};

use super::free_list::FreeList;
use crate::protocol::message::Reply;
use crate::protocol::name::Name;
use crate::protocol::scrub::ScrubTarget;
use crate::protocol::types::{Access, Fence, Hash, Id, MemoryKind, Policy};

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
    pub(super) fence_waiters: BTreeSet<(u32, u64, FenceWaiter)>,
    /// The number of its last request that dropped a name. A retry of it does not drop a newer name.
    pub(super) last_drop: u32,
    /// Its connection has ended, but its process may run. Until that has ended, nothing of it is reused.
    pub(crate) is_disconnected: bool,
    /// It sent `Bye`, or its process has ended: it is removed when its work is complete and its worker has finished its
    /// calls.
    pub(super) is_closing: bool,
    /// Its process has ended, and with it all of its own work. Its worker may still run its calls.
    pub(super) has_exited: bool,
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
    pub(super) is_exposed: bool,
    pub(super) free_list: FreeList,
    pub(super) blocks: BTreeSet<Id>,
    /// Blocks that could not be zeroed: they are freed with the segment.
    pub(super) unscrubbed: BTreeSet<Id>,
    /// Tenants that have its descriptor.
    pub(super) attached: BTreeSet<Id>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) segment: Id,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(super) leases: u32,
    pub(super) is_named: bool,
    /// A tenant other than the segment's owner could write to it: it must be zeroed before the owner gets it again.
    pub(super) is_foreign: bool,
    /// It is free, and is being zeroed.
    pub(super) is_scrubbing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) holder: Id,
    pub(crate) block: Id,
    pub(crate) access: Access,
    /// The name that was leased.
    pub(super) name: Option<Id>,
    /// The lease that a worker borrowed it from.
    pub(super) of: Option<Id>,
    /// The request that created it: tenant and number.
    pub(super) by: (Id, u32),
    /// It was returned, and work of its holder up to this fence may still use it.
    pub(super) ending: Option<Fence>,
    /// How many leases were created before it.
    pub(super) order: u64,
    /// Another tenant gave it, ready at this fence. Its holder may not have been notified.
    pub(super) given: Option<Fence>,
    /// The giver ended before that fence was complete.
    pub(super) is_unfinished: bool,
}

/// The queries that the state makes to the daemon.
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
    pub(super) ready: Fence,
    /// The version before the current one, until that is complete.
    pub(super) previous: Option<PreviousVersion>,
    pub(crate) readers: u32,
    /// The lease of its only writer. `None` under a policy that lets everyone write.
    pub(crate) writer: Option<Id>,
}

/// A complete version of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreviousVersion {
    pub(super) block: Id,
    pub(super) version: u64,
}

/// A request that waits for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingReserve {
    pub(super) tenant: Id,
    pub(super) user: u32,
    pub(super) number: u32,
    pub(super) bytes: u64,
    /// The name that it will write.
    pub(super) name: Option<Id>,
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
    /// A worker no longer serves a tenant and must exit.
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
    /// Remove the connection of a tenant that sent `Bye`.
    RemoveTenant {
        tenant: Id,
    },
    /// Stop the broker and its fdstore.
    Stop,
}

/// A resource that has a descriptor.
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
    pub(super) tenant: Id,
    pub(super) segment: Id,
}

/// The quota of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(super) user: u32,
    pub(super) memory: MemoryKind,
    pub(super) bytes: u64,
}

/// An object that waits for a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FenceWaiter {
    /// A returned lease: its memory can be reused then.
    Lease(Id),
    /// A name: its current version is complete then.
    Name(Id),
    /// A given lease: its contents are complete then. The giver is kept until then.
    Given(Id),
}

/// A module of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModuleEntry {
    pub(crate) name: Name,
    pub(crate) bytes: u64,
    /// Device memory of its variables, in each worker. A worker does not load a module that has more.
    pub(crate) device_bytes: u64,
    /// As declared by the tenant that put it. Readers of the text must verify it.
    pub(crate) hash: Hash,
    pub(crate) user: u32,
    /// The tenant that put it. Until it is compiled, only that tenant sees it, and it ends with that tenant.
    pub(crate) by: Id,
    /// Unix time in seconds.
    pub(crate) since: u64,
    /// Whether a driver has compiled it.
    pub(crate) is_compiled: bool,
}

/// A module that a worker has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModuleLoad {
    pub(crate) worker: Id,
    pub(crate) module: Id,
    /// Device memory of its variables.
    pub(crate) bytes: u64,
    /// It was dropped, and the worker must unload it.
    pub(crate) is_unloading: bool,
}

pub(super) type ModuleNames = BTreeMap<Name, Id>;

/// The part of a tenant that is a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerState {
    /// Processes of its user with the same label share it. 0: it serves one tenant only.
    pub(crate) label: u64,
    /// The tenants that it serves, and their session indexes.
    pub(crate) serves: BTreeMap<Id, u32>,
    /// Session indexes handed out. None is used twice, because the worker's semaphores keep counting.
    pub(super) sessions_opened: u32,
    /// Leases that it has borrowed: the tenant's lease and its own.
    pub(super) borrowed: BTreeMap<Id, Id>,
    /// Modules that it has loaded, and the record of each.
    pub(super) loaded: BTreeMap<Id, Id>,
    /// It no longer serves a tenant, and is exiting.
    pub(super) is_stopping: bool,
}

/// A tenant's session at the worker that runs its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallSession {
    pub(crate) worker: Id,
    pub(crate) session_index: u32,
}

impl Tenant {
    pub(super) fn new(peer: Peer) -> Self {
        Self {
            peer,
            attached: BTreeMap::new(),
            leases: BTreeSet::new(),
            segments: BTreeSet::new(),
            fence_waiters: BTreeSet::new(),
            last_drop: 0,
            is_disconnected: false,
            is_closing: false,
            has_exited: false,
            session: None,
            worker_state: None,
        }
    }

    /// Whether nothing is left to do for a closing tenant.
    pub(super) fn is_drained(&self) -> bool {
        self.session.is_none() && (self.has_exited || self.fence_waiters.is_empty())
    }
}
