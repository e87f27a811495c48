//! Segments and the blocks in them: where a request finds memory, and how memory comes back.

use std::collections::BTreeSet;

use super::counts::{BlockCount, SegmentCount, Step};
use super::room::{Room, span_bytes};
use super::shelf::index;
use super::{Block, Dirty, Due, Effect, Lease, Segment, Stage, State, Thing, Touched, Waiting, World};
use crate::wire::{Access, Id, Memory, Point, Policy, Refusal, Reply};

/// What a driver makes and maps at once.
const PAGE_BYTES: u64 = 2 << 20;

/// Segments without blocks that a tenant keeps, so that its next request finds one: in bytes.
const IDLE_BYTES: u64 = 64 << 20;

/// The driver's codes for a device that is not there, or not to be used any more: unavailable, no device, an invalid one, memory
/// that cannot be corrected, a system that is not ready, unknown.
const GONE: [u32; 6] = [46, 100, 101, 214, 802, 999];

/// More than any device has, and few enough that sums of them can be counted.
const BYTES_MAX: u64 = 1 << 50;

/// Refuses one more than a limit.
pub(super) fn within(count: u64, limit: usize) -> Result<(), Refusal> {
    if count < limit as u64 { Ok(()) } else { Err(Refusal::TooMany { limit: limit as u64 }) }
}

impl Waiting {
    /// Of the segment that is made for it.
    pub(super) fn segment_bytes(&self) -> u64 {
        span_bytes(self.bytes).next_multiple_of(PAGE_BYTES)
    }
}

impl State {
    /// Memory for a tenant, of its own segments, of one that is clean, or of a new one.
    pub(super) fn reserve(&mut self, wanted: Waiting) -> Result<Option<Reply>, Refusal> {
        if wanted.bytes == 0 {
            return Err(Refusal::NothingAsked);
        }
        if wanted.bytes > BYTES_MAX || wanted.segment_bytes() > self.limits.budget_bytes {
            return Err(self.full(wanted.bytes));
        }
        self.check_leases(wanted.tenant)?;
        if let Some(reply) = self.reserve_own(wanted) {
            return Ok(Some(reply));
        }
        let segment_bytes = wanted.segment_bytes();
        self.check_bytes(&wanted)?;
        if let Some(clean) = self.clean(segment_bytes, self.user_of(wanted.tenant)) {
            self.own(clean, wanted.tenant, Stage::Live);
            return Ok(self.reserve_own(wanted));
        }
        self.make_room(segment_bytes);
        if self.counts.taken_bytes() + segment_bytes > self.limits.budget_bytes {
            return Err(self.full(wanted.bytes));
        }
        let account = self.counts.user(wanted.user);
        within(account.waiting, self.limits.user_waiting)?;
        within(account.segments, self.limits.user_segments)?;
        within(self.segments.len() as u64, self.limits.segments)?;
        let made = Segment {
            bytes: segment_bytes,
            stage: Stage::Making,
            owner: None,
            user: wanted.user,
            is_exposed: false,
            room: Room::new(segment_bytes),
            blocks: BTreeSet::new(),
            spoilt: BTreeSet::new(),
            attached: BTreeSet::new(),
        };
        let counted = SegmentCount::of(&made);
        let segment = self.segments.add(made);
        self.counts.segment(segment, counted, Step::Add);
        self.touch(Touched::Segment(index(segment)));
        self.counts.waiting(&wanted, Step::Add);
        self.waiting.insert(segment, wanted);
        self.effects.push(Effect::Make { segment, bytes: segment_bytes });
        Ok(None)
    }

    /// The refusal when the broker's budget has too little left.
    pub(super) fn full(&self, wanted_bytes: u64) -> Refusal {
        let budget_bytes = self.limits.budget_bytes;
        let free_bytes = budget_bytes.saturating_sub(self.counts.taken_bytes());
        Refusal::Full { free_bytes, budget_bytes, wanted_bytes }
    }

