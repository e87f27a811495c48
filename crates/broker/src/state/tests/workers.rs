//! Workers, borrowed leases, and modules.

use super::*;
use crate::protocol::types::SESSIONS_MAX;

/// The session of a tenant, as the reply describes it.
fn hired(state: &mut State, tenant: Id, label: u64) -> (Id, u32, bool) {
    let effects = ask(state, tenant, Request::OpenSession { label });
    let is_started = matches!(effects.first(), Some(Effect::StartWorker { .. }));
    match effects.last() {
        Some(&Effect::OpenSession { worker, session_index, .. }) => (worker, session_index, is_started),
        other => panic!("{other:?}"),
    }
}

fn borrowed(state: &mut State, worker: Id, lease: Id, of: Id) -> (Id, Access) {
    match ask(state, worker, Request::Borrow { lease, of }).as_slice() {
        [Effect::Reply { reply: Reply::Granted { lease, access, .. }, .. }] => (*lease, *access),
        other => panic!("{other:?}"),
    }
}

fn put(state: &mut State, from: Id, name: &str, hash: u64) -> Result<Id, RequestError> {
    put_with(state, from, name, hash, 0)
}

/// Puts a module with device memory of its own.
fn put_with(state: &mut State, from: Id, name: &str, hash: u64, device_bytes: u64) -> Result<Id, RequestError> {
    let request = Request::PutModule { bytes: 100, device_bytes, hash: [hash; 4], name: Name::parse(name).unwrap() };
    let effects = ask(state, from, request);
    match effects.last() {
        Some(Effect::Reply { reply: Reply::Number { id, .. }, .. }) => Ok(*id),
        _ => Err(*refused(&effects[effects.len() - 1..])),
    }
}

#[test]
fn a_tenant_has_one_worker_and_those_that_agree_share_one() {
    let mut state = State::new(Limits { user_tenants: 40, ..limits() }, OPERATOR);
    let [one, other, third] = [(); 3].map(|()| connected(&mut state));
    let stranger = connected_as(&mut state, 9);
    let (worker, session_index, is_started) = hired(&mut state, one, 0);
    assert!(is_started && session_index == 0);
    assert_eq!(hired(&mut state, one, 0), (worker, 0, false));
    let (shared, _, is_started) = hired(&mut state, other, 5);
    assert!(is_started && shared != worker);
    assert_eq!(hired(&mut state, third, 5), (shared, 1, false));
    let (strangers, _, is_started) = hired(&mut state, stranger, 5);
    assert!(is_started && strangers != shared, "users do not share a worker");
    assert_eq!(refused(&ask(&mut state, worker, Request::OpenSession { label: 0 })), &RequestError::Malformed);
    check(&state);
}

#[test]
fn a_worker_serves_so_many_and_then_there_is_another() {
    let mut state = State::new(Limits { user_tenants: 60, ..limits() }, OPERATOR);
    let workers: Vec<Id> = (0..=SESSIONS_MAX)
        .map(|_| {
            let tenant = connected(&mut state);
            hired(&mut state, tenant, 5).0
        })
        .collect();
    assert!(workers[..SESSIONS_MAX as usize].iter().all(|&worker| worker == workers[0]));
    assert_ne!(workers[SESSIONS_MAX as usize], workers[0]);
    check(&state);
}

#[test]
fn a_session_index_is_never_reused_even_by_a_new_broker() {
    let (mut state, mut journal) =
        (State::new(Limits { user_tenants: 60, ..limits() }, OPERATOR), MemoryJournal::default());
    let [stays, leaves] = [(); 2].map(|()| connected(&mut state));
    let (worker, ..) = hired(&mut state, stays, 5);
    assert_eq!(hired(&mut state, leaves, 5), (worker, 1, false));
    state.remove_tenant(leaves, &COMPLETE);
    let next = connected(&mut state);
    assert_eq!(hired(&mut state, next, 5), (worker, 2, false));
    state.remove_tenant(next, &COMPLETE);
    state.take_effects(Vec::new());
    let mut dirty = Vec::new();
    state.write_dirty(|_, one| dirty.push(one));
    dirty.into_iter().for_each(|one| journal.put(&state, one));
    let limits = Limits { user_tenants: 60, ..limits() };
    let mut state = State::recover(limits, OPERATOR, |kind| journal.records(kind), |_| true);
    state.take_effects(Vec::new());
    let last = connected(&mut state);
    assert_eq!(hired(&mut state, last, 5), (worker, 3, false));
    check(&state);
}

