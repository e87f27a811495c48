//! Experiments on queues: what happens to work when its queue is released, and which host bytes arrive.

use freehold_driver::opencl::{memory, queue};

use super::fixture::{BYTES, Fixture, Latch, Spin};
use crate::answer_text::{byte_runs, choose, code, code_and_pace};
use crate::experiment::{Answer, Experiment};
use crate::id::{Id, OPENCL};

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(OPENCL, 6, 1),
        did: "release a queue with a pending fill: does the release wait, and is the fill done",
        run: released_while_pending,
    },
    Experiment {
        id: Id(OPENCL, 6, 2),
        did: "release a queue whose kernel runs: does the release wait",
        run: released_while_running,
    },
    Experiment { id: Id(OPENCL, 6, 3), did: "finish a queue whose work is held: does that wait", run: finish },
    Experiment { id: Id(OPENCL, 6, 4), did: "flush a queue whose work is held: does that wait", run: flush },
    Experiment {
        id: Id(OPENCL, 6, 5),
        did: "a write from the host is pending, and the host changes its bytes: which bytes arrive",
        run: host_bytes_reused,
    },
    Experiment {
        id: Id(OPENCL, 6, 6),
        did: "a read to the host is pending: what the host sees before, and when it is done",
        run: host_bytes_read,
    },
    Experiment { id: Id(OPENCL, 6, 7), did: "queue 1 is held: does queue 2 get on", run: beside },
    Experiment {
        id: Id(OPENCL, 6, 8),
        did: "a kernel runs in queue 1: does a fill in queue 2 get on",
        run: beside_kernel,
    },
    Experiment { id: Id(OPENCL, 6, 9), did: "release a queue twice", run: released_twice },
    Experiment { id: Id(OPENCL, 6, 10), did: "fill beyond the end of a buffer, and nothing of it", run: wrong_fill },
    Experiment { id: Id(OPENCL, 6, 11), did: "write from the host's null, and read to it", run: null_host },
];

fn released_while_pending(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let other = session.queue()?;
    let buffer = session.buffer(0)?;
    let hold = Latch::new(&session, other)?;
    let filled = memory::fill(other, buffer, 0, BYTES, &[0x5a], &[])?;
    let released = code_and_pace(hold.during(|| queue::release(other)));
    queue::barrier(session.queue, &[filled])?;
    Ok(format!("{released}, {}", byte_runs(&session.bytes(buffer)?)))
}

fn released_while_running(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let spin = Spin::run(b, &session)?;
    Ok(code_and_pace(spin.during(|| queue::release(session.queue))))
}

fn finish(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let hold = Latch::new(&session, session.queue)?;
    Ok(code_and_pace(hold.during(|| queue::finish(session.queue))))
}

fn flush(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let hold = Latch::new(&session, session.queue)?;
    let answer = code_and_pace(hold.during(|| queue::flush(session.queue)));
    queue::finish(session.queue)?;
    Ok(answer)
}

fn host_bytes_reused(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    let mut host = vec![0x11_u8; BYTES];
    let hold = Latch::new(&session, session.queue)?;
    // SAFETY: the bytes stay until the queue has finished; the experiment tests that they change before that.
    unsafe { memory::write(session.queue, buffer, 0, host.as_ptr().cast(), BYTES, &[]) }?;
    host.fill(0x22);
    hold.open();
    let arrived = session.bytes(buffer)?;
    drop(host);
    Ok(byte_runs(&arrived))
}

fn host_bytes_read(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0x5a)?;
    let mut host = vec![0_u8; BYTES];
    let hold = Latch::new(&session, session.queue)?;
    // SAFETY: the bytes stay until the queue has finished.
    unsafe { memory::read(session.queue, buffer, 0, host.as_mut_ptr().cast(), BYTES, &[]) }?;
    queue::flush(session.queue)?;
    let before = byte_runs(&host);
    hold.open();
    queue::finish(session.queue)?;
    Ok(format!("{before}, then {}", byte_runs(&host)))
}

fn beside(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let other = session.queue()?;
    let buffer = session.buffer(0)?;
    let hold = Latch::new(&session, session.queue)?;
    memory::fill(other, buffer, 0, BYTES, &[1], &[])?;
    let (pace, finished) = hold.during(|| queue::finish(other));
    finished?;
    Ok(choose(pace == crate::latch::Pace::AtOnce, "yes", "no"))
}

fn beside_kernel(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let other = session.queue()?;
    let buffer = session.buffer(0)?;
    let spin = Spin::run(b, &session)?;
    memory::fill(other, buffer, 0, BYTES, &[1], &[])?;
    let (pace, finished) = spin.during(|| queue::finish(other));
    finished?;
    Ok(choose(pace == crate::latch::Pace::AtOnce, "yes", "no"))
}

fn released_twice(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let first = code(queue::release(session.queue));
    Ok(format!("{first}, then {}", code(queue::release(session.queue))))
}

fn wrong_fill(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    let beyond = code(memory::fill(session.queue, buffer, BYTES - 4, 8, &[1], &[]));
    Ok(format!("{beyond}, {}", code(memory::fill(session.queue, buffer, 0, 0, &[1], &[]))))
}

fn null_host(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    // SAFETY: null is rejected before anything is read.
    let written = code(unsafe { memory::write(session.queue, buffer, 0, std::ptr::null(), 4, &[]) });
    // SAFETY: null is rejected before anything is written.
    let read = code(unsafe { memory::read(session.queue, buffer, 0, std::ptr::null_mut(), 4, &[]) });
    Ok(format!("{written}, {read}"))
}
