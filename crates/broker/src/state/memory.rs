//! Segments and the blocks in them: allocation for requests, and reclamation.

use std::collections::BTreeSet;

use super::accounting::{BlockCount, Change, SegmentCount};
use super::free_list::{FreeList, span_bytes};
use super::slot_map::index;
use super::store::State;
use super::types::{
    Block, DirtyRecord, Effect, Environment, FenceWaiter, Lease, PendingReserve, Resource, Segment, SegmentStage,
};
use crate::protocol::message::Reply;
use crate::protocol::request_error::RequestError;
use crate::protocol::scrub::ScrubTarget;
use crate::protocol::types::{Access, Fence, Id, MemoryKind, Policy};

/// The unit in which a driver creates and maps memory.
const PAGE_BYTES: u64 = 2 << 20;

/// Bytes of empty segments that a tenant keeps for its next requests.
const IDLE_BYTES: u64 = 64 << 20;

/// Error codes of a driver whose device is lost or unusable: unavailable, no device, invalid device, uncorrectable
/// memory error, system not ready, unknown.
const DEVICE_LOST_CODES: [u32; 6] = [46, 100, 101, 214, 802, 999];

/// More than any device has, and small enough that sums do not overflow.
const BYTES_MAX: u64 = 1 << 50;

/// Fails if one more would exceed the limit.
pub(super) fn check_count(count: u64, limit: usize) -> Result<(), RequestError> {
    if count < limit as u64 { Ok(()) } else { Err(RequestError::TooMany { limit: limit as u64 }) }
}

impl PendingReserve {
    /// The size of the segment that is created for it.
    pub(super) fn segment_bytes(&self) -> u64 {
        span_bytes(self.bytes).next_multiple_of(PAGE_BYTES)
    }
}

impl State {
    /// Allocates memory for a tenant: from its own segments, from a zeroed one, or from a new one.
    pub(super) fn reserve(&mut self, wanted: PendingReserve) -> Result<Option<Reply>, RequestError> {
        if wanted.bytes == 0 {
            return Err(RequestError::ZeroBytes);
        }
        if wanted.bytes > BYTES_MAX || wanted.segment_bytes() > self.limits.budget_bytes {
            return Err(self.out_of_memory(wanted.bytes));
        }
        self.check_leases(wanted.tenant)?;
        if let Some(reply) = self.reserve_own(wanted) {
            return Ok(Some(reply));
        }
        let segment_bytes = wanted.segment_bytes();
        self.check_bytes(&wanted)?;
        if let Some(clean) = self.find_zeroed(segment_bytes, self.user_of(wanted.tenant)) {
            self.assign_segment(clean, wanted.tenant, SegmentStage::Live);
            return Ok(self.reserve_own(wanted));
        }
        self.evict_zeroed(segment_bytes);
        if self.accounting.taken_bytes() + segment_bytes > self.limits.budget_bytes {
            return Err(self.out_of_memory(wanted.bytes));
        }
        let usage = self.accounting.user(wanted.user);
        check_count(usage.waiting, self.limits.user_waiting)?;
        check_count(usage.segments, self.limits.user_segments)?;
        check_count(self.segments.len() as u64, self.limits.segments)?;
        let made = Segment {
            bytes: segment_bytes,
            stage: SegmentStage::Creating,
            owner: None,
            user: wanted.user,
            is_exposed: false,
            free_list: FreeList::new(segment_bytes),
            blocks: BTreeSet::new(),
            unscrubbed: BTreeSet::new(),
            attached: BTreeSet::new(),
        };
        let counted = SegmentCount::of(&made);
        let segment = self.segments.insert(made);
        self.accounting.segment(segment, counted, Change::Add);
        self.mark_dirty(DirtyRecord::Segment(index(segment)));
        self.accounting.waiting(&wanted, Change::Add);
        self.pending_reserves.insert(segment, wanted);
        self.effects.push(Effect::CreateSegment { segment, bytes: segment_bytes });
        Ok(None)
    }

    /// The error if the broker's budget is exhausted.
    pub(super) fn out_of_memory(&self, wanted_bytes: u64) -> RequestError {
        let budget_bytes = self.limits.budget_bytes;
        let free_bytes = budget_bytes.saturating_sub(self.accounting.taken_bytes());
        RequestError::OutOfMemory { free_bytes, budget_bytes, wanted_bytes }
    }