#[test]
fn only_a_worker_borrows_and_only_of_those_that_it_serves() {
    let mut state = State::new(limits(), OPERATOR);
    let [one, other] = [(); 2].map(|()| connected(&mut state));
    let (lease, others) = (reserved(&mut state, one, 100), reserved(&mut state, other, 100));
    let worker = hired(&mut state, one, 0).0;
    assert_eq!(refused(&ask(&mut state, other, Request::Borrow { lease, of: one })), &RequestError::NotAWorker);
    assert_eq!(
        refused(&ask(&mut state, worker, Request::Borrow { lease: others, of: other })),
        &RequestError::NoTenant
    );
    assert_eq!(
        refused(&ask(&mut state, worker, Request::Borrow { lease: others, of: one })),
        &RequestError::ForeignLease
    );
    ask(&mut state, other, Request::Return { lease: others, fence: Fence::default() });
    assert_eq!(
        refused(&ask(&mut state, worker, Request::Borrow { lease: others, of: one })),
        &RequestError::LeaseEnded
    );
    let never = Id(9 << 32 | 77);
    assert_eq!(refused(&ask(&mut state, worker, Request::Borrow { lease: never, of: one })), &RequestError::NoLease);
    let first = borrowed(&mut state, worker, lease, one);
    assert_eq!(first.1, Access::Write);
    assert_eq!(borrowed(&mut state, worker, lease, one), first, "a repeated request returns the same lease");
    let (own, fence) = (first.0, Fence::default());
    let name = Name::parse("n").unwrap();
    let publish = Request::Publish { lease: own, policy: Policy::Open, fence, name };
    assert_eq!(
        refused(&ask(&mut state, worker, publish)),
        &RequestError::ReadOnly,
        "a borrowed lease cannot be published"
    );
    assert_eq!(
        refused(&ask(&mut state, worker, Request::Give { lease: own, to: other, fence })),
        &RequestError::ReadOnly
    );
    assert_eq!(refused(&ask(&mut state, one, Request::Give { lease, to: worker, fence })), &RequestError::NoTenant);
    check(&state);
}

#[test]
fn a_block_lives_until_both_have_returned_it() {
    let mut state = State::new(limits(), OPERATOR);
    let one = connected(&mut state);
    let lease = reserved(&mut state, one, 1000);
    let worker = hired(&mut state, one, 0).0;
    let (own, _) = borrowed(&mut state, worker, lease, one);
    let effects = ask(&mut state, one, Request::Return { lease, fence: Fence::default() });
    let recall = Effect::Notify { to: worker, reply: Reply::Recall { lease: own } };
    assert_eq!(effects[0], recall, "the worker is notified");
    assert_eq!(state.stats().leased_bytes, 1000);
    let next = reserved(&mut state, one, 1000);
    let offset = |state: &State, lease| state.blocks.get(state.leases.get(lease).unwrap().block).unwrap().offset;
    assert_eq!(offset(&state, next), 1024, "what the worker has borrowed is not reusable yet");
    // After its last work.
    let fence = Fence { tenant: worker, semaphore: 3, value: 7 };
    ask_with(&mut state, worker, Request::Return { lease: own, fence }, false);
    assert_eq!(state.stats().leased_bytes, 2000);
    state.poll_fences(&COMPLETE);
    let again = reserved(&mut state, one, 1000);
    assert_eq!(offset(&state, again), 0, "unscrubbed: a worker works for the holder");
    check(&state);
}

#[test]
fn a_lease_that_is_returned_behind_a_call_is_borrowed_until_that_has_passed() {
    let mut state = State::new(limits(), OPERATOR);
    let one = connected(&mut state);
    let lease = reserved(&mut state, one, 1000);
    let worker = hired(&mut state, one, 0).0;
    let fence = Fence { tenant: worker, semaphore: 16, value: 1 };
    ask_with(&mut state, one, Request::Return { lease, fence }, false);
    let (own, _) = borrowed(&mut state, worker, lease, one);
    check(&state);
    state.poll_fences(&COMPLETE);
    let recall = Effect::Notify { to: worker, reply: Reply::Recall { lease: own } };
    assert!(state.take_effects(Vec::new()).contains(&recall));
    check(&state);
}

