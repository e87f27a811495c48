//! Changes of segments and blocks that update the counts, and the recount.

use super::accounting::{Accounting, BlockCount, Change, SegmentCount};
use super::store::State;
use super::types::{Block, Segment, Tenant};
use crate::protocol::types::Id;

impl State {
    /// Changes a segment and updates the counts.
    pub(super) fn change_segment<R>(&mut self, id: Id, change: impl FnOnce(&mut Segment) -> R) -> R {
        let segment = self.segments.get_mut(id).expect("the record exists");
        let before = SegmentCount::of(segment);
        let outcome = change(segment);
        let after = SegmentCount::of(segment);
        if before != after {
            self.accounting.segment(id, before, Change::Subtract);
            self.accounting.segment(id, after, Change::Add);
        }
        outcome
    }

    /// Changes a block and updates the counts.
    pub(super) fn change_block<R>(&mut self, id: Id, change: impl FnOnce(&mut Block) -> R) -> R {
        let block = self.blocks.get_mut(id).expect("the record exists");
        let before = BlockCount::of(block);
        let outcome = change(block);
        let after = BlockCount::of(block);
        if before != after {
            self.accounting.block(before, Change::Subtract);
            self.accounting.block(after, Change::Add);
        }
        outcome
    }

    /// Counts everything from scratch.
    pub(super) fn recount(&self) -> Accounting {
        let mut accounting = Accounting::default();
        let user_of = |tenant: Id| self.tenants.get(tenant).expect("every owner is a tenant").peer.user;
        self.tenants.iter().for_each(|(_, Tenant { peer, .. })| accounting.connection(peer.user, Change::Add));
        self.segments.iter().for_each(|(id, segment)| accounting.segment(id, SegmentCount::of(segment), Change::Add));
        self.blocks.iter().for_each(|(_, block)| accounting.block(BlockCount::of(block), Change::Add));
        self.leases.iter().for_each(|(_, lease)| accounting.lease(lease.holder, user_of(lease.holder), Change::Add));
        self.named.iter().for_each(|(_, named)| accounting.name(named.user, Change::Add));
        self.attachments.iter().for_each(|(_, attached)| accounting.attachment(user_of(attached.tenant), Change::Add));
        self.hosts.iter().for_each(|(_, host)| accounting.host(host, Change::Add));
        self.modules.iter().for_each(|(_, module)| accounting.module(module, Change::Add));
        self.loads.iter().for_each(|(_, load)| accounting.load(load, user_of(load.worker), Change::Add));
        self.pending_reserves.values().for_each(|waiting| accounting.waiting(waiting, Change::Add));
        accounting
    }
}
