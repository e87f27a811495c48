//! Transfers between tenants: descriptors of segments, leases that are given away, and the replies to repeated
//! requests.

use super::accounting::Change;
use super::memory::check_count;
use super::slot_map::index;
use super::store::State;
use super::types::{Attachment, Block, DirtyRecord, Effect, Environment, FenceWaiter, Lease, Resource, Tenant};
use crate::protocol::message::{Reply, Request};
use crate::protocol::request_error::RequestError;
use crate::protocol::types::{Access, Fence, Id};

impl State {
    /// Sends the descriptor of a segment to a tenant that has a lease in it.
    pub(super) fn attach(&mut self, from: Id, number: u32, id: Id) -> Result<(), RequestError> {
        let tenant = self.tenants.get(from).expect("the requesting tenant exists");
        let mut blocks = tenant.leases.iter().filter_map(|&lease| self.blocks.get(self.leases.get(lease)?.block));
        if !blocks.any(|block| block.segment == id) {
            return Err(RequestError::NoSegment);
        }
        if !tenant.attached.contains_key(&id) {
            let user = tenant.peer.user;
            let is_foreign = self.segments.get(id).is_some_and(|segment| segment.user != user && !segment.is_exposed);
            check_count(self.accounting.user(user).attachments, self.limits.user_attachments)?;
            check_count(self.attachments.len() as u64, self.limits.attachments)?;
            if is_foreign {
                // Recorded first, so that no recovered broker knows the attachment without this.
                self.change_segment(id, |segment| segment.is_exposed = true);
                self.mark_dirty(DirtyRecord::Segment(index(id)));
            }
            self.accounting.attachment(user, Change::Add);
            let record = self.attachments.insert(Attachment { tenant: from, segment: id });
            self.tenants.get_mut(from).expect("the requesting tenant exists").attached.insert(id, record);
            self.mark_dirty(DirtyRecord::Attachment(index(record)));
        }
        let segment = self.segments.get_mut(id).expect("a block has a segment");
        segment.attached.insert(from);
        let bytes = segment.bytes;
        self.effects.push(Effect::SendFd { to: from, number, what: Resource::Segment(id), bytes });
        Ok(())
    }

    pub(super) fn detach(&mut self, tenant: Id, id: Id) {
        if let Some(record) = self.tenants.get_mut(tenant).and_then(|tenant| tenant.attached.remove(&id)) {
            self.attachments.remove(record);
            self.accounting.attachment(self.user_of(tenant), Change::Subtract);
            self.mark_dirty(DirtyRecord::Attachment(index(record)));
        }
        if let Some(segment) = self.segments.get_mut(id) {
            segment.attached.remove(&tenant);
            self.scrub_if_unmapped(id);
        }
    }

    /// Gives a lease to another tenant.
    pub(super) fn give(
        &mut self,
        from: Id,
        number: u32,
        lease: Id,
        to: Id,
        fence: Fence,
        environment: &impl Environment,
    ) -> Result<Reply, RequestError> {
        let held = self.held(from, lease)?;
        // A worker cannot give away what it borrowed.
        if held.access == Access::Read || held.of.is_some() {
            return Err(RequestError::ReadOnly);
        }
        let fence = self.check_fence(from, fence)?;
        let user = self.user_of(from);
        let may_receive = |tenant: &&Tenant| !tenant.is_disconnected && tenant.worker_state.is_none();
        let receiver = self.tenants.get(to).filter(may_receive).ok_or(RequestError::NoTenant)?;
        if receiver.peer.user != user {
            return Err(RequestError::NotAllowed { user: receiver.peer.user });
        }
        self.check_leases(to)?;
        environment.has_room(to).map_err(|waiting| RequestError::ReceiverBusy { waiting })?;
        // The lease gets a new id, because the giver's must become invalid.
        let mut given = self.leases.get(lease).expect("a held lease exists").clone();
        self.order += 1;
        (given.holder, given.by, given.order, given.given) = (to, (from, number), self.order, Some(fence));
        let name = given.name;
        self.recall(from, lease);
        self.mark_foreign(given.block, to);
        let before = self.leases.get(lease).and_then(|lease| lease.given);
        // The new lease is recorded first: a recovered broker finds one of them, or both.
        let new = self.leases.insert(given);
        if !environment.is_complete(fence) {
            self.add_fence_waiter(fence, FenceWaiter::Given(new));
        }
        self.remove_given_waiter(lease, before);
        self.mark_dirty(DirtyRecord::Lease(index(new)));
        self.leases.remove(lease);
        self.mark_dirty(DirtyRecord::Lease(index(lease)));
        self.tenants.get_mut(from).expect("the requesting tenant exists").leases.remove(&lease);
        self.tenants.get_mut(to).expect("the receiving tenant exists").leases.insert(new);
        self.accounting.lease(from, user, Change::Subtract);
        self.accounting.lease(to, user, Change::Add);
        if let Some(named) = name.and_then(|name| self.named.get_mut(name))
            && named.writer == Some(lease)
        {
            named.writer = Some(new);
        }
        self.notify_given(new);
        Ok(Reply::Done)
    }

