//! Contexts: the stack of each thread, the primary context, several contexts, and the objects that a context destroys.

use crate::common;

use std::sync::mpsc;
use std::thread;

use common::{Context, Gate, Refused, child, driver};
use freehold_driver::cuda::primary::State;
use freehold_driver::cuda::{
    Api, CUcontext, CUctxCreateParams, CUdevice, CUerror, CUexecAffinityParam, CUfunc_cache, CUlimit, CUsharedconfig,
    CUstream, context, copy, ctx_flags, fill, memory, primary, profiler, stream, stream_flags,
};

/// Runs `run` in a new thread and returns its result.
fn elsewhere<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// Pops all contexts off the calling thread's stack, the last one first.
fn stack(api: &Api) -> Vec<CUcontext> {
    std::iter::from_fn(|| context::pop_current(api).ok()).collect()
}

#[test]
fn a_new_thread_has_no_context() {
    let own = Context::create();
    assert_eq!(context::current(&own.api), Ok(own.handle));
    assert_eq!(elsewhere(|| context::current(&own.api)), Ok(CUcontext::NULL));
}

#[test]
fn what_needs_a_context_is_refused_without_one() {
    let (api, _) = driver();
    assert_eq!(context::synchronize(&api).code(), CUerror::INVALID_CONTEXT);
    assert_eq!(context::device(&api).code(), CUerror::INVALID_CONTEXT);
    assert_eq!(stream::create(&api, 0).code(), CUerror::INVALID_CONTEXT);
    assert_eq!(context::pop_current(&api).code(), CUerror::INVALID_CONTEXT);
    assert_eq!(context::flags(&api).code(), CUerror::INVALID_CONTEXT);
    assert_eq!(context::limit(&api, CUlimit::STACK_SIZE).code(), CUerror::INVALID_CONTEXT);
    assert_eq!(context::cache_config(&api).code(), CUerror::INVALID_CONTEXT);
    assert_eq!(context::stream_priorities(&api).code(), CUerror::INVALID_CONTEXT);
}

#[test]
fn contexts_are_current_in_the_reverse_of_their_order() {
    let (api, device) = driver();
    let [one, two, three] = [(); 3].map(|()| context::create(&api, device, 0).unwrap());
    context::push_current(&api, one).unwrap();
    assert_eq!(stack(&api), [one, three, two, one]);
    for handle in [one, two, three] {
        context::destroy(&api, handle).unwrap();
    }
}

#[test]
fn set_current_replaces_the_top_and_null_takes_it_away() {
    let one = Context::create();
    let two = one.another();
    assert_eq!(
        elsewhere(|| {
            context::push_current(&one.api, one.handle).unwrap();
            context::push_current(&one.api, one.handle).unwrap();
            context::set_current(&one.api, two.handle).unwrap();
            stack(&one.api)
        }),
        [two.handle, one.handle]
    );
    assert_eq!(
        elsewhere(|| {
            context::push_current(&one.api, one.handle).unwrap();
            context::push_current(&one.api, two.handle).unwrap();
            context::set_current(&one.api, CUcontext::NULL).unwrap();
            stack(&one.api)
        }),
        [one.handle]
    );
    assert_eq!(
        elsewhere(|| {
            context::set_current(&one.api, two.handle).unwrap();
            stack(&one.api)
        }),
        [two.handle]
    );
}

#[test]
fn destroying_the_current_context_uncovers_the_one_below() {
    let below = Context::create();
    let above = below.another();
    above.destroy();
    assert_eq!(context::current(&below.api), Ok(below.handle));
}

#[test]
fn a_context_destroyed_below_the_current_one_stays_on_the_stack_dead() {
    child::run_in_child("a_context_destroyed_below_the_current_one_stays_on_the_stack_dead", || {
        let (api, device) = driver();
        let one = context::create(&api, device, 0).unwrap();
        let two = context::create(&api, device, 0).unwrap();
        context::destroy(&api, one).unwrap();
        assert_eq!(context::pop_current(&api), Ok(two));
        assert_eq!(context::current(&api), Ok(one));
        assert_eq!(memory::alloc(&api, 512).code(), CUerror::CONTEXT_IS_DESTROYED);
    });
}

#[test]
fn a_context_destroyed_by_another_thread_is_dead_in_this_one() {
    child::run_in_child("a_context_destroyed_by_another_thread_is_dead_in_this_one", || {
        let (api, device) = driver();
        let handle = context::create(&api, device, 0).unwrap();
        elsewhere(|| context::destroy(&api, handle)).unwrap();
        assert_eq!(memory::alloc(&api, 512).code(), CUerror::CONTEXT_IS_DESTROYED);
        assert_eq!(context::synchronize(&api).code(), CUerror::CONTEXT_IS_DESTROYED);
        assert_eq!(stream::create(&api, 0).code(), CUerror::CONTEXT_IS_DESTROYED);
    });
}

