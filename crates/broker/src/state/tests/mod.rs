//! Tests of the state. Here: its invariants, a journal in memory, and helpers for the tests of requests.

#[cfg(test)]
mod costs;
#[cfg(test)]
mod deaths;
#[cfg(test)]
mod random_requests;
#[cfg(test)]
mod users;
#[cfg(test)]
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use super::free_list::{self, FreeList};
use super::limits::Limits;
use super::record::{Record, RecordKind};
use super::store::State;
use super::types::*;
use crate::protocol::message::{Frame, Reply, Request};
use crate::protocol::name::Name;
use crate::protocol::request_error::RequestError;
use crate::protocol::scrub::ScrubTarget;
use crate::protocol::types::{Access, Fence, Id, MemoryKind, Policy};

/// The journal as a list of records: the last one written wins.
#[derive(Clone, Default)]
pub(crate) struct MemoryJournal(BTreeMap<(usize, usize), Record>);

impl MemoryJournal {
    pub(crate) fn put(&mut self, state: &State, dirty: DirtyRecord) {
        let (kind, index) = dirty.kind();
        let record = state.record(dirty, |id, words| Record { id, words: words.map(<[u64]>::to_vec) });
        self.0.insert((kind as usize, index), record);
    }

    pub(crate) fn records(&self, kind: RecordKind) -> Vec<Record> {
        let of_kind = self.0.range((kind as usize, 0)..(kind as usize, usize::MAX));
        of_kind.map(|(_, record)| record.clone()).collect()
    }
}

/// The invariants of every state.
pub(crate) fn check(state: &State) {
    for (id, segment) in state.segments.iter() {
        let mut spans: Vec<_> = segment.blocks.iter().map(|&block| state.blocks.get(block).unwrap()).collect();
        spans.sort_by_key(|block| block.offset);
        for pair in spans.windows(2) {
            assert!(pair[0].offset + pair[0].bytes <= pair[1].offset, "two blocks of {id:?} overlap");
        }
        let mut free_list = FreeList::new(segment.bytes);
        assert!(spans.iter().all(|block| free_list.alloc_at(block.offset, free_list::span_bytes(block.bytes))));
        assert_eq!(free_list, segment.free_list, "everything outside of blocks is free");
        assert!(segment.blocks.is_empty() || segment.stage == SegmentStage::Live);
        let is_used = !segment.blocks.is_empty() || !segment.attached.is_empty();
        assert!(
            !is_used || !matches!(segment.stage, SegmentStage::Zeroed | SegmentStage::Scrubbing),
            "a zeroed segment has no owner"
        );
        if let Some(owner) = segment.owner {
            assert!(state.tenants.get(owner).unwrap().segments.contains(&id));
        }
        let is_foreign = |tenant: &Id| state.tenants.get(*tenant).unwrap().peer.user != segment.user;
        assert!(
            segment.is_exposed || !segment.attached.iter().any(is_foreign),
            "a segment that other users had is marked"
        );
        assert!(
            !segment.is_exposed || !matches!(segment.stage, SegmentStage::Zeroed | SegmentStage::Scrubbing),
            "an exposed segment is not reused"
        );
    }
    for (id, block) in state.blocks.iter() {
        assert!(state.segments.get(block.segment).unwrap().blocks.contains(&id));
        let leases = state.leases.iter().filter(|(_, lease)| lease.block == id).count();
        assert_eq!(block.leases as usize, leases);
        assert!(leases > 0 || block.is_named || block.is_scrubbing, "a block has a lease, a name or a scrub job");
        assert!(
            !block.is_scrubbing || (leases == 0 && !block.is_named),
            "a block that is being zeroed has no lease and no name"
        );
    }
    for (id, lease) in state.leases.iter() {
        let holder = state.tenants.get(lease.holder).unwrap();
        assert_eq!(holder.leases.contains(&id), lease.ending.is_none());
        if let Some(fence) = lease.ending {
            let whose = state.tenants.get(fence.tenant).unwrap();
            assert!(whose.fence_waiters.contains(&(fence.semaphore, fence.value, FenceWaiter::Lease(id))));
        }
    }
    for (id, tenant) in state.tenants.iter() {
        assert_eq!(state.awaited_tenants.contains(&id), !tenant.fence_waiters.is_empty());
        for &(word, value, waiter) in &tenant.fence_waiters {
            let fence = Fence { tenant: id, semaphore: word, value };
            match waiter {
                FenceWaiter::Lease(lease) => assert_eq!(state.leases.get(lease).unwrap().ending, Some(fence)),
                FenceWaiter::Name(name) => assert_eq!(state.named.get(name).unwrap().ready, fence),
                FenceWaiter::Given(lease) => assert_eq!(state.leases.get(lease).unwrap().given, Some(fence)),
            }
        }
    }
    for (id, named) in state.named.iter() {
        assert!(state.blocks.get(named.block).unwrap().is_named);
        if let Some(before) = named.previous {
            assert!(state.blocks.get(before.block).unwrap().is_named && before.block != named.block);
            assert!(named.ready.value > 0 && named.policy == Policy::Restore);
        }
        assert_eq!(state.names[&named.name], NameTarget { memory: MemoryKind::Device, id });
        let of_name = |access| {
            let leases = state.leases.iter().filter(move |(_, lease)| {
                lease.name == Some(id) && lease.access == access && (access == Access::Read || lease.ending.is_none())
            });
            leases.map(|(id, _)| id)
        };
        assert_eq!(named.readers as usize, of_name(Access::Read).count());
        assert!(of_name(Access::Write).count() <= 1 || named.policy == Policy::Open);
        if named.policy != Policy::Open {
            assert_eq!(named.writer, of_name(Access::Write).next());
        }
    }
    for (id, host) in state.hosts.iter() {
        assert_eq!(state.names[&host.name], NameTarget { memory: MemoryKind::Host, id });
    }
    assert_eq!(state.names.len(), state.named.len() + state.hosts.len(), "a name refers to one object");
    check_workers(state);
    assert_eq!(state.accounting, state.recount(), "the counts match a recount");
    assert!(state.accounting.taken_bytes() <= state.limits.budget_bytes);
}

