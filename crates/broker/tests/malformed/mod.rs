//! Malformed messages, up to a million of them, to a broker that also serves another tenant.
//!
//! They are made of the bytes of every valid message, changed at random from a seed. A message that is valid by chance
//! and would take something from other processes of the same user is made invalid before it is sent.

mod speaker;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use freehold_broker::Link;
use freehold_broker::wire::Fence;
use freehold_testing::{at_effort, report_covered, seed};

use crate::harness::{Harness, stats, until_is};

use speaker::Speaker;

fn messages() -> u64 {
    at_effort(10_000, 40_000, 1_000_000)
}

/// Messages of one process. Closed connections stay until their process ends, and a user has a limit.
fn messages_each() -> u64 {
    at_effort(1000, 5000, 10_000)
}

/// Processes that send at the same time.
const PROCESSES: usize = 2;

/// Requests of the neighbour whenever one of them has ended.
fn served_each() -> u32 {
    at_effort(100, 200, 1000)
}

/// How much more memory broker and fdstore may have than before.
const MORE_BYTES_MAX: u64 = 16 << 20;

/// How much may be added in the second half, in which nothing is new.
const LATER_BYTES_MAX: u64 = 4 << 20;

/// Sends messages, and prints how many of each kind it has sent.
pub(crate) fn process(words: &[OsString]) -> ExitCode {
    let number = |at: usize| words[at].to_str().and_then(|word| word.parse().ok()).expect("a number");
    let mut speaker = Speaker::new((&words[0]).into(), number(1));
    while speaker.counts.malformed < number(2) {
        speaker.speak();
    }
    let counts = speaker.end();
    println!(
        "{} {} {} {} {}",
        counts.malformed, counts.over_ring, counts.with_descriptors, counts.endings, counts.by_chance
    );
    ExitCode::SUCCESS
}

/// The resident memory of processes, in bytes.
fn memory_bytes(processes: [u32; 2]) -> [u64; 2] {
    processes.map(|process| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process is still running");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("/proc reports VmRSS");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes << 10
    })
}

/// How many messages of each kind one process has sent.
type Counts = [u64; 5];

/// Sends all messages, from several processes at a time, and reports each process that has ended.
fn send_all(harness: &Harness, seed: u64, ended: &Sender<Counts>) {
    let next = AtomicU64::new(0);
    let send = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= messages() / messages_each() {
                return;
            }
            let numbers = [seed.wrapping_add(at), messages_each()].map(|number| OsString::from(number.to_string()));
            let [own, count] = numbers;
            let said = harness.process(&["noise".into(), harness.socket().into(), own, count]);
            let said = said.unwrap_or_else(|| panic!("process {at} failed"));
            let numbers: Vec<u64> = said.split(' ').map(|word| word.parse().expect("a number")).collect();
            ended.send(numbers.try_into().expect("five numbers")).expect("the receiver is alive");
        }
    };
    std::thread::scope(|scope| (0..PROCESSES).for_each(|_| drop(scope.spawn(send))));
}

pub(crate) fn malformed_messages(harness: &Harness) {
    let seed = seed();
    let mut neighbour = harness.link();
    let held = neighbour.reserve(4096).expect("there is memory");
    let standing = |neighbour: &mut Link| {
        let descriptors = harness.descriptors(neighbour, "serve");
        let stats = stats(neighbour);
        (stats.tenants, stats.leases, stats.names, stats.reclaiming_bytes, descriptors)
    };
    let processes = ["broker", "serve"].map(|part| harness.processes(part)[0]);
    let (before, first) = (standing(&mut neighbour), memory_bytes(processes));
    let (mut half, mut most, mut counts) = ([0; 2], [0; 2], [0; 5]);
    std::thread::scope(|scope| {
        let (ended, all_ended) = channel();
        scope.spawn(move || send_all(harness, seed, &ended));
        for sent in all_ended {
            counts.iter_mut().zip(sent).for_each(|(all, count)| *all += count);
            for _ in 0..served_each() {
                let granted = neighbour.reserve(512).expect("the neighbour is served");
                neighbour.return_lease(granted.lease, Fence::default()).expect("the neighbour is served");
            }
            let until_now = if counts[0] < messages() / 2 { &mut half } else { &mut most };
            let now = memory_bytes(processes);
            until_now.iter_mut().zip(now).for_each(|(most, now)| *most = now.max(*most));
        }
    });
    let [malformed, over_ring, with_descriptors, endings, by_chance] = counts;
    println!(
        "{malformed} malformed messages: {over_ring} over the ring, {with_descriptors} with descriptors, {endings}"
    );
    println!("that ended a connection; {by_chance} more were messages by chance");
    let mebibytes = |bytes: [u64; 2]| bytes.map(|bytes| bytes >> 20);
    let [first_mib, half_mib, most_mib] = [first, half, most].map(mebibytes);
    println!(
        "MiB of broker and fdstore: {first_mib:?} before, {half_mib:?} in the first half, {most_mib:?} in the second"
    );
    assert!(malformed >= messages());
    report_covered(malformed, "malformed messages");
    until_is("everything is as before", before, || standing(&mut neighbour));
    assert_eq!(
        ["broker", "serve"].map(|part| harness.processes(part)[0]),
        processes,
        "broker and fdstore were not restarted"
    );
    for part in 0..2 {
        assert!(half[part].max(most[part]) <= first[part] + MORE_BYTES_MAX, "memory is not bounded");
        assert!(most[part] <= half[part] + LATER_BYTES_MAX, "memory grows with messages");
    }
    neighbour.return_lease(held.lease, Fence::default()).expect("a broker serves");
    assert_eq!(neighbour.take_errors(), []);
}