    /// Removes and returns the request that waits for a segment.
    pub(super) fn remove_pending(&mut self, segment: Id) -> Option<PendingReserve> {
        let waiting = self.pending_reserves.remove(&segment)?;
        self.accounting.waiting(&waiting, Change::Subtract);
        Some(waiting)
    }

    /// Checks the quotas of the user and of the tenant.
    fn check_bytes(&self, wanted: &PendingReserve) -> Result<(), RequestError> {
        self.check_user(wanted.user, wanted.segment_bytes(), wanted.bytes)?;
        self.check_tenant(wanted.tenant, wanted.segment_bytes(), wanted.bytes)
    }

    /// Checks the quota of a user. `wanted_bytes` were requested, and take `more_bytes`.
    pub(super) fn check_user(&self, user: u32, more_bytes: u64, wanted_bytes: u64) -> Result<(), RequestError> {
        let (limit_bytes, had_bytes) = (self.quota_of(user, MemoryKind::Device), self.accounting.user(user).bytes);
        match had_bytes.saturating_add(more_bytes) > limit_bytes {
            true => Err(RequestError::UserQuota { limit_bytes, had_bytes, wanted_bytes }),
            false => Ok(()),
        }
    }

    /// Checks the quota of a tenant, including the modules that its worker has loaded.
    pub(super) fn check_tenant(&self, tenant: Id, more_bytes: u64, wanted_bytes: u64) -> Result<(), RequestError> {
        let worker = self.tenants.get(tenant).and_then(|tenant| tenant.session).map(|session| session.worker);
        let loaded_bytes = worker.map_or(0, |worker| self.accounting.tenant(worker).bytes);
        let (limit_bytes, had_bytes) = (self.limits.tenant_bytes, self.accounting.tenant(tenant).bytes + loaded_bytes);
        match had_bytes.saturating_add(more_bytes) > limit_bytes {
            true => Err(RequestError::TenantQuota { limit_bytes, had_bytes, wanted_bytes }),
            false => Ok(()),
        }
    }

    /// Checks the limits of leases: of the tenant, of its user, of all.
    pub(super) fn check_leases(&self, tenant: Id) -> Result<(), RequestError> {
        // Requests that wait for the driver will get one lease each.
        let of_tenant = self.accounting.tenant(tenant);
        check_count(of_tenant.leases + of_tenant.waiting, self.limits.tenant_leases)?;
        let of_user = self.accounting.user(self.user_of(tenant));
        check_count(of_user.leases + of_user.waiting, self.limits.user_leases)?;
        let awaited = self.pending_reserves.len();
        check_count((self.leases.len() + awaited) as u64, self.limits.leases)?;
        check_count((self.blocks.len() + awaited) as u64, self.limits.blocks)
    }

    /// Allocates from the segments of a tenant.
    fn reserve_own(&mut self, wanted: PendingReserve) -> Option<Reply> {
        let own = &self.tenants.get(wanted.tenant)?.segments;
        let (segment, offset) = own.iter().find_map(|&segment| {
            let own = self.segments.get_mut(segment).filter(|own| !own.is_exposed)?;
            Some((segment, own.free_list.alloc(span_bytes(wanted.bytes))?))
        })?;
        let block = Block {
            segment,
            offset,
            bytes: wanted.bytes,
            leases: 0,
            is_named: false,
            is_foreign: false,
            is_scrubbing: false,
        };
        let block = self.blocks.insert(block);
        self.change_segment(segment, |segment| segment.blocks.insert(block));
        self.mark_dirty(DirtyRecord::Block(index(block)));
        Some(self.grant(wanted.tenant, wanted.number, block, Access::Write, wanted.name))
    }

    /// Creates a lease of a block for a tenant.
    pub(super) fn grant(&mut self, tenant: Id, number: u32, block: Id, access: Access, name: Option<Id>) -> Reply {
        // The name may have been dropped while the driver created memory.
        let name = name.filter(|&name| self.named.get(name).is_some());
        if access == Access::Write {
            self.mark_foreign(block, tenant);
        }
        self.grant_with(tenant, number, block, access, name, None)
    }