    /// Forgets that a request waits for a segment: the request.
    pub(super) fn take_waiting(&mut self, segment: Id) -> Option<Waiting> {
        let waiting = self.waiting.remove(&segment)?;
        self.counts.waiting(&waiting, Step::Take);
        Some(waiting)
    }

    /// Refuses more bytes than a user may have, or one tenant.
    fn check_bytes(&self, wanted: &Waiting) -> Result<(), Refusal> {
        self.check_user(wanted.user, wanted.segment_bytes(), wanted.bytes)?;
        self.check_tenant(wanted.tenant, wanted.segment_bytes(), wanted.bytes)
    }

    /// Refuses more bytes than a user may have. `wanted_bytes` is what was asked for, and takes `more_bytes`.
    pub(super) fn check_user(&self, user: u32, more_bytes: u64, wanted_bytes: u64) -> Result<(), Refusal> {
        let (limit_bytes, had_bytes) = (self.quota_of(user, Memory::Device), self.counts.user(user).bytes);
        match had_bytes.saturating_add(more_bytes) > limit_bytes {
            true => Err(Refusal::UserQuota { limit_bytes, had_bytes, wanted_bytes }),
            false => Ok(()),
        }
    }

    /// Refuses more bytes than a tenant may have, with what its worker has loaded.
    pub(super) fn check_tenant(&self, tenant: Id, more_bytes: u64, wanted_bytes: u64) -> Result<(), Refusal> {
        let worker = self.tenants.get(tenant).and_then(|tenant| tenant.post).map(|post| post.worker);
        let loaded_bytes = worker.map_or(0, |worker| self.counts.tenant(worker).bytes);
        let (limit_bytes, had_bytes) = (self.limits.tenant_bytes, self.counts.tenant(tenant).bytes + loaded_bytes);
        match had_bytes.saturating_add(more_bytes) > limit_bytes {
            true => Err(Refusal::TenantQuota { limit_bytes, had_bytes, wanted_bytes }),
            false => Ok(()),
        }
    }

    /// Refuses one more lease than a tenant may have, or its user, or all.
    pub(super) fn check_leases(&self, tenant: Id) -> Result<(), Refusal> {
        // Those that wait for the driver will have one each.
        let of_tenant = self.counts.tenant(tenant);
        within(of_tenant.leases + of_tenant.waiting, self.limits.tenant_leases)?;
        let of_user = self.counts.user(self.user_of(tenant));
        within(of_user.leases + of_user.waiting, self.limits.user_leases)?;
        let awaited = self.waiting.len();
        within((self.leases.len() + awaited) as u64, self.limits.leases)?;
        within((self.blocks.len() + awaited) as u64, self.limits.blocks)
    }

    /// Memory of the segments that a tenant has.
    fn reserve_own(&mut self, wanted: Waiting) -> Option<Reply> {
        let own = &self.tenants.get(wanted.tenant)?.segments;
        let (segment, offset) = own.iter().find_map(|&segment| {
            let own = self.segments.get_mut(segment).filter(|own| !own.is_exposed)?;
            Some((segment, own.room.take(span_bytes(wanted.bytes))?))
        })?;
        let block = Block {
            segment,
            offset,
            bytes: wanted.bytes,
            leases: 0,
            is_named: false,
            is_foreign: false,
            is_dirty: false,
        };
        let block = self.blocks.add(block);
        self.change_segment(segment, |segment| segment.blocks.insert(block));
        self.touch(Touched::Block(index(block)));
        Some(self.grant(wanted.tenant, wanted.number, block, Access::Write, wanted.name))
    }

    /// A lease of a block for a tenant.
    pub(super) fn grant(&mut self, tenant: Id, number: u32, block: Id, access: Access, name: Option<Id>) -> Reply {
        // It may have been dropped while the driver made memory.
        let name = name.filter(|&name| self.named.get(name).is_some());
        if access == Access::Write {
            self.mark_foreign(block, tenant);
        }
        self.grant_of(tenant, number, block, access, name, None)
    }

