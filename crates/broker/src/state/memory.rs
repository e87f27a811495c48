//! Segments and the blocks in them: where a request finds memory, and how memory comes back.

use std::collections::BTreeSet;

use super::room::{GRANULE_BYTES, Room, span_bytes};
use super::shelf::index;
use super::{Attachment, Block, Effect, Lease, Segment, Stage, State, Thing, Touched, Waiting, World};
use crate::wire::{Access, Id, Point, Policy, Refusal, Reply, Request};

/// What a driver makes and maps at once.
const PAGE_BYTES: u64 = 2 << 20;

/// Segments without blocks that a tenant keeps, so that its next request finds one: in bytes.
const IDLE_BYTES: u64 = 64 << 20;

impl State {
    /// Memory for a tenant, of its own segments, of one that is clean, or of a new one.
    pub(super) fn reserve(&mut self, wanted: Waiting) -> Result<Option<Reply>, Refusal> {
        if wanted.bytes == 0 {
            return Err(Refusal::NothingAsked);
        }
        let bytes = wanted.bytes.checked_next_multiple_of(GRANULE_BYTES).filter(|&bytes| bytes <= 1 << 50);
        let full = |state: &Self| Refusal::Full {
            free_bytes: state.limits.budget_bytes - state.made_bytes().min(state.limits.budget_bytes),
            budget_bytes: state.limits.budget_bytes,
            wanted_bytes: wanted.bytes,
        };
        let Some(bytes) = bytes else { return Err(full(self)) };
        self.check_leases(wanted.tenant)?;
        if let Some(reply) = self.reserve_own(wanted) {
            return Ok(Some(reply));
        }
        let segment_bytes = bytes.next_multiple_of(PAGE_BYTES);
        let user = self.user_of(wanted.tenant);
        let (limit_bytes, had_bytes) = (self.quota_of(user), self.user_bytes(user));
        if had_bytes.saturating_add(segment_bytes) > limit_bytes {
            return Err(Refusal::UserQuota { limit_bytes, had_bytes, wanted_bytes: wanted.bytes });
        }
        if let Some(clean) = self.clean(segment_bytes) {
            self.own(clean, wanted.tenant, Stage::Live);
            return Ok(self.reserve_own(wanted));
        }
        self.make_room(segment_bytes);
        if self.made_bytes().saturating_add(segment_bytes) > self.limits.budget_bytes {
            return Err(full(self));
        }
        if self.segments.len() >= self.limits.segments {
            return Err(Refusal::TooMany { limit: self.limits.segments as u64 });
        }
        let segment = self.segments.add(Segment {
            bytes: segment_bytes,
            stage: Stage::Making,
            owner: None,
            user,
            room: Room::new(segment_bytes),
            blocks: BTreeSet::new(),
            attached: BTreeSet::new(),
        });
        self.touch(Touched::Segment(index(segment)));
        self.waiting.insert(segment, wanted);
        self.effects.push(Effect::Make { segment, bytes: segment_bytes });
        Ok(None)
    }

    /// Refuses one more lease than a tenant may have, or all may.
    pub(super) fn check_leases(&self, tenant: Id) -> Result<(), Refusal> {
        let held = self.tenants.get(tenant).map_or(0, |tenant| tenant.leases.len());
        if held >= self.limits.tenant_leases {
            return Err(Refusal::TooMany { limit: self.limits.tenant_leases as u64 });
        }
        // Those that wait for the driver will have one each.
        let awaited = self.waiting.len();
        if self.leases.len() + awaited >= self.limits.leases {
            return Err(Refusal::TooMany { limit: self.limits.leases as u64 });
        }
        if self.blocks.len() + awaited >= self.limits.blocks {
            return Err(Refusal::TooMany { limit: self.limits.blocks as u64 });
        }
        Ok(())
    }

    /// Memory of the segments that a tenant has.
    fn reserve_own(&mut self, wanted: Waiting) -> Option<Reply> {
        let own = &self.tenants.get(wanted.tenant)?.segments;
        let (segment, offset) = own.iter().find_map(|&segment| {
            let offset = self.segments.get_mut(segment)?.room.take(span_bytes(wanted.bytes))?;
            Some((segment, offset))
        })?;
        let block = self.blocks.add(Block { segment, offset, bytes: wanted.bytes, leases: 0, is_named: false });
        self.segments.get_mut(segment).expect("it has room").blocks.insert(block);
        self.touch(Touched::Block(index(block)));
        Some(self.grant(wanted.tenant, wanted.number, block, Access::Write, wanted.name))
    }

