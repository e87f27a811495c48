//! `freehold bench call`: kernels launched by a worker of the broker, next to local launches.
//!
//! Starts its own brokers.

use std::time::{Duration, Instant};

use freehold::{Device, Grid, Image, Kernel, Stream, open};
use freehold_broker::{CallError, Caller, Launch, SpinPolicy};

use super::error::{BenchError, Result, failed};
use super::options::MeasureOptions;
use super::progress::Progress;
use super::share::fixture::BrokerFixture;
use super::share::report::{Report, Row, Target};
use super::stats::timed;
use crate::output::table::TableStyle;
use crate::output::text::json;

const EMPTY: &str = include_str!("empty.ptx");

/// Without calls for this long, the worker sleeps, and so does a caller that does not spin.
const SLEEP_AFTER: Duration = Duration::from_micros(300);

/// Launches timed together: fewer than a call ring holds.
const BATCH: usize = 100;

/// What a call may cost more than a local launch, in nanoseconds.
const SPINNING_NS: f64 = 1500.0;
const ASLEEP_NS: f64 = 25_000.0;

/// What enqueuing a call may cost at most.
const ENQUEUE_NS: f64 = 1000.0;

/// The share of the local launch rate to reach.
const RATE: f64 = 0.9;

/// How many times to measure.
#[derive(Clone, Copy)]
struct Effort {
    calls: usize,
    sleeps: usize,
    batches: usize,
}

const FULL: Effort = Effort { calls: 20_000, sleeps: 2000, batches: 300 };
const QUICK: Effort = Effort { calls: 100, sleeps: 20, batches: 3 };

pub(super) fn run(arguments: &MeasureOptions) -> Result<String> {
    let effort = if arguments.quick { QUICK } else { FULL };
    let selector = arguments.device.as_deref();
    // One broker's workers spin during all measurements; the other's sleep as usual.
    let (awake, sleepy) = (BrokerFixture::new(selector, "10000")?, BrokerFixture::new(selector, "50")?);
    let device = open::device(selector)?;
    let here = LocalLauncher::new(&device)?;
    let progress = Progress::new(6);
    let mut rows = Vec::new();

    let local = progress.step("a local launch", || here.times(effort.calls))?;
    let what = "local launch of an empty kernel, and wait";
    rows.push(Row::new("local", what, local, vec![]));
    let local_ns = rows[0].median_ns();
    let spinning =
        progress.step("a call, spinning", || worker_call_times(&awake, SpinPolicy::Forever, effort.calls))?;
    let target = vec![Target::Median(local_ns + SPINNING_NS)];
    rows.push(Row::new("call-spinning", "the same in a worker, spinning", spinning, target));
    let asleep = progress
        .step("a call, asleep", || worker_call_times(&sleepy, SpinPolicy::For(Duration::ZERO), effort.sleeps))?;
    let target = vec![Target::Median(local_ns + ASLEEP_NS)];
    rows.push(Row::new("call-asleep", "the same in a worker, caller and worker asleep", asleep, target));

    let rate = progress.step("local launches", || here.rate(effort.batches))?;
    rows.push(Row::new("rate-local", "one of many local launches", rate, vec![]));
    let target = vec![Target::Median(rows[3].median_ns() / RATE)];
    let (enqueue, rate) = progress.step("calls", || rates(&awake, effort.batches))?;
    rows.push(Row::new("rate-call", "one of many calls to a worker", rate, target));
    let target = vec![Target::Median(ENQUEUE_NS)];
    rows.push(Row::new("enqueue", "enqueue a call", enqueue, target));
    progress.finish();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let report = Report { device: device.name()?, processors, rows };
    Ok(if arguments.json { json(&report) } else { report.table(TableStyle::for_stdout()) })
}

/// Local launches.
struct LocalLauncher {
    stream: Stream,
    empty: Kernel,
}

impl LocalLauncher {
    fn new(device: &Device) -> Result<Self> {
        let module = device.module(&Image::ptx(EMPTY)?)?;
        // SAFETY: `empty` touches no memory.
        let empty = unsafe { module.kernel("empty") }?;
        Ok(Self { stream: device.new_stream()?, empty })
    }

    fn launch(&self) -> freehold::Result<()> {
        self.stream.launch(&self.empty, Grid::line(1, 1), ())
    }

    fn times(&self, count: usize) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        for turn in 0..count + count / 10 {
            let (outcome, ns) = timed(|| self.launch().and_then(|()| self.stream.synchronize()));
            outcome?;
            // The first ones warm up.
            if turn >= count / 10 {
                times.push(ns);
            }
        }
        Ok(times)
    }

    fn rate(&self, batches: usize) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(batches);
        for batch in 0..=batches {
            let (outcome, ns) = timed(|| {
                (0..BATCH).try_for_each(|_| self.launch())?;
                self.stream.synchronize()
            });
            outcome?;
            if batch > 0 {
                times.push(ns / BATCH as f64);
            }
        }
        Ok(times)
    }
}

fn call_failed(error: CallError) -> BenchError {
    failed("a call", error)
}

fn caller(fixture: &BrokerFixture, patience: SpinPolicy) -> Result<(Caller, freehold_broker::Kernel)> {
    let caller = Caller::connect_at(&fixture.socket()).map_err(call_failed)?;
    caller.set_spin_policy(patience);
    let module = caller.put_module("bench/empty", EMPTY).map_err(call_failed)?;
    // SAFETY: `empty` touches no memory.
    let empty = unsafe { module.kernel("empty") };
    Ok((caller, empty.map_err(call_failed)?))
}

/// Times calls to a worker, one after the other.
fn worker_call_times(fixture: &BrokerFixture, patience: SpinPolicy, count: usize) -> Result<Vec<f64>> {
    let (caller, empty) = caller(fixture, patience)?;
    let launch = Launch::new(&empty, Grid::line(1, 1), &[]);
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + count / 10 {
        if patience != SpinPolicy::Forever {
            let last = Instant::now();
            while last.elapsed() < SLEEP_AFTER {}
        }
        let (outcome, ns) = timed(|| caller.call(&launch).and_then(|call| call.wait()));
        outcome.map_err(call_failed)?;
        if turn >= count / 10 {
            times.push(ns);
        }
    }
    Ok(times)
}

/// Times enqueuing a call, and one of many calls until all are complete.
fn rates(fixture: &BrokerFixture, batches: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let (caller, empty) = caller(fixture, SpinPolicy::Forever)?;
    let launch = Launch::new(&empty, Grid::line(1, 1), &[]);
    let (mut enqueue, mut rate) = (Vec::with_capacity(batches), Vec::with_capacity(batches));
    for batch in 0..=batches {
        let start = Instant::now();
        let mut last = caller.call(&launch).map_err(call_failed)?;
        for _ in 1..BATCH {
            last = caller.call(&launch).map_err(call_failed)?;
        }
        let put = start.elapsed().as_nanos() as f64;
        last.wait().map_err(call_failed)?;
        let done = start.elapsed().as_nanos() as f64;
        if batch > 0 {
            enqueue.push(put / BATCH as f64);
            rate.push(done / BATCH as f64);
        }
    }
    Ok((enqueue, rate))
}