/// The invariants of workers and modules.
fn check_workers(state: &State) {
    for (id, tenant) in state.tenants.iter() {
        if let Some(CallSession { worker, session_index }) = tenant.session {
            let worker_state = state.tenants.get(worker).unwrap().worker_state.as_ref().unwrap();
            assert_eq!(worker_state.serves.get(&id), Some(&session_index), "a session is known to its worker");
            assert!(tenant.worker_state.is_none(), "a worker has no session itself");
        }
        let Some(worker_state) = &tenant.worker_state else { continue };
        let session_indexes: BTreeSet<u32> = worker_state.serves.values().copied().collect();
        assert_eq!(session_indexes.len(), worker_state.serves.len(), "a session index belongs to one tenant");
        for served in worker_state.serves.keys() {
            assert_eq!(state.tenants.get(*served).unwrap().session.map(|session| session.worker), Some(id));
        }
        for (of, borrowed) in &worker_state.borrowed {
            let (principal, lease) = (state.leases.get(*of).unwrap(), state.leases.get(*borrowed).unwrap());
            assert_eq!((lease.holder, lease.of, lease.block), (id, Some(*of), principal.block));
            assert!(worker_state.serves.contains_key(&principal.holder), "a worker borrows only of its tenants");
            assert!(
                lease.access == principal.access || principal.ending.is_some(),
                "a borrowed lease allows no more than the original"
            );
        }
    }
    for (_, lease) in state.leases.iter().filter(|(_, lease)| lease.of.is_some()) {
        assert!(lease.name.is_none() && state.tenants.get(lease.holder).unwrap().worker_state.is_some());
    }
    for (id, load) in state.loads.iter() {
        let worker_state = state.tenants.get(load.worker).unwrap().worker_state.as_ref().unwrap();
        assert_eq!(worker_state.loaded.get(&load.module), Some(&id));
    }
    let loaded =
        state.tenants.iter().filter_map(|(_, tenant)| tenant.worker_state.as_ref()).map(|one| one.loaded.len());
    assert_eq!(loaded.sum::<usize>(), state.loads.len(), "every loaded module has a record");
    for (id, module) in state.modules.iter() {
        assert_eq!(state.module_names[&module.name], id);
        assert!(
            module.is_compiled || state.tenants.get(module.by).is_some(),
            "a module that is not compiled ends with its tenant"
        );
    }
    assert_eq!(state.module_names.len(), state.modules.len());
}

/// Whether rings have room and fences are complete is random.
pub(crate) struct FakeEnvironment {
    pub(crate) is_full: bool,
    pub(crate) is_complete: bool,
}

pub(crate) const COMPLETE: FakeEnvironment = FakeEnvironment { is_full: false, is_complete: true };

impl Environment for FakeEnvironment {
    fn has_room(&self, _: Id) -> Result<(), u32> {
        if self.is_full { Err(200) } else { Ok(()) }
    }