#[test]
fn what_is_published_is_borrowed_for_reading_from_then_on() {
    let mut state = State::new(limits(), OPERATOR);
    let one = connected(&mut state);
    let lease = reserved(&mut state, one, 1000);
    let worker = hired(&mut state, one, 0).0;
    let (own, _) = borrowed(&mut state, worker, lease, one);
    let (name, fence) = (Name::parse("n").unwrap(), Fence::default());
    let effects = ask(&mut state, one, Request::Publish { lease, policy: Policy::Restore, fence, name });
    assert_eq!(effects[0], Effect::Notify { to: worker, reply: Reply::Recall { lease: own } });
    assert_eq!(borrowed(&mut state, worker, lease, one).1, Access::Read);
    let id = state.names[&Name::parse("n").unwrap()].id;
    assert_eq!(state.named.get(id).unwrap().readers, 1, "a borrowed lease does not count as a reader");
    check(&state);
}

#[test]
fn a_tenant_that_goes_stays_until_its_worker_has_finished_and_a_worker_until_the_last_has_gone() {
    for says_goodbye in [false, true] {
        let mut state = State::new(limits(), OPERATOR);
        let [one, other] = [(); 2].map(|()| connected(&mut state));
        let worker = hired(&mut state, one, 5).0;
        hired(&mut state, other, 5);
        let leave = |state: &mut State, tenant: Id| match says_goodbye {
            true => ask(state, tenant, Request::Bye),
            false => {
                state.process_exited(tenant, &COMPLETE);
                state.take_effects(Vec::new())
            }
        };
        assert_eq!(refused(&ask(&mut state, worker, Request::Drained { tenant: one })), &RequestError::NoTenant);
        let held = reserved(&mut state, one, 1000);
        let returned = reserved(&mut state, one, 1000);
        let fence = Fence { tenant: worker, semaphore: 16, value: 1 };
        ask_with(&mut state, one, Request::Return { lease: returned, fence }, false);
        let effects = leave(&mut state, one);
        assert!(effects.contains(&Effect::DrainSession { worker, tenant: one }), "{effects:?}");
        assert_eq!(effects.contains(&Effect::CompleteFences { tenant: one }), !says_goodbye);
        state.poll_fences(&FakeEnvironment { is_full: false, is_complete: false });
        assert!(state.leases.get(held).is_some() && state.leases.get(returned).is_some());
        borrowed(&mut state, worker, returned, one);
        borrowed(&mut state, worker, held, one);
        check(&state);
        let effects = ask_with(&mut state, worker, Request::Drained { tenant: one }, false);
        assert!(
            state.tenants.get(one).is_none() && !effects.contains(&Effect::StopWorker { worker }),
            "other tenants still use the worker"
        );
        assert!(state.leases.get(held).is_none() && state.leases.get(returned).is_none());
        check(&state);
        leave(&mut state, other);
        let effects = ask(&mut state, worker, Request::Drained { tenant: other });
        assert!(effects.contains(&Effect::StopWorker { worker }), "{effects:?}");
        let newcomer = connected(&mut state);
        assert_ne!(hired(&mut state, newcomer, 5).0, worker, "an exiting worker gets no new tenant");
        check(&state);
    }
}

#[test]
fn a_tenant_that_goes_is_gone_with_its_worker() {
    let mut state = State::new(limits(), OPERATOR);
    let one = connected(&mut state);
    let (worker, lease) = (hired(&mut state, one, 0).0, reserved(&mut state, one, 1000));
    state.process_exited(one, &COMPLETE);
    state.process_exited(worker, &COMPLETE);
    state.poll_fences(&COMPLETE);
    assert!(state.tenants.get(one).is_none() && state.leases.get(lease).is_none());
    check(&state);
}

#[test]
fn a_broker_that_takes_over_lets_those_go_that_were_going() {
    let (mut state, mut journal) = (State::new(limits(), OPERATOR), MemoryJournal::default());
    let [one, other] = [(); 2].map(|()| connected(&mut state));
    let (worker, others) = (hired(&mut state, one, 0).0, hired(&mut state, other, 0).0);
    ask(&mut state, one, Request::Bye);
    state.process_exited(other, &COMPLETE);
    let mut dirty = Vec::new();
    state.write_dirty(|_, one| dirty.push(one));
    dirty.into_iter().for_each(|one| journal.put(&state, one));
    let mut state = State::recover(limits(), OPERATOR, |kind| journal.records(kind), |_| true);
    let effects = state.take_effects(Vec::new());
    assert!(effects.contains(&Effect::DrainSession { worker, tenant: one }), "{effects:?}");
    assert!(effects.contains(&Effect::DrainSession { worker: others, tenant: other }), "{effects:?}");
    assert!(effects.contains(&Effect::CompleteFences { tenant: other }), "{effects:?}");
    ask(&mut state, worker, Request::Drained { tenant: one });
    ask(&mut state, others, Request::Drained { tenant: other });
    assert!(state.tenants.get(one).is_none() && state.tenants.get(other).is_none());
    check(&state);
}