    /// A lease of a block for a tenant.
    pub(super) fn grant(&mut self, tenant: Id, number: u32, block: Id, access: Access, name: Option<Id>) -> Reply {
        // It may have been dropped while the driver made memory.
        let name = name.filter(|&name| self.named.get(name).is_some());
        self.order += 1;
        let (by, order) = ((tenant, number), self.order);
        let lease = self.leases.add(Lease { holder: tenant, block, access, name, by, ending: None, order });
        self.touch(Touched::Lease(index(lease)));
        self.tenants.get_mut(tenant).expect("it asks").leases.insert(lease);
        let granted = self.blocks.get_mut(block).expect("it is leased");
        granted.leases += 1;
        let (segment, offset, bytes) = (granted.segment, granted.offset, granted.bytes);
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

    /// A segment of zeros that is anybody's.
    fn clean(&self, bytes: u64) -> Option<Id> {
        let fits = |segment: &Segment| (bytes..=bytes + bytes / 8).contains(&segment.bytes);
        let clean = self.segments.iter().filter(|(_, segment)| segment.stage == Stage::Clean && fits(segment));
        clean.min_by_key(|(_, segment)| segment.bytes).map(|(id, _)| id)
    }

    /// Gives clean segments back to the driver until so much can be made.
    fn make_room(&mut self, bytes: u64) {
        while self.made_bytes().saturating_add(bytes) > self.limits.budget_bytes {
            let clean = self.segments.iter().find(|(_, segment)| segment.stage == Stage::Clean).map(|(id, _)| id);
            let Some(clean) = clean else { return };
            self.close(clean);
        }
    }

    fn own(&mut self, segment: Id, tenant: Id, stage: Stage) {
        let user = self.user_of(tenant);
        let owned = self.segments.get_mut(segment).expect("it was found");
        (owned.stage, owned.owner, owned.user) = (stage, Some(tenant), user);
        self.tenants.get_mut(tenant).expect("it asks").segments.insert(segment);
        self.touch(Touched::Segment(index(segment)));
    }

    fn close(&mut self, segment: Id) {
        self.segments.remove(segment);
        self.touch(Touched::Segment(index(segment)));
        self.effects.push(Effect::Close { what: Thing::Segment(segment) });
    }

    /// The driver has made a segment, or refused with a code.
    pub(crate) fn made(&mut self, segment: Id, outcome: Result<(), u32>) {
        let waiting = self.waiting.remove(&segment);
        let Some(made) = self.segments.get_mut(segment) else { return };
        let (made_bytes, budget_bytes) = (made.bytes, self.limits.budget_bytes);
        let Some(wanted) = waiting.filter(|wanted| self.tenants.get(wanted.tenant).is_some()) else {
            // Who asked for it is gone.
            match outcome {
                Ok(()) => {
                    made.stage = Stage::Live;
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
                    _ => Reply::Refused(Refusal::Device { code }),
                }
            }
        };
        self.effects.push(Effect::Reply { to: wanted.tenant, number: wanted.number, reply });
    }

    fn forget(&mut self, segment: Id) {
        self.segments.remove(segment);
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
        self.touch(Touched::Lease(index(lease)));
        self.ending.insert(lease);
        if let Some(holder) = self.tenants.get_mut(ended.holder) {
            holder.leases.remove(&lease);
        }
        // Who reads what was written waits on the device, and not for the end of the lease.
        if ended.access == Access::Write {
            self.end_writing(lease, &ended, Some(point));
        }
    }

    /// Ends a lease; without a point if its process has ended before it was given back.
    pub(super) fn end_lease(&mut self, lease: Id, point: Option<Point>) {
        let Some(ended) = self.leases.remove(lease) else { return };
        self.ending.remove(&lease);
        self.touch(Touched::Lease(index(lease)));
        if let Some(holder) = self.tenants.get_mut(ended.holder) {
            holder.leases.remove(&lease);
        }
        if let Some(block) = self.blocks.get_mut(ended.block) {
            block.leases -= 1;
        }
        match ended.access {
            Access::Read => {
                if let Some(named) = ended.name.and_then(|name| self.named.get_mut(name)) {
                    named.readers -= 1;
                }
            }
            Access::Write => self.end_writing(lease, &ended, point),
        }
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
                named.ready = point;
                named.version += 1;
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

    /// Gives a block's bytes back, if nobody has it.
    pub(super) fn release(&mut self, block: Id) {
        if !self.blocks.get(block).is_some_and(|block| block.leases == 0 && !block.is_named) {
            return;
        }
        let released = self.blocks.remove(block).expect("it is there");
        self.touch(Touched::Block(index(block)));
        let segment = self.segments.get_mut(released.segment).expect("a block lies in a segment");
        segment.blocks.remove(&block);
        segment.room.give(released.offset, span_bytes(released.bytes));
        self.settle(released.segment);
    }

    /// Sees what becomes of a segment without blocks.
    pub(super) fn settle(&mut self, id: Id) {
        let segment = self.segments.get(id).expect("it is there");
        if segment.stage != Stage::Live || !segment.blocks.is_empty() {
            return;
        }
        if let Some(owner) = segment.owner {
            let own = self.tenants.get(owner).map(|tenant| &tenant.segments);
            let idle = own.into_iter().flatten().filter_map(|&own| self.segments.get(own));
            let idle_bytes: u64 = idle.filter(|own| own.blocks.is_empty()).map(|own| own.bytes).sum();
            if idle_bytes <= IDLE_BYTES {
                return;
            }
            self.tenants.get_mut(owner).expect("it owns").segments.remove(&id);
        }
        let segment = self.segments.get_mut(id).expect("it is there");
        segment.owner = None;
        segment.stage = Stage::Leaving;
        let attached: Vec<Id> = segment.attached.iter().copied().collect();
        self.touch(Touched::Segment(index(id)));
        self.effects.extend(attached.into_iter().map(|to| Effect::Tell { to, reply: Reply::Leave { segment: id } }));
        self.leave(id);
    }

    /// Has a segment overwritten that nobody has mapped any more.
    fn leave(&mut self, id: Id) {
        let kept: u64 = self
            .segments
            .iter()
            .filter(|(_, segment)| matches!(segment.stage, Stage::Clean | Stage::Cleaning))
            .map(|(_, segment)| segment.bytes)
            .sum();
        let segment = self.segments.get_mut(id).expect("it is there");
        if segment.stage != Stage::Leaving || !segment.attached.is_empty() {
            return;
        }
        if kept + segment.bytes > self.limits.kept_bytes {
            // A driver gives no memory out that it has not cleaned.
            self.close(id);
            return;
        }
        segment.stage = Stage::Cleaning;
        self.touch(Touched::Segment(index(id)));
        self.effects.push(Effect::Clean { segment: id });
    }

    /// A segment is all zeros, or could not be made so.
    pub(crate) fn cleaned(&mut self, id: Id, is_clean: bool) {
        let Some(segment) = self.segments.get_mut(id).filter(|segment| segment.stage == Stage::Cleaning) else {
            return;
        };
        if !is_clean {
            self.close(id);
            return;
        }
        segment.stage = Stage::Clean;
        segment.room = Room::new(segment.bytes);
        self.touch(Touched::Segment(index(id)));
    }

    /// Hands out a segment's descriptor to who has a lease in it.
    pub(super) fn attach(&mut self, from: Id, number: u32, id: Id) -> Result<(), Refusal> {
        let tenant = self.tenants.get(from).expect("it asks");
        let mut blocks = tenant.leases.iter().filter_map(|&lease| self.blocks.get(self.leases.get(lease)?.block));
        if !blocks.any(|block| block.segment == id) {
            return Err(Refusal::NoSegment);
        }
        if self.attachments.len() >= self.limits.attachments {
            return Err(Refusal::TooMany { limit: self.limits.attachments as u64 });
        }
        let segment = self.segments.get_mut(id).expect("a block lies in a segment");
        segment.attached.insert(from);
        let bytes = segment.bytes;
        if !self.tenants.get(from).expect("it asks").attached.contains_key(&id) {
            let record = self.attachments.add(Attachment { tenant: from, segment: id });
            self.tenants.get_mut(from).expect("it asks").attached.insert(id, record);
            self.touch(Touched::Attachment(index(record)));
        }
        self.effects.push(Effect::Hand { to: from, number, what: Thing::Segment(id), bytes });
        Ok(())
    }

    pub(super) fn detach(&mut self, tenant: Id, id: Id) {
        if let Some(record) = self.tenants.get_mut(tenant).and_then(|tenant| tenant.attached.remove(&id)) {
            self.attachments.remove(record);
            self.touch(Touched::Attachment(index(record)));
        }
        if let Some(segment) = self.segments.get_mut(id) {
            segment.attached.remove(&tenant);
            self.leave(id);
        }
    }

    /// Makes a lease another tenant's.
    pub(super) fn give(
        &mut self,
        from: Id,
        number: u32,
        lease: Id,
        to: Id,
        point: Point,
        world: &impl World,
    ) -> Result<Reply, Refusal> {
        if self.held(from, lease)?.access == Access::Read {
            return Err(Refusal::ReadOnly);
        }
        let point = self.own_point(from, point)?;
        let user = self.user_of(from);
        let receiver = self.tenants.get(to).filter(|tenant| !tenant.is_fenced).ok_or(Refusal::NoTenant)?;
        if receiver.peer.user != user {
            return Err(Refusal::NotAllowed { user: receiver.peer.user });
        }
        self.check_leases(to)?;
        world.has_room(to).map_err(|waiting| Refusal::NotTaken { waiting })?;
        // Under another number: who gave it has it no more.
        let mut given = self.leases.get(lease).expect("it is held").clone();
        self.order += 1;
        (given.holder, given.by, given.order) = (to, (from, number), self.order);
        let name = given.name;
        // The new one is written first: a broker that comes after finds one of them, or both.
        let new = self.leases.add(given);
        self.touch(Touched::Lease(index(new)));
        self.leases.remove(lease);
        self.touch(Touched::Lease(index(lease)));
        self.tenants.get_mut(from).expect("it asks").leases.remove(&lease);
        self.tenants.get_mut(to).expect("it receives").leases.insert(new);
        if let Some(named) = name.and_then(|name| self.named.get_mut(name))
            && named.writer == Some(lease)
        {
            named.writer = Some(new);
        }
        self.tell_given(new, point);
        Ok(Reply::Done)
    }

    fn tell_given(&mut self, lease: Id, point: Point) {
        let Lease { holder, block, by: (from, _), .. } = *self.leases.get(lease).expect("it was given");
        let Block { segment, offset, bytes, .. } = *self.blocks.get(block).expect("it is leased");

        self.effects
            .push(Effect::Tell { to: holder, reply: Reply::Given { lease, segment, offset, bytes, point, from } });
    }

    /// The reply to a request that a broker which is gone may have carried out, if it has.
    pub(super) fn answer_again(&mut self, from: Id, number: u32, asked: &Request) -> Option<Reply> {
        let made = self.leases.iter().find(|(_, lease)| lease.by == (from, number)).map(|(id, _)| id)?;
        match *asked {
            Request::Reserve { .. } | Request::Lease { .. } => {
                let Lease { block, access, name, .. } = *self.leases.get(made)?;
                let Block { segment, offset, bytes, .. } = *self.blocks.get(block)?;
                let named = name.and_then(|name| self.named.get(name));
                let point = named.filter(|named| named.block == block).map_or(Point::default(), |named| named.ready);
                Some(Reply::Granted { lease: made, segment, offset, bytes, point, access })
            }
            Request::Give { lease, point, .. } => {
                let point = self.own_point(from, point).ok()?;
                // The new one was written first.
                if self.leases.remove(lease).is_some() {
                    self.touch(Touched::Lease(index(lease)));
                    self.tenants.get_mut(from)?.leases.remove(&lease);
                    let block = self.leases.get(made)?.block;
                    self.blocks.get_mut(block)?.leases -= 1;
                }
                self.tell_given(made, point);
                Some(Reply::Done)
            }
            _ => None,
        }
    }
}
