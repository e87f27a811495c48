//! When a release takes effect, and what an early one does to work that is pending or runs.

use freehold_driver::opencl::{memory, queue, svm};

use super::bench::{BYTES, Bench, Hold, Spin};
use crate::lab::answers::{all, code, either, paced};
use crate::lab::experiment::{Answer, Experiment};
use crate::lab::id::{Id, O};

pub(super) const EXPERIMENTS: &[Experiment<Bench>] = &[
    Experiment {
        id: Id(O, 2, 1),
        did: "release a buffer that a pending fill writes: does the release wait",
        run: while_pending,
    },
    Experiment {
        id: Id(O, 2, 2),
        did: "release a buffer that a pending kernel reads, let it run: what it read",
        run: read_after_release,
    },
    Experiment {
        id: Id(O, 2, 3),
        did: "release the buffer that a running kernel writes: does the release wait",
        run: while_running,
    },
    Experiment {
        id: Id(O, 2, 4),
        did: "release a buffer that nothing uses while a kernel runs: does the release wait",
        run: other_while_running,
    },
    Experiment {
        id: Id(O, 2, 5),
        did: "create a buffer while a kernel runs: does that wait",
        run: create_while_running,
    },
    Experiment {
        id: Id(O, 2, 6),
        did: "free shared virtual memory that nothing uses while a kernel runs: does that wait",
        run: free_while_running,
    },
    Experiment {
        id: Id(O, 2, 7),
        did: "allocate shared virtual memory while a kernel runs: does that wait",
        run: alloc_while_running,
    },
    Experiment {
        id: Id(O, 2, 8),
        did: "free shared virtual memory that a pending fill writes: does the free wait",
        run: free_while_pending,
    },
    Experiment {
        id: Id(O, 2, 9),
        did: "free shared virtual memory in the order of a queue whose work is pending: does the call wait",
        run: free_in_order,
    },
    Experiment {
        id: Id(O, 2, 10),
        did: "free shared virtual memory and allocate as much: its address",
        run: address_comes_back,
    },
    Experiment {
        id: Id(O, 2, 11),
        did: "free shared virtual memory in the order of a queue behind a fill of it, and wait for the queue",
        run: freed_behind_work,
    },
];

fn while_pending(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0)?;
    let hold = Hold::new(&desk, desk.queue)?;
    memory::fill(desk.queue, buffer, 0, BYTES, &[1], &[])?;
    let answer = paced(hold.during(|| memory::release(buffer)));
    queue::finish(desk.queue)?;
    Ok(answer)
}

fn read_after_release(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let copy = desk.kernel(c"copy")?;
    let (from, to) = (desk.buffer(0x5a)?, desk.buffer(0)?);
    let hold = Hold::new(&desk, desk.queue)?;
    desk.copy(copy, from, to)?;
    memory::release(from)?;
    // Whoever gets the memory that is free writes over it.
    let other = desk.queue()?;
    for _ in 0..8 {
        let new = memory::create(desk.context, BYTES)?;
        memory::fill(other, new, 0, BYTES, &[0xff], &[])?;
    }
    queue::finish(other)?;
    hold.open();
    Ok(all(&desk.bytes(to)?))
}

fn while_running(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let spin = Spin::run(b, &desk)?;
    let answer = paced(spin.during(|| memory::release(spin.to)));
    Ok(format!("{answer}, the kernel {}", code(queue::finish(desk.queue))))
}

fn other_while_running(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let unused = desk.buffer(1)?;
    let spin = Spin::run(b, &desk)?;
    Ok(paced(spin.during(|| memory::release(unused))))
}

fn create_while_running(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let spin = Spin::run(b, &desk)?;
    Ok(paced(spin.during(|| memory::create(desk.context, 64 << 20))))
}

fn free_while_running(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let unused = desk.block(1)?;
    let spin = Spin::run(b, &desk)?;
    Ok(paced(spin.during(|| {
        // SAFETY: nothing uses the block.
        unsafe { svm::free(desk.context, unused) }
    })))
}

fn alloc_while_running(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let spin = Spin::run(b, &desk)?;
    Ok(paced(spin.during(|| svm::alloc(desk.context, 64 << 20, 0))))
}

fn free_while_pending(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let block = desk.block(1)?;
    let hold = Hold::new(&desk, desk.queue)?;
    // SAFETY: whether the block is there when the queue comes to it is the question; nothing waits for the outcome.
    unsafe { svm::fill(desk.queue, block, BYTES, &[2], &[]) }?;
    // The process ends with its answer before the fill would meet memory that is gone.
    let held = crate::lab::gate::unless_opened(
        || hold.open(),
        || {
            // SAFETY: as above.
            unsafe { svm::free(desk.context, block) }
        },
    );
    let answer = paced(held);
    std::mem::forget(hold);
    Ok(answer)
}

fn free_in_order(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let block = desk.block(1)?;
    let hold = Hold::new(&desk, desk.queue)?;
    let answer = paced(hold.during(|| {
        // SAFETY: nothing uses the block behind this.
        unsafe { svm::free_in(desk.queue, block, &[]) }
    }));
    Ok(format!("{answer}, the queue {}", code(queue::finish(desk.queue))))
}

fn address_comes_back(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let first = desk.block(1)?;
    // SAFETY: nothing uses the block.
    unsafe { svm::free(desk.context, first) }?;
    let second = svm::alloc(desk.context, BYTES, 0)?;
    Ok(either(first == second, "the same", "another"))
}

fn freed_behind_work(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let block = desk.block(1)?;
    // SAFETY: the block is there until the queue has come to its free.
    unsafe { svm::fill(desk.queue, block, BYTES, &[2], &[]) }?;
    // SAFETY: nothing uses the block behind this.
    let freed = code(unsafe { svm::free_in(desk.queue, block, &[]) });
    Ok(format!("{freed}, the queue {}", code(queue::finish(desk.queue))))
}
