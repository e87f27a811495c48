//! Contexts: what one keeps alive, and what two have in common.

use freehold_driver::opencl::{context, kernel, memory, queue};

use super::bench::{BYTES, Bench, Hold, Spin, launch};
use crate::lab::answers::{all, code, or_code, paced};
use crate::lab::experiment::{Answer, Experiment};
use crate::lab::id::{Id, O};

pub(super) const EXPERIMENTS: &[Experiment<Bench>] = &[
    Experiment {
        id: Id(O, 7, 1),
        did: "release a context that has a queue and a buffer, then fill and read the buffer",
        run: released_under_its_objects,
    },
    Experiment {
        id: Id(O, 7, 2),
        did: "release a context that has a queue, then create a buffer in it",
        run: created_after_release,
    },
    Experiment {
        id: Id(O, 7, 3),
        did: "release a context whose work is pending: does the release wait, and is the work done",
        run: released_while_pending,
    },
    Experiment {
        id: Id(O, 7, 4),
        did: "release a context whose kernel runs: does the release wait",
        run: released_while_running,
    },
    Experiment { id: Id(O, 7, 5), did: "fill a buffer of context 1 in a queue of context 2", run: filled_elsewhere },
    Experiment { id: Id(O, 7, 6), did: "copy from a buffer of context 1 to one of context 2", run: copied_across },
    Experiment {
        id: Id(O, 7, 7),
        did: "give a buffer of context 1 to a kernel of context 2, and launch it",
        run: argument_elsewhere,
    },
    Experiment {
        id: Id(O, 7, 8),
        did: "launch a kernel of context 1 in a queue of context 2",
        run: launched_elsewhere,
    },
];

fn released_under_its_objects(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0)?;
    let released = code(context::release(desk.context));
    memory::fill(desk.queue, buffer, 0, BYTES, &[0x5a], &[])?;
    Ok(format!("{released}, {}", or_code(desk.bytes(buffer), |bytes| all(&bytes))))
}

fn created_after_release(b: &Bench) -> Answer {
    let desk = b.begin()?;
    context::release(desk.context)?;
    Ok(code(memory::create(desk.context, BYTES)))
}

fn released_while_pending(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0)?;
    let hold = Hold::new(&desk, desk.queue)?;
    memory::fill(desk.queue, buffer, 0, BYTES, &[0x5a], &[])?;
    let released = paced(hold.during(|| context::release(desk.context)));
    Ok(format!("{released}, {}", all(&desk.bytes(buffer)?)))
}

fn released_while_running(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let spin = Spin::run(b, &desk)?;
    let released = paced(spin.during(|| context::release(desk.context)));
    Ok(format!("{released}, {}", desk.word(spin.to)?))
}

fn filled_elsewhere(b: &Bench) -> Answer {
    let (desk, other) = (b.begin()?, b.begin()?);
    let buffer = desk.buffer(0)?;
    Ok(code(memory::fill(other.queue, buffer, 0, BYTES, &[1], &[])))
}

fn copied_across(b: &Bench) -> Answer {
    let (desk, other) = (b.begin()?, b.begin()?);
    let (from, to) = (desk.buffer(1)?, other.buffer(0)?);
    Ok(code(memory::copy(desk.queue, (from, 0), (to, 0), BYTES, &[])))
}

fn argument_elsewhere(b: &Bench) -> Answer {
    let (desk, other) = (b.begin()?, b.begin()?);
    let buffer = desk.buffer(0)?;
    let store = other.kernel(c"store")?;
    let set = code(kernel::set_memory(store, 0, buffer));
    kernel::set_value(store, 1, &7_u32.to_le_bytes())?;
    let launched = launch(other.queue, store, 1).and_then(|_| queue::finish(other.queue));
    Ok(format!("{set}, {}", code(launched)))
}

fn launched_elsewhere(b: &Bench) -> Answer {
    let (desk, other) = (b.begin()?, b.begin()?);
    let buffer = desk.buffer(0)?;
    let store = desk.kernel(c"store")?;
    kernel::set_memory(store, 0, buffer)?;
    kernel::set_value(store, 1, &7_u32.to_le_bytes())?;
    Ok(code(launch(other.queue, store, 1)))
}
