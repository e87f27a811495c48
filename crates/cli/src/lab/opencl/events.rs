//! Events: states of commands, and user events, which the host sets.

use std::thread;
use std::time::{Duration, Instant};

use freehold_driver::CallError;
use freehold_driver::opencl::event::Status;
use freehold_driver::opencl::{Event, event, memory, queue};

use super::bench::{BYTES, Bench, Hold, said};
use crate::lab::answers::{all, code, either, or_code, paced};
use crate::lab::experiment::{Answer, Experiment};
use crate::lab::id::{Id, O};

/// How long work is looked at that may never begin.
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) const EXPERIMENTS: &[Experiment<Bench>] = &[
    Experiment { id: Id(O, 5, 1), did: "the status of a new user event, and of one that was set", run: user },
    Experiment { id: Id(O, 5, 2), did: "set a user event twice", run: set_twice },
    Experiment { id: Id(O, 5, 3), did: "set a user event to 1, which is neither done nor failed", run: set_running },
    Experiment { id: Id(O, 5, 4), did: "set the event of a command", run: set_command },
    Experiment {
        id: Id(O, 5, 5),
        did: "a user event fails: what a fill does that waits for it, and the queue behind it",
        run: failed,
    },
    Experiment {
        id: Id(O, 5, 6),
        did: "the status of a marker behind work that is held, and when it is done",
        run: marker,
    },
    Experiment {
        id: Id(O, 5, 7),
        did: "put in a marker and ask for its status, without a flush: does it complete",
        run: unflushed,
    },
    Experiment {
        id: Id(O, 5, 8),
        did: "queue 2 waits for an event of queue 1, which is not flushed; flush queue 2: does it go on",
        run: unflushed_other,
    },
    Experiment {
        id: Id(O, 5, 9),
        did: "release the event of a pending fill: does the release wait, and is the fill done",
        run: released_while_pending,
    },
    Experiment {
        id: Id(O, 5, 10),
        did: "release an event that another queue waits for, let it pass: does that queue go on",
        run: released_while_awaited,
    },
    Experiment { id: Id(O, 5, 11), did: "wait for an event of another context", run: other_context },
    Experiment { id: Id(O, 5, 12), did: "wait for no events", run: none },
    Experiment { id: Id(O, 5, 13), did: "the times of a command in a queue without timing, and with it", run: times },
];

fn user(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let made = event::create_user(desk.context)?;
    let new = said(event::status(made)?);
    event::set_status(made, 0)?;
    Ok(format!("{new}, {}", said(event::status(made)?)))
}

fn set_twice(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let made = event::create_user(desk.context)?;
    let first = code(event::set_status(made, 0));
    Ok(format!("{first}, then {}", code(event::set_status(made, 0))))
}

fn set_running(b: &Bench) -> Answer {
    let made = event::create_user(b.begin()?.context)?;
    Ok(code(event::set_status(made, 1)))
}

fn set_command(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let hold = Hold::new(&desk, desk.queue)?;
    let marker = queue::marker(desk.queue, &[])?;
    let answer = code(event::set_status(marker, 0));
    hold.open();
    queue::finish(desk.queue)?;
    Ok(answer)
}

fn failed(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0)?;
    let user = event::create_user(desk.context)?;
    let waits = memory::fill(desk.queue, buffer, 0, BYTES, &[1], &[user])?;
    let behind = memory::fill(desk.queue, buffer, 0, 1024, &[2], &[])?;
    queue::flush(desk.queue)?;
    event::set_status(user, -5)?;
    let finished = code(queue::finish(desk.queue));
    let ended = |event| or_code(event::status(event), said);
    let (waits, behind) = (ended(waits), ended(behind));
    let fresh = super::bench::Desk { queue: desk.queue()?, ..desk };
    let bytes = or_code(fresh.bytes(buffer), |bytes| format!("{} and {}", all(&bytes[..1024]), all(&bytes[1024..])));
    Ok(format!("the queue {finished}, the fill {waits}, the next {behind}, the buffer {bytes}"))
}

fn marker(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let hold = Hold::new(&desk, desk.queue)?;
    let marker = queue::marker(desk.queue, &[])?;
    let before = event::status(marker)?;
    hold.open();
    queue::finish(desk.queue)?;
    Ok(format!("{}, {}", either(before == Status::Complete, "COMPLETE", "not COMPLETE"), said(event::status(marker)?)))
}

fn unflushed(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let marker = queue::marker(desk.queue, &[])?;
    let completes = completes(marker)?;
    queue::finish(desk.queue)?;
    Ok(either(completes, "yes", "no"))
}

fn unflushed_other(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let other = desk.queue()?;
    let first = queue::marker(desk.queue, &[])?;
    queue::barrier(other, &[first])?;
    let second = queue::marker(other, &[])?;
    queue::flush(other)?;
    let completes = completes(second)?;
    queue::finish(desk.queue)?;
    queue::finish(other)?;
    Ok(either(completes, "yes", "no"))
}

/// Whether an event completes while it is looked at.
fn completes(looked_at: Event) -> Result<bool, CallError> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if event::status(looked_at)? == Status::Complete {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

fn released_while_pending(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0)?;
    let hold = Hold::new(&desk, desk.queue)?;
    let filled = memory::fill(desk.queue, buffer, 0, BYTES, &[0x5a], &[])?;
    let released = paced(hold.during(|| event::release(filled)));
    Ok(format!("{released}, {}", all(&desk.bytes(buffer)?)))
}

fn released_while_awaited(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let other = desk.queue()?;
    let buffer = desk.buffer(0)?;
    let hold = Hold::new(&desk, desk.queue)?;
    let marker = queue::marker(desk.queue, &[])?;
    queue::flush(desk.queue)?;
    queue::barrier(other, &[marker])?;
    event::release(marker)?;
    let filled = memory::fill(other, buffer, 0, BYTES, &[0x5a], &[])?;
    queue::flush(other)?;
    let before = event::status(filled)? == Status::Complete;
    hold.open();
    queue::finish(other)?;
    Ok(format!("{}, then {}", either(before, "at once", "it waits"), all(&desk.bytes(buffer)?)))
}

fn other_context(b: &Bench) -> Answer {
    let (desk, other) = (b.begin()?, b.begin()?);
    let marker = queue::marker(desk.queue, &[])?;
    Ok(code(queue::barrier(other.queue, &[marker])))
}

fn none(b: &Bench) -> Answer {
    b.begin()?;
    Ok(code(event::wait(&[])))
}

fn times(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let timed = queue::create_timed(desk.context, desk.device)?;
    let buffer = desk.buffer(0)?;
    let ask = |queue| {
        let filled = memory::fill(queue, buffer, 0, BYTES, &[1], &[])?;
        queue::finish(queue)?;
        event::times_ns(filled)
    };
    let without = code(ask(desk.queue));
    Ok(format!(
        "{without}, {}",
        or_code(ask(timed), |(began, ended)| either(began <= ended, "in order", "turned round"))
    ))
}