#[test]
fn a_context_is_destroyed_once() {
    child::run_in_child("a_context_is_destroyed_once", || {
        let (api, device) = driver();
        let handle = context::create(&api, device, 0).unwrap();
        assert_eq!(context::destroy(&api, handle), Ok(()));
        // NVIDIA's driver returns either code.
        let refused = context::destroy(&api, handle).code();
        assert!([CUerror::CONTEXT_IS_DESTROYED, CUerror::INVALID_CONTEXT].contains(&refused), "{refused}");
    });
}

#[test]
fn threads_share_a_context_that_both_made_current() {
    let own = Context::create();
    let block = own.block(4096);
    elsewhere(|| {
        own.enter();
        fill::d8(&own.api, block, 4, 4096).unwrap();
        context::synchronize(&own.api).unwrap();
    });
    assert_eq!(own.byte(block, 4096), 4);
}

#[test]
fn the_id_of_a_context_is_never_used_again() {
    let (api, device) = driver();
    let mut ids = Vec::new();
    for _ in 0..4 {
        let handle = context::create(&api, device, 0).unwrap();
        ids.push(context::id(&api, handle).unwrap());
        assert_eq!(context::id(&api, CUcontext::NULL), context::id(&api, handle));
        context::destroy(&api, handle).unwrap();
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn a_context_reports_its_device_flags_and_version() {
    let (api, device) = driver();
    let handle = context::create(&api, device, ctx_flags::SCHED_SPIN).unwrap();
    assert_eq!(context::device(&api), Ok(device));
    assert_eq!(context::flags(&api), Ok(1));
    assert_eq!(context::api_version(&api, handle), Ok(3020));
    context::destroy(&api, handle).unwrap();
}

#[test]
fn unknown_flags_make_no_context() {
    let (api, device) = driver();
    assert_eq!(context::create(&api, device, 0x8000).code(), CUerror::INVALID_VALUE);
    assert_eq!(context::current(&api), Ok(CUcontext::NULL));
}

#[test]
fn an_unknown_device_has_no_context() {
    let (api, _) = driver();
    for device in [CUdevice(-1), CUdevice(1000)] {
        assert_eq!(context::create(&api, device, 0).code(), CUerror::INVALID_DEVICE);
        assert_eq!(primary::retain(&api, device).code(), CUerror::INVALID_DEVICE);
    }
}

#[test]
fn a_limit_that_is_set_is_read_again_and_belongs_to_one_context() {
    let one = Context::create();
    assert_eq!(context::limit(&one.api, CUlimit::STACK_SIZE), Ok(1024));
    context::set_limit(&one.api, CUlimit::STACK_SIZE, 4096).unwrap();
    assert_eq!(context::limit(&one.api, CUlimit::STACK_SIZE), Ok(4096));
    let two = one.another();
    assert_eq!(context::limit(&two.api, CUlimit::STACK_SIZE), Ok(1024));
}

#[test]
fn limits_that_are_none_are_refused() {
    let own = Context::create();
    assert_eq!(context::limit(&own.api, CUlimit(99)).code(), CUerror::INVALID_VALUE);
    assert_eq!(context::set_limit(&own.api, CUlimit(99), 1).code(), CUerror::INVALID_VALUE);
    assert_eq!(context::limit(&own.api, CUlimit::DEV_RUNTIME_SYNC_DEPTH).code(), CUerror::UNSUPPORTED_LIMIT);
}

#[test]
fn the_preferred_cache_is_one_of_four() {
    let own = Context::create();
    assert_eq!(context::cache_config(&own.api), Ok(CUfunc_cache::PREFER_NONE));
    context::set_cache_config(&own.api, CUfunc_cache::PREFER_L1).unwrap();
    assert_eq!(context::cache_config(&own.api), Ok(CUfunc_cache::PREFER_L1));
    assert_eq!(context::set_cache_config(&own.api, CUfunc_cache(4)).code(), CUerror::INVALID_VALUE);
}

#[test]
fn synchronizing_a_context_waits_for_all_its_streams() {
    let own = Context::create();
    for flags in [stream_flags::DEFAULT, stream_flags::NON_BLOCKING] {
        let stream = stream::create(&own.api, flags).unwrap();
        let gate = Gate::closed(&own);
        gate.hold(&own.api, stream);
        assert_eq!(gate.opened_during(|| context::synchronize(&own.api)), Ok(()));
    }
    let gate = Gate::closed(&own);
    gate.hold(&own.api, CUstream::PER_THREAD);
    assert_eq!(gate.opened_during(|| context::synchronize(&own.api)), Ok(()));
}

#[test]
fn synchronizing_a_context_does_not_wait_for_another() {
    let busy = Context::create();
    let stream = busy.blocking();
    let idle = busy.another();
    let gate = Gate::closed(&idle);
    gate.hold(&busy.api, stream);
    assert_eq!(gate.shut_during(|| context::synchronize(&idle.api)), Ok(()));
}

#[test]
fn the_default_stream_of_one_context_does_not_wait_for_another() {
    let busy = Context::create();
    let stream = busy.blocking();
    let idle = busy.another();
    let (gate, block) = (Gate::closed(&idle), idle.block(4096));
    gate.hold(&busy.api, stream);
    gate.shut_during(|| {
        copy::host_to_device(&idle.api, block, &[1; 4096]).unwrap();
        idle.finish(CUstream::LEGACY);
    });
}

#[test]
fn destroying_a_context_waits_for_its_work() {
    let stays = Context::create();
    let (gate, written) = (Gate::closed(&stays), stays.pinned(4));
    let ends = stays.another();
    gate.hold(&ends.api, ends.stream());
    let stream = ends.stream();
    gate.hold(&ends.api, stream);
    stream::write_value_32(&ends.api, stream, written.address(), 7, 0).unwrap();
    gate.opened_during(|| ends.destroy());
    assert_eq!(written.word(0), 7);
}

#[test]
fn creating_a_context_does_not_wait_for_the_work_of_another() {
    let own = Context::create();
    let stream = own.stream();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    let other = gate.shut_during(|| context::create(&own.api, own.device, 0)).unwrap();
    gate.open();
    context::destroy(&own.api, other).unwrap();
}

#[test]
fn a_thread_that_waits_in_a_context_keeps_no_other_from_it() {
    let own = Context::create();
    let (stream, block) = (own.stream(), own.block(4096));
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    let (entered, news) = mpsc::channel();
    thread::scope(|scope| {
        let (own, gate) = (&own, &gate);
        scope.spawn(move || {
            own.enter();
            entered.send(()).unwrap();
            own.finish(stream);
        });
        news.recv().unwrap();
        gate.shut_during(|| {
            own.write(block, &[1; 4096]);
            own.finish(own.stream());
            memory::alloc(&own.api, 512).unwrap();
        });
        gate.open();
    });
}

#[test]
fn the_primary_context_lives_from_the_first_retain_to_the_last_release() {
    child::run_in_child("the_primary_context_lives_from_the_first_retain_to_the_last_release", || {
        let (api, device) = driver();
        let active = || primary::state(&api, device).unwrap().active;
        assert!(!active(), "nobody retains it");
        let first = primary::retain(&api, device).unwrap();
        assert_eq!(context::current(&api), Ok(CUcontext::NULL));
        assert_eq!(primary::retain(&api, device), Ok(first));
        primary::release(&api, device).unwrap();
        assert!(active(), "it is retained once more than released");
        primary::release(&api, device).unwrap();
        assert!(!active(), "nobody retains it");
        assert_eq!(primary::release(&api, device).code(), CUerror::INVALID_CONTEXT);
    });
}

#[test]
fn the_primary_context_takes_its_memory_with_it() {
    child::run_in_child("the_primary_context_takes_its_memory_with_it", || {
        let (api, device) = driver();
        context::set_current(&api, primary::retain(&api, device).unwrap()).unwrap();
        let block = memory::alloc(&api, 4096).unwrap();
        primary::release(&api, device).unwrap();
        context::set_current(&api, primary::retain(&api, device).unwrap()).unwrap();
        assert_eq!(memory::free(&api, block).code(), CUerror::INVALID_VALUE);
        assert_eq!(memory::free(&api, memory::alloc(&api, 4096).unwrap()), Ok(()));
    });
}

#[test]
fn a_reset_ends_the_primary_context_despite_other_retains() {
    child::run_in_child("a_reset_ends_the_primary_context_despite_other_retains", || {
        let (api, device) = driver();
        context::set_current(&api, primary::retain(&api, device).unwrap()).unwrap();
        primary::reset(&api, device).unwrap();
        assert!(!primary::state(&api, device).unwrap().active, "it is reset");
        assert_eq!(memory::alloc(&api, 512).code(), CUerror::CONTEXT_IS_DESTROYED);
    });
}

#[test]
fn the_primary_context_is_not_destroyed_by_name() {
    child::run_in_child("the_primary_context_is_not_destroyed_by_name", || {
        let (api, device) = driver();
        let handle = primary::retain(&api, device).unwrap();
        assert_eq!(context::destroy(&api, handle).code(), CUerror::INVALID_CONTEXT);
        assert!(primary::state(&api, device).unwrap().active, "it is still retained");
    });
}

#[test]
fn the_flags_of_the_primary_context_can_be_set_at_any_time() {
    child::run_in_child("the_flags_of_the_primary_context_can_be_set_at_any_time", || {
        let (api, device) = driver();
        primary::set_flags(&api, device, ctx_flags::SCHED_YIELD).unwrap();
        assert_eq!(primary::state(&api, device), Ok(State { flags: 2, active: false }));
        primary::retain(&api, device).unwrap();
        primary::set_flags(&api, device, ctx_flags::SCHED_BLOCKING_SYNC).unwrap();
        assert_eq!(primary::state(&api, device), Ok(State { flags: 4, active: true }));
        assert_eq!(primary::set_flags(&api, device, 0x4000).code(), CUerror::INVALID_VALUE);
    });
}

#[test]
fn the_last_release_of_the_primary_context_waits_for_its_work() {
    child::run_in_child("the_last_release_of_the_primary_context_waits_for_its_work", || {
        let stays = Context::create();
        let gate = Gate::closed(&stays);
        let (api, device) = (&stays.api, stays.device);
        context::push_current(api, primary::retain(api, device).unwrap()).unwrap();
        gate.hold(api, stream::create(api, stream_flags::NON_BLOCKING).unwrap());
        context::pop_current(api).unwrap();
        assert_eq!(gate.opened_during(|| primary::release(api, device)), Ok(()));
    });
}

#[test]
fn later_forms_create_a_context_like_the_first_unless_they_ask_for_a_part_of_the_device() {
    let own = Context::create();
    let (api, device) = (&own.api, own.device);
    let third = context::create_with_affinity(api, device, &mut [], ctx_flags::SCHED_YIELD).unwrap();
    assert_eq!(context::current(api), Ok(third));
    assert_eq!(context::flags(api).map(|flags| flags & ctx_flags::SCHED_MASK), Ok(ctx_flags::SCHED_YIELD));
    context::destroy(api, third).unwrap();
    let mut plain = CUctxCreateParams { execAffinityParams: 0, numExecAffinityParams: 0, cigParams: 0 };
    for requested in [None, Some(&mut plain)] {
        // SAFETY: the parameters contain no address.
        let fourth = unsafe { context::create_with_params(api, device, requested, 0) }.unwrap();
        assert_eq!(context::current(api), Ok(fourth));
        context::destroy(api, fourth).unwrap();
    }
    let mut part = [CUexecAffinityParam { kind: 0, sm_count: 1 }];
    let refused = context::create_with_affinity(api, device, &mut part, 0);
    assert_eq!(refused.code(), CUerror::UNSUPPORTED_EXEC_AFFINITY);
    own.enter();
}

#[test]
fn a_context_that_was_attached_to_ends_with_its_last_user() {
    let own = Context::create();
    let api = &own.api;
    let made = context::create(api, own.device, 0).unwrap();
    assert_eq!(context::attach(api, 1).code(), CUerror::INVALID_VALUE);
    assert_eq!(context::attach(api, 0), Ok(made));
    context::detach(api, made).unwrap();
    assert_eq!(context::current(api), Ok(made));
    context::detach(api, made).unwrap();
    assert_ne!(context::current(api), Ok(made));
    own.enter();
}

#[test]
fn the_banks_of_shared_memory_have_one_width() {
    let own = Context::create();
    for config in [CUsharedconfig::EIGHT_BYTE_BANK_SIZE, CUsharedconfig::DEFAULT_BANK_SIZE] {
        context::set_shared_config(&own.api, config).unwrap();
        assert_eq!(context::shared_config(&own.api), Ok(CUsharedconfig::FOUR_BYTE_BANK_SIZE));
    }
    assert_eq!(context::set_shared_config(&own.api, CUsharedconfig(3)).code(), CUerror::INVALID_VALUE);
}

#[test]
fn profiler_calls_and_an_l2_reset_succeed() {
    let own = Context::create();
    profiler::start(&own.api).unwrap();
    profiler::stop(&own.api).unwrap();
    context::reset_persisting_l2_cache(&own.api).unwrap();
}

#[test]
fn a_context_by_its_handle_tells_its_device_and_is_waited_for() {
    let own = Context::create();
    let (stream, gate) = (own.stream(), Gate::closed(&own));
    let other = own.another();
    assert_eq!(context::device_of(&own.api, own.handle), Ok(own.device));
    assert_eq!(context::device_of(&own.api, CUcontext::NULL), Ok(own.device));
    gate.hold(&own.api, stream);
    context::synchronize_other(&own.api, other.handle).unwrap();
    gate.opened_during(|| context::synchronize_other(&own.api, own.handle)).unwrap();
    other.destroy();
    own.enter();
}
