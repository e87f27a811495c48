//! Attacks on the limits of a worker: a tenant rewrites the words that it shares with its worker, and gets neither more
//! launches in flight nor more time for them.

use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::process::{Pid, Signal, kill_process};

use super::Attacker;
use crate::calls::TEXT;
use crate::harness::{self, until};
use crate::raw::{Raw, RawCall, RawSession};

/// Kernels by their index in the text.
const EMPTY: u64 = 0;
const SPIN: u64 = 3;

/// What a worker reports of a kernel that took too long.
const TOO_LONG: u32 = 13;

/// Calls of a neighbour at the same worker: in each round the worker polls all rings, and takes up to 32 calls of each.
const ROUNDS: u64 = 20;

const NAME: &str = "attack/kernels";

/// A tenant whose worker has loaded the module of the tests.
fn loaded(attacker: &Attacker, label: u64) -> (Raw, RawSession, u64) {
    let mut raw = attacker.connect();
    let mut session = raw.open_session(label);
    let put = raw.put_module(NAME, TEXT, 0);
    assert_eq!(put[0] as u16, 105, "{put:x?}");
    let number = session.load(put[1]);
    session.wait(0, number);
    (raw, session, put[1])
}

/// The worker of this attack.
fn worker(socket: &Path) -> Pid {
    let [worker] = harness::processes(socket, "worker")[..] else { panic!("there is one worker") };
    Pid::from_raw(worker.cast_signed()).expect("a process has a number")
}

/// Forges the completion of all calls, queued after a kernel that does not end: the worker takes no more than may be in
/// flight.
pub(super) fn forged_launch_count(attacker: &mut Attacker) {
    let label = 1 + attacker.random.below(1 << 40);
    let (mut raw, mut session, module) = loaded(attacker, label);
    let (_neighbour, mut beside, _) = loaded(attacker, label);
    let (lease, _) = raw.reserve(512);
    session.call(&RawCall { module, kernel: SPIN, stream: 0, fences: &[], leases: &[lease] });
    let empty = RawCall { module, kernel: EMPTY, stream: 0, fences: &[], leases: &[] };
    for _ in 0..2 * harness::LAUNCHES {
        session.call(&empty);
    }
    for round in 0..ROUNDS {
        // Above all numbers, equal to them, and random.
        for forged in [1 << 40, u64::MAX, 2 * harness::LAUNCHES + 2, attacker.random.below(u64::MAX)] {
            session.word(0).store(forged, Ordering::Release);
        }
        session.wake();
        let number = beside.call(&RawCall { module, kernel: EMPTY, stream: round % 16, fences: &[], leases: &[] });
        beside.wait(round % 16, number);
    }
    // The first one loaded the module, and is complete.
    assert_eq!(u64::from(session.taken()), 1 + harness::LAUNCHES, "the number of calls taken");
    attacker.refused += 1;
    kill_process(worker(&attacker.socket), Signal::KILL).expect("the signal is permitted");
    until("the worker has ended", || harness::processes(&attacker.socket, "worker").is_empty().then_some(()));
    raw.drop_module(NAME);
}

/// Waits until a worker was killed, and checks that it was for a kernel that took too long.
fn ended_for_time(attacker: &mut Attacker, raw: &mut Raw, session: &RawSession, mut forge: impl FnMut(&Raw)) {
    until("the worker was killed", || {
        (0..1000).for_each(|_| forge(raw));
        harness::processes(&attacker.socket, "worker").is_empty().then_some(())
    });
    assert!(session.failure_kinds().contains(&TOO_LONG), "it reported {:?}", session.failure_kinds());
    attacker.refused += 1;
    raw.drop_module(NAME);
}

/// Forges the completion of a kernel that does not end.
pub(super) fn forged_run_time(attacker: &mut Attacker) {
    let (mut raw, mut session, module) = loaded(attacker, 0);
    let (lease, _) = raw.reserve(512);
    let number = session.call(&RawCall { module, kernel: SPIN, stream: 0, fences: &[], leases: &[lease] });
    let mut forged = [number, u64::MAX, 1 << 40, number + 1].into_iter().cycle();
    ended_for_time(attacker, &mut raw, &session, |_| {
        session.word(0).store(forged.next().expect("the cycle does not end"), Ordering::Release);
    });
}

/// Starts a kernel that does not end, and pretends that it waits.
pub(super) fn forged_waiting(attacker: &mut Attacker) {
    let (mut raw, mut session, module) = loaded(attacker, 0);
    let (lease, _) = raw.reserve(512);
    let fence = [raw.tenant, 3 << 48 | 5];
    let task = RawCall { module, kernel: SPIN, stream: 0, fences: &[fence], leases: &[lease] };
    session.call(&task);
    let mut forged = [5, 0].into_iter().cycle();
    ended_for_time(attacker, &mut raw, &session, |raw| {
        raw.semaphores.u64_at(8 * 3).store(forged.next().expect("the cycle does not end"), Ordering::Release);
    });
}

/// Forges the heartbeat of a worker that is stopped.
pub(super) fn forged_heartbeat(attacker: &mut Attacker) {
    let (mut raw, session, _) = loaded(attacker, 0);
    kill_process(worker(&attacker.socket), Signal::STOP).expect("the signal is permitted");
    until("the worker was killed", || {
        // Every count of the ring that the tenant does not own.
        for word in (0..4096).step_by(128).filter(|&word| word != 512 && word != 640) {
            session.calls.u32_at(word).fetch_add(1, Ordering::Relaxed);
        }
        harness::processes(&attacker.socket, "worker").is_empty().then_some(())
    });
    attacker.refused += 1;
    raw.drop_module(NAME);
}
