//! Experiments on the contexts that own memory: how long they live, and which one is current (question 0).

use std::thread;

use freehold_driver::cuda::{CUcontext, CUlimit, context, ctx_flags, driver, memory, primary};

use crate::answer_text::{choose, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::failure::Failure;
use crate::fixture::Fixture;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(0, 11, 1),
        did: "look whether the primary context is active before, during and after it is retained",
        run: primary_activity,
    },
    Experiment { id: Id(0, 11, 2), did: "retain the primary context twice, release it once", run: primary_twice },
    Experiment {
        id: Id(0, 11, 3),
        did: "release the primary context more often than it was retained",
        run: overreleased,
    },
    Experiment {
        id: Id(0, 11, 4),
        did: "look which context is current after the primary one was retained",
        run: retained_is_not_current,
    },
    Experiment { id: Id(0, 11, 5), did: "set the flags of the primary context while it is active", run: primary_flags },
    Experiment { id: Id(0, 11, 6), did: "set flags 0x4000 of the primary context", run: primary_flags_unknown },
    Experiment {
        id: Id(0, 11, 7),
        did: "reset a retained primary context: is it active, does its memory still free, does it allocate",
        run: primary_reset,
    },
    Experiment {
        id: Id(0, 11, 8),
        did: "release the primary context for the last time, retain it again, free what it had allocated",
        run: primary_memory,
    },
    Experiment { id: Id(0, 11, 9), did: "destroy the primary context with cuCtxDestroy", run: primary_destroyed },
    Experiment { id: Id(0, 12, 1), did: "look which context is current after cuCtxCreate", run: created_is_current },
    Experiment { id: Id(0, 12, 2), did: "pop the context stack when it is empty", run: pop_of_empty },
    Experiment { id: Id(0, 12, 3), did: "look which context is current in a new thread", run: new_thread },
    Experiment {
        id: Id(0, 12, 4),
        did: "push context 1, create context 2, destroy 2 while it is current: what is current afterwards",
        run: destroy_current,
    },
    Experiment {
        id: Id(0, 12, 5),
        did: "push context 1, create context 2, destroy 1: what is popped, and what is current afterwards",
        run: destroy_below,
    },
    Experiment { id: Id(0, 12, 6), did: "make a destroyed context current", run: dead_made_current },
    Experiment {
        id: Id(0, 12, 7),
        did: "destroy a context that is current in another thread, which then allocates and synchronizes",
        run: destroyed_elsewhere,
    },
    Experiment {
        id: Id(0, 12, 8),
        did: "cuCtxSetCurrent with a context on the stack: how many pops until it is empty",
        run: set_replaces,
    },
    Experiment { id: Id(0, 12, 9), did: "synchronize and ask for the device with no context current", run: no_context },
    Experiment { id: Id(0, 12, 10), did: "create a context with flags 0x8000", run: unknown_flags },
    Experiment {
        id: Id(0, 12, 11),
        did: "compare the ids of a context and of one created after it was destroyed",
        run: ids,
    },
    Experiment { id: Id(0, 12, 12), did: "set limit 99, and read it", run: unknown_limit },
    Experiment {
        id: Id(0, 12, 13),
        did: "make one context current in two threads, allocate in one, free in the other",
        run: two_threads,
    },
    Experiment {
        id: Id(0, 12, 14),
        did: "ask a created context for its API version and its flags",
        run: version_and_flags,
    },
    Experiment { id: Id(0, 12, 15), did: "push one context twice, pop it twice", run: pushed_twice },
    Experiment {
        id: Id(0, 12, 16),
        did: "make a destroyed context current: what is current then, and does it allocate",
        run: dead_used,
    },
    Experiment { id: Id(0, 12, 17), did: "push a destroyed context", run: dead_pushed },
];

fn activity(b: &Fixture) -> Result<String, Failure> {
    Ok(choose(primary::state(b, b.device)?.active, "active", "inactive"))
}

fn primary_activity(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let before = activity(b)?;
    primary::retain(b, b.device)?;
    let during = activity(b)?;
    primary::release(b, b.device)?;
    Ok(format!("{before}, {during}, {}", activity(b)?))
}

fn primary_twice(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let (first, second) = (primary::retain(b, b.device)?, primary::retain(b, b.device)?);
    primary::release(b, b.device)?;
    Ok(format!("{}, {}", choose(first == second, "the same handle", "two handles"), activity(b)?))
}

fn overreleased(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let never = code(primary::release(b, b.device));
    primary::retain(b, b.device)?;
    primary::release(b, b.device)?;
    Ok(format!("never retained {never}, released again {}", code(primary::release(b, b.device))))
}

fn retained_is_not_current(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    primary::retain(b, b.device)?;
    Ok(choose(context::current(b)? == CUcontext::NULL, "none", "the primary one"))
}

fn primary_flags(b: &Fixture) -> Answer {
    b.init_context()?;
    let set = code(primary::set_flags(b, b.device, ctx_flags::SCHED_YIELD));
    let flags = primary::state(b, b.device)?.flags;
    Ok(format!("{set}, flags {flags:#x}, of the current context {:#x}", context::flags(b)?))
}

fn primary_flags_unknown(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    Ok(code(primary::set_flags(b, b.device, 0x4000)))
}