#[test]
fn a_dead_worker_takes_nothing_of_its_tenants_along() {
    let mut state = State::new(limits(), OPERATOR);
    let one = connected(&mut state);
    let (lease, returned) = (reserved(&mut state, one, 1000), reserved(&mut state, one, 1000));
    let worker = hired(&mut state, one, 0).0;
    borrowed(&mut state, worker, lease, one);
    let fence = Fence { tenant: worker, semaphore: 16, value: 1 };
    ask_with(&mut state, one, Request::Return { lease: returned, fence }, false);
    state.remove_tenant(worker, &FakeEnvironment { is_full: false, is_complete: false });
    state.take_effects(Vec::new());
    check(&state);
    assert!(state.leases.get(lease).is_some(), "the tenant's own lease stays");
    assert!(state.leases.get(returned).is_none(), "fences of a worker that is gone are complete");
    assert!(hired(&mut state, one, 0).2, "the next call gets another worker");
    // Fences of the worker that is gone are complete too.
    ask_with(&mut state, one, Request::Return { lease, fence }, false);
    assert!(state.leases.get(lease).is_none());
    check(&state);
}

#[test]
fn a_module_is_there_for_others_when_a_worker_has_proved_it() {
    let mut state = State::new(limits(), OPERATOR);
    let [one, other] = [(); 2].map(|()| connected(&mut state));
    let module = put(&mut state, one, "m", 1).unwrap();
    let find = |state: &mut State, from: Id| {
        let effects = ask(state, from, Request::Module { id: Id(0), name: Some(Name::parse("m").unwrap()) });
        matches!(effects.as_slice(), [Effect::SendFdWith { .. }])
    };
    assert!(find(&mut state, one) && !find(&mut state, other));
    let drop = Request::DropModule { name: Name::parse("m").unwrap() };
    assert_eq!(refused(&ask(&mut state, other, drop.clone())), &RequestError::NoModule);
    assert_eq!(refused(&ask(&mut state, one, Request::Compiled { module })), &RequestError::NotAWorker);
    let worker = hired(&mut state, one, 0).0;
    ask(&mut state, worker, Request::Compiled { module });
    assert!(find(&mut state, other));
    assert_eq!(put(&mut state, other, "m", 1), Ok(module), "the same text again returns the same module");
    assert_eq!(put(&mut state, other, "m", 2), Err(RequestError::ModuleTaken));
    let stranger = connected_as(&mut state, 9);
    assert_eq!(put(&mut state, stranger, "m", 1), Ok(module), "users share a compiled text");
    assert_eq!(put(&mut state, stranger, "m", 2), Err(RequestError::ForeignName));
    assert_eq!(refused(&ask(&mut state, stranger, drop.clone())), &RequestError::ForeignName);
    state.remove_tenant(one, &COMPLETE);
    state.take_effects(Vec::new());
    assert!(find(&mut state, other), "it stays when its tenant has gone");
    ask(&mut state, other, drop);
    assert!(!find(&mut state, other));
    check(&state);
}

#[test]
fn an_uncompiled_module_is_replaced_and_ends_with_its_tenant() {
    let mut state = State::new(limits(), OPERATOR);
    let [one, other] = [(); 2].map(|()| connected(&mut state));
    let first = put(&mut state, one, "m", 1).unwrap();
    let second = put(&mut state, other, "m", 2).unwrap();
    assert_ne!(first, second);
    let stranger = connected_as(&mut state, 9);
    let strangers = put(&mut state, stranger, "m", 2).unwrap();
    assert_ne!(strangers, second, "a text that is not compiled is not shared");
    let second = put(&mut state, other, "m", 2).unwrap();
    assert_eq!(put(&mut state, one, "m", 2), Ok(second), "the last tenant that puts it owns it");
    state.remove_tenant(other, &COMPLETE);
    assert!(state.modules.get(second).is_some());
    state.remove_tenant(one, &COMPLETE);
    assert!(state.modules.get(second).is_none());
    check(&state);
}

