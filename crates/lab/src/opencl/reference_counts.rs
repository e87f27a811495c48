//! Experiments on reference counts: who may release, and what is counted.

use std::thread;

use freehold_driver::opencl::{Memory, context, kernel, memory, queue, svm};

use super::fixture::{BYTES, Fixture};
use crate::answer_text::{choose, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::id::{Id, OPENCL};

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment { id: Id(OPENCL, 1, 1), did: "the counts of a new buffer, retained, and released once", run: counted },
    Experiment { id: Id(OPENCL, 1, 2), did: "release a buffer, and release it again", run: released_twice },
    Experiment { id: Id(OPENCL, 1, 3), did: "release no buffer at all", run: nothing_released },
    Experiment { id: Id(OPENCL, 1, 4), did: "release a buffer in another thread", run: released_elsewhere },
    Experiment {
        id: Id(OPENCL, 1, 5),
        did: "the count of a buffer that is an argument of a kernel",
        run: argument_counts,
    },
    Experiment { id: Id(OPENCL, 1, 6), did: "the count of a buffer that a pending command uses", run: pending_counts },
    Experiment {
        id: Id(OPENCL, 1, 7),
        did: "the counts of a context, then with a queue, with a buffer, and with neither",
        run: context_counts,
    },
    Experiment { id: Id(OPENCL, 1, 8), did: "create a buffer of no bytes", run: empty },
    Experiment { id: Id(OPENCL, 1, 9), did: "create a buffer of 1 PiB", run: too_large },
    Experiment {
        id: Id(OPENCL, 1, 10),
        did: "allocate shared virtual memory in context 1, free it in context 2, fill it in context 1",
        run: freed_elsewhere,
    },
    Experiment { id: Id(OPENCL, 1, 11), did: "fill a buffer that was released", run: used_after_release },
];

fn counted(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = memory::create(session.context, BYTES)?;
    let new = memory::reference_count(buffer)?;
    memory::retain(buffer)?;
    let retained = memory::reference_count(buffer)?;
    memory::release(buffer)?;
    Ok(format!("{new}, {retained}, {}", memory::reference_count(buffer)?))
}

fn released_twice(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = memory::create(session.context, BYTES)?;
    let first = code(memory::release(buffer));
    Ok(format!("{first}, then {}", code(memory::release(buffer))))
}

fn nothing_released(b: &Fixture) -> Answer {
    b.open_session()?;
    Ok(code(memory::release(Memory::NULL)))
}

fn released_elsewhere(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(1)?;
    let released = thread::spawn(move || memory::release(buffer)).join();
    Ok(code(released.expect("a release does not panic")))
}

fn argument_counts(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let store = session.kernel(c"store")?;
    let buffer = session.buffer(0)?;
    kernel::set_memory(store, 0, buffer)?;
    Ok(memory::reference_count(buffer)?.to_string())
}

fn pending_counts(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    let hold = super::fixture::Latch::new(&session, session.queue)?;
    memory::fill(session.queue, buffer, 0, BYTES, &[1], &[])?;
    let counted = memory::reference_count(buffer)?;
    hold.open();
    queue::finish(session.queue)?;
    Ok(choose(counted > 1, "more than one", "one"))
}

fn context_counts(b: &Fixture) -> Answer {
    // SAFETY: an experiment has its own process, and uses only objects that it created.
    let device = unsafe { b.device.device() };
    let context = context::create(device)?;
    let alone = context::reference_count(context)?;
    let made = queue::create(context, device)?;
    let with_queue = context::reference_count(context)?;
    let buffer = memory::create(context, BYTES)?;
    let with_both = context::reference_count(context)?;
    memory::release(buffer)?;
    queue::release(made)?;
    Ok(format!("{alone}, {with_queue}, {with_both}, {}", context::reference_count(context)?))
}

fn empty(b: &Fixture) -> Answer {
    Ok(code(memory::create(b.open_session()?.context, 0)))
}

fn too_large(b: &Fixture) -> Answer {
    Ok(code(memory::create(b.open_session()?.context, 1 << 50)))
}

fn freed_elsewhere(b: &Fixture) -> Answer {
    let (session, other) = (b.open_session()?, b.open_session()?);
    let block = session.block(0x5a)?;
    // SAFETY: no command uses the block; the experiment tests a block of another context.
    let freed = code(unsafe { svm::free(other.context, block) });
    let filled = or_code(session.fill_block(block, BYTES, 1), |()| "SUCCESS".to_owned());
    Ok(format!("{freed}, then {filled}"))
}

fn used_after_release(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    memory::release(buffer)?;
    Ok(code(memory::fill(session.queue, buffer, 0, BYTES, &[1], &[])))
}
