//! What the broker knows: tenants, segments, blocks in them, leases of blocks, names. Pure: a message goes in, effects come out,
//! and somebody else carries them out. No clock, no descriptor, no driver.
//!
//! A segment is memory of the device with a descriptor. A block is a span of a segment, and lives as long as a lease or a name
//! does. What nobody has any more leaves: tenants unmap it, it is overwritten with zeros, and then it is anybody's.

mod counts;
mod handing;
mod limits;
mod memory;
mod modules;
mod names;
mod points;
pub(crate) mod record;
mod requests;
mod room;
pub(crate) mod shelf;
#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used, reason = "as in any test")]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzzing uses a part of it"))]
pub(crate) mod tests;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use self::counts::{Counts, Step};
pub(crate) use self::limits::Limits;
use self::modules::{Load, ModuleNames, Registered};
use self::points::Due;
use self::room::Room;
use self::shelf::{Shelf, index};
use self::workers::{Post, Service};
use crate::name::Name;
use crate::wire::{Access, Id, Memory, Point, Policy, Refusal, Reply};

/// How many words a clock has.
pub(crate) const CLOCK_WORDS: u32 = 512;

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
    /// What waits for words of its clock, and for which values.
    due: BTreeSet<(u32, u64, Due)>,
    /// The number of the last request of its that dropped a name. Asked again, it drops none that came since.
    dropped: u32,
    /// Its connection is gone, and it may not be: nothing of it is anybody else's before it is.
    pub(crate) is_fenced: bool,
    /// It goes: it ends when work of its own has passed, and its worker has carried out what it called.
    is_leaving: bool,
    /// Its process has ended, and with it all work of its own. Its worker may not have come to the end.
    is_gone: bool,
    /// The worker that runs its kernels.
    pub(crate) post: Option<Post>,
    /// It is a worker itself.
    pub(crate) service: Option<Service>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The driver is making it, for the request that waits.
    Making,
    Live,
    /// Nobody has anything in it. Tenants are to unmap it.
    Leaving,
    /// It is being overwritten with zeros.
    Cleaning,
    /// It is anybody's.
    Clean,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) bytes: u64,
    pub(crate) stage: Stage,
    /// Whose requests it serves.
    pub(crate) owner: Option<Id>,
    /// Whose quota it counts for.
    pub(crate) user: u32,
    /// A process of another user had its descriptor, and may have kept a mapping whatever it says: nothing new is put into it, and
    /// it goes back to the driver.
    is_exposed: bool,
    room: Room,
    blocks: BTreeSet<Id>,
    /// Those that could not be overwritten: they go with the segment.
    spoilt: BTreeSet<Id>,
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
    is_dirty: bool,
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
    /// It was given back, and work of its holder's up to this point may still use it.
    ending: Option<Point>,
    /// How many leases were made before it.
    order: u64,
    /// Another tenant gave it, ready at this point: its holder may not have heard of it.
    given: Option<Point>,
    /// Who gave it ended before that point had passed.
    is_unfinished: bool,
}

/// What the state has to ask of those who carry out its effects.
pub(crate) trait World {
    /// Whether a tenant can be told of a lease, or else how many it has not looked at.
    fn has_room(&self, tenant: Id) -> Result<(), u32>;
    /// Whether work has come to a point.
    fn has_passed(&self, point: Point) -> bool;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: Name,
    pub(crate) block: Id,
    pub(crate) user: u32,
    /// Who published it first, which may be gone.
    pub(crate) maker: Id,
    pub(crate) policy: Policy,
    pub(crate) version: u64,
    /// In seconds, as the broker's shell counts them.
    pub(crate) since: u64,
    ready: Point,
    /// What it stood for, until what it stands for now is whole.
    before: Option<Before>,
    pub(crate) readers: u32,
    /// The lease of its one writer. Where the policy lets all write, there is none that counts.
    pub(crate) writer: Option<Id>,
}

/// A state of a name that was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    block: Id,
    version: u64,
}

