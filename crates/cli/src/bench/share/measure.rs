//! The measurements of memory handed between processes.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use freehold::{Device, Grid, Image, Permission, open};
use freehold_broker::wire::Fence;
use freehold_broker::{Broker, Link, SpinPolicy};

use super::fixture::BrokerFixture;
use super::partner::{STAMP, Task};
use super::report::{Report, Row, Target};
use crate::bench::error::{Result, failed};
use crate::bench::progress::Progress;
use crate::bench::stats::timed;

/// Without requests for this long, the broker sleeps, and so does a receiver that does not spin.
const SLEEP_AFTER: Duration = Duration::from_micros(300);

/// How long the sender's kernel runs: long enough that the receiver waits for it.
const KERNEL_NS: u64 = 1_000_000;

/// How many times to measure.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    hand_overs: usize,
    sleeps: usize,
    pairs: usize,
    attaches: usize,
    kernels: usize,
}

pub(super) const FULL: Effort =
    Effort { hand_overs: 100_000, sleeps: 5_000, pairs: 1_000_000, attaches: 40, kernels: 100 };
pub(super) const QUICK: Effort = Effort { hand_overs: 500, sleeps: 50, pairs: 2_000, attaches: 3, kernels: 5 };

pub(super) fn all(
    fixture: &BrokerFixture,
    sleepy: &BrokerFixture,
    device: Option<&str>,
    effort: Effort,
) -> Result<Report> {
    let opened = open::device(device)?;
    let progress = Progress::new(11);
    let broken = |error: freehold_broker::LinkError| failed("the broker", error);
    let mut rows = Vec::new();
    let rest = Duration::ZERO;
    let socket = progress.step("a socket", || time_socket_round_trips(fixture, effort.hand_overs.min(20_000), rest))?;
    rows.push(Row::new("socket", "half a round trip over a socket", socket, vec![]));
    let socket = progress.step("a socket, asleep", || time_socket_round_trips(fixture, effort.sleeps, SLEEP_AFTER))?;
    rows.push(Row::new("socket-asleep", "the same, processor and reader asleep", socket, vec![]));
    let spinning = progress.step("hand-over, spinning", || time_hand_overs(fixture, Task::Spin, effort.hand_overs))?;
    let targets = vec![Target::Median(1e3), Target::P99(3e3)];
    rows.push(Row::new("hand-over-spinning", "hand a leased block over, spinning", spinning, targets));
    let asleep = progress.step("hand-over, asleep", || time_hand_overs(fixture, Task::Sleep, effort.sleeps))?;
    rows.push(Row::new("hand-over-asleep", "the same, receiver asleep", asleep, vec![Target::P99(15e3)]));
    let asleep = progress.step("hand-over, all asleep", || time_hand_overs(sleepy, Task::Sleep, effort.sleeps))?;
    rows.push(Row::new(
        "hand-over-all-asleep",
        "the same, broker and receiver asleep",
        asleep,
        vec![Target::P99(15e3)],
    ));
    let single = progress.step("leases, one by one", || pairs(fixture, effort.pairs, 1).map_err(broken))?;
    rows.push(Row::new("pair-alone", "lease and return, one at a time", single, vec![]));
    let many = progress.step("leases", || pairs(fixture, effort.pairs, 50).map_err(broken))?;
    rows.push(Row::new("pair", "lease and return, fifty at a time", many, vec![Target::Median(1e3)]));
    let small = progress.step("attach 2 MiB", || attach(fixture, &opened, 2 << 20, effort.attaches))?;
    rows.push(Row::new("attach-2m", "cold attach of a 2 MiB segment", small, vec![Target::Median(200e3)]));
    let large = progress.step("attach 1 GiB", || attach(fixture, &opened, 1 << 30, effort.attaches))?;
    rows.push(Row::new("attach-1g", "cold attach of a 1 GiB segment", large, vec![Target::Median(500e3)]));
    let copies = progress.step("copies", || copies(&opened, effort.attaches))?;
    rows.push(Row::new("copy-2m", "copy 2 MiB to the host and back", copies, vec![]));
    let kernels = progress.step("kernels", || kernels(fixture, &opened, effort.kernels))?;
    let what = "end of a kernel to start of another process's waiting kernel";
    rows.push(Row::new("kernel-to-kernel", what, kernels, vec![Target::Median(150e3)]));
    progress.finish();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Report { device: opened.name()?, processors, rows })
}

/// Times one way of a message between two processes that block in the kernel, each time after a pause: the cost of the
/// system's wake-up.
fn time_socket_round_trips(fixture: &BrokerFixture, count: usize, rest: Duration) -> Result<Vec<f64>> {
    let (mut ours, theirs) = UnixStream::pair().map_err(|error| failed("a socket", error))?;
    let _partner = fixture.start(Task::Echo, 0, Some(theirs.into()))?;
    let mut message = [7; 64];
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        spin_for(rest);
        let (outcome, ns) = timed(|| ours.write_all(&message).and_then(|()| ours.read_exact(&mut message)));
        outcome.map_err(|error| failed("a socket", error))?;
        times.push(ns / 2.0);
    }
    Ok(times)
}

