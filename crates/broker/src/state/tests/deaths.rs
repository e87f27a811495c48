//! Producers that die before what they published is complete, and brokers that die in the middle of a publication.

use super::*;

const PENDING: FakeEnvironment = FakeEnvironment { is_full: false, is_complete: false };

fn name() -> Name {
    Name::parse("a").unwrap()
}

/// Publishes a lease, ready at an incomplete fence.
fn publish_later(state: &mut State, from: Id, lease: Id, policy: Policy, value: u64) {
    let fence = Fence { tenant: from, semaphore: 1, value };
    let effects = ask_with(state, from, Request::Publish { lease, policy, fence, name: name() }, false);
    assert!(matches!(effects.last(), Some(Effect::Reply { reply: Reply::Number { .. }, .. })), "{effects:?}");
}

/// A write lease of a name under the policy `Restore`.
fn rewriting(state: &mut State, from: Id) -> Id {
    let id = state.names[&name()].id;
    state.take_effects(Vec::new());
    let mut effects = ask(state, from, Request::Lease { name: id, access: Access::Write, bytes: 0 });
    if let Some(Effect::CreateSegment { segment, .. }) = effects.first() {
        state.segment_created(*segment, Ok(()));
        effects = state.take_effects(Vec::new());
    }
    match effects.as_slice() {
        [Effect::Reply { reply: Reply::Granted { lease, .. }, .. }] => *lease,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_producer_that_dies_before_its_point_leaves_what_was_whole_before() {
    let mut state = State::new(limits(), OPERATOR);
    let (publisher, writer) = (connected(&mut state), connected(&mut state));
    let id = published(&mut state, publisher, "a", Policy::Restore);
    let before = state.named.get(id).unwrap().block;
    let lease = rewriting(&mut state, writer);
    publish_later(&mut state, writer, lease, Policy::Restore, 5);
    assert_ne!(state.named.get(id).unwrap().block, before, "readers wait for the new one on the device");
    check(&state);
    state.remove_tenant(writer, &PENDING);
    let named = state.named.get(id).unwrap();
    assert_eq!((named.block, named.version, named.ready), (before, 1, Fence::default()));
    check(&state);
}

#[test]
fn a_producer_that_dies_behind_its_point_leaves_what_it_published() {
    let mut state = State::new(limits(), OPERATOR);
    let (publisher, writer) = (connected(&mut state), connected(&mut state));
    let id = published(&mut state, publisher, "a", Policy::Restore);
    let before = state.named.get(id).unwrap().block;
    let lease = rewriting(&mut state, writer);
    publish_later(&mut state, writer, lease, Policy::Restore, 5);
    state.remove_tenant(writer, &COMPLETE);
    let named = state.named.get(id).unwrap();
    assert_eq!((named.version, named.previous), (2, None));
    assert_ne!(named.block, before);
    check(&state);
}

#[test]
fn what_was_there_before_goes_when_the_point_has_passed() {
    let mut state = State::new(limits(), OPERATOR);
    let (publisher, writer) = (connected(&mut state), connected(&mut state));
    let id = published(&mut state, publisher, "a", Policy::Restore);
    state.remove_tenant(publisher, &COMPLETE);
    let lease = rewriting(&mut state, writer);
    publish_later(&mut state, writer, lease, Policy::Restore, 5);
    assert_eq!(state.stats().named_bytes, 8192);
    state.poll_fences(&PENDING);
    assert_eq!(state.stats().named_bytes, 8192);
    state.poll_fences(&COMPLETE);
    assert_eq!((state.stats().named_bytes, state.has_fence_waiters()), (4096, false));
    assert_eq!(state.named.get(id).unwrap().version, 2);
    check(&state);
}

#[test]
fn the_last_whole_state_stays_however_many_follow_it() {
    let mut state = State::new(limits(), OPERATOR);
    let tenants = [0; 3].map(|_| connected(&mut state));
    let id = published(&mut state, tenants[0], "a", Policy::Restore);
    let whole = state.named.get(id).unwrap().block;
    for (value, &writer) in (5..).zip(&tenants[1..]) {
        let lease = rewriting(&mut state, writer);
        publish_later(&mut state, writer, lease, Policy::Restore, value);
        check(&state);
    }
    state.remove_tenant(tenants[2], &PENDING);
    assert_eq!(state.named.get(id).unwrap().block, whole);
    check(&state);
}

#[test]
fn a_first_publication_that_is_never_complete_leaves_no_name() {
    for (policy, is_there) in [(Policy::Restore, false), (Policy::Drop, false), (Policy::Open, true)] {
        let mut state = State::new(limits(), OPERATOR);
        let publisher = connected(&mut state);
        let lease = reserved(&mut state, publisher, 4096);
        publish_later(&mut state, publisher, lease, policy, 5);
        state.remove_tenant(publisher, &PENDING);
        assert_eq!(state.names.contains_key(&name()), is_there, "{policy:?}");
        check(&state);
    }
}

#[test]
fn a_writer_in_place_that_dies_before_its_point_drops_the_name() {
    let mut state = State::new(limits(), OPERATOR);
    let (publisher, writer) = (connected(&mut state), connected(&mut state));
    let id = published(&mut state, publisher, "a", Policy::Drop);
    state.remove_tenant(publisher, &COMPLETE);
    let lease = rewriting(&mut state, writer);
    let fence = Fence { tenant: writer, semaphore: 1, value: 5 };
    ask_with(&mut state, writer, Request::Return { lease, fence }, false);
    assert_eq!(state.named.get(id).unwrap().ready, fence);
    state.remove_tenant(writer, &PENDING);
    assert!(state.names.is_empty());
    check(&state);
}

#[test]
fn a_tenant_that_said_goodbye_is_there_until_its_points_have_passed() {
    let mut state = State::new(limits(), OPERATOR);
    let publisher = connected(&mut state);
    let lease = reserved(&mut state, publisher, 4096);
    publish_later(&mut state, publisher, lease, Policy::Restore, 5);
    ask_with(&mut state, publisher, Request::Bye, false);
    state.poll_fences(&PENDING);
    assert!(state.tenants.get(publisher).is_some());
    state.poll_fences(&COMPLETE);
    assert!(state.tenants.get(publisher).is_none());
    assert_eq!(state.named.get(state.names[&name()].id).unwrap().version, 1);
    check(&state);
}

/// The state of a broker that recovers after one that died after some records.
fn recovered(state: &mut State, journal: &mut MemoryJournal, cut: usize) -> State {
    let mut dirty = Vec::new();
    state.write_dirty(|_, one| dirty.push(one));
    dirty[..cut.min(dirty.len())].iter().for_each(|&one| journal.put(state, one));
    State::recover(limits(), OPERATOR, |kind| journal.records(kind), |_| true)
}

#[test]
fn a_publication_that_is_repeated_is_finished_wherever_the_broker_died() {
    for cut in 0..8 {
        let (mut state, mut journal) = (State::new(limits(), OPERATOR), MemoryJournal::default());
        let publisher = connected(&mut state);
        let lease = reserved(&mut state, publisher, 4096);
        recovered(&mut state, &mut journal, usize::MAX);
        let message = Request::Publish { lease, policy: Policy::Drop, fence: Fence::default(), name: name() };
        ask(&mut state, publisher, message.clone());
        let mut state = recovered(&mut state, &mut journal, cut);
        for _ in 0..2 {
            state.request(publisher, Frame { number: 1, is_retry: true, message: message.clone() }, &COMPLETE);
            check(&state);
        }
        let named = state.named.get(state.names[&name()].id).unwrap();
        assert_eq!((named.readers, named.version), (1, 1), "after {cut} records");
        assert_eq!(state.leases.get(lease).unwrap().access, Access::Read);
    }
}

#[test]
fn a_lease_that_ends_of_a_tenant_that_is_lost_is_lost() {
    let (mut state, mut journal) = (State::new(limits(), OPERATOR), MemoryJournal::default());
    let tenant = connected(&mut state);
    let lease = reserved(&mut state, tenant, 4096);
    let fence = Fence { tenant, semaphore: 1, value: 5 };
    ask_with(&mut state, tenant, Request::Return { lease, fence }, false);
    recovered(&mut state, &mut journal, usize::MAX);
    let has = |thing| thing != Resource::Semaphores(tenant);
    let state = State::recover(limits(), OPERATOR, |kind| journal.records(kind), has);
    assert_eq!((state.leases.len(), state.has_fence_waiters()), (0, false));
    check(&state);
}

#[test]
fn a_goodbye_outlives_the_broker() {
    let (mut state, mut journal) = (State::new(limits(), OPERATOR), MemoryJournal::default());
    let tenant = connected(&mut state);
    let lease = reserved(&mut state, tenant, 4096);
    let fence = Fence { tenant, semaphore: 1, value: 5 };
    ask_with(&mut state, tenant, Request::Return { lease, fence }, false);
    ask_with(&mut state, tenant, Request::Bye, false);
    let mut state = recovered(&mut state, &mut journal, usize::MAX);
    state.poll_fences(&COMPLETE);
    assert_eq!(state.tenants.len(), 0);
}

#[test]
fn a_drop_that_is_repeated_drops_no_name_that_came_since() {
    let (mut state, mut journal) = (State::new(limits(), OPERATOR), MemoryJournal::default());
    let (one, other) = (connected(&mut state), connected(&mut state));
    published(&mut state, one, "a", Policy::Restore);
    ask(&mut state, one, Request::Drop { name: name() });
    assert!(state.names.is_empty());
    let mut state = recovered(&mut state, &mut journal, usize::MAX);
    published(&mut state, other, "a", Policy::Restore);
    let message = Request::Drop { name: name() };
    state.request(one, Frame { number: 1, is_retry: true, message: message.clone() }, &COMPLETE);
    let reply = Effect::Reply { to: one, number: 1, reply: Reply::Done };
    assert_eq!((state.take_effects(Vec::new()), state.names.len()), (vec![reply], 1));
    state.request(one, Frame { number: 2, is_retry: true, message }, &COMPLETE);
    assert!(state.names.is_empty(), "a new request drops again");
}

/// Whichever records a broker had written when it died, an incomplete version of a name is never taken for complete.
#[test]
fn a_writer_in_place_that_returns_is_never_taken_for_done_before_its_name_waits_for_it() {
    for records in 0..8 {
        let (mut state, mut journal) = (State::new(limits(), OPERATOR), MemoryJournal::default());
        let (publisher, writer) = (connected(&mut state), connected(&mut state));
        let id = published(&mut state, publisher, "a", Policy::Drop);
        state.remove_tenant(publisher, &COMPLETE);
        let lease = rewriting(&mut state, writer);
        state.write_dirty(|state, one| journal.put(state, one));
        let fence = Fence { tenant: writer, semaphore: 1, value: 5 };
        let asked = Frame { number: 9, is_retry: false, message: Request::Return { lease, fence } };
        state.request(writer, asked, &PENDING);
        let after = recovered(&mut state, &mut journal, records);
        let is_returned = after.leases.get(lease).is_none_or(|lease| lease.ending.is_some());
        let named = after.named.get(id).expect("no tenant has died");
        assert!(!is_returned || named.ready == fence, "after {records} records");
    }
}

#[test]
fn a_given_lease_is_reported_by_every_broker_until_it_ends() {
    let mut state = State::new(limits(), OPERATOR);
    let (giver, taker) = (connected(&mut state), connected(&mut state));
    let lease = reserved(&mut state, giver, 4096);
    let fence = Fence { tenant: giver, semaphore: 1, value: 5 };
    let told = |effects: Vec<Effect>| match effects.as_slice() {
        [Effect::Notify { to, reply: Reply::Given { lease, fence, from, .. } }, ..] => {
            Some((*to, *lease, *fence, *from))
        }
        _ => None,
    };
    let first = told(ask_with(&mut state, giver, Request::Give { lease, to: taker, fence }, false)).unwrap();
    let given = first.1;
    assert_eq!(first, (taker, given, fence, giver));
    let mut journal = MemoryJournal::default();
    for _ in 0..2 {
        state = recovered(&mut state, &mut journal, usize::MAX);
        assert_eq!(told(state.take_effects(Vec::new())), Some((taker, given, fence, giver)));
    }
    ask(&mut state, taker, Request::Return { lease: given, fence: Fence::default() });
    let mut next = recovered(&mut state, &mut journal, usize::MAX);
    assert_eq!(told(next.take_effects(Vec::new())), None);
}

#[test]
fn segments_of_more_bytes_than_there_can_be_are_not_believed() {
    let (mut state, mut journal) = (State::new(limits(), OPERATOR), MemoryJournal::default());
    let tenant = connected(&mut state);
    for _ in 0..3 {
        reserved(&mut state, tenant, 2 << 20);
    }
    assert_eq!(recovered(&mut state, &mut journal, usize::MAX).stats().segment_bytes, 6 << 20);
    for bytes in [u64::MAX, u64::MAX / 2, 1 << 62, 40 << 20] {
        for index in [0, 2] {
            let record = journal.0.get_mut(&(RecordKind::Segment as usize, index)).unwrap();
            record.words.as_mut().unwrap()[0] = bytes;
        }
        let mended = State::recover(limits(), OPERATOR, |kind| journal.records(kind), |_| true);
        check(&mended);
        assert_eq!(mended.stats().segment_bytes, if bytes == 40 << 20 { 42 << 20 } else { 2 << 20 });
    }
}

/// A lease that one tenant gave to another, ready at an incomplete fence of the giver.
fn given_later(state: &mut State, from: Id, to: Id) -> Id {
    let lease = reserved(state, from, 1000);
    let fence = Fence { tenant: from, semaphore: 1, value: 5 };
    let effects = ask_with(state, from, Request::Give { lease, to, fence }, false);
    match effects.first() {
        Some(Effect::Notify { reply: Reply::Given { lease, fence: told, .. }, .. }) if *told == fence => *lease,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_receiver_is_told_that_its_giver_died_before_its_stream_passes() {
    let mut state = State::new(limits(), OPERATOR);
    let (giver, taker) = (connected(&mut state), connected(&mut state));
    let lease = given_later(&mut state, giver, taker);
    check(&state);
    state.process_exited(giver, &PENDING);
    let effects = state.take_effects(Vec::new());
    let at = |wanted: &Effect| effects.iter().position(|effect| effect == wanted);
    let told = at(&Effect::Notify { to: taker, reply: Reply::Unfinished { lease } });
    let passed = at(&Effect::CloseFd { what: Resource::Semaphores(giver) });
    assert!(told.is_some() && told < passed, "{effects:?}");
    check(&state);
}

#[test]
fn what_was_given_is_whole_when_its_point_has_passed_however_its_giver_ends() {
    let mut state = State::new(limits(), OPERATOR);
    let (giver, taker) = (connected(&mut state), connected(&mut state));
    let lease = given_later(&mut state, giver, taker);
    state.process_exited(giver, &COMPLETE);
    let unfinished = Effect::Notify { to: taker, reply: Reply::Unfinished { lease } };
    assert!(!state.take_effects(Vec::new()).contains(&unfinished));
    check(&state);
}

#[test]
fn a_tenant_that_says_bye_stays_until_what_it_gave_is_complete() {
    let mut state = State::new(limits(), OPERATOR);
    let (giver, taker) = (connected(&mut state), connected(&mut state));
    let lease = given_later(&mut state, giver, taker);
    ask_with(&mut state, giver, Request::Bye, false);
    state.poll_fences(&PENDING);
    assert!(state.tenants.get(giver).is_some(), "removing it would complete its fences");
    state.poll_fences(&COMPLETE);
    assert!(state.tenants.get(giver).is_none());
    let unfinished = Effect::Notify { to: taker, reply: Reply::Unfinished { lease } };
    assert!(!state.take_effects(Vec::new()).contains(&unfinished));
    check(&state);
}

#[test]
fn a_recovered_broker_reports_unfinished_leases_again_and_waits_for_incomplete_ones() {
    let (mut state, mut journal) = (State::new(limits(), OPERATOR), MemoryJournal::default());
    let [dead, giver, taker] = [(); 3].map(|()| connected(&mut state));
    let (unfinished, later) = (given_later(&mut state, dead, taker), given_later(&mut state, giver, taker));
    state.process_exited(dead, &PENDING);
    state.take_effects(Vec::new());
    let mut dirty = Vec::new();
    state.write_dirty(|_, one| dirty.push(one));
    dirty.into_iter().for_each(|one| journal.put(&state, one));
    let mut state = State::recover(limits(), OPERATOR, |kind| journal.records(kind), |_| true);
    let told =
        |effects: &[Effect], lease| effects.contains(&Effect::Notify { to: taker, reply: Reply::Unfinished { lease } });
    let effects = state.take_effects(Vec::new());
    assert!(told(&effects, unfinished) && !told(&effects, later), "{effects:?}");
    state.process_exited(giver, &PENDING);
    assert!(told(&state.take_effects(Vec::new()), later));
    // Returned leases are not reported.
    ask(&mut state, taker, Request::Return { lease: unfinished, fence: Fence::default() });
    check(&state);
}
