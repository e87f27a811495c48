//! Users and their limits: accounting, and permissions for names.

use super::*;
use crate::protocol::types::QuotaChange;

#[test]
fn a_tenant_has_no_more_than_its_own_quota() {
    let mut state = State::new(Limits { tenant_bytes: 4 << 20, ..limits() }, OPERATOR);
    let (one, other) = (connected(&mut state), connected(&mut state));
    reserved(&mut state, one, 3 << 20);
    let limit = RequestError::TenantQuota { limit_bytes: 4 << 20, had_bytes: 4 << 20, wanted_bytes: 2 << 20 };
    assert_eq!(refused(&ask(&mut state, one, Request::Reserve { bytes: 2 << 20 })), &limit);
    reserved(&mut state, other, 2 << 20);
}

#[test]
fn what_waits_for_the_driver_counts_for_its_tenant() {
    let mut state = State::new(Limits { tenant_bytes: 4 << 20, user_waiting: 1, ..limits() }, OPERATOR);
    let (one, other) = (connected(&mut state), connected(&mut state));
    let effects = ask(&mut state, one, Request::Reserve { bytes: 2 << 20 });
    assert!(matches!(effects.as_slice(), [Effect::CreateSegment { .. }]), "{effects:?}");
    let limit = RequestError::TenantQuota { limit_bytes: 4 << 20, had_bytes: 2 << 20, wanted_bytes: 3 << 20 };
    assert_eq!(refused(&ask(&mut state, one, Request::Reserve { bytes: 3 << 20 })), &limit);
    assert_eq!(
        refused(&ask(&mut state, other, Request::Reserve { bytes: 2 << 20 })),
        &RequestError::TooMany { limit: 1 },
        "another connection has the same quota"
    );
}

#[test]
fn leases_count_for_a_user_and_those_that_end_too() {
    let mut state = State::new(Limits { tenant_leases: 3, user_leases: 4, ..limits() }, OPERATOR);
    let (one, other) = (connected(&mut state), connected(&mut state));
    let leases = [0; 3].map(|_| reserved(&mut state, one, 512));
    assert_eq!(refused(&ask(&mut state, one, Request::Reserve { bytes: 512 })), &RequestError::TooMany { limit: 3 });
    let fence = Fence { tenant: one, semaphore: 1, value: 5 };
    ask_with(&mut state, one, Request::Return { lease: leases[0], fence }, false);
    assert_eq!(refused(&ask(&mut state, one, Request::Reserve { bytes: 512 })), &RequestError::TooMany { limit: 3 });
    reserved(&mut state, other, 512);
    assert_eq!(refused(&ask(&mut state, other, Request::Reserve { bytes: 512 })), &RequestError::TooMany { limit: 4 });
    state.poll_fences(&COMPLETE);
    reserved(&mut state, one, 512);
}

#[test]
fn connections_and_names_count_for_a_user() {
    let mut state = State::new(Limits { user_tenants: 2, user_names: 2, ..limits() }, OPERATOR);
    let (one, other) = (connected(&mut state), connected(&mut state));
    assert_eq!(state.connect(Peer { user: OPERATOR, process: 1 }), Err(RequestError::TooMany { limit: 2 }));
    published(&mut state, one, "a", Policy::Restore);
    published(&mut state, other, "b", Policy::Restore);
    let lease = reserved(&mut state, other, 512);
    let (policy, fence, name) = (Policy::Restore, Fence::default(), Name::parse("c").unwrap());
    let effects = ask(&mut state, other, Request::Publish { lease, policy, fence, name });
    assert_eq!(refused(&effects), &RequestError::TooMany { limit: 2 });
    let stranger = connected_as(&mut state, 8);
    published(&mut state, stranger, "d", Policy::Restore);
}