    /// Notifies the holders of all given leases, in order: a previous broker may not have.
    pub(super) fn notify_all_given(&mut self) {
        let given = |lease: &Lease| lease.given.is_some() && lease.ending.is_none();
        let mut all: Vec<(u64, Id)> =
            self.leases.iter().filter(|(_, lease)| given(lease)).map(|(id, lease)| (lease.order, id)).collect();
        all.sort_unstable();
        all.into_iter().for_each(|(_, lease)| self.notify_given(lease));
    }

    /// Removes the waiter of a given lease that has ended or changed hands.
    pub(super) fn remove_given_waiter(&mut self, lease: Id, given: Option<Fence>) {
        if let Some(fence) = given {
            self.remove_fence_waiter(fence, FenceWaiter::Given(lease));
        }
    }

    fn notify_given(&mut self, lease: Id) {
        let Lease { holder, block, by: (from, _), given, is_unfinished, .. } =
            *self.leases.get(lease).expect("the lease was given");
        let Block { segment, offset, bytes, .. } = *self.blocks.get(block).expect("a leased block exists");
        let fence = given.expect("the lease was given");
        self.effects
            .push(Effect::Notify { to: holder, reply: Reply::Given { lease, segment, offset, bytes, fence, from } });
        if is_unfinished {
            self.effects.push(Effect::Notify { to: holder, reply: Reply::Unfinished { lease } });
        }
    }

    /// The reply to a repeated request, if a previous broker has executed it.
    pub(super) fn answer_retry(&mut self, from: Id, number: u32, asked: &Request) -> Option<Reply> {
        if !matches!(asked, Request::Reserve { .. } | Request::Lease { .. } | Request::Give { .. }) {
            return None;
        }
        let is_made = |lease: &Lease| lease.by == (from, number) && lease.ending.is_none();
        match *asked {
            Request::Reserve { .. } | Request::Lease { .. } => {
                let (made, lease) = self.leases.iter().find(|(_, lease)| is_made(lease) && lease.holder == from)?;
                let Lease { block, access, name, .. } = *lease;
                let Block { segment, offset, bytes, .. } = *self.blocks.get(block)?;
                let named = name.and_then(|name| self.named.get(name));
                let fence = named.filter(|named| named.block == block).map_or(Fence::default(), |named| named.ready);
                let version = self.version_of(name, block);
                Some(Reply::Granted { lease: made, segment, offset, bytes, fence, access, version })
            }
            Request::Give { lease, to, .. } => {
                let left = self.held(from, lease).ok().cloned();
                // The same lease in another tenant's hands, and not one that was created by a request with the same
                // number.
                let is_same = |new: &Lease| {
                    let is_like = |old: &Lease| (new.block, new.access, new.name) == (old.block, old.access, old.name);
                    left.as_ref().is_none_or(is_like)
                };
                let is_given = |&(id, new): &(Id, &Lease)| {
                    id != lease && new.holder == to && new.given.is_some() && is_made(new) && is_same(new)
                };
                let (made, _) = self.leases.iter().find(is_given)?;
                // The new lease was recorded first.
                if let Some(Lease { block, given, .. }) = left {
                    self.remove_given_waiter(lease, given);
                    self.recall(from, lease);
                    self.leases.remove(lease);
                    self.mark_dirty(DirtyRecord::Lease(index(lease)));
                    let giver = self.tenants.get_mut(from).expect("the requesting tenant exists");
                    giver.leases.remove(&lease);
                    self.accounting.lease(from, giver.peer.user, Change::Subtract);
                    self.change_block(block, |block| block.leases -= 1);
                }
                self.notify_given(made);
                Some(Reply::Done)
            }
            _ => None,
        }
    }
}