    /// A lease of a block: of what has a name, or of another lease.
    pub(super) fn grant_of(
        &mut self,
        tenant: Id,
        number: u32,
        block: Id,
        access: Access,
        name: Option<Id>,
        of: Option<Id>,
    ) -> Reply {
        self.order += 1;
        let (by, order) = ((tenant, number), self.order);
        let (ending, given, is_unfinished) = (None, None, false);
        let lease = Lease { holder: tenant, block, access, name, of, by, ending, order, given, is_unfinished };
        let lease = self.leases.add(lease);
        self.touch(Touched::Lease(index(lease)));
        let holder = self.tenants.get_mut(tenant).expect("it asks");
        holder.leases.insert(lease);
        self.counts.lease(tenant, holder.peer.user, Step::Add);
        let (segment, offset, bytes) = self.change_block(block, |granted| {
            granted.leases += 1;
            (granted.segment, granted.offset, granted.bytes)
        });
        let mut point = Point::default();
        if let Some(named) = name.and_then(|name| self.named.get_mut(name)) {
            match access {
                Access::Read => named.readers += 1,
                Access::Write if named.policy != Policy::Open => named.writer = Some(lease),
                Access::Write => {}
            }
            if named.block == block {
                point = named.ready;
            }
        }
        Reply::Granted { lease, segment, offset, bytes, point, access }
    }

    /// Remembers that a tenant may write to a block, if it lies in a segment of another's. Before the lease is written down: a
    /// broker that comes after knows of none without knowing this.
    pub(super) fn mark_foreign(&mut self, block: Id, tenant: Id) {
        let marked = self.blocks.get_mut(block).expect("it is leased");
        let owner = self.segments.get(marked.segment).and_then(|segment| segment.owner);
        if owner.is_some_and(|owner| owner != tenant) && !marked.is_foreign {
            marked.is_foreign = true;
            self.touch(Touched::Block(index(block)));
        }
    }

    /// A segment of zeros that is any process's of a user. Not another user's: one of its processes may have kept the descriptor.
    fn clean(&self, bytes: u64, user: u32) -> Option<Id> {
        let fits = (bytes, Id(0))..=(bytes + bytes / 8, Id(u64::MAX));
        let mut clean = self.counts.clean.range(fits).map(|&(_, id)| id);
        clean.find(|&id| self.segments.get(id).is_some_and(|segment| segment.user == user))
    }

    /// Gives clean segments back to the driver until so much can be made.
    pub(super) fn make_room(&mut self, bytes: u64) {
        while self.counts.taken_bytes().saturating_add(bytes) > self.limits.budget_bytes {
            let Some(&(_, clean)) = self.counts.clean.first() else { return };
            self.close(clean);
        }
    }

    fn own(&mut self, segment: Id, tenant: Id, stage: Stage) {
        let user = self.user_of(tenant);
        self.change_segment(segment, |owned| (owned.stage, owned.owner, owned.user) = (stage, Some(tenant), user));
        self.tenants.get_mut(tenant).expect("it asks").segments.insert(segment);
        self.touch(Touched::Segment(index(segment)));
    }

    fn close(&mut self, segment: Id) {
        self.forget(segment);
        self.effects.push(Effect::Close { what: Thing::Segment(segment) });
    }

    /// The driver has made a segment, or refused with a code.
    pub(crate) fn made(&mut self, segment: Id, outcome: Result<(), u32>) {
        let waiting = self.take_waiting(segment);
        let Some(made) = self.segments.get(segment) else { return };
        let (made_bytes, budget_bytes) = (made.bytes, self.limits.budget_bytes);
        let Some(wanted) = waiting.filter(|wanted| self.tenants.get(wanted.tenant).is_some()) else {
            // Who asked for it is gone.
            match outcome {
                Ok(()) => {
                    self.change_segment(segment, |made| made.stage = Stage::Live);
                    self.settle(segment);
                }
                Err(_) => self.forget(segment),
            }
            return;
        };
        let reply = match outcome {
            Ok(()) => {
                self.own(segment, wanted.tenant, Stage::Live);
                self.reserve_own(wanted).expect("a segment was made that is long enough")
            }
            Err(code) => {
                self.forget(segment);
                // The driver has no memory left: that says more than its code.
                match code {
                    2 => Reply::Refused(Refusal::Full { free_bytes: 0, budget_bytes, wanted_bytes: made_bytes }),
                    code if GONE.contains(&code) => Reply::Refused(Refusal::DeviceGone { code }),
                    code => Reply::Refused(Refusal::Device { code }),
                }
            }
        };
        self.effects.push(Effect::Reply { to: wanted.tenant, number: wanted.number, reply });
    }

