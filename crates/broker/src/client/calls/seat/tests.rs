use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::order::Task;

/// A seat, and the side of its worker.
fn seat() -> (Seat, Calls) {
    let calls = Calls::create().unwrap();
    let worker = Calls::open(calls.shared().shared_file()).unwrap();
    let clock = Shared::create("freehold-clock", CLOCK_WORDS as usize * 8).unwrap();
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let (spin, family, line) = (Spin::new(), ForkGuard::new().unwrap(), Mutex::default());
    (Seat { worker: Id(1), seat: 0, calls, clock, bell, spin, family, line }, worker)
}

fn put(seat: &Seat, worker: &Calls, stream: u32) -> Spot {
    let (blocks, threads) = ([1; 3], [1; 3]);
    let head =
        Head { task: Task::Launch, stream, number: 0, module: Id(1), kernel: 0, blocks, threads, shared_bytes: 0 };
    let spot = seat.put(head, &[], &[]).unwrap();
    worker.take();
    spot
}

fn refuse(worker: &Calls, spot: Spot) {
    let told = Told { stream: spot.stream, number: spot.number, last: spot.number, trouble: Trouble::Shape };
    worker.tell(&told.words(), "");
}

#[test]
fn a_failure_that_was_forgotten_is_not_taken_for_one_that_went_well() {
    let (seat, worker) = seat();
    let kernel = Kernel::known("step", "test/kernels");
    let first = put(&seat, &worker, 3);
    refuse(&worker, first);
    let second = put(&seat, &worker, 3);
    for _ in 0..TOLD_MAX {
        let spot = put(&seat, &worker, 5);
        refuse(&worker, spot);
        seat.hear(&mut seat.line());
    }
    for stream in [3, 5] {
        seat.clock.word(8 * word_of(0, stream) as usize).store(1 << 20, Ordering::Release);
    }
    let error = seat.outcome(first, &kernel).unwrap_err();
    assert_eq!(
        error.to_string(),
        "how step of test/kernels went is not known any more: more than 65536 calls have failed since, and nobody asked; it \
         may have been carried out, as a whole or in part"
    );
    assert_eq!(error.carried(), Carried::Perhaps);
    seat.outcome(second, &kernel).unwrap();
    let last = Spot { stream: 5, number: TOLD_MAX as u64, count: 0 };
    assert!(matches!(seat.outcome(last, &kernel), Err(CallError::Shape { .. })), "the others are known");
}

#[test]
fn what_compilers_say_of_two_modules_is_kept_apart() {
    let (seat, worker) = seat();
    let kernel = Kernel::known("the module", "test/kernels");
    let spots = ["no such register", "no such label"].map(|text| {
        let spot = put(&seat, &worker, 0);
        let (stream, number) = (spot.stream, spot.number);
        worker.tell(&Told { stream, number, last: number, trouble: Trouble::Image }.words(), text);
        spot
    });
    let said = spots.map(|spot| seat.outcome(spot, &kernel).unwrap_err().to_string());
    assert_eq!(
        said,
        ["the driver refuses the module:\nno such register", "the driver refuses the module:\nno such label"]
    );
}

#[test]
fn a_call_that_came_to_its_end_went_well_whomever_the_worker_suspects() {
    let (seat, worker) = seat();
    let kernel = Kernel::known("step", "test/kernels");
    let spots = [(); 2].map(|()| put(&seat, &worker, 0));
    let trouble = Trouble::Faulted { code: 700, among: Among { own: 2, others: 0 } };
    worker.tell(&Told { stream: 0, number: 1, last: 2, trouble }.words(), "step, step");
    seat.clock.word(8 * word_of(0, 0) as usize).store(ENDED | 1, Ordering::Release);
    seat.outcome(spots[0], &kernel).unwrap();
    assert!(matches!(seat.outcome(spots[1], &kernel), Err(CallError::OneFaulted { .. })));
}