#[test]
fn memory_of_the_host_counts_for_a_user_until_its_name_is_dropped() {
    let mut state = State::new(Limits { user_host_bytes: 8192, ..limits() }, OPERATOR);
    let tenant = connected(&mut state);
    let name = |text| Name::parse(text).unwrap();
    ask(&mut state, tenant, Request::Host { bytes: 8192, name: name("a") });
    let limit = RequestError::HostQuota { limit_bytes: 8192, had_bytes: 8192, wanted_bytes: 1 };
    assert_eq!(refused(&ask(&mut state, tenant, Request::Host { bytes: 1, name: name("b") })), &limit);
    let stranger = connected_as(&mut state, 8);
    assert_eq!(refused(&ask(&mut state, stranger, Request::Drop { name: name("a") })), &RequestError::ForeignName);
    let effects = ask(&mut state, tenant, Request::Drop { name: name("a") });
    assert!(
        matches!(effects.as_slice(), [Effect::CloseFd { what: Resource::Host(_) }, Effect::Reply { .. }]),
        "{effects:?}"
    );
    ask(&mut state, tenant, Request::Host { bytes: 8192, name: name("b") });
    check(&state);
}

#[test]
fn another_user_reads_a_name_and_neither_writes_nor_drops_it() {
    let mut state = State::new(limits(), OPERATOR);
    let (publisher, stranger) = (connected_as(&mut state, 8), connected_as(&mut state, 9));
    let id = published(&mut state, publisher, "a", Policy::Open);
    let name = Name::parse("a").unwrap();
    let effects = ask(&mut state, stranger, Request::Lease { name: id, access: Access::Read, bytes: 0 });
    assert!(matches!(effects.as_slice(), [Effect::Reply { reply: Reply::Granted { .. }, .. }]), "{effects:?}");
    let write = Request::Lease { name: id, access: Access::Write, bytes: 0 };
    assert_eq!(refused(&ask(&mut state, stranger, write)), &RequestError::ForeignName);
    assert_eq!(refused(&ask(&mut state, stranger, Request::Drop { name: name.clone() })), &RequestError::ForeignName);
    let own = connected(&mut state);
    ask(&mut state, own, Request::Drop { name });
    assert!(state.names.is_empty(), "the user that runs the broker may");
}

#[test]
fn another_user_reads_only_what_is_ready() {
    let mut state = State::new(limits(), OPERATOR);
    let (publisher, stranger) = (connected_as(&mut state, 8), connected_as(&mut state, 9));
    let lease = reserved(&mut state, publisher, 4096);
    let (policy, name) = (Policy::Restore, Name::parse("a").unwrap());
    let fence = Fence { tenant: publisher, semaphore: 1, value: 5 };
    ask_with(&mut state, publisher, Request::Publish { lease, policy, fence, name: name.clone() }, false);
    let read = Request::Lease { name: state.names[&name].id, access: Access::Read, bytes: 0 };
    let effects = ask_with(&mut state, stranger, read.clone(), false);
    assert_eq!(refused(&effects), &RequestError::Busy { readers: 1, writers: 1 });
    let effects = ask_with(&mut state, stranger, read, true);
    assert!(matches!(effects.as_slice(), [Effect::Reply { reply: Reply::Granted { .. }, .. }]), "{effects:?}");
}

#[test]
fn only_the_brokers_user_sets_quotas_and_reads_those_of_others() {
    let mut state = State::new(limits(), OPERATOR);
    let (own, stranger) = (connected(&mut state), connected_as(&mut state, 9));
    let error = RequestError::NotAllowed { user: OPERATOR };
    for change in [QuotaChange::Set { bytes: 1 << 30 }, QuotaChange::Clear] {
        assert_eq!(refused(&ask(&mut state, stranger, quota(9, MemoryKind::Device, change))), &error);
    }
    assert_eq!(refused(&ask(&mut state, stranger, quota(OPERATOR, MemoryKind::Host, QuotaChange::Keep))), &error);
    assert_eq!(limit(&mut state, own, quota(9, MemoryKind::Device, QuotaChange::Set { bytes: 2 << 20 })), (2 << 20, 0));
    let limit = RequestError::UserQuota { limit_bytes: 2 << 20, had_bytes: 0, wanted_bytes: 3 << 20 };
    assert_eq!(refused(&ask(&mut state, stranger, Request::Reserve { bytes: 3 << 20 })), &limit);
}