#[test]
fn modules_count_for_a_user() {
    let mut state = State::new(Limits { user_module_bytes: 150, ..limits() }, OPERATOR);
    let one = connected(&mut state);
    put(&mut state, one, "a", 1).unwrap();
    let full = RequestError::UserQuota { limit_bytes: 150, had_bytes: 100, wanted_bytes: 100 };
    assert_eq!(put(&mut state, one, "b", 1), Err(full));
    ask(&mut state, one, Request::DropModule { name: Name::parse("a").unwrap() });
    assert!(put(&mut state, one, "b", 1).is_ok());
}

/// Makes a worker load a module. Returns the error, if any.
fn loaded(state: &mut State, worker: Id, module: Id) -> Result<(), RequestError> {
    let effects = ask(state, worker, Request::Module { id: module, name: None });
    match effects.last() {
        Some(Effect::SendFdWith { .. }) => Ok(()),
        _ => Err(*refused(&effects[effects.len() - 1..])),
    }
}

fn dropped(state: &mut State, from: Id, name: &str) -> Vec<Effect> {
    ask(state, from, Request::DropModule { name: Name::parse(name).unwrap() })
}

#[test]
fn variables_count_at_each_worker_from_before_they_are_loaded_until_they_are_unloaded() {
    let mut state = State::new(Limits { user_bytes: 8 << 20, ..limits() }, OPERATOR);
    let [one, other] = [(); 2].map(|()| connected(&mut state));
    let (worker, others) = (hired(&mut state, one, 0).0, hired(&mut state, other, 0).0);
    let full = |had_bytes, wanted_bytes| RequestError::UserQuota { limit_bytes: 8 << 20, had_bytes, wanted_bytes };
    assert_eq!(put_with(&mut state, one, "a", 1, 9 << 20), Err(full(0, 9 << 20)), "no worker could load it");
    let module = put_with(&mut state, one, "a", 1, 3 << 20).unwrap();
    assert_eq!(state.accounting.user(OPERATOR).bytes, 0, "no worker has loaded it");
    assert_eq!(refused(&ask(&mut state, one, Request::Unload { module })), &RequestError::NotAWorker);
    for worker in [worker, worker, others] {
        loaded(&mut state, worker, module).unwrap();
    }
    assert_eq!(state.accounting.user(OPERATOR).bytes, 6 << 20, "once for each worker");
    let reserve = Request::Reserve { bytes: 3 << 20 };
    assert_eq!(refused(&ask(&mut state, one, reserve)), &full(6 << 20, 3 << 20));
    let more = put_with(&mut state, one, "b", 2, 2 << 20).unwrap();
    loaded(&mut state, worker, more).unwrap();
    check(&state);
    // A dropped module counts until the workers have unloaded it.
    let effects = dropped(&mut state, one, "a");
    for to in [worker, others] {
        assert!(effects.contains(&Effect::Notify { to, reply: Reply::Unload { module } }), "{effects:?}");
    }
    assert_eq!(state.accounting.user(OPERATOR).bytes, 8 << 20);
    ask(&mut state, worker, Request::Unload { module });
    assert_eq!(state.accounting.user(OPERATOR).bytes, 5 << 20);
    ask(&mut state, worker, Request::Unload { module });
    assert_eq!(state.accounting.user(OPERATOR).bytes, 5 << 20, "once");
    state.remove_tenant(others, &COMPLETE);
    assert_eq!(state.accounting.user(OPERATOR).bytes, 2 << 20, "a worker that has ended has nothing loaded");
    check(&state);
}

#[test]
fn variables_count_for_the_process_that_a_worker_serves_and_for_all() {
    let mut state = State::new(Limits { tenant_bytes: 6 << 20, ..limits() }, OPERATOR);
    let one = connected(&mut state);
    let worker = hired(&mut state, one, 0).0;
    reserved(&mut state, one, 2 << 20);
    let [small, large] =
        [("a", 3 << 20), ("b", 5 << 20)].map(|(name, bytes)| put_with(&mut state, one, name, bytes, bytes).unwrap());
    let full = |had_bytes, wanted_bytes| RequestError::TenantQuota { limit_bytes: 6 << 20, had_bytes, wanted_bytes };
    assert_eq!(loaded(&mut state, worker, large), Err(full(2 << 20, 5 << 20)));
    loaded(&mut state, worker, small).unwrap();
    assert_eq!(refused(&ask(&mut state, one, Request::Reserve { bytes: 2 << 20 })), &full(5 << 20, 2 << 20));
    // Another user has its own quota, but shares the broker's budget.
    let mut state = State::new(limits(), OPERATOR);
    let strangers = [8, 9].map(|user| {
        let tenant = connected_as(&mut state, user);
        (tenant, hired(&mut state, tenant, 0).0)
    });
    for (at, (tenant, worker)) in (0..).zip(strangers) {
        let module = put_with(&mut state, tenant, &format!("m/{at}"), at, 40 << 20).unwrap();
        let wanted = RequestError::OutOfMemory { free_bytes: 24 << 20, budget_bytes: 64 << 20, wanted_bytes: 40 << 20 };
        assert_eq!(loaded(&mut state, worker, module), if at == 0 { Ok(()) } else { Err(wanted) });
    }
    check(&state);
}