    /// Creates a lease of a block, for a name or borrowed from another lease.
    pub(super) fn grant_with(
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
        let lease = self.leases.insert(lease);
        self.mark_dirty(DirtyRecord::Lease(index(lease)));
        let holder = self.tenants.get_mut(tenant).expect("the requesting tenant exists");
        holder.leases.insert(lease);
        self.accounting.lease(tenant, holder.peer.user, Change::Add);
        let (segment, offset, bytes) = self.change_block(block, |granted| {
            granted.leases += 1;
            (granted.segment, granted.offset, granted.bytes)
        });
        let mut fence = Fence::default();
        if let Some(named) = name.and_then(|name| self.named.get_mut(name)) {
            match access {
                Access::Read => named.readers += 1,
                Access::Write if named.policy != Policy::Open => named.writer = Some(lease),
                Access::Write => {}
            }
            if named.block == block {
                fence = named.ready;
            }
        }
        let version = self.version_of(name, block);
        Reply::Granted { lease, segment, offset, bytes, fence, access, version }
    }

    /// Marks a block that a tenant other than the segment's owner may write. Recorded before the lease, so that no
    /// recovered broker knows the lease without this.
    pub(super) fn mark_foreign(&mut self, block: Id, tenant: Id) {
        let marked = self.blocks.get_mut(block).expect("a leased block exists");
        let owner = self.segments.get(marked.segment).and_then(|segment| segment.owner);
        if owner.is_some_and(|owner| owner != tenant) && !marked.is_foreign {
            marked.is_foreign = true;
            self.mark_dirty(DirtyRecord::Block(index(block)));
        }
    }

    /// Finds a zeroed segment that a user last had. Not one of another user, whose process may have kept the
    /// descriptor.
    fn find_zeroed(&self, bytes: u64, user: u32) -> Option<Id> {
        let fits = (bytes, Id(0))..=(bytes + bytes / 8, Id(u64::MAX));
        let mut clean = self.accounting.zeroed.range(fits).map(|&(_, id)| id);
        clean.find(|&id| self.segments.get(id).is_some_and(|segment| segment.user == user))
    }

    /// Gives zeroed segments back to the driver until a new one of this size fits.
    pub(super) fn evict_zeroed(&mut self, bytes: u64) {
        while self.accounting.taken_bytes().saturating_add(bytes) > self.limits.budget_bytes {
            let Some(&(_, clean)) = self.accounting.zeroed.first() else { return };
            self.close_segment(clean);
        }
    }

    fn assign_segment(&mut self, segment: Id, tenant: Id, stage: SegmentStage) {
        let user = self.user_of(tenant);
        self.change_segment(segment, |owned| (owned.stage, owned.owner, owned.user) = (stage, Some(tenant), user));
        self.tenants.get_mut(tenant).expect("the requesting tenant exists").segments.insert(segment);
        self.mark_dirty(DirtyRecord::Segment(index(segment)));
    }

    fn close_segment(&mut self, segment: Id) {
        self.remove_segment(segment);
        self.effects.push(Effect::CloseFd { what: Resource::Segment(segment) });
    }

    /// The driver has created a segment, or failed with a code.
    pub(crate) fn segment_created(&mut self, segment: Id, outcome: Result<(), u32>) {
        let waiting = self.remove_pending(segment);
        let Some(made) = self.segments.get(segment) else { return };
        let (made_bytes, budget_bytes) = (made.bytes, self.limits.budget_bytes);
        let Some(wanted) = waiting.filter(|wanted| self.tenants.get(wanted.tenant).is_some()) else {
            // The tenant that asked for it is gone.
            match outcome {
                Ok(()) => {
                    self.change_segment(segment, |made| made.stage = SegmentStage::Live);
                    self.reclaim_segment(segment);
                }
                Err(_) => self.remove_segment(segment),
            }
            return;
        };
        let reply = match outcome {
            Ok(()) => {
                self.assign_segment(segment, wanted.tenant, SegmentStage::Live);
                self.reserve_own(wanted).expect("the new segment is large enough")
            }
            Err(code) => {
                self.remove_segment(segment);
                // Out of memory says more than the code of the driver.
                match code {
                    2 => Reply::Error(RequestError::OutOfMemory {
                        free_bytes: 0,
                        budget_bytes,
                        wanted_bytes: made_bytes,
                    }),
                    code if DEVICE_LOST_CODES.contains(&code) => Reply::Error(RequestError::DeviceGone { code }),
                    code => Reply::Error(RequestError::Device { code }),
                }
            }
        };
        self.effects.push(Effect::Reply { to: wanted.tenant, number: wanted.number, reply });
    }