    fn forget(&mut self, segment: Id) {
        let gone = self.segments.remove(segment).expect("it is there");
        self.counts.segment(segment, SegmentCount::of(&gone), Step::Take);
        self.touch(Touched::Segment(index(segment)));
    }

    /// Takes a lease back. Its memory is somebody else's when the point has passed.
    pub(super) fn give_back(&mut self, lease: Id, point: Point, world: &impl World) {
        if point.value == 0 || world.has_passed(point) {
            self.end_lease(lease, Some(point));
            return;
        }
        let ending = self.leases.get_mut(lease).expect("it is held");
        ending.ending = Some(point);
        let ended = ending.clone();
        // Who reads what was written waits on the device, and not for the end of the lease. That is written down first: a broker
        // that comes after must not take for whole what is not.
        if ended.access == Access::Write {
            self.end_writing(lease, &ended, Some(point));
        }
        self.touch(Touched::Lease(index(lease)));
        self.add_due(point, Due::Lease(lease));
        if let Some(holder) = self.tenants.get_mut(ended.holder) {
            holder.leases.remove(&lease);
        }
    }

    /// Ends a lease; without a point if its process has ended before it was given back.
    pub(super) fn end_lease(&mut self, lease: Id, point: Option<Point>) {
        let Some(ended) = self.leases.remove(lease) else { return };
        if let Some(point) = ended.ending {
            self.remove_due(point, Due::Lease(lease));
        }
        self.forget_gift(lease, ended.given);
        self.recall(ended.holder, lease);
        self.forget_borrowed(&ended, lease);
        let holder = self.tenants.get_mut(ended.holder).expect("who has a lease is there");
        holder.leases.remove(&lease);
        self.counts.lease(ended.holder, holder.peer.user, Step::Take);
        self.change_block(ended.block, |block| block.leases -= 1);
        match ended.access {
            Access::Read => {
                if let Some(named) = ended.name.and_then(|name| self.named.get_mut(name)) {
                    named.readers -= 1;
                }
            }
            Access::Write => self.end_writing(lease, &ended, point),
        }
        // Behind its name: a broker that comes after must not take for whole what is not.
        self.touch(Touched::Lease(index(lease)));
        self.release(ended.block);
    }

    /// What the end of a writer's lease means for the name that it was of.
    fn end_writing(&mut self, lease: Id, ended: &Lease, point: Option<Point>) {
        let Some(name) = ended.name else { return };
        let Some(named) = self.named.get_mut(name).filter(|named| named.writer == Some(lease)) else { return };
        named.writer = None;
        let is_in_place = named.block == ended.block;
        match point {
            Some(point) if is_in_place => {
                named.version += 1;
                self.set_ready(name, point);
            }
            // Half of it may be written.
            None if is_in_place && named.policy == Policy::Drop => {
                self.unname(name);
                return;
            }
            _ => {}
        }
        self.touch(Touched::Name(index(name)));
    }

    /// Gives a block's bytes back, if nobody has it. To the owner of its segment alone they go as they are.
    pub(super) fn release(&mut self, block: Id) {
        let is_free = |block: &&Block| block.leases == 0 && !block.is_named && !block.is_dirty;
        let Some(&Block { segment, offset, bytes, is_foreign, .. }) = self.blocks.get(block).filter(is_free) else {
            return;
        };
        // What nobody gets again need not be zeros.
        let is_used_again = |segment: &Segment| segment.owner.is_some() && !segment.is_exposed;
        if is_foreign && self.segments.get(segment).is_some_and(is_used_again) {
            self.change_block(block, |block| block.is_dirty = true);
            self.touch(Touched::Block(index(block)));
            let (what, bytes) = (Dirty::Block(block), span_bytes(bytes));
            self.effects.push(Effect::Clean { what, segment, offset, bytes });
            return;
        }
        self.remove_block(block);
    }

