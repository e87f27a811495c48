use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::protocol::call_codec::CallKind;

/// A session, and the side of its worker.
fn session() -> (CallSession, CallRing) {
    let calls = CallRing::create().unwrap();
    let worker = CallRing::open(calls.shared().shared_fd()).unwrap();
    let semaphores = SharedMemory::create("freehold-semaphores", SEMAPHORES as usize * 8).unwrap();
    let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let (spin, fork_guard, queue) = (SpinWait::new(), ForkGuard::new().unwrap(), Mutex::default());
    (CallSession { worker: Id(1), session_index: 0, calls, semaphores, doorbell, spin, fork_guard, queue }, worker)
}

fn put(session: &CallSession, worker: &CallRing, stream: u32) -> CallId {
    let (blocks, threads) = ([1; 3], [1; 3]);
    let head = CallHeader {
        kind: CallKind::Launch,
        stream,
        number: 0,
        module: Id(1),
        kernel: 0,
        blocks,
        threads,
        shared_bytes: 0,
    };
    let id = session.push(head, &[], &[]).unwrap();
    worker.pop();
    id
}

fn refuse(worker: &CallRing, id: CallId) {
    let report =
        FailureReport { stream: id.stream, number: id.number, last: id.number, failure: CallFailure::UnsupportedShape };
    worker.push_failure(&report.to_words(), "");
}

#[test]
fn a_failure_that_was_forgotten_is_not_taken_for_one_that_went_well() {
    let (session, worker) = session();
    let kernel = Kernel::for_test("step", "test/kernels");
    let first = put(&session, &worker, 3);
    refuse(&worker, first);
    let second = put(&session, &worker, 3);
    for _ in 0..FAILURES_MAX {
        let id = put(&session, &worker, 5);
        refuse(&worker, id);
        session.receive_failures(&mut session.queue());
    }
    for stream in [3, 5] {
        session.semaphores.u64_at(8 * semaphore_of(0, stream) as usize).store(1 << 20, Ordering::Release);
    }
    let error = session.outcome(first, &kernel).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the outcome of step of test/kernels was discarded: more than 65536 calls have failed since; it \
         may have been executed, as a whole or in part"
    );
    assert_eq!(error.executed(), Executed::Maybe);
    session.outcome(second, &kernel).unwrap();
    let last = CallId { stream: 5, number: FAILURES_MAX as u64, ring_index: 0 };
    assert!(
        matches!(session.outcome(last, &kernel), Err(CallError::UnsupportedShape { .. })),
        "the outcome of later calls is known"
    );
}

#[test]
fn what_compilers_say_of_two_modules_is_kept_apart() {
    let (session, worker) = session();
    let kernel = Kernel::for_test("the module", "test/kernels");
    let ids = ["no such register", "no such label"].map(|text| {
        let id = put(&session, &worker, 0);
        let (stream, number) = (id.stream, id.number);
        worker.push_failure(
            &FailureReport { stream, number, last: number, failure: CallFailure::CompileFailed }.to_words(),
            text,
        );
        id
    });
    let said = ids.map(|id| session.outcome(id, &kernel).unwrap_err().to_string());
    assert_eq!(said, ["the module does not compile:\nno such register", "the module does not compile:\nno such label"]);
}

#[test]
fn a_call_that_came_to_its_end_went_well_whomever_the_worker_suspects() {
    let (session, worker) = session();
    let kernel = Kernel::for_test("step", "test/kernels");
    let ids = [(); 2].map(|()| put(&session, &worker, 0));
    let failure = CallFailure::Faulted { code: 700, among: SuspectCount { own: 2, others: 0 } };
    worker.push_failure(&FailureReport { stream: 0, number: 1, last: 2, failure }.to_words(), "step, step");
    session.semaphores.u64_at(8 * semaphore_of(0, 0) as usize).store(PROCESS_ENDED | 1, Ordering::Release);
    session.outcome(ids[0], &kernel).unwrap();
    assert!(matches!(session.outcome(ids[1], &kernel), Err(CallError::SuspectFaulted { .. })));
}