    fn remove_segment(&mut self, segment: Id) {
        let gone = self.segments.remove(segment).expect("the record exists");
        self.accounting.segment(segment, SegmentCount::of(&gone), Change::Subtract);
        self.mark_dirty(DirtyRecord::Segment(index(segment)));
    }

    /// Returns a lease. Its memory can be reused when the fence is complete.
    pub(super) fn return_lease(&mut self, lease: Id, fence: Fence, environment: &impl Environment) {
        if fence.value == 0 || environment.is_complete(fence) {
            self.end_lease(lease, Some(fence));
            return;
        }
        let ending = self.leases.get_mut(lease).expect("a held lease exists");
        ending.ending = Some(fence);
        let ended = ending.clone();
        // Readers of the name wait for this fence on the device, and not for the end of the lease. Recorded first: a
        // recovered broker must not take an incomplete version for complete.
        if ended.access == Access::Write {
            self.end_writing(lease, &ended, Some(fence));
        }
        self.mark_dirty(DirtyRecord::Lease(index(lease)));
        self.add_fence_waiter(fence, FenceWaiter::Lease(lease));
        if let Some(holder) = self.tenants.get_mut(ended.holder) {
            holder.leases.remove(&lease);
        }
    }

    /// Ends a lease. Without a fence if its process ended before it was returned.
    pub(super) fn end_lease(&mut self, lease: Id, fence: Option<Fence>) {
        let Some(ended) = self.leases.remove(lease) else { return };
        if let Some(fence) = ended.ending {
            self.remove_fence_waiter(fence, FenceWaiter::Lease(lease));
        }
        self.remove_given_waiter(lease, ended.given);
        self.recall(ended.holder, lease);
        self.forget_borrowed(&ended, lease);
        let holder = self.tenants.get_mut(ended.holder).expect("the holder of a lease exists");
        holder.leases.remove(&lease);
        self.accounting.lease(ended.holder, holder.peer.user, Change::Subtract);
        self.change_block(ended.block, |block| block.leases -= 1);
        match ended.access {
            Access::Read => {
                if let Some(named) = ended.name.and_then(|name| self.named.get_mut(name)) {
                    named.readers -= 1;
                }
            }
            Access::Write => self.end_writing(lease, &ended, fence),
        }
        // After its name: a recovered broker must not take an incomplete version for complete.
        self.mark_dirty(DirtyRecord::Lease(index(lease)));
        self.free_block(ended.block);
    }

    /// The effect of the end of a write lease on its name.
    fn end_writing(&mut self, lease: Id, ended: &Lease, fence: Option<Fence>) {
        let Some(name) = ended.name else { return };
        let Some(named) = self.named.get_mut(name).filter(|named| named.writer == Some(lease)) else { return };
        named.writer = None;
        let is_in_place = named.block == ended.block;
        match fence {
            Some(fence) if is_in_place => {
                named.version += 1;
                self.set_ready(name, fence);
            }
            // It may be half written.
            None if is_in_place && named.policy == Policy::Drop => {
                self.remove_name(name);
                return;
            }
            _ => {}
        }
        self.mark_dirty(DirtyRecord::Name(index(name)));
    }

    /// Frees a block that no lease or name refers to. It goes back unscrubbed only to the owner of its segment.
    pub(super) fn free_block(&mut self, block: Id) {
        let is_free = |block: &&Block| block.leases == 0 && !block.is_named && !block.is_scrubbing;
        let Some(&Block { segment, offset, bytes, is_foreign, .. }) = self.blocks.get(block).filter(is_free) else {
            return;
        };
        // Memory that is not reused need not be zeroed.
        let is_used_again = |segment: &Segment| segment.owner.is_some() && !segment.is_exposed;
        if is_foreign && self.segments.get(segment).is_some_and(is_used_again) {
            self.change_block(block, |block| block.is_scrubbing = true);
            self.mark_dirty(DirtyRecord::Block(index(block)));
            let (what, bytes) = (ScrubTarget::Block(block), span_bytes(bytes));
            self.effects.push(Effect::Scrub { what, segment, offset, bytes });
            return;
        }
        self.remove_block(block);
    }