#[test]
fn only_the_brokers_user_stops_it_and_only_force_drops_names() {
    let mut state = State::new(limits(), OPERATOR);
    let (own, stranger) = (connected(&mut state), connected_as(&mut state, 9));
    published(&mut state, stranger, "a", Policy::Restore);
    ask(&mut state, own, Request::Host { bytes: 5000, name: Name::parse("b").unwrap() });
    let stop = |is_forced| Request::Stop { is_forced };
    assert_eq!(refused(&ask(&mut state, stranger, stop(true))), &RequestError::NotAllowed { user: OPERATOR });
    let error = *refused(&ask(&mut state, own, stop(false)));
    assert_eq!(error, RequestError::NamesPublished { names: 2, modules: 0, bytes: 9096 });
    let sentence = "9096 bytes (8.9 KiB) under 2 names would be lost: drop them, or use `freehold stop --force`";
    assert_eq!(error.to_string(), sentence);
    let effects = ask(&mut state, own, stop(true));
    let lost = Reply::Number { id: Id(2), bytes: 9096 };
    assert!(matches!(effects.as_slice(), [Effect::Reply { reply, .. }, Effect::Stop] if *reply == lost), "{effects:?}");
}

fn quota(user: u32, memory: MemoryKind, change: QuotaChange) -> Request {
    Request::Quota { user, memory, change }
}