    fn is_complete(&self, _: Fence) -> bool {
        self.is_complete
    }
}

/// The user that runs the broker.
pub(crate) const OPERATOR: u32 = 7;

pub(crate) fn limits() -> Limits {
    Limits { cached_bytes: 16 << 20, user_tenants: 6, user_names: 8, ..Limits::new(64 << 20) }
}

fn connected(state: &mut State) -> Id {
    connected_as(state, OPERATOR)
}

fn connected_as(state: &mut State, user: u32) -> Id {
    state.connect(Peer { user, process: 1 }).unwrap()
}

fn ask(state: &mut State, from: Id, message: Request) -> Vec<Effect> {
    ask_with(state, from, message, true)
}

/// A request while fences are complete, or not.
fn ask_with(state: &mut State, from: Id, message: Request, is_complete: bool) -> Vec<Effect> {
    state.request(
        from,
        Frame { number: 1, is_retry: false, message },
        &FakeEnvironment { is_full: false, is_complete },
    );
    state.take_effects(Vec::new())
}

/// A lease of new memory.
fn reserved(state: &mut State, from: Id, bytes: u64) -> Id {
    let mut effects = ask(state, from, Request::Reserve { bytes });
    if let Some(Effect::CreateSegment { segment, .. }) = effects.first() {
        state.segment_created(*segment, Ok(()));
        effects = state.take_effects(Vec::new());
    }
    match effects.as_slice() {
        [Effect::Reply { reply: Reply::Granted { lease, .. }, .. }] => *lease,
        other => panic!("{other:?}"),
    }
}