    fn remove_block(&mut self, block: Id) {
        let released = self.blocks.remove(block).expect("the record exists");
        self.accounting.block(BlockCount::of(&released), Change::Subtract);
        self.mark_dirty(DirtyRecord::Block(index(block)));
        self.change_segment(released.segment, |segment| {
            segment.blocks.remove(&block);
            segment.free_list.free(released.offset, span_bytes(released.bytes));
        });
        self.reclaim_segment(released.segment);
    }

    /// Decides what happens to a segment without blocks.
    pub(super) fn reclaim_segment(&mut self, id: Id) {
        let segment = self.segments.get(id).expect("the record exists");
        if segment.stage != SegmentStage::Live || segment.blocks.len() > segment.unscrubbed.len() {
            return;
        }
        if let Some(owner) = segment.owner {
            if !segment.is_exposed && self.accounting.tenant(owner).idle_bytes <= IDLE_BYTES {
                return;
            }
            self.tenants.get_mut(owner).expect("the owner of a segment exists").segments.remove(&id);
        }
        let spoilt = std::mem::take(&mut self.segments.get_mut(id).expect("the record exists").unscrubbed);
        for block in spoilt {
            let gone = self.blocks.remove(block).expect("every block of a segment exists");
            self.accounting.block(BlockCount::of(&gone), Change::Subtract);
            self.mark_dirty(DirtyRecord::Block(index(block)));
            self.change_segment(id, |segment| {
                segment.blocks.remove(&block);
                segment.free_list.free(gone.offset, span_bytes(gone.bytes));
            });
        }
        let attached: Vec<Id> = self.change_segment(id, |segment| {
            (segment.owner, segment.stage) = (None, SegmentStage::Unmapping);
            segment.attached.iter().copied().collect()
        });
        self.mark_dirty(DirtyRecord::Segment(index(id)));
        self.effects.extend(attached.into_iter().map(|to| Effect::Notify { to, reply: Reply::Unmap { segment: id } }));
        self.scrub_if_unmapped(id);
    }

    /// Zeroes a segment that is no longer mapped, or gives it back to the driver.
    pub(super) fn scrub_if_unmapped(&mut self, id: Id) {
        let segment = self.segments.get(id).expect("the record exists");
        if segment.stage != SegmentStage::Unmapping || !segment.attached.is_empty() {
            return;
        }
        if segment.is_exposed || self.accounting.cached_bytes + segment.bytes > self.limits.cached_bytes {
            // The driver zeroes memory before it reuses it, and reuses none that is mapped.
            self.close_segment(id);
            return;
        }
        self.change_segment(id, |segment| segment.stage = SegmentStage::Scrubbing);
        self.mark_dirty(DirtyRecord::Segment(index(id)));
        let bytes = self.segments.get(id).expect("the record exists").bytes;
        self.effects.push(Effect::Scrub { what: ScrubTarget::Segment(id), segment: id, offset: 0, bytes });
    }

    /// The scrubber has zeroed something, or failed.
    pub(crate) fn scrubbed(&mut self, what: ScrubTarget, is_clean: bool) {
        match what {
            ScrubTarget::Segment(segment) => self.scrubbed_segment(segment, is_clean),
            ScrubTarget::Block(block) => self.scrubbed_block(block, is_clean),
        }
    }

    fn scrubbed_block(&mut self, id: Id, is_clean: bool) {
        let Some(block) = self.blocks.get(id).filter(|block| block.is_scrubbing) else { return };
        let segment = block.segment;
        if is_clean {
            self.remove_block(id);
            return;
        }
        self.segments.get_mut(segment).expect("a block has a segment").unscrubbed.insert(id);
        self.reclaim_segment(segment);
    }

    fn scrubbed_segment(&mut self, id: Id, is_clean: bool) {
        if self.segments.get(id).is_none_or(|segment| segment.stage != SegmentStage::Scrubbing) {
            return;
        }
        if !is_clean {
            self.close_segment(id);
            return;
        }
        self.change_segment(id, |segment| {
            segment.stage = SegmentStage::Zeroed;
            segment.free_list = FreeList::new(segment.bytes);
        });
        self.mark_dirty(DirtyRecord::Segment(index(id)));
    }
}