    fn remove_block(&mut self, block: Id) {
        let released = self.blocks.remove(block).expect("it is there");
        self.counts.block(BlockCount::of(&released), Step::Take);
        self.touch(Touched::Block(index(block)));
        self.change_segment(released.segment, |segment| {
            segment.blocks.remove(&block);
            segment.room.give(released.offset, span_bytes(released.bytes));
        });
        self.settle(released.segment);
    }

    /// Sees what becomes of a segment without blocks.
    pub(super) fn settle(&mut self, id: Id) {
        let segment = self.segments.get(id).expect("it is there");
        if segment.stage != Stage::Live || segment.blocks.len() > segment.spoilt.len() {
            return;
        }
        if let Some(owner) = segment.owner {
            if !segment.is_exposed && self.counts.tenant(owner).idle_bytes <= IDLE_BYTES {
                return;
            }
            self.tenants.get_mut(owner).expect("it owns").segments.remove(&id);
        }
        let spoilt = std::mem::take(&mut self.segments.get_mut(id).expect("it is there").spoilt);
        for block in spoilt {
            let gone = self.blocks.remove(block).expect("a segment's block is there");
            self.counts.block(BlockCount::of(&gone), Step::Take);
            self.touch(Touched::Block(index(block)));
            self.change_segment(id, |segment| {
                segment.blocks.remove(&block);
                segment.room.give(gone.offset, span_bytes(gone.bytes));
            });
        }
        let attached: Vec<Id> = self.change_segment(id, |segment| {
            (segment.owner, segment.stage) = (None, Stage::Leaving);
            segment.attached.iter().copied().collect()
        });
        self.touch(Touched::Segment(index(id)));
        self.effects.extend(attached.into_iter().map(|to| Effect::Tell { to, reply: Reply::Leave { segment: id } }));
        self.leave(id);
    }

    /// Has a segment overwritten that nobody has mapped any more, or gives it back to the driver.
    pub(super) fn leave(&mut self, id: Id) {
        let segment = self.segments.get(id).expect("it is there");
        if segment.stage != Stage::Leaving || !segment.attached.is_empty() {
            return;
        }
        if segment.is_exposed || self.counts.kept_bytes + segment.bytes > self.limits.kept_bytes {
            // A driver gives no memory out that somebody has mapped, or that it has not cleaned.
            self.close(id);
            return;
        }
        self.change_segment(id, |segment| segment.stage = Stage::Cleaning);
        self.touch(Touched::Segment(index(id)));
        let bytes = self.segments.get(id).expect("it is there").bytes;
        self.effects.push(Effect::Clean { what: Dirty::Segment(id), segment: id, offset: 0, bytes });
    }

    /// Something is all zeros, or could not be made so.
    pub(crate) fn cleaned(&mut self, what: Dirty, is_clean: bool) {
        match what {
            Dirty::Segment(segment) => self.cleaned_segment(segment, is_clean),
            Dirty::Block(block) => self.cleaned_block(block, is_clean),
        }
    }

    fn cleaned_block(&mut self, id: Id, is_clean: bool) {
        let Some(block) = self.blocks.get(id).filter(|block| block.is_dirty) else { return };
        let segment = block.segment;
        if is_clean {
            self.remove_block(id);
            return;
        }
        self.segments.get_mut(segment).expect("a block lies in a segment").spoilt.insert(id);
        self.settle(segment);
    }

    fn cleaned_segment(&mut self, id: Id, is_clean: bool) {
        if self.segments.get(id).is_none_or(|segment| segment.stage != Stage::Cleaning) {
            return;
        }
        if !is_clean {
            self.close(id);
            return;
        }
        self.change_segment(id, |segment| {
            segment.stage = Stage::Clean;
            segment.room = Room::new(segment.bytes);
        });
        self.touch(Touched::Segment(index(id)));
    }
}
