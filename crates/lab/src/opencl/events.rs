//! Experiments on events: states of commands, and user events, which the host sets.

use std::thread;
use std::time::{Duration, Instant};

use freehold_driver::CallError;
use freehold_driver::opencl::event::Status;
use freehold_driver::opencl::{Event, event, memory, queue};

use super::fixture::{BYTES, Fixture, Latch, status_text};
use crate::answer_text::{byte_runs, choose, code, code_and_pace, or_code};
use crate::experiment::{Answer, Experiment};
use crate::id::{Id, OPENCL};

/// How long to watch work that may never start.
const COMPLETION_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment { id: Id(OPENCL, 5, 1), did: "the status of a new user event, and of one that was set", run: user },
    Experiment { id: Id(OPENCL, 5, 2), did: "set a user event twice", run: set_twice },
    Experiment {
        id: Id(OPENCL, 5, 3),
        did: "set a user event to 1, which is neither done nor failed",
        run: set_running,
    },
    Experiment { id: Id(OPENCL, 5, 4), did: "set the event of a command", run: set_command },
    Experiment {
        id: Id(OPENCL, 5, 5),
        did: "a user event fails: what a fill does that waits for it, and the queue after it",
        run: failed,
    },
    Experiment {
        id: Id(OPENCL, 5, 6),
        did: "the status of a marker after work that is held, and when it is done",
        run: marker,
    },
    Experiment {
        id: Id(OPENCL, 5, 7),
        did: "put in a marker and ask for its status, without a flush: does it complete",
        run: unflushed,
    },
    Experiment {
        id: Id(OPENCL, 5, 8),
        did: "queue 2 waits for an event of queue 1, which is not flushed; flush queue 2: does it go on",
        run: unflushed_other,
    },
    Experiment {
        id: Id(OPENCL, 5, 9),
        did: "release the event of a pending fill: does the release wait, and is the fill done",
        run: released_while_pending,
    },
    Experiment {
        id: Id(OPENCL, 5, 10),
        did: "release an event that another queue waits for, let it pass: does that queue go on",
        run: released_while_awaited,
    },
    Experiment { id: Id(OPENCL, 5, 11), did: "wait for an event of another context", run: other_context },
    Experiment { id: Id(OPENCL, 5, 12), did: "wait for no events", run: none },
    Experiment {
        id: Id(OPENCL, 5, 13),
        did: "the times of a command in a queue without timing, and with it",
        run: times,
    },
];

fn user(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let made = event::create_user(session.context)?;
    let new = status_text(event::status(made)?);
    event::set_status(made, 0)?;
    Ok(format!("{new}, {}", status_text(event::status(made)?)))
}

fn set_twice(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let made = event::create_user(session.context)?;
    let first = code(event::set_status(made, 0));
    Ok(format!("{first}, then {}", code(event::set_status(made, 0))))
}

fn set_running(b: &Fixture) -> Answer {
    let made = event::create_user(b.open_session()?.context)?;
    Ok(code(event::set_status(made, 1)))
}

fn set_command(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let hold = Latch::new(&session, session.queue)?;
    let marker = queue::marker(session.queue, &[])?;
    let answer = code(event::set_status(marker, 0));
    hold.open();
    queue::finish(session.queue)?;
    Ok(answer)
}

fn failed(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    let user = event::create_user(session.context)?;
    let waits = memory::fill(session.queue, buffer, 0, BYTES, &[1], &[user])?;
    let behind = memory::fill(session.queue, buffer, 0, 1024, &[2], &[])?;
    queue::flush(session.queue)?;
    event::set_status(user, -5)?;
    let finished = code(queue::finish(session.queue));
    let ended = |event| or_code(event::status(event), status_text);
    let (waits, behind) = (ended(waits), ended(behind));
    let fresh = super::fixture::Session { queue: session.queue()?, ..session };
    let bytes = or_code(fresh.bytes(buffer), |bytes| {
        format!("{} and {}", byte_runs(&bytes[..1024]), byte_runs(&bytes[1024..]))
    });
    Ok(format!("the queue {finished}, the fill {waits}, the next {behind}, the buffer {bytes}"))
}

fn marker(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let hold = Latch::new(&session, session.queue)?;
    let marker = queue::marker(session.queue, &[])?;
    let before = event::status(marker)?;
    hold.open();
    queue::finish(session.queue)?;
    Ok(format!(
        "{}, {}",
        choose(before == Status::Complete, "COMPLETE", "not COMPLETE"),
        status_text(event::status(marker)?)
    ))
}

fn unflushed(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let marker = queue::marker(session.queue, &[])?;
    let completes = completes(marker)?;
    queue::finish(session.queue)?;
    Ok(choose(completes, "yes", "no"))
}

fn unflushed_other(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let other = session.queue()?;
    let first = queue::marker(session.queue, &[])?;
    queue::barrier(other, &[first])?;
    let second = queue::marker(other, &[])?;
    queue::flush(other)?;
    let completes = completes(second)?;
    queue::finish(session.queue)?;
    queue::finish(other)?;
    Ok(choose(completes, "yes", "no"))
}

/// Returns whether an event completes while it is watched.
fn completes(looked_at: Event) -> Result<bool, CallError> {
    let start = Instant::now();
    while start.elapsed() < COMPLETION_TIMEOUT {
        if event::status(looked_at)? == Status::Complete {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

fn released_while_pending(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    let hold = Latch::new(&session, session.queue)?;
    let filled = memory::fill(session.queue, buffer, 0, BYTES, &[0x5a], &[])?;
    let released = code_and_pace(hold.during(|| event::release(filled)));
    Ok(format!("{released}, {}", byte_runs(&session.bytes(buffer)?)))
}

fn released_while_awaited(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let other = session.queue()?;
    let buffer = session.buffer(0)?;
    let hold = Latch::new(&session, session.queue)?;
    let marker = queue::marker(session.queue, &[])?;
    queue::flush(session.queue)?;
    queue::barrier(other, &[marker])?;
    event::release(marker)?;
    let filled = memory::fill(other, buffer, 0, BYTES, &[0x5a], &[])?;
    queue::flush(other)?;
    let before = event::status(filled)? == Status::Complete;
    hold.open();
    queue::finish(other)?;
    Ok(format!("{}, then {}", choose(before, "at once", "it waits"), byte_runs(&session.bytes(buffer)?)))
}

fn other_context(b: &Fixture) -> Answer {
    let (session, other) = (b.open_session()?, b.open_session()?);
    let marker = queue::marker(session.queue, &[])?;
    Ok(code(queue::barrier(other.queue, &[marker])))
}

fn none(b: &Fixture) -> Answer {
    b.open_session()?;
    Ok(code(event::wait(&[])))
}

fn times(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let timed = queue::create_timed(session.context, session.device)?;
    let buffer = session.buffer(0)?;
    let ask = |queue| {
        let filled = memory::fill(queue, buffer, 0, BYTES, &[1], &[])?;
        queue::finish(queue)?;
        event::times_ns(filled)
    };
    let without = code(ask(session.queue));
    Ok(format!(
        "{without}, {}",
        or_code(ask(timed), |(began, ended)| choose(began <= ended, "in order", "turned round"))
    ))
}
