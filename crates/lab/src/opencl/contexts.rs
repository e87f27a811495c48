//! Experiments on contexts: what one keeps alive, and what two share.

use freehold_driver::opencl::{context, kernel, memory, queue};

use super::fixture::{BYTES, Fixture, Latch, Spin, launch};
use crate::answer_text::{byte_runs, code, code_and_pace, or_code};
use crate::experiment::{Answer, Experiment};
use crate::id::{Id, OPENCL};

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(OPENCL, 7, 1),
        did: "release a context that has a queue and a buffer, then fill and read the buffer",
        run: released_under_its_objects,
    },
    Experiment {
        id: Id(OPENCL, 7, 2),
        did: "release a context that has a queue, then create a buffer in it",
        run: created_after_release,
    },
    Experiment {
        id: Id(OPENCL, 7, 3),
        did: "release a context whose work is pending: does the release wait, and is the work done",
        run: released_while_pending,
    },
    Experiment {
        id: Id(OPENCL, 7, 4),
        did: "release a context whose kernel runs: does the release wait",
        run: released_while_running,
    },
    Experiment {
        id: Id(OPENCL, 7, 5),
        did: "fill a buffer of context 1 in a queue of context 2",
        run: filled_elsewhere,
    },
    Experiment { id: Id(OPENCL, 7, 6), did: "copy from a buffer of context 1 to one of context 2", run: copied_across },
    Experiment {
        id: Id(OPENCL, 7, 7),
        did: "give a buffer of context 1 to a kernel of context 2, and launch it",
        run: argument_elsewhere,
    },
    Experiment {
        id: Id(OPENCL, 7, 8),
        did: "launch a kernel of context 1 in a queue of context 2",
        run: launched_elsewhere,
    },
];

fn released_under_its_objects(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    let released = code(context::release(session.context));
    memory::fill(session.queue, buffer, 0, BYTES, &[0x5a], &[])?;
    Ok(format!("{released}, {}", or_code(session.bytes(buffer), |bytes| byte_runs(&bytes))))
}

fn created_after_release(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    context::release(session.context)?;
    Ok(code(memory::create(session.context, BYTES)))
}

fn released_while_pending(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    let hold = Latch::new(&session, session.queue)?;
    memory::fill(session.queue, buffer, 0, BYTES, &[0x5a], &[])?;
    let released = code_and_pace(hold.during(|| context::release(session.context)));
    Ok(format!("{released}, {}", byte_runs(&session.bytes(buffer)?)))
}

fn released_while_running(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let spin = Spin::run(b, &session)?;
    let released = code_and_pace(spin.during(|| context::release(session.context)));
    Ok(format!("{released}, {}", session.word(spin.to)?))
}

fn filled_elsewhere(b: &Fixture) -> Answer {
    let (session, other) = (b.open_session()?, b.open_session()?);
    let buffer = session.buffer(0)?;
    Ok(code(memory::fill(other.queue, buffer, 0, BYTES, &[1], &[])))
}

fn copied_across(b: &Fixture) -> Answer {
    let (session, other) = (b.open_session()?, b.open_session()?);
    let (from, to) = (session.buffer(1)?, other.buffer(0)?);
    Ok(code(memory::copy(session.queue, (from, 0), (to, 0), BYTES, &[])))
}

fn argument_elsewhere(b: &Fixture) -> Answer {
    let (session, other) = (b.open_session()?, b.open_session()?);
    let buffer = session.buffer(0)?;
    let store = other.kernel(c"store")?;
    let set = code(kernel::set_memory(store, 0, buffer));
    kernel::set_value(store, 1, &7_u32.to_le_bytes())?;
    let launched = launch(other.queue, store, 1).and_then(|_| queue::finish(other.queue));
    Ok(format!("{set}, {}", code(launched)))
}

fn launched_elsewhere(b: &Fixture) -> Answer {
    let (session, other) = (b.open_session()?, b.open_session()?);
    let buffer = session.buffer(0)?;
    let store = session.kernel(c"store")?;
    kernel::set_memory(store, 0, buffer)?;
    kernel::set_value(store, 1, &7_u32.to_le_bytes())?;
    Ok(code(launch(other.queue, store, 1)))
}
