//! Named host memory in several processes: their kernels on the same bytes, and a lock whose holders are killed.

use std::io::Write;
use std::process::Child;
use std::time::Duration;

use freehold::{Grid, Image, Stream};
use freehold_broker::{Broker, Error, Host, HostGuard};
use freehold_testing::{HANG_TIMEOUT, at_effort, report_covered, seed};

use crate::harness::{self, Harness, Random};
use crate::leases::Outcome;

const KERNELS: &str = include_str!("../../../freehold/examples/kernels.ptx");

/// Numbers that kernels add to.
const N: usize = 1000;
const BYTES: u64 = 4 * N as u64;

/// How often a process adds.
fn rounds() -> u32 {
    at_effort(5, 20, 100)
}

/// Prints that this process is at its place, and waits until it is killed.
fn ready() {
    println!("0");
    std::io::stdout().flush().expect("standard output is read");
}

fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// The number that is stored twice whenever nobody has the lock. Completes what a dead process left half done.
fn twice(guard: &mut HostGuard<'_>) -> Result<u32, Error> {
    let mut pair = [0_u32; 2];
    guard.read(0, &mut pair)?;
    if guard.was_abandoned() {
        guard.write(4, &pair[..1])?;
    } else {
        assert_eq!(pair[0], pair[1]);
    }
    Ok(pair[0])
}

pub(crate) fn act(broker: &Broker, stream: &Stream, task: &str, number: u64) -> Outcome {
    let host = broker.host("shared/numbers", if task == "host-other" { BYTES + 1 } else { BYTES })?;
    match task {
        "host-add" => {
            let module = broker.device().module(&Image::ptx(KERNELS)?)?;
            // SAFETY: `add` writes the first `n` elements of its argument, which has as many.
            let add = unsafe { module.kernel("add") }?;
            for _ in 0..rounds() {
                let _guard = host.lock(HANG_TIMEOUT)?;
                let mut part = host.slice::<u32>(stream, 0, N)?;
                stream.launch(&add, Grid::cover(N as u32, 128), (&mut part, 1_u32, N as u32))?;
                stream.synchronize()?;
            }
        }
        "host-read" => {
            let mut found = vec![0_u32; N];
            broker.open_host("shared/numbers")?.lock(HANG_TIMEOUT)?.read(0, &mut found)?;
            assert_eq!(found, vec![number as u32; N]);
        }
        "host-write-and-die" => {
            host.lock(HANG_TIMEOUT)?.write(0, &[7_u32; N])?;
            harness::kill(std::process::id());
        }
        "host-hold" => {
            let _guard = host.lock(HANG_TIMEOUT)?;
            ready();
            stay();
        }
        "host-take-over" => {
            ready();
            let guard = host.lock(HANG_TIMEOUT)?;
            assert!(guard.was_abandoned());
            drop(guard);
            assert!(!host.lock(HANG_TIMEOUT)?.was_abandoned());
        }
        "host-wait" => {
            let guard = host.lock(HANG_TIMEOUT)?;
            ready();
            let is_so = |guard: &mut HostGuard<'_>| {
                let mut found = [0_u32];
                guard.read(0, &mut found)?;
                Ok(found == [1])
            };
            let _guard = guard.wait_until(HANG_TIMEOUT, is_so)?;
        }
        "host-notify" => {
            host.lock(HANG_TIMEOUT)?.write(0, &[1_u32])?;
            host.notify()?;
        }
        "host-write-and-die-with-the-lock" => {
            let mut guard = host.lock(HANG_TIMEOUT)?;
            guard.write(0, &[1_u32])?;
            harness::kill(std::process::id());
            stay();
        }
        "host-work" => {
            ready();
            work(&host)?;
        }
        "host-try" => println!("{}", twice(&mut host.lock(HANG_TIMEOUT)?)?),
        other => return Err(format!("unknown task {other}").into()),
    }
    Ok(())
}