/// A request whose reply has to wait for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
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
    Tell {
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
    Hand {
        to: Id,
        number: u32,
        what: Thing,
        bytes: u64,
    },
    Make {
        segment: Id,
        bytes: u64,
    },
    /// Overwrite bytes of a segment with zeros.
    Clean {
        what: Dirty,
        segment: Id,
        offset: u64,
        bytes: u64,
    },
    /// A descriptor, beside a reply that says more of it.
    HandWith {
        to: Id,
        number: u32,
        what: Thing,
        reply: Reply,
    },
    /// Hold the descriptor that came with the request.
    Keep {
        what: Thing,
    },
    /// Start a worker's process.
    Start {
        worker: Id,
    },
    /// Give a tenant its seat at a worker.
    Hire {
        to: Id,
        number: u32,
        worker: Id,
        seat: u32,
    },
    /// A tenant goes: its worker is to carry out what it called, and to say so.
    Dismiss {
        worker: Id,
        tenant: Id,
    },
    /// A worker serves nobody any more: it is to end.
    Retire {
        worker: Id,
    },
    /// Nobody is to wait for words of a tenant's clock any more.
    LetPass {
        tenant: Id,
    },
    /// End a worker's process, whatever it does.
    Kill {
        worker: Id,
    },
    Close {
        what: Thing,
    },
    /// A connection is over, by its own wish.
    Part {
        tenant: Id,
    },
    /// The broker ends, and its keeper with it.
    Stop,
}

/// What is overwritten with zeros: all of a segment, or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dirty {
    Segment(Id),
    Block(Id),
}

/// What has a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Thing {
    Segment(Id),
    Clock(Id),
    Host(Id),
    /// The ring of calls of a tenant.
    Calls(Id),
    Module(Id),
}

/// Memory of the host under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: Name,
    pub(crate) bytes: u64,
    pub(crate) user: u32,
    /// Who asked for it first, which may be gone.
    pub(crate) maker: Id,
    /// In seconds, as the broker's shell counts them.
    pub(crate) since: u64,
}

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) memory: Memory,
    pub(crate) id: Id,
}

/// Which record of the journal is to be written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Touched {
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
    memory: Memory,
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    limits: Limits,
    /// Who runs the broker.
    own_user: u32,
    counts: Counts,
    pub(crate) tenants: Shelf<Tenant>,
    pub(crate) segments: Shelf<Segment>,
    pub(crate) blocks: Shelf<Block>,
    pub(crate) leases: Shelf<Lease>,
    pub(crate) named: Shelf<Named>,
    pub(crate) hosts: Shelf<Host>,
    names: BTreeMap<Name, Called>,
    waiting: BTreeMap<Id, Waiting>,
    /// How many leases were made.
    order: u64,
    /// Tenants for whose work something waits.
    due: BTreeSet<Id>,
    /// Tenants that go, until their points have passed and their calls are carried out.
    leaving: BTreeSet<Id>,
    attachments: Shelf<Attachment>,
    quotas: Shelf<Quota>,
    pub(crate) modules: Shelf<Registered>,
    module_names: ModuleNames,
    loads: Shelf<Load>,
    /// Seconds, as the shell counts them.
    pub(crate) now: u64,
    touched: Vec<Touched>,
    effects: Vec<Effect>,
}

