//! What the broker knows: tenants, segments, blocks in them, leases of blocks, names. Pure: a message goes in, effects come out,
//! and somebody else carries them out. No clock, no descriptor, no driver.
//!
//! A segment is memory of the device with a descriptor. A block is a span of a segment, and lives as long as a lease or a name
//! does. What nobody has any more leaves: tenants unmap it, it is overwritten with zeros, and then it is anybody's.

mod memory;
mod names;
pub(crate) mod record;
mod room;
pub(crate) mod shelf;
#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used, reason = "as in any test")]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzzing uses a part of it"))]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};

use self::room::Room;
use self::shelf::{Shelf, index};
use crate::name::Name;
use crate::wire::{Access, Framed, Id, Point, Policy, Refusal, Reply, Request, Sums};

/// How many words a clock has.
pub(crate) const CLOCK_WORDS: u32 = 512;

/// How much may be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) budget_bytes: u64,
    /// Of one user, unless it was given a quota of its own.
    pub(crate) user_bytes: u64,
    /// Zeroed memory up to this is kept for whoever comes next. The rest goes back to the driver.
    pub(crate) kept_bytes: u64,
    pub(crate) tenants: usize,
    /// Connections of one user.
    pub(crate) user_tenants: usize,
    /// Leases of one tenant.
    pub(crate) tenant_leases: usize,
    pub(crate) blocks: usize,
    pub(crate) segments: usize,
    /// Names of one user, and of all.
    pub(crate) user_names: usize,
    pub(crate) names: usize,
    /// Leases, memory of the host, attachments and quotas of all.
    pub(crate) leases: usize,
    pub(crate) hosts: usize,
    pub(crate) attachments: usize,
    pub(crate) quotas: usize,
}

impl Limits {
    pub(crate) fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            user_bytes: budget_bytes,
            kept_bytes: (budget_bytes / 8).min(256 << 20),
            tenants: 1024,
            user_tenants: 256,
            tenant_leases: 1 << 14,
            blocks: 1 << 16,
            segments: 1 << 14,
            user_names: 1 << 12,
            names: 1 << 13,
            leases: 1 << 16,
            hosts: 1 << 10,
            attachments: 1 << 16,
            quotas: 1 << 8,
        }
    }
}

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
    /// Its connection is gone, and it may not be: nothing of it is anybody else's before it is.
    pub(crate) is_fenced: bool,
    /// It has said goodbye, and work of its own may not have passed: it ends when that has.
    is_leaving: bool,
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
    room: Room,
    blocks: BTreeSet<Id>,
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
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) holder: Id,
    pub(crate) block: Id,
    pub(crate) access: Access,
    /// The name that it is a lease of.
    name: Option<Id>,
    /// The request that made it: whose, and which.
    by: (Id, u32),
    /// It was given back, and work of its holder's up to this point may still use it.
    ending: Option<Point>,
    /// How many leases were made before it.
    order: u64,
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
    pub(crate) process: u32,
    pub(crate) policy: Policy,
    pub(crate) version: u64,
    /// In seconds, as the broker's shell counts them.
    pub(crate) since: u64,
    ready: Point,
    pub(crate) readers: u32,
    /// The lease of its one writer. Where the policy lets all write, there is none that counts.
    pub(crate) writer: Option<Id>,
}

/// A request whose reply has to wait for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    tenant: Id,
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
    Clean {
        segment: Id,
    },
    Close {
        what: Thing,
    },
    /// A connection is over, by its own wish.
    Part {
        tenant: Id,
    },
}

/// What has a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Thing {
    Segment(Id),
    Clock(Id),
    Host(Id),
}