/// Counts until it is killed.
fn work(host: &Host) -> Result<(), Error> {
    let mut round = 0_u32;
    loop {
        let mut guard = host.lock(HANG_TIMEOUT)?;
        let next = twice(&mut guard)? + 1;
        guard.write(0, &[next])?;
        std::thread::yield_now();
        guard.write(4, &[next])?;
        host.notify()?;
        round += 1;
        if round.is_multiple_of(8) {
            match guard.wait(Duration::from_millis(2)) {
                Ok(mut guard) => _ = twice(&mut guard)?,
                Err(Error::TimedOut { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn has_ended_well(mut process: Child) {
    assert!(process.wait().unwrap().success());
}

pub(crate) fn kernels_of_two_processes_add(harness: &Harness) {
    std::thread::scope(|scope| {
        let adders = [(); 2].map(|()| scope.spawn(|| harness.device("host-add", 0)));
        adders.into_iter().for_each(|adder| assert_eq!(adder.join().unwrap(), Some(String::new())));
    });
    assert_eq!(harness.device("host-read", u64::from(2 * rounds())), Some(String::new()));
}

pub(crate) fn it_outlives_its_maker_and_the_broker(harness: &Harness) {
    assert_eq!(harness.device("host-write-and-die", 0), None);
    harness.kill("broker");
    assert_eq!(harness.device("host-read", 7), Some(String::new()));
}

pub(crate) fn another_length_is_refused(harness: &Harness) {
    assert_eq!(harness.device("host-try", 0), Some("0".to_owned()));
    let said = harness.device("host-other", 0);
    assert_eq!(
        said,
        Some(format!(
            "shared/numbers: the host memory of that name has {BYTES} bytes (3.9 KiB): open it with that size"
        ))
    );
}

pub(crate) fn a_killed_holder_is_taken_over(harness: &Harness) {
    for _ in 0..3 {
        let (mut holder, _) = harness.start_device("host-hold");
        let (taker, _) = harness.start_device("host-take-over");
        harness::kill(holder.id());
        holder.wait().unwrap();
        has_ended_well(taker);
    }
}

pub(crate) fn a_killed_waiter_delays_no_other(harness: &Harness) {
    let [(mut dead, _), (waiter, _)] = [(); 2].map(|()| harness.start_device("host-wait"));
    harness::kill(dead.id());
    dead.wait().unwrap();
    assert_eq!(harness.device("host-notify", 0), Some(String::new()));
    has_ended_well(waiter);
}

pub(crate) fn a_killed_notifier_delays_no_waiter(harness: &Harness) {
    let waiters = [(); 2].map(|()| harness.start_device("host-wait").0);
    assert_eq!(harness.device("host-write-and-die-with-the-lock", 0), None);
    waiters.into_iter().for_each(has_ended_well);
}

pub(crate) fn processes_are_killed_anywhere(harness: &Harness) {
    let mut random = Random::new(seed());
    let mut workers: Vec<Child> = (0..3).map(|_| harness.start_device("host-work").0).collect();
    let kills = at_effort(4, 15, 100);
    for _ in 0..kills {
        for _ in 0..random.below(2000) {
            std::thread::yield_now();
        }
        let chosen = random.below(3) as usize;
        assert_eq!(workers[chosen].try_wait().unwrap(), None, "a worker that was not killed has exited");
        harness::kill(workers[chosen].id());
        workers[chosen].wait().unwrap();
        let before: u32 = harness.device("host-try", 0).unwrap().parse().unwrap();
        workers[chosen] = harness.start_device("host-work").0;
        harness::until("the others continue", || {
            let now: u32 = harness.device("host-try", 0)?.parse().ok()?;
            (now > before).then_some(())
        });
    }
    report_covered(kills, "killed processes that share a lock");
    for mut worker in workers {
        harness::kill(worker.id());
        worker.wait().unwrap();
    }
}