impl State {
    pub(crate) fn new(limits: Limits, own_user: u32) -> Self {
        Self {
            limits,
            own_user,
            counts: Counts::default(),
            tenants: Shelf::default(),
            segments: Shelf::default(),
            blocks: Shelf::default(),
            leases: Shelf::default(),
            named: Shelf::default(),
            hosts: Shelf::default(),
            names: BTreeMap::new(),
            waiting: BTreeMap::new(),
            order: 0,
            due: BTreeSet::new(),
            leaving: BTreeSet::new(),
            attachments: Shelf::default(),
            quotas: Shelf::default(),
            modules: Shelf::default(),
            module_names: ModuleNames::new(),
            loads: Shelf::default(),
            now: 0,
            touched: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// What is to be done for what was said last. Gets an empty list in its place, whose room is used again.
    pub(crate) fn take_effects(&mut self, empty: Vec<Effect>) -> Vec<Effect> {
        debug_assert!(empty.is_empty(), "what was to be done was done");
        std::mem::replace(&mut self.effects, empty)
    }

    /// Calls `write` for each record that changed, in that order. Before the effects are carried out.
    pub(crate) fn write_touched(&mut self, mut write: impl FnMut(&Self, Touched)) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.iter().for_each(|&one| write(self, one));
        touched.clear();
        self.touched = touched;
    }

    fn touch(&mut self, what: Touched) {
        if self.touched.last() != Some(&what) {
            self.touched.push(what);
        }
    }

    /// A process has connected.
    pub(crate) fn connect(&mut self, peer: Peer) -> Result<Id, Refusal> {
        self.check_connections(peer.user)?;
        let tenant = self.tenants.add(Tenant::new(peer));
        self.counts.connection(peer.user, Step::Add);
        self.touch(Touched::Tenant(index(tenant)));
        Ok(tenant)
    }

    /// Refuses one more tenant than there may be, or than its user may have.
    fn check_connections(&self, user: u32) -> Result<(), Refusal> {
        if self.tenants.len() >= self.limits.tenants {
            return Err(Refusal::TooMany { limit: self.limits.tenants as u64 });
        }
        if self.counts.user(user).connections >= self.limits.user_tenants as u64 {
            return Err(Refusal::TooMany { limit: self.limits.user_tenants as u64 });
        }
        Ok(())
    }

    /// A tenant's connection is gone. All of its leases end in this one step; the memory is nobody else's before the process
    /// has ended.
    pub(crate) fn fence(&mut self, tenant: Id) {
        if let Some(gone) = self.tenants.get_mut(tenant) {
            gone.is_fenced = true;
            self.touch(Touched::Tenant(index(tenant)));
        }
    }

    /// A tenant's process has ended, and the device has done with it. It stays until its worker has carried out what it called.
    pub(crate) fn depart(&mut self, tenant: Id, world: &impl World) {
        let Some(known) = self.tenants.get(tenant).filter(|known| !known.is_gone) else { return };
        if known.post.is_none() {
            self.end(tenant, world);
            return;
        }
        self.pass_of(tenant, world);
        self.abandon(tenant);
        self.tenants.get_mut(tenant).expect("it was found").is_gone = true;
        self.go(tenant);
        // Its worker may wait for work that nobody does any more.
        self.effects.push(Effect::LetPass { tenant });
    }

    /// A tenant is to end as soon as nothing is left to be done for it.
    pub(super) fn go(&mut self, tenant: Id) {
        let going = self.tenants.get_mut(tenant).expect("it goes");
        (going.is_fenced, going.is_leaving) = (true, true);
        let (post, is_idle) = (going.post, going.due.is_empty());
        match post {
            Some(Post { worker, .. }) => self.effects.push(Effect::Dismiss { worker, tenant }),
            None if is_idle => self.effects.push(Effect::Part { tenant }),
            None => {}
        }
        // Written before it is told: a broker that comes after lets it go too.
        self.touch(Touched::Tenant(index(tenant)));
        self.leaving.insert(tenant);
    }

    /// Forgets what a tenant waits for. What is made for it is nobody's.
    pub(crate) fn withdraw(&mut self, tenant: Id) {
        let of_tenant = |(&segment, waiting): (&Id, &Waiting)| (waiting.tenant == tenant).then_some(segment);
        let waiting: Vec<Id> = self.waiting.iter().filter_map(of_tenant).collect();
        for segment in waiting {
            self.take_waiting(segment);
        }
    }

    /// Nothing is left of a tenant: it has given up everything, or its process has ended and its worker has nothing of it.
    pub(crate) fn end(&mut self, tenant: Id, world: &impl World) {
        self.leaving.remove(&tenant);
        self.pass_of(tenant, world);
        self.abandon(tenant);
        let Some(gone) = self.tenants.get(tenant).cloned() else { return };
        self.withdraw(tenant);
        let ending = gone.due.iter().filter_map(|&(_, _, due)| match due {
            Due::Lease(lease) => Some(lease),
            Due::Name(_) | Due::Gift(_) => None,
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
                self.touch(Touched::Segment(index(segment)));
                self.settle(segment);
            }
        }
        self.abandon_modules(tenant);
        if let Some(Post { worker, .. }) = gone.post {
            self.effects.push(Effect::Dismiss { worker, tenant });
            self.unpost(tenant);
        }
        let loaded = gone.service.iter().flat_map(|service| service.loaded.values());
        loaded.for_each(|&load| self.end_load(load));
        self.tenants.remove(tenant);
        self.counts.connection(gone.peer.user, Step::Take);
        self.touch(Touched::Tenant(index(tenant)));
        self.effects.push(Effect::Close { what: Thing::Clock(tenant) });
        if let Some(service) = gone.service {
            self.unserve(service);
        }
    }
}