fn refused(effects: &[Effect]) -> &RequestError {
    match effects {
        [Effect::Reply { reply: Reply::Error(error), .. }] => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_is_its_holders_alone() {
    let mut state = State::new(limits(), OPERATOR);
    let (one, other) = (connected(&mut state), connected(&mut state));
    let lease = reserved(&mut state, one, 100);
    let fence = Fence::default();
    assert_eq!(refused(&ask(&mut state, other, Request::Return { lease, fence })), &RequestError::NoLease);
    assert_eq!(refused(&ask(&mut state, other, Request::Give { lease, to: other, fence })), &RequestError::NoLease);
    ask(&mut state, one, Request::Return { lease, fence });
    assert_eq!(refused(&ask(&mut state, one, Request::Return { lease, fence })), &RequestError::NoLease);
}

#[test]
fn a_lease_that_is_given_under_a_number_of_another_request_is_given_once() {
    for is_other in [false, true] {
        let mut state = State::new(limits(), OPERATOR);
        let (one, other) = (connected(&mut state), connected(&mut state));
        let leases = [reserved(&mut state, one, 100), reserved(&mut state, one, 200)];
        // Both were created by requests with the number 1.
        let message = Request::Give { lease: leases[usize::from(is_other)], to: one, fence: Fence::default() };
        state.request(one, Frame { number: 1, is_retry: true, message }, &COMPLETE);
        check(&state);
        assert_eq!(state.leases.iter().map(|(_, lease)| lease.holder).collect::<Vec<_>>(), [one, one]);
        let message = Request::Reserve { bytes: 100 };
        state.request(other, Frame { number: 1, is_retry: true, message }, &COMPLETE);
        assert!(matches!(state.take_effects(Vec::new()).last(), Some(Effect::CreateSegment { .. })));
    }
}

#[test]
fn small_leases_of_a_tenant_share_a_segment_and_of_two_tenants_never() {
    let mut state = State::new(limits(), OPERATOR);
    let (one, other) = (connected(&mut state), connected(&mut state));
    let leases = [(one, 0), (one, 512), (other, 0)].map(|(tenant, offset)| (reserved(&mut state, tenant, 100), offset));
    let place = |lease: Id| {
        let block = state.blocks.get(state.leases.get(lease).unwrap().block).unwrap();
        (block.segment, block.offset)
    };
    let places = leases.map(|(lease, offset)| {
        assert_eq!(place(lease).1, offset);
        place(lease).0
    });
    assert_eq!(places[0], places[1]);
    assert_ne!(places[0], places[2]);
}

#[test]
fn quotas_count_for_a_user_however_many_connections_it_has() {
    let mut state = State::new(Limits { user_bytes: 4 << 20, ..limits() }, OPERATOR);
    let (one, other) = (connected(&mut state), connected(&mut state));
    reserved(&mut state, one, 2 << 20);
    reserved(&mut state, other, 2 << 20);
    let limit = RequestError::UserQuota { limit_bytes: 4 << 20, had_bytes: 4 << 20, wanted_bytes: 3 << 20 };
    assert_eq!(refused(&ask(&mut state, one, Request::Reserve { bytes: 3 << 20 })), &limit);
}

#[test]
fn a_dead_writer_leaves_what_was_published_last() {
    let mut state = State::new(limits(), OPERATOR);
    let (publisher, writer) = (connected(&mut state), connected(&mut state));
    let lease = reserved(&mut state, publisher, 4096);
    let name = Name::parse("a").unwrap();
    let (policy, fence) = (Policy::Restore, Fence::default());
    ask(&mut state, publisher, Request::Publish { lease, policy, fence, name: name.clone() });
    let id = state.names[&name].id;
    let before = state.named.get(id).unwrap().block;
    let granted = ask(&mut state, writer, Request::Lease { name: id, access: Access::Write, bytes: 0 });
    assert!(matches!(granted.as_slice(), [Effect::CreateSegment { .. }]), "a writer gets new memory: {granted:?}");
    state.remove_tenant(writer, &COMPLETE);
    assert_eq!(state.named.get(id).unwrap().block, before);
    assert_eq!(state.named.get(id).unwrap().writer, None);
}

#[test]
fn a_reader_learns_its_version_and_a_writer_chooses_the_length_of_the_next() {
    let mut state = State::new(limits(), OPERATOR);
    let (publisher, reader) = (connected(&mut state), connected(&mut state));
    let lease = reserved(&mut state, publisher, 4096);
    let (name, policy, fence) = (Name::parse("a").unwrap(), Policy::Restore, Fence::default());
    let publish = |state: &mut State, lease| {
        let effects = ask(state, publisher, Request::Publish { lease, policy, fence, name: name.clone() });
        match effects.as_slice() {
            [.., Effect::Reply { reply: Reply::Number { bytes: version, .. }, .. }] => *version,
            other => panic!("{other:?}"),
        }
    };
    let read = |state: &mut State, id| {
        let effects = ask(state, reader, Request::Lease { name: id, access: Access::Read, bytes: 0 });
        match effects.as_slice() {
            [Effect::Reply { reply: Reply::Granted { bytes, version, .. }, .. }] => (*bytes, *version),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(publish(&mut state, lease), 1);
    let id = state.names[&name].id;
    assert_eq!(read(&mut state, id), (4096, 1));
    let effects = ask(&mut state, publisher, Request::Lease { name: id, access: Access::Write, bytes: 1 << 20 });
    let next = match effects.as_slice() {
        [Effect::Reply { reply: Reply::Granted { lease, bytes, version, .. }, .. }] => {
            assert_eq!((*bytes, *version), (1 << 20, 0), "it is not a version yet");
            *lease
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(read(&mut state, id), (4096, 1), "the old version until the new one is published");
    assert_eq!(publish(&mut state, next), 2);
    assert_eq!(read(&mut state, id), (1 << 20, 2));
}

#[test]
fn a_dead_writer_in_place_drops_the_name() {
    let mut state = State::new(limits(), OPERATOR);
    let (publisher, writer) = (connected(&mut state), connected(&mut state));
    let lease = reserved(&mut state, publisher, 4096);
    let (name, fence) = (Name::parse("a").unwrap(), Fence::default());
    ask(&mut state, publisher, Request::Publish { lease, policy: Policy::Drop, fence, name: name.clone() });
    ask(&mut state, publisher, Request::Return { lease, fence });
    let id = state.names[&name].id;
    ask(&mut state, writer, Request::Lease { name: id, access: Access::Write, bytes: 0 });
    assert_eq!(
        refused(&ask(&mut state, publisher, Request::Lease { name: id, access: Access::Read, bytes: 0 })),
        &RequestError::Busy { readers: 0, writers: 1 }
    );
    state.remove_tenant(writer, &COMPLETE);
    assert!(state.names.is_empty());
    assert_eq!((state.stats().named_bytes, state.stats().reclaiming_bytes), (0, 4096));
}

#[test]
fn memory_of_a_dead_tenant_is_zeroed_before_it_is_reused() {
    let mut state = State::new(limits(), OPERATOR);
    let tenant = connected(&mut state);
    let lease = reserved(&mut state, tenant, 4096);
    let segment = state.blocks.get(state.leases.get(lease).unwrap().block).unwrap().segment;
    state.disconnect(tenant);
    assert!(state.leases.get(lease).is_some(), "the device may still use it");
    state.remove_tenant(tenant, &COMPLETE);
    let (what, bytes) = (ScrubTarget::Segment(segment), 2 << 20);
    assert!(state.take_effects(Vec::new()).contains(&Effect::Scrub { what, segment, offset: 0, bytes }));
    let next = connected(&mut state);
    let effects = ask(&mut state, next, Request::Reserve { bytes: 4096 });
    assert!(matches!(effects.as_slice(), [Effect::CreateSegment { .. }]), "{effects:?}");
    state.scrubbed(what, true);
    assert_eq!(state.segments.get(segment).unwrap().stage, SegmentStage::Zeroed);
}

fn published(state: &mut State, from: Id, name: &str, policy: Policy) -> Id {
    let lease = reserved(state, from, 4096);
    let (fence, name) = (Fence::default(), Name::parse(name).unwrap());
    let effects = ask(state, from, Request::Publish { lease, policy, fence, name });
    match effects.as_slice() {
        [Effect::Reply { reply: Reply::Number { id, .. }, .. }] => *id,
        other => panic!("{other:?}"),
    }
}

/// A block in one tenant's segment that another tenant has had.
fn foreign(state: &mut State) -> (Id, Id, ScrubTarget) {
    let (owner, taker) = (connected(state), connected(state));
    let lease = reserved(state, owner, 1000);
    let fence = Fence::default();
    let effects = ask(state, owner, Request::Give { lease, to: taker, fence });
    let Some(Effect::Notify { reply: Reply::Given { lease, segment, .. }, .. }) = effects.first() else {
        panic!("{effects:?}")
    };
    let block = state.leases.get(*lease).unwrap().block;
    let effects = ask(state, taker, Request::Return { lease: *lease, fence });
    let what = ScrubTarget::Block(block);
    assert_eq!(effects[0], Effect::Scrub { what, segment: *segment, offset: 0, bytes: 1024 });
    (owner, *segment, what)
}

#[test]
fn what_another_tenant_had_is_its_owners_again_as_zeros() {
    let mut state = State::new(limits(), OPERATOR);
    let (owner, segment, what) = foreign(&mut state);
    assert_eq!(state.stats().reclaiming_bytes, 1000);
    let next = reserved(&mut state, owner, 1000);
    let offset = |state: &State, lease| state.blocks.get(state.leases.get(lease).unwrap().block).unwrap().offset;
    assert_eq!(offset(&state, next), 1024, "the block is not reusable yet");
    state.scrubbed(what, true);
    check(&state);
    let next = reserved(&mut state, owner, 1000);
    assert_eq!((offset(&state, next), state.stats().reclaiming_bytes), (0, 0));
    assert_eq!(state.segments.get(segment).unwrap().owner, Some(owner));
}

#[test]
fn memory_that_only_its_owner_had_is_reused_at_once() {
    let mut state = State::new(limits(), OPERATOR);
    let owner = connected(&mut state);
    let lease = reserved(&mut state, owner, 1000);
    let effects = ask(&mut state, owner, Request::Return { lease, fence: Fence::default() });
    assert_eq!(effects, [Effect::Reply { to: owner, number: 1, reply: Reply::Done }]);
}

#[test]
fn what_cannot_be_overwritten_goes_with_its_segment() {
    let mut state = State::new(limits(), OPERATOR);
    let (owner, segment, what) = foreign(&mut state);
    state.scrubbed(what, false);
    check(&state);
    let next = reserved(&mut state, owner, 1000);
    assert_eq!(state.blocks.get(state.leases.get(next).unwrap().block).unwrap().offset, 1024);
    state.remove_tenant(owner, &COMPLETE);
    let (what, bytes) = (ScrubTarget::Segment(segment), 2 << 20);
    assert!(state.take_effects(Vec::new()).contains(&Effect::Scrub { what, segment, offset: 0, bytes }));
    check(&state);
}

#[test]
fn a_lost_device_is_reported_as_lost() {
    for (code, said) in [
        (46, "the GPU is lost or broken (code 46): check `nvidia-smi`, then restart the broker"),
        (1, "the device failed with code 1"),
        (2, "the broker has 0 bytes of 64 MiB free, 2 MiB requested: drop a name, or serve with more --memory"),
    ] {
        let mut state = State::new(limits(), OPERATOR);
        let tenant = connected(&mut state);
        let effects = ask(&mut state, tenant, Request::Reserve { bytes: 100 });
        let [Effect::CreateSegment { segment, .. }] = effects.as_slice() else { panic!("{effects:?}") };
        state.segment_created(*segment, Err(code));
        assert_eq!(refused(&state.take_effects(Vec::new())).to_string(), said);
        check(&state);
    }
}
