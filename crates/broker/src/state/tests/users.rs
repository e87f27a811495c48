//! Users and their limits: what is counted, and who may do what with whose names.

use super::*;
use crate::wire::Change;

#[test]
fn a_tenant_has_no_more_than_its_own_quota() {
    let mut state = State::new(Limits { tenant_bytes: 4 << 20, ..limits() }, OWN);
    let (one, other) = (connected(&mut state), connected(&mut state));
    reserved(&mut state, one, 3 << 20);
    let limit = Refusal::TenantQuota { limit_bytes: 4 << 20, had_bytes: 4 << 20, wanted_bytes: 2 << 20 };
    assert_eq!(refused(&ask(&mut state, one, Request::Reserve { bytes: 2 << 20 })), &limit);
    reserved(&mut state, other, 2 << 20);
}

#[test]
fn what_waits_for_the_driver_counts_for_its_tenant() {
    let mut state = State::new(Limits { tenant_bytes: 4 << 20, user_waiting: 1, ..limits() }, OWN);
    let (one, other) = (connected(&mut state), connected(&mut state));
    let effects = ask(&mut state, one, Request::Reserve { bytes: 2 << 20 });
    assert!(matches!(effects.as_slice(), [Effect::Make { .. }]), "{effects:?}");
    let limit = Refusal::TenantQuota { limit_bytes: 4 << 20, had_bytes: 2 << 20, wanted_bytes: 3 << 20 };
    assert_eq!(refused(&ask(&mut state, one, Request::Reserve { bytes: 3 << 20 })), &limit);
    assert_eq!(
        refused(&ask(&mut state, other, Request::Reserve { bytes: 2 << 20 })),
        &Refusal::TooMany { limit: 1 },
        "another connection gains nothing"
    );
}

#[test]
fn leases_count_for_a_user_and_those_that_end_too() {
    let mut state = State::new(Limits { tenant_leases: 3, user_leases: 4, ..limits() }, OWN);
    let (one, other) = (connected(&mut state), connected(&mut state));
    let leases = [0; 3].map(|_| reserved(&mut state, one, 512));
    assert_eq!(refused(&ask(&mut state, one, Request::Reserve { bytes: 512 })), &Refusal::TooMany { limit: 3 });
    let point = Point { tenant: one, word: 1, value: 5 };
    ask_with(&mut state, one, Request::Return { lease: leases[0], point }, false);
    assert_eq!(refused(&ask(&mut state, one, Request::Reserve { bytes: 512 })), &Refusal::TooMany { limit: 3 });
    reserved(&mut state, other, 512);
    assert_eq!(refused(&ask(&mut state, other, Request::Reserve { bytes: 512 })), &Refusal::TooMany { limit: 4 });
    state.pass(&PASSED);
    reserved(&mut state, one, 512);
}

#[test]
fn connections_and_names_count_for_a_user() {
    let mut state = State::new(Limits { user_tenants: 2, user_names: 2, ..limits() }, OWN);
    let (one, other) = (connected(&mut state), connected(&mut state));
    assert_eq!(state.connect(Peer { user: OWN, process: 1 }), Err(Refusal::TooMany { limit: 2 }));
    published(&mut state, one, "a", Policy::Restore);
    published(&mut state, other, "b", Policy::Restore);
    let lease = reserved(&mut state, other, 512);
    let (policy, point, name) = (Policy::Restore, Point::default(), Name::parse("c").unwrap());
    let effects = ask(&mut state, other, Request::Publish { lease, policy, point, name });
    assert_eq!(refused(&effects), &Refusal::TooMany { limit: 2 });
    let stranger = connected_as(&mut state, 8);
    published(&mut state, stranger, "d", Policy::Restore);
}

#[test]
fn memory_of_the_host_counts_for_a_user_until_its_name_is_dropped() {
    let mut state = State::new(Limits { user_host_bytes: 8192, ..limits() }, OWN);
    let tenant = connected(&mut state);
    let name = |text| Name::parse(text).unwrap();
    ask(&mut state, tenant, Request::Host { bytes: 8192, name: name("a") });
    let limit = Refusal::HostQuota { limit_bytes: 8192, had_bytes: 8192, wanted_bytes: 1 };
    assert_eq!(refused(&ask(&mut state, tenant, Request::Host { bytes: 1, name: name("b") })), &limit);
    let stranger = connected_as(&mut state, 8);
    assert_eq!(refused(&ask(&mut state, stranger, Request::Drop { name: name("a") })), &Refusal::ForeignName);
    let effects = ask(&mut state, tenant, Request::Drop { name: name("a") });
    assert!(
        matches!(effects.as_slice(), [Effect::Close { what: Thing::Host(_) }, Effect::Reply { .. }]),
        "{effects:?}"
    );
    ask(&mut state, tenant, Request::Host { bytes: 8192, name: name("b") });
    check(&state);
}