/// Spins while others fall asleep.
fn spin_for(rest: Duration) {
    let began = Instant::now();
    while began.elapsed() < rest {}
}

/// Times one way of a lease between tenants: half a round trip.
fn time_hand_overs(fixture: &BrokerFixture, task: Task, count: usize) -> Result<Vec<f64>> {
    let broken = |error: freehold_broker::LinkError| failed("the broker", error);
    let mut link = Link::connect(&fixture.socket()).map_err(broken)?;
    link.spin_policy = if task == Task::Spin { SpinPolicy::Forever } else { SpinPolicy::For(Duration::ZERO) };
    let (_partner, to) = fixture.start(task, link.tenant().0, None)?;
    let mut lease = link.reserve(4096).map_err(broken)?.lease;
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + count / 10 {
        if task == Task::Sleep {
            spin_for(SLEEP_AFTER);
        }
        let start = Instant::now();
        link.give(lease, to, Fence::default()).map_err(broken)?;
        lease = link.wait_given().map_err(broken)?.granted.lease;
        // The first ones warm up.
        if turn >= count / 10 {
            times.push(start.elapsed().as_nanos() as f64 / 2.0);
        }
    }
    Ok(times)
}

/// Times a lease and its return, with `at_once` requests at a time.
fn pairs(
    fixture: &BrokerFixture,
    count: usize,
    at_once: usize,
) -> std::result::Result<Vec<f64>, freehold_broker::LinkError> {
    const BATCH: usize = 1000;
    let mut link = Link::connect(&fixture.socket())?;
    link.spin_policy = SpinPolicy::Forever;
    let bytes = vec![4096; at_once];
    let mut times = Vec::with_capacity(count / BATCH);
    for _ in 0..count.div_ceil(BATCH) {
        let start = Instant::now();
        for _ in 0..BATCH / at_once {
            let granted = if at_once == 1 { vec![link.reserve(4096)?] } else { link.reserve_all(&bytes)? };
            for granted in granted {
                link.return_lease(granted.lease, Fence::default())?;
            }
        }
        times.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    Ok(times)
}

/// Times from a lease in a new segment to usable memory.
fn attach(fixture: &BrokerFixture, device: &Device, bytes: u64, count: usize) -> Result<Vec<f64>> {
    let broken = |error: freehold_broker::LinkError| failed("the broker", error);
    let mut link = Link::connect(&fixture.socket()).map_err(broken)?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let granted = link.reserve(bytes).map_err(broken)?;
        let start = Instant::now();
        // SAFETY: the import is not used, and is dropped before the lease is returned and the segment detached.
        let (descriptor, bytes) = unsafe { link.attach(granted.segment) }.map_err(broken)?;
        let import = device.import(descriptor.as_fd(), bytes, Permission::ReadWrite)?;
        times.push(start.elapsed().as_nanos() as f64);
        drop(import);
        device.tidy()?;
        link.return_lease(granted.lease, Fence::default()).map_err(broken)?;
        while let Some(segment) = link.next_unmap() {
            link.detach(segment).map_err(broken)?;
        }
    }
    Ok(times)
}

fn copies(device: &Device, count: usize) -> Result<Vec<f64>> {
    let stream = device.new_stream()?;
    let mut block = stream.alloc::<u8>(2 << 20)?;
    let mut host = vec![0; 2 << 20];
    (0..count.max(10))
        .map(|_| {
            let (outcome, ns) = timed(|| {
                stream.read(&block, &mut host)?;
                stream.write(&mut block, &host)?;
                stream.synchronize()
            });
            outcome.map(|()| ns).map_err(Into::into)
        })
        .collect()
}

/// Times from the end of this process's kernel to the start of the other's, on the device's clock.
fn kernels(fixture: &BrokerFixture, device: &Device, count: usize) -> Result<Vec<f64>> {
    let broken = |error: freehold_broker::Error| failed("the broker", error);
    let broker = Broker::connect_at(device, &fixture.socket()).map_err(broken)?;
    broker.set_spin_policy(SpinPolicy::Forever).map_err(broken)?;
    let stream = device.new_stream()?;
    let module = device.module(&Image::ptx(STAMP)?)?;
    // SAFETY: `stamp` writes two words, and gets views of two.
    let stamp = unsafe { module.kernel("stamp") }?;
    let (_partner, to) = fixture.start(Task::Kernel, broker.tenant().0, None)?;
    let mut lease = broker.reserve::<u64>(&stream, 4).map_err(broken)?;
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + 2 {
        stream.launch(&stamp, Grid::line(1, 1), (&mut lease.view_mut(0..2)?, KERNEL_NS))?;
        broker.give(lease, to).map_err(|failed| broken(failed.error))?;
        lease = broker.receive::<u64>(&stream).map_err(broken)?;
        let stamps = stream.download(&*lease)?;
        if turn >= 2 {
            times.push(stamps[2] as f64 - stamps[1] as f64);
        }
    }
    Ok(times)
}