/// Memory of the host under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: Name,
    pub(crate) bytes: u64,
    pub(crate) user: u32,
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
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    limits: Limits,
    pub(crate) tenants: Shelf<Tenant>,
    pub(crate) segments: Shelf<Segment>,
    pub(crate) blocks: Shelf<Block>,
    pub(crate) leases: Shelf<Lease>,
    pub(crate) named: Shelf<Named>,
    pub(crate) hosts: Shelf<Host>,
    names: BTreeMap<Name, Id>,
    host_names: BTreeMap<Name, Id>,
    waiting: BTreeMap<Id, Waiting>,
    /// How many leases were made.
    order: u64,
    /// Leases that were given back, until their points have passed.
    ending: BTreeSet<Id>,
    /// Tenants that have said goodbye, until their points have passed.
    leaving: BTreeSet<Id>,
    attachments: Shelf<Attachment>,
    quotas: Shelf<Quota>,
    /// Seconds, as the shell counts them.
    pub(crate) now: u64,
    touched: Vec<Touched>,
    effects: Vec<Effect>,
}

impl State {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            tenants: Shelf::default(),
            segments: Shelf::default(),
            blocks: Shelf::default(),
            leases: Shelf::default(),
            named: Shelf::default(),
            hosts: Shelf::default(),
            names: BTreeMap::new(),
            host_names: BTreeMap::new(),
            waiting: BTreeMap::new(),
            order: 0,
            ending: BTreeSet::new(),
            leaving: BTreeSet::new(),
            attachments: Shelf::default(),
            quotas: Shelf::default(),
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
        if self.tenants.len() >= self.limits.tenants {
            return Err(Refusal::TooMany { limit: self.limits.tenants as u64 });
        }
        let same = self.tenants.iter().filter(|(_, tenant)| tenant.peer.user == peer.user).count();
        if same >= self.limits.user_tenants {
            return Err(Refusal::TooMany { limit: self.limits.user_tenants as u64 });
        }
        let tenant = self.tenants.add(Tenant {
            peer,
            attached: BTreeMap::new(),
            leases: BTreeSet::new(),
            segments: BTreeSet::new(),
            is_fenced: false,
            is_leaving: false,
        });
        self.touch(Touched::Tenant(index(tenant)));
        Ok(tenant)
    }

    /// A tenant's connection is gone. All of its leases end in this one step; the memory is nobody else's before the process
    /// has ended.
    pub(crate) fn fence(&mut self, tenant: Id) {
        if let Some(gone) = self.tenants.get_mut(tenant) {
            gone.is_fenced = true;
            self.touch(Touched::Tenant(index(tenant)));
        }
    }

    /// A tenant's process has ended, and the device has done with it; or it has given up everything.
    pub(crate) fn end(&mut self, tenant: Id) {
        self.leaving.remove(&tenant);
        let Some(gone) = self.tenants.get(tenant).cloned() else { return };
        let waiting: Vec<Id> =
            self.waiting.iter().filter(|(_, waiting)| waiting.tenant == tenant).map(|(&segment, _)| segment).collect();
        for segment in waiting {
            self.waiting.remove(&segment);
        }
        let ending =
            self.ending.iter().copied().filter(|&lease| self.leases.get(lease).is_some_and(|it| it.holder == tenant));
        let leases: Vec<Id> = ending.chain(gone.leases).collect();
        leases.into_iter().for_each(|lease| self.end_lease(lease, None));
        for (segment, _) in gone.attached {
            self.detach(tenant, segment);
        }
        for segment in gone.segments {
            if let Some(left) = self.segments.get_mut(segment) {
                left.owner = None;
                self.touch(Touched::Segment(index(segment)));
                self.settle(segment);
            }
        }
        self.tenants.remove(tenant);
        self.touch(Touched::Tenant(index(tenant)));
        self.effects.push(Effect::Close { what: Thing::Clock(tenant) });
    }

    /// A tenant asks.
    pub(crate) fn request(&mut self, from: Id, asked: Framed<Request>, world: &impl World) {
        let number = asked.number;
        let outcome = match self.tenants.get(from) {
            Some(tenant) if !tenant.is_fenced => self.answer(from, asked, world),
            _ => Err(Refusal::NoTenant),
        };
        match outcome {
            Ok(Some(reply)) => self.effects.push(Effect::Reply { to: from, number, reply }),
            Ok(None) => {}
            Err(refusal) => {
                self.effects.push(Effect::Reply { to: from, number, reply: Reply::Refused(refusal) });
            }
        }
    }

    /// The reply, unless it comes later or another way.
    fn answer(&mut self, from: Id, asked: Framed<Request>, world: &impl World) -> Result<Option<Reply>, Refusal> {
        let Framed { number, is_again, message } = asked;
        if is_again && let Some(reply) = self.answer_again(from, number, &message) {
            return Ok(Some(reply));
        }
        match message {
            Request::Hello { .. } => Err(Refusal::Malformed),
            Request::Reserve { bytes } => self.reserve(Waiting { tenant: from, number, bytes, name: None }),
            Request::Lease { name, access } => self.lease(from, number, name, access),
            Request::Return { lease, .. } if is_again && self.held(from, lease).is_err() => Ok(Some(Reply::Done)),
            Request::Return { lease, point } => {
                self.held(from, lease)?;
                self.give_back(lease, self.own_point(from, point)?, world);
                Ok(Some(Reply::Done))
            }
            // It was given, and the taker has done with it.
            Request::Give { lease, .. } if is_again && self.held(from, lease).is_err() => Ok(Some(Reply::Done)),
            Request::Give { lease, to, point } => self.give(from, number, lease, to, point, world).map(Some),
            Request::Detach { segment } => {
                if !self.tenants.get(from).is_some_and(|tenant| tenant.attached.contains_key(&segment)) {
                    return if is_again { Ok(Some(Reply::Done)) } else { Err(Refusal::NoSegment) };
                }
                self.detach(from, segment);
                Ok(Some(Reply::Done))
            }
            Request::Attach { segment } => self.attach(from, number, segment).map(|()| None),
            Request::Clock { tenant } => {
                let other = self.tenants.get(tenant).ok_or(Refusal::NoTenant)?;
                if other.peer.user != self.user_of(from) {
                    return Err(Refusal::NotAllowed { user: other.peer.user });
                }
                let bytes = u64::from(CLOCK_WORDS) * 8;
                self.effects.push(Effect::Hand { to: from, number, what: Thing::Clock(tenant), bytes });
                Ok(None)
            }
            Request::Publish { lease, policy, point, name } => {
                self.publish(from, lease, policy, point, name, is_again).map(Some)
            }
            Request::Find { name } => self.find(from, &name).map(Some),
            Request::List { after } => {
                let text = self.list(after.as_ref());
                self.effects.push(Effect::Text { to: from, number, text });
                Ok(None)
            }
            Request::Drop { name } => self.drop_name(from, &name, is_again).map(|()| Some(Reply::Done)),
            Request::Quota { user, bytes } => self.quota(from, user, bytes).map(Some),
            Request::Totals => Ok(Some(Reply::Sums(self.sums()))),
            Request::Host { bytes, name } => self.host(from, number, bytes, name).map(|()| None),
            Request::Bye => {
                self.effects.push(Effect::Reply { to: from, number, reply: Reply::Done });
                if self.has_open_points(from, world) {
                    let leaving = self.tenants.get_mut(from).expect("it asks");
                    (leaving.is_fenced, leaving.is_leaving) = (true, true);
                    self.touch(Touched::Tenant(index(from)));
                    self.leaving.insert(from);
                } else {
                    self.effects.push(Effect::Part { tenant: from });
                }
                Ok(None)
            }
        }
    }

    fn user_of(&self, tenant: Id) -> u32 {
        self.tenants.get(tenant).expect("a tenant that asks is there").peer.user
    }

    /// A lease that a tenant has.
    fn held(&self, tenant: Id, lease: Id) -> Result<&Lease, Refusal> {
        let held = self.leases.get(lease).filter(|held| held.holder == tenant && held.ending.is_none());
        held.ok_or(Refusal::NoLease)
    }

    /// Whether some leases were given back, or tenants have gone, whose points have not passed.
    pub(crate) fn is_ending(&self) -> bool {
        !self.ending.is_empty() || !self.leaving.is_empty()
    }

    /// Whether somebody may wait for work of a tenant that has not passed.
    fn has_open_points(&self, tenant: Id, world: &impl World) -> bool {
        let ending = self.ending.iter().filter_map(|&lease| self.leases.get(lease)?.ending);
        let ready = self.named.iter().map(|(_, named)| named.ready);
        let is_open = |point: Point| point.value > 0 && point.tenant == tenant && !world.has_passed(point);
        ending.chain(ready).any(is_open)
    }

    /// Ends the leases that were given back and whose points have passed.
    pub(crate) fn pass(&mut self, world: &impl World) {
        let has_passed = |lease: &Id| {
            let point = self.leases.get(*lease).and_then(|lease| lease.ending);
            point.is_none_or(|point| world.has_passed(point))
        };
        let passed: Vec<Id> = self.ending.iter().copied().filter(has_passed).collect();
        passed.into_iter().for_each(|lease| self.end_lease(lease, Some(Point::default())));
        let gone: Vec<Id> =
            self.leaving.iter().copied().filter(|&tenant| !self.has_open_points(tenant, world)).collect();
        gone.into_iter().for_each(|tenant| self.end(tenant));
    }

    /// A point of a tenant's own clock: nobody speaks for another.
    fn own_point(&self, tenant: Id, point: Point) -> Result<Point, Refusal> {
        if point.value == 0 {
            return Ok(Point::default());
        }
        if point.word >= CLOCK_WORDS {
            return Err(Refusal::Malformed);
        }
        Ok(Point { tenant, ..point })
    }

    fn quota(&mut self, from: Id, user: u32, bytes: u64) -> Result<Reply, Refusal> {
        let asking = self.user_of(from);
        if bytes > 0 {
            if asking != 0 && asking != self.limits_user() {
                return Err(Refusal::NotAllowed { user: self.limits_user() });
            }
            let known = self.quotas.iter().find(|(_, quota)| quota.user == user).map(|(id, _)| id);
            if known.is_none() && self.quotas.len() >= self.limits.quotas {
                return Err(Refusal::TooMany { limit: self.limits.quotas as u64 });
            }
            let id = known.unwrap_or_else(|| self.quotas.add(Quota { user, bytes }));
            self.quotas.get_mut(id).expect("it was found or made").bytes = bytes;
            self.touch(Touched::Quota(index(id)));
        }
        Ok(Reply::Number { id: Id(self.quota_of(user)), bytes: self.user_bytes(user) })
    }

    /// The user that the broker runs as, who may change quotas.
    fn limits_user(&self) -> u32 {
        rustix::process::getuid().as_raw()
    }

    fn quota_of(&self, user: u32) -> u64 {
        self.quotas
            .iter()
            .find(|(_, quota)| quota.user == user)
            .map_or(self.limits.user_bytes, |(_, quota)| quota.bytes)
    }

    /// What a user has, in whole segments.
    fn user_bytes(&self, user: u32) -> u64 {
        let of_user = self.segments.iter().filter(|(_, segment)| segment.user == user && segment.stage != Stage::Clean);
        of_user.map(|(_, segment)| segment.bytes).sum()
    }

    fn made_bytes(&self) -> u64 {
        self.segments.iter().map(|(_, segment)| segment.bytes).sum()
    }

    pub(crate) fn sums(&self) -> Sums {
        let leaving = |stage| matches!(stage, Stage::Leaving | Stage::Cleaning);
        let blocks = || self.blocks.iter().map(|(_, block)| block);
        Sums {
            budget_bytes: self.limits.budget_bytes,
            made_bytes: self.made_bytes(),
            leased_bytes: blocks().filter(|block| block.leases > 0).map(|block| block.bytes).sum(),
            named_bytes: blocks().filter(|block| block.is_named).map(|block| block.bytes).sum(),
            leaving_bytes: self
                .segments
                .iter()
                .filter(|(_, segment)| leaving(segment.stage))
                .map(|(_, s)| s.bytes)
                .sum(),
            tenants: self.tenants.len() as u32,
            names: self.named.len() as u32,
            leases: self.leases.len() as u32,
        }
    }
}