#[test]
fn another_user_reads_a_name_and_neither_writes_nor_drops_it() {
    let mut state = State::new(limits(), OWN);
    let (publisher, stranger) = (connected_as(&mut state, 8), connected_as(&mut state, 9));
    let id = published(&mut state, publisher, "a", Policy::Open);
    let name = Name::parse("a").unwrap();
    let effects = ask(&mut state, stranger, Request::Lease { name: id, access: Access::Read });
    assert!(matches!(effects.as_slice(), [Effect::Reply { reply: Reply::Granted { .. }, .. }]), "{effects:?}");
    let write = Request::Lease { name: id, access: Access::Write };
    assert_eq!(refused(&ask(&mut state, stranger, write)), &Refusal::ForeignName);
    assert_eq!(refused(&ask(&mut state, stranger, Request::Drop { name: name.clone() })), &Refusal::ForeignName);
    let own = connected(&mut state);
    ask(&mut state, own, Request::Drop { name });
    assert!(state.names.is_empty(), "who runs the broker may");
}

#[test]
fn another_user_reads_only_what_is_ready() {
    let mut state = State::new(limits(), OWN);
    let (publisher, stranger) = (connected_as(&mut state, 8), connected_as(&mut state, 9));
    let lease = reserved(&mut state, publisher, 4096);
    let (policy, name) = (Policy::Restore, Name::parse("a").unwrap());
    let point = Point { tenant: publisher, word: 1, value: 5 };
    ask_with(&mut state, publisher, Request::Publish { lease, policy, point, name: name.clone() }, false);
    let read = Request::Lease { name: state.names[&name].id, access: Access::Read };
    let effects = ask_with(&mut state, stranger, read.clone(), false);
    assert_eq!(refused(&effects), &Refusal::Busy { readers: 1, writers: 1 });
    let effects = ask_with(&mut state, stranger, read, true);
    assert!(matches!(effects.as_slice(), [Effect::Reply { reply: Reply::Granted { .. }, .. }]), "{effects:?}");
}

#[test]
fn only_who_runs_the_broker_sets_quotas_and_asks_for_those_of_others() {
    let mut state = State::new(limits(), OWN);
    let (own, stranger) = (connected(&mut state), connected_as(&mut state, 9));
    let refusal = Refusal::NotAllowed { user: OWN };
    for change in [Change::Set { bytes: 1 << 30 }, Change::Clear] {
        assert_eq!(refused(&ask(&mut state, stranger, quota(9, Memory::Device, change))), &refusal);
    }
    assert_eq!(refused(&ask(&mut state, stranger, quota(OWN, Memory::Host, Change::Keep))), &refusal);
    assert_eq!(limit(&mut state, own, quota(9, Memory::Device, Change::Set { bytes: 2 << 20 })), (2 << 20, 0));
    let limit = Refusal::UserQuota { limit_bytes: 2 << 20, had_bytes: 0, wanted_bytes: 3 << 20 };
    assert_eq!(refused(&ask(&mut state, stranger, Request::Reserve { bytes: 3 << 20 })), &limit);
}

#[test]
fn only_who_runs_the_broker_stops_it_and_names_are_lost_by_force_alone() {
    let mut state = State::new(limits(), OWN);
    let (own, stranger) = (connected(&mut state), connected_as(&mut state, 9));
    published(&mut state, stranger, "a", Policy::Restore);
    ask(&mut state, own, Request::Host { bytes: 5000, name: Name::parse("b").unwrap() });
    let stop = |is_forced| Request::Stop { is_forced };
    assert_eq!(refused(&ask(&mut state, stranger, stop(true))), &Refusal::NotAllowed { user: OWN });
    let refusal = *refused(&ask(&mut state, own, stop(false)));
    assert_eq!(refusal, Refusal::HasNames { names: 2, bytes: 9096 });
    let sentence = "9096 bytes under 2 names would be gone: drop what has a name, or say `freehold stop --force`";
    assert_eq!(refusal.to_string(), sentence);
    let effects = ask(&mut state, own, stop(true));
    let lost = Reply::Number { id: Id(2), bytes: 9096 };
    assert!(matches!(effects.as_slice(), [Effect::Reply { reply, .. }, Effect::Stop] if *reply == lost), "{effects:?}");
}

fn quota(user: u32, memory: Memory, change: Change) -> Request {
    Request::Quota { user, memory, change }
}