#[test]
fn another_users_worker_keeps_what_it_has_loaded_and_it_counts_there() {
    let mut state = State::new(limits(), OPERATOR);
    let (one, stranger) = (connected(&mut state), connected_as(&mut state, 9));
    let (worker, strangers) = (hired(&mut state, one, 0).0, hired(&mut state, stranger, 0).0);
    let module = put_with(&mut state, one, "a", 1, 3 << 20).unwrap();
    for worker in [worker, strangers] {
        loaded(&mut state, worker, module).unwrap();
        ask(&mut state, worker, Request::Compiled { module });
    }
    let effects = dropped(&mut state, one, "a");
    let told = |to| Effect::Notify { to, reply: Reply::Unload { module } };
    assert!(effects.contains(&told(worker)) && !effects.contains(&told(strangers)), "{effects:?}");
    assert_eq!([OPERATOR, 9].map(|user| state.accounting.user(user).bytes), [3 << 20; 2]);
    check(&state);
}

#[test]
fn a_broker_that_takes_over_counts_what_is_loaded_and_has_it_unloaded() {
    let (mut state, mut journal) = (State::new(limits(), OPERATOR), MemoryJournal::default());
    let one = connected(&mut state);
    let worker = hired(&mut state, one, 0).0;
    let [kept, gone] = [("kept", 1 << 20), ("gone", 2 << 20)].map(|(name, bytes)| {
        let module = put_with(&mut state, one, name, bytes, bytes).unwrap();
        loaded(&mut state, worker, module).unwrap();
        ask(&mut state, worker, Request::Compiled { module });
        module
    });
    dropped(&mut state, one, "gone");
    let mut dirty = Vec::new();
    state.write_dirty(|_, one| dirty.push(one));
    dirty.into_iter().for_each(|one| journal.put(&state, one));
    let mut state = State::recover(limits(), OPERATOR, |kind| journal.records(kind), |_| true);
    assert_eq!(state.accounting.user(OPERATOR).bytes, 3 << 20);
    let effects = state.take_effects(Vec::new());
    let told = |module| Effect::Notify { to: worker, reply: Reply::Unload { module } };
    assert!(effects.contains(&told(gone)) && !effects.contains(&told(kept)), "{effects:?}");
    ask(&mut state, worker, Request::Unload { module: gone });
    assert_eq!(state.accounting.user(OPERATOR).bytes, 1 << 20);
    check(&state);
}

#[test]
fn a_broker_with_modules_stops_by_force_alone_unless_they_are_the_librarys_own() {
    let mut state = State::new(limits(), OPERATOR);
    let one = connected(&mut state);
    put(&mut state, one, "freehold/copy-0123456789abcdef", 1).unwrap();
    put(&mut state, one, "gpu/0123456789abcdef0123456789abcdef", 1).unwrap();
    let stop = |is_forced| Request::Stop { is_forced };
    assert!(ask(&mut state.clone(), one, stop(false)).contains(&Effect::Stop));
    put(&mut state, one, "blas/saxpy", 1).unwrap();
    let error = *refused(&ask(&mut state, one, stop(false)));
    assert_eq!(error, RequestError::NamesPublished { names: 0, modules: 1, bytes: 0 });
    assert_eq!(error.to_string(), "1 module would be lost: drop it, or use `freehold stop --force`");
    published(&mut state, one, "a", Policy::Restore);
    let error = *refused(&ask(&mut state, one, stop(false)));
    assert_eq!(error, RequestError::NamesPublished { names: 1, modules: 1, bytes: 4096 });
    let sentence = "4 KiB under 1 name, and 1 module, would be lost: drop them, or use `freehold stop --force`";
    assert_eq!(error.to_string(), sentence);
    let effects = ask(&mut state, one, stop(true));
    let lost = Reply::Number { id: Id(1 << 32 | 1), bytes: 4096 };
    assert!(matches!(effects.as_slice(), [Effect::Reply { reply, .. }, Effect::Stop] if *reply == lost), "{effects:?}");
}