/// The quota of a user, and its usage.
fn limit(state: &mut State, from: Id, quota: Request) -> (u64, u64) {
    match ask(state, from, quota).as_slice() {
        &[Effect::Reply { reply: Reply::Number { id, bytes }, .. }] => (id.0, bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_quota_is_of_one_memory_outlives_the_broker_and_is_taken_away() {
    let mut state = State::new(limits(), OPERATOR);
    let (own, mut journal) = (connected(&mut state), MemoryJournal::default());
    let set = QuotaChange::Set { bytes: 12288 };
    assert_eq!(limit(&mut state, own, quota(OPERATOR, MemoryKind::Host, set)), (12288, 0));
    assert_eq!(limit(&mut state, own, quota(OPERATOR, MemoryKind::Device, QuotaChange::Keep)), (64 << 20, 0));
    let name = |text| Name::parse(text).unwrap();
    ask(&mut state, own, Request::Host { bytes: 12288, name: name("a") });
    state.write_dirty(|state, dirty| journal.put(state, dirty));
    let mut state = State::recover(limits(), OPERATOR, |kind| journal.records(kind), |_| true);
    // Less than is in use: that stays, and no more is granted.
    assert_eq!(
        limit(&mut state, own, quota(OPERATOR, MemoryKind::Host, QuotaChange::Set { bytes: 8192 })),
        (8192, 12288)
    );
    let error = RequestError::HostQuota { limit_bytes: 8192, had_bytes: 12288, wanted_bytes: 5000 };
    assert_eq!(refused(&ask(&mut state, own, Request::Host { bytes: 5000, name: name("b") })), &error);
    assert_eq!(limit(&mut state, own, quota(OPERATOR, MemoryKind::Host, QuotaChange::Clear)), (1 << 36, 12288));
    state.write_dirty(|state, dirty| journal.put(state, dirty));
    let mut state = State::recover(limits(), OPERATOR, |kind| journal.records(kind), |_| true);
    assert_eq!(limit(&mut state, own, quota(OPERATOR, MemoryKind::Host, QuotaChange::Keep)), (1 << 36, 12288));
    check(&state);
}

#[test]
fn a_quota_with_which_nothing_can_be_had_is_refused() {
    let mut state = State::new(limits(), OPERATOR);
    let own = connected(&mut state);
    for (memory, least_bytes) in [(MemoryKind::Device, 2 << 20), (MemoryKind::Host, 8192)] {
        for bytes in [0, 1, least_bytes - 1] {
            let effects = ask(&mut state, own, quota(OPERATOR, memory, QuotaChange::Set { bytes }));
            assert_eq!(refused(&effects), &RequestError::QuotaTooSmall { least_bytes });
        }
        assert_eq!(
            limit(&mut state, own, quota(OPERATOR, memory, QuotaChange::Set { bytes: least_bytes })),
            (least_bytes, 0)
        );
    }
}

#[test]
fn names_of_both_memories_are_one_list_and_no_name_is_of_both() {
    let mut state = State::new(limits(), OPERATOR);
    state.now = 100;
    let maker = state.connect(Peer { user: OPERATOR, process: 77 }).unwrap();
    let name = |text| Name::parse(text).unwrap();
    published(&mut state, maker, "b", Policy::Restore);
    ask(&mut state, maker, Request::Host { bytes: 8192, name: name("a") });
    ask(&mut state, maker, Request::Host { bytes: 4097, name: name("c") });
    state.now = 161;
    let listed = "a\t8192\t7\t77\t0\t0\t61\t1\t1\nb\t4096\t7\t77\t1\t0\t61\t1\t0\nc\t4097\t7\t77\t0\t0\t61\t1\t1\n";
    assert_eq!(state.list(None), listed);
    assert_eq!(state.list(Some(&name("b"))), "c\t4097\t7\t77\t0\t0\t61\t1\t1\n");
    assert_eq!(state.nearest(&name("model/b"), 3), [&name("b")]);
    assert_eq!(state.nearest(&name("d"), 3), [] as [&Name; 0], "another letter is another name");
    let other = |memory| RequestError::WrongMemoryKind { memory };
    assert_eq!(refused(&ask(&mut state, maker, Request::Find { name: name("a") })), &other(MemoryKind::Host));
    for bytes in [0, 8192] {
        assert_eq!(
            refused(&ask(&mut state, maker, Request::Host { bytes, name: name("b") })),
            &other(MemoryKind::Device)
        );
    }
    let lease = reserved(&mut state, maker, 512);
    let (policy, fence) = (Policy::Restore, Fence::default());
    let publish = Request::Publish { lease, policy, fence, name: name("a") };
    assert_eq!(refused(&ask(&mut state, maker, publish)), &RequestError::NameTaken);
    // A process is listed while it is connected: its id may be reused later.
    state.remove_tenant(maker, &COMPLETE);
    let again = state.connect(Peer { user: 8, process: 77 }).unwrap();
    assert_ne!(again, maker);
    assert_eq!(state.list(Some(&name("b"))), "c\t4097\t7\t0\t0\t0\t61\t1\t1\n");
    check(&state);
}

#[test]
fn memory_of_one_user_never_goes_to_another_even_zeroed() {
    let mut state = State::new(limits(), OPERATOR);
    let one = connected_as(&mut state, 8);
    reserved(&mut state, one, 4 << 20);
    let segment = state.segments.iter().next().expect("a segment was created").0;
    state.remove_tenant(one, &COMPLETE);
    state.take_effects(Vec::new());
    state.scrubbed(ScrubTarget::Segment(segment), true);
    let other = connected_as(&mut state, 9);
    let effects = ask(&mut state, other, Request::Reserve { bytes: 4 << 20 });
    assert!(matches!(effects.as_slice(), [Effect::CreateSegment { .. }]), "{effects:?}");
    let again = connected_as(&mut state, 8);
    let effects = ask(&mut state, again, Request::Reserve { bytes: 4 << 20 });
    let [Effect::Reply { reply: Reply::Granted { segment: granted, .. }, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(*granted, segment);
}

#[test]
fn what_is_larger_than_the_broker_is_refused_for_that() {
    let mut state = State::new(Limits { tenant_bytes: 1 << 20, user_bytes: 1 << 20, ..limits() }, OPERATOR);
    let tenant = connected(&mut state);
    let (budget_bytes, wanted_bytes) = (64 << 20, 65 << 20);
    let full = RequestError::OutOfMemory { free_bytes: budget_bytes, budget_bytes, wanted_bytes };
    assert_eq!(refused(&ask(&mut state, tenant, Request::Reserve { bytes: wanted_bytes })), &full);
}

/// A name of one user that a process of another has read and returned.
fn exposed(state: &mut State) -> (Id, Id, Id) {
    let (publisher, stranger) = (connected_as(state, 8), connected_as(state, 9));
    let name = published(state, publisher, "a", Policy::Restore);
    let segment = state.blocks.get(state.named.get(name).unwrap().block).unwrap().segment;
    let effects = ask(state, stranger, Request::Lease { name, access: Access::Read, bytes: 0 });
    let [Effect::Reply { reply: Reply::Granted { lease, .. }, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    ask(state, stranger, Request::Attach { segment });
    ask(state, stranger, Request::Return { lease: *lease, fence: Fence::default() });
    ask(state, stranger, Request::Detach { segment });
    check(state);
    (publisher, stranger, segment)
}

#[test]
fn a_segment_that_another_user_attached_goes_back_to_the_driver() {
    let mut state = State::new(limits(), OPERATOR);
    let (publisher, _, segment) = exposed(&mut state);
    let lease = reserved(&mut state, publisher, 100);
    let next = state.blocks.get(state.leases.get(lease).unwrap().block).unwrap().segment;
    assert_ne!(next, segment, "not even its owner gets new memory in it");
    let leases: Vec<Id> = state.tenants.get(publisher).unwrap().leases.iter().copied().collect();
    let close = Effect::CloseFd { what: Resource::Segment(segment) };
    let mut effects = ask(&mut state, publisher, Request::Drop { name: Name::parse("a").unwrap() });
    for lease in leases {
        effects.extend(ask(&mut state, publisher, Request::Return { lease, fence: Fence::default() }));
    }
    assert!(effects.contains(&close), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Scrub { .. })), "{effects:?}");
    assert!(state.segments.get(segment).is_none() && state.segments.get(next).is_some());
    check(&state);
}

#[test]
fn a_broker_that_takes_over_knows_what_another_user_had_attached() {
    let (mut state, mut journal) = (State::new(limits(), OPERATOR), MemoryJournal::default());
    let (publisher, stranger, segment) = exposed(&mut state);
    state.remove_tenant(stranger, &COMPLETE);
    let mut dirty = Vec::new();
    state.write_dirty(|_, one| dirty.push(one));
    dirty.into_iter().for_each(|one| journal.put(&state, one));
    let mut state = State::recover(limits(), OPERATOR, |kind| journal.records(kind), |_| true);
    state.take_effects(Vec::new());
    ask(&mut state, publisher, Request::Drop { name: Name::parse("a").unwrap() });
    state.remove_tenant(publisher, &COMPLETE);
    let effects = state.take_effects(Vec::new());
    assert!(effects.contains(&Effect::CloseFd { what: Resource::Segment(segment) }), "{effects:?}");
    check(&state);
}

#[test]
fn a_segment_that_only_its_own_user_attached_is_used_again() {
    let mut state = State::new(limits(), OPERATOR);
    let (publisher, reader) = (connected_as(&mut state, 8), connected_as(&mut state, 8));
    let name = published(&mut state, publisher, "a", Policy::Restore);
    let segment = state.blocks.get(state.named.get(name).unwrap().block).unwrap().segment;
    ask(&mut state, reader, Request::Lease { name, access: Access::Read, bytes: 0 });
    ask(&mut state, reader, Request::Attach { segment });
    ask(&mut state, publisher, Request::Drop { name: Name::parse("a").unwrap() });
    state.remove_tenant(reader, &COMPLETE);
    state.remove_tenant(publisher, &COMPLETE);
    let what = ScrubTarget::Segment(segment);
    assert!(state.take_effects(Vec::new()).contains(&Effect::Scrub { what, segment, offset: 0, bytes: 2 << 20 }));
    state.scrubbed(what, true);
    let next = connected_as(&mut state, 8);
    reserved(&mut state, next, 100);
    assert_eq!(state.segments.get(segment).unwrap().owner, Some(next));
}