/// What a user may have, and has.
fn limit(state: &mut State, from: Id, quota: Request) -> (u64, u64) {
    match ask(state, from, quota).as_slice() {
        &[Effect::Reply { reply: Reply::Number { id, bytes }, .. }] => (id.0, bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_quota_is_of_one_memory_outlives_the_broker_and_is_taken_away() {
    let mut state = State::new(limits(), OWN);
    let (own, mut pages) = (connected(&mut state), Pages::default());
    let set = Change::Set { bytes: 12288 };
    assert_eq!(limit(&mut state, own, quota(OWN, Memory::Host, set)), (12288, 0));
    assert_eq!(limit(&mut state, own, quota(OWN, Memory::Device, Change::Keep)), (64 << 20, 0));
    let name = |text| Name::parse(text).unwrap();
    ask(&mut state, own, Request::Host { bytes: 12288, name: name("a") });
    state.write_touched(|state, touched| pages.put(state, touched));
    let mut state = State::recover(limits(), OWN, |kind| pages.records(kind), |_| true);
    // Less than is had: that stays, and there is no more.
    assert_eq!(limit(&mut state, own, quota(OWN, Memory::Host, Change::Set { bytes: 8192 })), (8192, 12288));
    let refusal = Refusal::HostQuota { limit_bytes: 8192, had_bytes: 12288, wanted_bytes: 5000 };
    assert_eq!(refused(&ask(&mut state, own, Request::Host { bytes: 5000, name: name("b") })), &refusal);
    assert_eq!(limit(&mut state, own, quota(OWN, Memory::Host, Change::Clear)), (1 << 36, 12288));
    state.write_touched(|state, touched| pages.put(state, touched));
    let mut state = State::recover(limits(), OWN, |kind| pages.records(kind), |_| true);
    assert_eq!(limit(&mut state, own, quota(OWN, Memory::Host, Change::Keep)), (1 << 36, 12288));
    check(&state);
}

#[test]
fn a_quota_with_which_nothing_can_be_had_is_refused() {
    let mut state = State::new(limits(), OWN);
    let own = connected(&mut state);
    for (memory, least_bytes) in [(Memory::Device, 2 << 20), (Memory::Host, 8192)] {
        for bytes in [0, 1, least_bytes - 1] {
            let effects = ask(&mut state, own, quota(OWN, memory, Change::Set { bytes }));
            assert_eq!(refused(&effects), &Refusal::SmallQuota { least_bytes });
        }
        assert_eq!(limit(&mut state, own, quota(OWN, memory, Change::Set { bytes: least_bytes })), (least_bytes, 0));
    }
}

#[test]
fn names_of_both_memories_are_one_list_and_no_name_is_of_both() {
    let mut state = State::new(limits(), OWN);
    state.now = 100;
    let maker = state.connect(Peer { user: OWN, process: 77 }).unwrap();
    let name = |text| Name::parse(text).unwrap();
    published(&mut state, maker, "b", Policy::Restore);
    ask(&mut state, maker, Request::Host { bytes: 8192, name: name("a") });
    ask(&mut state, maker, Request::Host { bytes: 4097, name: name("c") });
    state.now = 161;
    let listed = "a\t8192\t7\t77\t0\t0\t61\t1\t1\nb\t4096\t7\t77\t1\t0\t61\t1\t0\nc\t4097\t7\t77\t0\t0\t61\t1\t1\n";
    assert_eq!(state.list(None), listed);
    assert_eq!(state.list(Some(&name("b"))), "c\t4097\t7\t77\t0\t0\t61\t1\t1\n");
    assert_eq!(state.nearest(&name("d"), 3), [&name("a"), &name("b"), &name("c")]);
    let other = |memory| Refusal::OtherMemory { memory };
    assert_eq!(refused(&ask(&mut state, maker, Request::Find { name: name("a") })), &other(Memory::Host));
    for bytes in [0, 8192] {
        assert_eq!(refused(&ask(&mut state, maker, Request::Host { bytes, name: name("b") })), &other(Memory::Device));
    }
    let lease = reserved(&mut state, maker, 512);
    let (policy, point) = (Policy::Restore, Point::default());
    let publish = Request::Publish { lease, policy, point, name: name("a") };
    assert_eq!(refused(&ask(&mut state, maker, publish)), &Refusal::NameTaken);
    // A process is named while it is there: its number may be another's later.
    state.end(maker, &PASSED);
    let again = state.connect(Peer { user: 8, process: 77 }).unwrap();
    assert_ne!(again, maker);
    assert_eq!(state.list(Some(&name("b"))), "c\t4097\t7\t0\t0\t0\t61\t1\t1\n");
    check(&state);
}

#[test]
fn what_one_user_had_is_no_other_users_though_it_is_zeros() {
    let mut state = State::new(limits(), OWN);
    let one = connected_as(&mut state, 8);
    reserved(&mut state, one, 4 << 20);
    let segment = state.segments.iter().next().expect("one was made").0;
    state.end(one, &PASSED);
    state.take_effects(Vec::new());
    state.cleaned(Dirty::Segment(segment), true);
    let other = connected_as(&mut state, 9);
    let effects = ask(&mut state, other, Request::Reserve { bytes: 4 << 20 });
    assert!(matches!(effects.as_slice(), [Effect::Make { .. }]), "{effects:?}");
    let again = connected_as(&mut state, 8);
    let effects = ask(&mut state, again, Request::Reserve { bytes: 4 << 20 });
    let [Effect::Reply { reply: Reply::Granted { segment: granted, .. }, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(*granted, segment);
}

#[test]
fn what_is_larger_than_the_broker_is_refused_for_that() {
    let mut state = State::new(Limits { tenant_bytes: 1 << 20, user_bytes: 1 << 20, ..limits() }, OWN);
    let tenant = connected(&mut state);
    let (budget_bytes, wanted_bytes) = (64 << 20, 65 << 20);
    let full = Refusal::Full { free_bytes: budget_bytes, budget_bytes, wanted_bytes };
    assert_eq!(refused(&ask(&mut state, tenant, Request::Reserve { bytes: wanted_bytes })), &full);
}

/// A name of one user's that a process of another has read and left.
fn exposed(state: &mut State) -> (Id, Id, Id) {
    let (publisher, stranger) = (connected_as(state, 8), connected_as(state, 9));
    let name = published(state, publisher, "a", Policy::Restore);
    let segment = state.blocks.get(state.named.get(name).unwrap().block).unwrap().segment;
    let effects = ask(state, stranger, Request::Lease { name, access: Access::Read });
    let [Effect::Reply { reply: Reply::Granted { lease, .. }, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    ask(state, stranger, Request::Attach { segment });
    ask(state, stranger, Request::Return { lease: *lease, point: Point::default() });
    ask(state, stranger, Request::Detach { segment });
    check(state);
    (publisher, stranger, segment)
}

#[test]
fn a_segment_that_another_user_attached_goes_back_to_the_driver() {
    let mut state = State::new(limits(), OWN);
    let (publisher, _, segment) = exposed(&mut state);
    let lease = reserved(&mut state, publisher, 100);
    let next = state.blocks.get(state.leases.get(lease).unwrap().block).unwrap().segment;
    assert_ne!(next, segment, "not even its owner gets new memory of it");
    let leases: Vec<Id> = state.tenants.get(publisher).unwrap().leases.iter().copied().collect();
    let close = Effect::Close { what: Thing::Segment(segment) };
    let mut effects = ask(&mut state, publisher, Request::Drop { name: Name::parse("a").unwrap() });
    for lease in leases {
        effects.extend(ask(&mut state, publisher, Request::Return { lease, point: Point::default() }));
    }
    assert!(effects.contains(&close), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Clean { .. })), "{effects:?}");
    assert!(state.segments.get(segment).is_none() && state.segments.get(next).is_some());
    check(&state);
}

#[test]
fn a_broker_that_takes_over_knows_what_another_user_had_attached() {
    let (mut state, mut pages) = (State::new(limits(), OWN), Pages::default());
    let (publisher, stranger, segment) = exposed(&mut state);
    state.end(stranger, &PASSED);
    let mut touched = Vec::new();
    state.write_touched(|_, one| touched.push(one));
    touched.into_iter().for_each(|one| pages.put(&state, one));
    let mut state = State::recover(limits(), OWN, |kind| pages.records(kind), |_| true);
    state.take_effects(Vec::new());
    ask(&mut state, publisher, Request::Drop { name: Name::parse("a").unwrap() });
    state.end(publisher, &PASSED);
    let effects = state.take_effects(Vec::new());
    assert!(effects.contains(&Effect::Close { what: Thing::Segment(segment) }), "{effects:?}");
    check(&state);
}

#[test]
fn a_segment_that_only_its_own_user_attached_is_used_again() {
    let mut state = State::new(limits(), OWN);
    let (publisher, reader) = (connected_as(&mut state, 8), connected_as(&mut state, 8));
    let name = published(&mut state, publisher, "a", Policy::Restore);
    let segment = state.blocks.get(state.named.get(name).unwrap().block).unwrap().segment;
    ask(&mut state, reader, Request::Lease { name, access: Access::Read });
    ask(&mut state, reader, Request::Attach { segment });
    ask(&mut state, publisher, Request::Drop { name: Name::parse("a").unwrap() });
    state.end(reader, &PASSED);
    state.end(publisher, &PASSED);
    let what = Dirty::Segment(segment);
    assert!(state.take_effects(Vec::new()).contains(&Effect::Clean { what, segment, offset: 0, bytes: 2 << 20 }));
    state.cleaned(what, true);
    let next = connected_as(&mut state, 8);
    reserved(&mut state, next, 100);
    assert_eq!(state.segments.get(segment).unwrap().owner, Some(next));
}
