//! Queues: what becomes of work when its queue is released, and which bytes of the host arrive.

use freehold_driver::opencl::{memory, queue};

use super::bench::{BYTES, Bench, Hold, Spin};
use crate::lab::answers::{all, code, either, paced};
use crate::lab::experiment::{Answer, Experiment};
use crate::lab::id::{Id, O};

pub(super) const EXPERIMENTS: &[Experiment<Bench>] = &[
    Experiment {
        id: Id(O, 6, 1),
        did: "release a queue with a pending fill: does the release wait, and is the fill done",
        run: released_while_pending,
    },
    Experiment {
        id: Id(O, 6, 2),
        did: "release a queue whose kernel runs: does the release wait",
        run: released_while_running,
    },
    Experiment { id: Id(O, 6, 3), did: "finish a queue whose work is held: does that wait", run: finish },
    Experiment { id: Id(O, 6, 4), did: "flush a queue whose work is held: does that wait", run: flush },
    Experiment {
        id: Id(O, 6, 5),
        did: "a write from the host is pending, and the host changes its bytes: which bytes arrive",
        run: host_bytes_reused,
    },
    Experiment {
        id: Id(O, 6, 6),
        did: "a read to the host is pending: what the host sees before, and when it is done",
        run: host_bytes_read,
    },
    Experiment { id: Id(O, 6, 7), did: "queue 1 is held: does queue 2 get on", run: beside },
    Experiment { id: Id(O, 6, 8), did: "a kernel runs in queue 1: does a fill in queue 2 get on", run: beside_kernel },
    Experiment { id: Id(O, 6, 9), did: "release a queue twice", run: released_twice },
    Experiment { id: Id(O, 6, 10), did: "fill beyond the end of a buffer, and nothing of it", run: wrong_fill },
    Experiment { id: Id(O, 6, 11), did: "write from the host's null, and read to it", run: null_host },
];

fn released_while_pending(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let other = desk.queue()?;
    let buffer = desk.buffer(0)?;
    let hold = Hold::new(&desk, other)?;
    let filled = memory::fill(other, buffer, 0, BYTES, &[0x5a], &[])?;
    let released = paced(hold.during(|| queue::release(other)));
    queue::barrier(desk.queue, &[filled])?;
    Ok(format!("{released}, {}", all(&desk.bytes(buffer)?)))
}

fn released_while_running(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let spin = Spin::run(b, &desk)?;
    Ok(paced(spin.during(|| queue::release(desk.queue))))
}

fn finish(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let hold = Hold::new(&desk, desk.queue)?;
    Ok(paced(hold.during(|| queue::finish(desk.queue))))
}

fn flush(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let hold = Hold::new(&desk, desk.queue)?;
    let answer = paced(hold.during(|| queue::flush(desk.queue)));
    queue::finish(desk.queue)?;
    Ok(answer)
}

fn host_bytes_reused(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0)?;
    let mut host = vec![0x11_u8; BYTES];
    let hold = Hold::new(&desk, desk.queue)?;
    // SAFETY: the bytes stay until the queue has finished; that they change meanwhile is the question.
    unsafe { memory::write(desk.queue, buffer, 0, host.as_ptr().cast(), BYTES, &[]) }?;
    host.fill(0x22);
    hold.open();
    let arrived = desk.bytes(buffer)?;
    drop(host);
    Ok(all(&arrived))
}

fn host_bytes_read(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0x5a)?;
    let mut host = vec![0_u8; BYTES];
    let hold = Hold::new(&desk, desk.queue)?;
    // SAFETY: the bytes stay until the queue has finished.
    unsafe { memory::read(desk.queue, buffer, 0, host.as_mut_ptr().cast(), BYTES, &[]) }?;
    queue::flush(desk.queue)?;
    let before = all(&host);
    hold.open();
    queue::finish(desk.queue)?;
    Ok(format!("{before}, then {}", all(&host)))
}

fn beside(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let other = desk.queue()?;
    let buffer = desk.buffer(0)?;
    let hold = Hold::new(&desk, desk.queue)?;
    memory::fill(other, buffer, 0, BYTES, &[1], &[])?;
    let (pace, finished) = hold.during(|| queue::finish(other));
    finished?;
    Ok(either(pace == crate::lab::gate::Pace::AtOnce, "yes", "no"))
}

fn beside_kernel(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let other = desk.queue()?;
    let buffer = desk.buffer(0)?;
    let spin = Spin::run(b, &desk)?;
    memory::fill(other, buffer, 0, BYTES, &[1], &[])?;
    let (pace, finished) = spin.during(|| queue::finish(other));
    finished?;
    Ok(either(pace == crate::lab::gate::Pace::AtOnce, "yes", "no"))
}

fn released_twice(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let first = code(queue::release(desk.queue));
    Ok(format!("{first}, then {}", code(queue::release(desk.queue))))
}

fn wrong_fill(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0)?;
    let beyond = code(memory::fill(desk.queue, buffer, BYTES - 4, 8, &[1], &[]));
    Ok(format!("{beyond}, {}", code(memory::fill(desk.queue, buffer, 0, 0, &[1], &[]))))
}

fn null_host(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0)?;
    // SAFETY: null is refused before anything is read.
    let written = code(unsafe { memory::write(desk.queue, buffer, 0, std::ptr::null(), 4, &[]) });
    // SAFETY: null is refused before anything is written.
    let read = code(unsafe { memory::read(desk.queue, buffer, 0, std::ptr::null_mut(), 4, &[]) });
    Ok(format!("{written}, {read}"))
}
