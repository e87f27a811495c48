//! Experiments on releases: when one takes effect, and what an early one does to pending or running work.

use freehold_driver::opencl::{memory, queue, svm};

use super::fixture::{BYTES, Fixture, Latch, Spin};
use crate::answer_text::{byte_runs, choose, code, code_and_pace};
use crate::experiment::{Answer, Experiment};
use crate::id::{Id, OPENCL};

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(OPENCL, 2, 1),
        did: "release a buffer that a pending fill writes: does the release wait",
        run: while_pending,
    },
    Experiment {
        id: Id(OPENCL, 2, 2),
        did: "release a buffer that a pending kernel reads, let it run: what it read",
        run: read_after_release,
    },
    Experiment {
        id: Id(OPENCL, 2, 3),
        did: "release the buffer that a running kernel writes: does the release wait",
        run: while_running,
    },
    Experiment {
        id: Id(OPENCL, 2, 4),
        did: "release a buffer that nothing uses while a kernel runs: does the release wait",
        run: other_while_running,
    },
    Experiment {
        id: Id(OPENCL, 2, 5),
        did: "create a buffer while a kernel runs: does that wait",
        run: create_while_running,
    },
    Experiment {
        id: Id(OPENCL, 2, 6),
        did: "free shared virtual memory that nothing uses while a kernel runs: does that wait",
        run: free_while_running,
    },
    Experiment {
        id: Id(OPENCL, 2, 7),
        did: "allocate shared virtual memory while a kernel runs: does that wait",
        run: alloc_while_running,
    },
    Experiment {
        id: Id(OPENCL, 2, 8),
        did: "free shared virtual memory that a pending fill writes: does the free wait",
        run: free_while_pending,
    },
    Experiment {
        id: Id(OPENCL, 2, 9),
        did: "free shared virtual memory in the order of a queue whose work is pending: does the call wait",
        run: free_in_order,
    },
    Experiment {
        id: Id(OPENCL, 2, 10),
        did: "free shared virtual memory and allocate as much: its address",
        run: address_comes_back,
    },
    Experiment {
        id: Id(OPENCL, 2, 11),
        did: "free shared virtual memory in the order of a queue after a fill of it, and wait for the queue",
        run: freed_behind_work,
    },
];

fn while_pending(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    let hold = Latch::new(&session, session.queue)?;
    memory::fill(session.queue, buffer, 0, BYTES, &[1], &[])?;
    let answer = code_and_pace(hold.during(|| memory::release(buffer)));
    queue::finish(session.queue)?;
    Ok(answer)
}

fn read_after_release(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let copy = session.kernel(c"copy")?;
    let (from, to) = (session.buffer(0x5a)?, session.buffer(0)?);
    let hold = Latch::new(&session, session.queue)?;
    session.copy(copy, from, to)?;
    memory::release(from)?;
    // An allocation that gets the freed memory overwrites it.
    let other = session.queue()?;
    for _ in 0..8 {
        let new = memory::create(session.context, BYTES)?;
        memory::fill(other, new, 0, BYTES, &[0xff], &[])?;
    }
    queue::finish(other)?;
    hold.open();
    Ok(byte_runs(&session.bytes(to)?))
}

fn while_running(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let spin = Spin::run(b, &session)?;
    let answer = code_and_pace(spin.during(|| memory::release(spin.to)));
    Ok(format!("{answer}, the kernel {}", code(queue::finish(session.queue))))
}

fn other_while_running(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let unused = session.buffer(1)?;
    let spin = Spin::run(b, &session)?;
    Ok(code_and_pace(spin.during(|| memory::release(unused))))
}

fn create_while_running(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let spin = Spin::run(b, &session)?;
    Ok(code_and_pace(spin.during(|| memory::create(session.context, 64 << 20))))
}

fn free_while_running(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let unused = session.block(1)?;
    let spin = Spin::run(b, &session)?;
    Ok(code_and_pace(spin.during(|| {
        // SAFETY: nothing uses the block.
        unsafe { svm::free(session.context, unused) }
    })))
}

fn alloc_while_running(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let spin = Spin::run(b, &session)?;
    Ok(code_and_pace(spin.during(|| svm::alloc(session.context, 64 << 20, 0))))
}

fn free_while_pending(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let block = session.block(1)?;
    let hold = Latch::new(&session, session.queue)?;
    // SAFETY: the experiment tests whether the block still exists when the queue reaches it; nothing waits for the
    // outcome.
    unsafe { svm::fill(session.queue, block, BYTES, &[2], &[]) }?;
    // The process ends with its answer before the fill would reach freed memory.
    let held = crate::latch::unless_opened(
        || hold.open(),
        || {
            // SAFETY: as above.
            unsafe { svm::free(session.context, block) }
        },
    );
    let answer = code_and_pace(held);
    std::mem::forget(hold);
    Ok(answer)
}

fn free_in_order(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let block = session.block(1)?;
    let hold = Latch::new(&session, session.queue)?;
    let answer = code_and_pace(hold.during(|| {
        // SAFETY: nothing uses the block after this.
        unsafe { svm::free_async(session.queue, block, &[]) }
    }));
    Ok(format!("{answer}, the queue {}", code(queue::finish(session.queue))))
}

fn address_comes_back(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let first = session.block(1)?;
    // SAFETY: nothing uses the block.
    unsafe { svm::free(session.context, first) }?;
    let second = svm::alloc(session.context, BYTES, 0)?;
    Ok(choose(first == second, "the same", "another"))
}

fn freed_behind_work(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let block = session.block(1)?;
    // SAFETY: the block exists until the queue reaches its free.
    unsafe { svm::fill(session.queue, block, BYTES, &[2], &[]) }?;
    // SAFETY: nothing uses the block after this.
    let freed = code(unsafe { svm::free_async(session.queue, block, &[]) });
    Ok(format!("{freed}, the queue {}", code(queue::finish(session.queue))))
}