fn primary_reset(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    let reset = code(primary::reset(b, b.device));
    let active = activity(b)?;
    let freed = code(memory::free(b, block));
    Ok(format!("{reset}, {active}, free {freed}, allocate {}", code(memory::alloc(b, 4096))))
}

fn primary_memory(b: &Fixture) -> Answer {
    let first = b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    primary::release(b, b.device)?;
    let second = primary::retain(b, b.device)?;
    context::set_current(b, second)?;
    let handle = choose(first == second, "the same handle", "another handle");
    Ok(format!("{handle}, free {}", code(memory::free(b, block))))
}

fn primary_destroyed(b: &Fixture) -> Answer {
    let primary = b.init_context()?;
    let destroyed = code(context::destroy(b, primary));
    Ok(format!("{destroyed}, {}", activity(b)?))
}

fn created_is_current(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let context = b.second_context()?;
    Ok(choose(context::current(b)? == context, "the new one", "another"))
}

fn pop_of_empty(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    Ok(code(context::pop_current(b)))
}

fn new_thread(b: &Fixture) -> Answer {
    b.init_context()?;
    let current = thread::scope(|scope| scope.spawn(|| context::current(b)).join().expect("the thread only asks"))?;
    Ok(choose(current == CUcontext::NULL, "none", "that of the first thread"))
}

/// Names a context in an answer.
fn which(context: CUcontext, first: CUcontext, second: CUcontext) -> String {
    match context {
        CUcontext::NULL => "none",
        context if context == first => "context 1",
        context if context == second => "context 2",
        _ => "another",
    }
    .to_owned()
}

fn destroy_current(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let (first, second) = (b.second_context()?, b.second_context()?);
    let destroyed = code(context::destroy(b, second));
    Ok(format!("{destroyed}, current {}", or_code(context::current(b), |context| which(context, first, second))))
}

fn destroy_below(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let (first, second) = (b.second_context()?, b.second_context()?);
    context::destroy(b, first)?;
    let popped = or_code(context::pop_current(b), |context| which(context, first, second));
    let current = or_code(context::current(b), |context| which(context, first, second));
    Ok(format!("popped {popped}, current {current}, allocate {}", code(memory::alloc(b, 512))))
}

fn dead_made_current(b: &Fixture) -> Answer {
    b.init_context()?;
    let context = b.second_context()?;
    context::destroy(b, context)?;
    Ok(code(context::set_current(b, context)))
}

fn dead_used(b: &Fixture) -> Answer {
    b.init_context()?;
    let context = b.second_context()?;
    context::destroy(b, context)?;
    context::set_current(b, context)?;
    let current = or_code(context::current(b), |now| choose(now == context, "the destroyed one", "another"));
    Ok(format!("{current}, allocate {}", code(memory::alloc(b, 512))))
}

fn dead_pushed(b: &Fixture) -> Answer {
    b.init_context()?;
    let context = b.second_context()?;
    context::destroy(b, context)?;
    Ok(code(context::push_current(b, context)))
}

fn destroyed_elsewhere(b: &Fixture) -> Answer {
    b.init_context()?;
    let context = b.second_context()?;
    let other = || {
        context::destroy(b, context)?;
        Ok::<_, freehold_driver::cuda::DriverError>(())
    };
    thread::scope(|scope| scope.spawn(other).join().expect("the thread only calls"))?;
    let allocated = code(memory::alloc(b, 512));
    Ok(format!("allocate {allocated}, synchronize {}", code(context::synchronize(b))))
}

fn set_replaces(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let first = b.second_context()?;
    context::pop_current(b)?;
    let second = b.second_context()?;
    context::set_current(b, first)?;
    let popped = context::pop_current(b)?;
    let next = or_code(context::pop_current(b), |context| which(context, first, second));
    Ok(format!("popped {}, then {next}", which(popped, first, second)))
}

fn no_context(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    Ok(format!("{}, {}", code(context::synchronize(b)), code(context::device(b))))
}

fn unknown_flags(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    Ok(code(context::create(b, b.device, 0x8000)))
}

fn ids(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let first = b.second_context()?;
    let before = context::id(b, first)?;
    context::destroy(b, first)?;
    let second = b.second_context()?;
    Ok(choose(context::id(b, second)? == before, "the same id", "another id"))
}

fn unknown_limit(b: &Fixture) -> Answer {
    b.init_context()?;
    Ok(format!("{}, {}", code(context::set_limit(b, CUlimit(99), 1)), code(context::limit(b, CUlimit(99)))))
}

fn two_threads(b: &Fixture) -> Answer {
    let context = b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    let other = || {
        context::set_current(b, context)?;
        memory::free(b, block)
    };
    Ok(code(thread::scope(|scope| scope.spawn(other).join().expect("the thread only calls"))))
}

fn version_and_flags(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let context = context::create(b, b.device, ctx_flags::SCHED_SPIN)?;
    Ok(format!("version {}, flags {:#x}", context::api_version(b, context)?, context::flags(b)?))
}

fn pushed_twice(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let context = b.second_context()?;
    let pushed = code(context::push_current(b, context));
    let (first, second) = (code(context::pop_current(b)), code(context::pop_current(b)));
    Ok(format!("push {pushed}, pops {first}, {second}"))
}
