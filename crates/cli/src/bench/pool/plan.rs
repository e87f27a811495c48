//! The measurements of `freehold bench pool`, their order and their targets.

use std::thread::available_parallelism;
use std::time::Duration;

use freehold::open;
use freehold_driver::cuda::{device, driver};

use super::super::error::Result;
use super::super::progress::Progress;
use super::super::stats::percentiles;
use super::growth::growths;
use super::passes::{Passes, Script};
use super::report::{Calls, Report, Row, Target, Unit};
use super::rig::Rig;
use super::threads::Effort as ThreadEffort;
use super::workload::models;
use super::{pairs, threads};
use crate::allocators::{Allocator, AsyncAllocator, CachingAllocator, DriverAllocator, FreeholdAllocator};

/// Threads that allocate at once, and their streams.
pub(super) const THREADS: usize = 16;

/// How many times to measure: the library, and the driver, which is slow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    ours: AllocatorEffort,
    async_alloc: AllocatorEffort,
    /// Batches of `cuMemAlloc` and `cuMemFree`, and pairs per batch.
    driver_batches: (usize, usize),
    /// How long they run a workload.
    driver_limit: Duration,
    /// Growths of a vector.
    growths: usize,
}

/// How many times to measure a caching allocator.
#[derive(Clone, Copy, Debug)]
struct AllocatorEffort {
    /// Batches of pairs, and pairs per batch.
    batches: (usize, usize),
    /// Second passes of a workload.
    passes: usize,
    threads: ThreadEffort,
}

impl Effort {
    pub(super) const FULL: Self = Self {
        ours: AllocatorEffort {
            batches: (300, 1000),
            passes: 9,
            threads: ThreadEffort { repetitions: 15, pairs: 50_000 },
        },
        async_alloc: AllocatorEffort {
            batches: (50, 200),
            passes: 3,
            threads: ThreadEffort { repetitions: 5, pairs: 640 },
        },
        driver_batches: (10, 20),
        driver_limit: Duration::from_secs(2),
        growths: 50,
    };
    pub(super) const QUICK: Self = Self {
        ours: AllocatorEffort { batches: (5, 100), passes: 1, threads: ThreadEffort { repetitions: 2, pairs: 320 } },
        async_alloc: AllocatorEffort {
            batches: (3, 10),
            passes: 1,
            threads: ThreadEffort { repetitions: 1, pairs: 32 },
        },
        driver_batches: (2, 3),
        driver_limit: Duration::from_millis(50),
        growths: 2,
    };
}

/// The pairs of one thread: id, text, bytes.
const PAIRS: [(&str, &str, u64); 4] = [
    ("pair-512", "allocate and free 512 B", 512),
    ("pair-64k", "allocate and free 64 KiB", 64 << 10),
    ("pair-2m", "allocate and free 2 MiB", 2 << 20),
    ("pair-20m", "allocate and free 20 MiB", 20 << 20),
];

/// How much slower than mimalloc a warm pair may be.
const TIMES_MIMALLOC: f64 = 4.0;

/// The targets of each workload of [`models::all`]: ids and texts of its two rows, nanoseconds per operation, and
/// reserved memory relative to peak live memory.
const WORKLOADS: [Expected; 4] = [
    Expected {
        time: ("random-1m", "random sizes up to 1 MiB, per operation"),
        reserved: ("random-1m-reserved", "  reserved / peak live memory"),
        op_ns: 80.0,
        reserved_by_peak: 1.05,
    },
    Expected {
        time: ("random-64m", "random sizes up to 64 MiB, per operation"),
        reserved: ("random-64m-reserved", "  reserved / peak live memory"),
        op_ns: 250.0,
        reserved_by_peak: 1.05,
    },
    Expected {
        time: ("transformer", "transformer steps of random length, per operation"),
        reserved: ("transformer-reserved", "  reserved / peak live memory"),
        op_ns: 150.0,
        reserved_by_peak: 1.03,
    },
    Expected {
        time: ("caches", "caches that grow by half, per operation"),
        reserved: ("caches-reserved", "  reserved / peak live memory"),
        op_ns: 150.0,
        reserved_by_peak: 1.03,
    },
];

struct Expected {
    time: (&'static str, &'static str),
    reserved: (&'static str, &'static str),
    op_ns: f64,
    reserved_by_peak: f64,
}

/// How many measurements the progress line counts.
const STEPS: usize = 4 * 3 + 4 * 3 + 1 + 4 * 2 + 1 + 4;

/// Three allocators on one device.
struct Plan<'a> {
    rig: &'a Rig,
    ours: FreeholdAllocator<'a>,
    async_alloc: AsyncAllocator<'a>,
    driver: DriverAllocator<'a>,
    effort: Effort,
    progress: Progress,
}

pub(super) fn measure(rig: &Rig, effort: Effort) -> Result<Report> {
    let (api, on) = (&rig.opened.api, rig.opened.device);
    let plan = Plan {
        rig,
        ours: FreeholdAllocator::new(api, on)?,
        async_alloc: AsyncAllocator::new(api, on)?,
        driver: DriverAllocator::new(api)?,
        effort,
        progress: Progress::new(STEPS),
    };
    // The workloads come first: memory cached from other measurements would count as reserved.
    let workloads = plan.workloads()?;
    let mut rows = plan.pairs()?;
    rows.extend(plan.threads()?);
    rows.extend(workloads);
    rows.extend(plan.growths()?);
    rows.extend(plan.failures());
    plan.progress.finish();
    Ok(Report {
        device: device::name(&rig.opened.api, rig.opened.device)?,
        driver: driver::version_text(driver::version(&rig.opened.api)?),
        processors: available_parallelism().map_or(1, Into::into),
        why: rig.opened.why.clone(),
        rows,
    })
}

impl Plan<'_> {
    fn workloads(&self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (workload, expected) in models::all().iter().zip(WORKLOADS) {
            let script = Script::new(workload);
            let what = expected.time.0;
            let ours = self.passes(what, &script, &self.ours, self.effort.ours)?;
            let ordered = self.passes(what, &script, &self.async_alloc, self.effort.async_alloc)?;
            let plain = self
                .progress
                .step(what, || script.first_pass_within(self.rig, &self.driver, self.effort.driver_limit))?;
            let (id, text) = expected.time;
            let row = Row::new(id, text, Unit::Ns, ours.op_ns, Some(Target::AtMost(expected.op_ns)));
            rows.push(row.beside(Calls::Ordered, ordered.op_ns).beside(Calls::Plain, vec![plain]));
            let ((id, text), target) = (expected.reserved, Some(Target::AtMost(expected.reserved_by_peak)));
            let row = Row::new(id, text, Unit::Ratio, ours.reserved_by_peak, target);
            rows.push(row.beside(Calls::Ordered, ordered.reserved_by_peak));
        }
        Ok(rows)
    }

    fn passes<A: CachingAllocator>(
        &self,
        what: &'static str,
        script: &Script,
        allocator: &A,
        share: AllocatorEffort,
    ) -> Result<Passes> {
        self.progress.step(what, || script.second_passes(self.rig, allocator, share.passes))
    }

    fn pairs(&self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (id, what, bytes) in PAIRS {
            let ours = self.pairs_of(what, bytes, &self.ours, self.effort.ours.batches)?;
            let ordered = self.pairs_of(what, bytes, &self.async_alloc, self.effort.async_alloc.batches)?;
            let plain = self.pairs_of(what, bytes, &self.driver, self.effort.driver_batches)?;
            let row = Row::new(id, what, Unit::Ns, ours, Some(Target::AtMost(40.0)));
            rows.push(row.beside(Calls::Ordered, ordered).beside(Calls::Plain, plain));
        }
        let (times, mimallocs) = self.progress.step("mimalloc", || self.times_mimalloc())?;
        let first = rows.remove(0).beside(Calls::Mimalloc, mimallocs);
        rows.insert(0, first);
        let (what, target) = ("  relative to mimalloc", Some(Target::AtMost(TIMES_MIMALLOC)));
        rows.insert(1, Row::new("pair-mimalloc", what, Unit::Ratio, times, target));
        Ok(rows)
    }

    fn pairs_of<A: Allocator>(
        &self,
        what: &'static str,
        bytes: u64,
        allocator: &A,
        batches: (usize, usize),
    ) -> Result<Vec<f64>> {
        self.progress.step(what, || {
            let times = pairs::sample_pairs(allocator, bytes, self.rig.streams[0], batches)?;
            self.rig.synchronize()?;
            Ok(times)
        })
    }

    /// Returns the time of a 512 B pair relative to mimalloc's, in alternating batches, and mimalloc's times.
    fn times_mimalloc(&self) -> Result<(Vec<f64>, Vec<f64>)> {
        let (batches, count) = self.effort.ours.batches;
        let (mut times, mut mimallocs) = (Vec::new(), Vec::new());
        // The first batch of each does not count.
        for batch in 0..=batches {
            let ours = pairs::time_pairs(&self.ours, 512, self.rig.streams[0], count)?;
            let mimalloc = pairs::time_mimalloc_pairs(512, count);
            if batch > 0 {
                times.push(ours / mimalloc);
                mimallocs.push(mimalloc);
            }
        }
        Ok((times, mimallocs))
    }

    fn threads(&self) -> Result<Vec<Row>> {
        let alone = self.rates("one thread", 1, &self.rig.streams)?;
        let own = self.rates("16 threads, a stream each", THREADS, &self.rig.streams)?;
        let shared = self.rates("16 threads that share a stream", THREADS, &self.rig.streams[..1])?;
        let what = "16 threads that free what others allocated";
        let Effort { ours, async_alloc: ordered, .. } = self.effort;
        // Threads that wait for each other are slow on fewer processors.
        let fewer = ThreadEffort { pairs: ours.threads.pairs / 5, ..ours.threads };
        let handed = [
            self.progress.step(what, || threads::handed_over_blocks(self.rig, &self.ours, THREADS, fewer))?,
            self.progress
                .step(what, || threads::handed_over_blocks(self.rig, &self.async_alloc, THREADS, ordered.threads))?,
        ];
        let [alone_median] = percentiles(alone[0].clone(), [5]);
        let scaling = own[0].iter().map(|rate| rate / THREADS as f64 / alone_median).collect();
        let row = |id, what, [ours, ordered]: [Vec<f64>; 2], target: Option<f64>| {
            Row::new(id, what, Unit::PairsPerS, ours, target.map(Target::AtLeast)).beside(Calls::Ordered, ordered)
        };
        let what = "  per thread, relative to 1 thread";
        Ok(vec![
            row("threads-1", "1 thread, mixed sizes up to 64 KiB", alone, None),
            row("threads-16", "16 threads, a stream each", own, Some(100e6)),
            Row::new("threads-scaling", what, Unit::Ratio, scaling, Some(Target::AtLeast(0.8))),
            row("threads-shared", "16 threads that share one stream", shared, Some(20e6)),
            row("threads-handed", "16 threads that free what others allocated", handed, Some(20e6)),
        ])
    }

    /// Returns pairs per second of threads that free their own blocks: ours, and `cuMemAllocAsync`'s.
    fn rates(
        &self,
        what: &'static str,
        threads: usize,
        streams: &[freehold_driver::cuda::CUstream],
    ) -> Result<[Vec<f64>; 2]> {
        let Effort { ours, async_alloc: ordered, .. } = self.effort;
        Ok([
            self.progress.step(what, || threads::own_blocks(self.rig, &self.ours, streams, threads, ours.threads))?,
            self.progress
                .step(what, || threads::own_blocks(self.rig, &self.async_alloc, streams, threads, ordered.threads))?,
        ])
    }

    /// Uses the pool of the C interface, from which the library's own vectors get their memory too.
    fn growths(&self) -> Result<[Row; 2]> {
        let device = open::device(Some(&self.rig.opened.selector()))?;
        let grown = self.progress.step("vectors", || growths(&device, self.effort.growths))?;
        let row = |id, what, ours, most_ns| Row::new(id, what, Unit::Ns, ours, Some(Target::AtMost(most_ns)));
        Ok([
            row("grow-cold", "grow 1 GiB to 2 GiB, cold", grown.cold_ns, 110e3),
            row("grow-kept", "  from cached memory", grown.kept_ns, 70e3),
        ])
    }

    fn failures(&self) -> [Row; 2] {
        let (stream, effort) = (self.rig.streams[0], self.effort);
        let what = "fail an impossible allocation";
        let ours = self.progress.step(what, || pairs::time_failures(&self.ours, stream, effort.ours.batches));
        let ordered =
            self.progress.step(what, || pairs::time_failures(&self.async_alloc, stream, effort.driver_batches));
        let plain = self.progress.step(what, || pairs::time_failures(&self.driver, stream, effort.driver_batches));
        let row = Row::new("refuse", what, Unit::Ns, ours, Some(Target::AtMost(1000.0)))
            .beside(Calls::Ordered, ordered)
            .beside(Calls::Plain, plain);
        let what = "  with the explanation";
        let told =
            self.progress.step(what, || pairs::time_explained_failures(&self.ours, stream, effort.driver_batches));
        [row, Row::new("refuse-explained", what, Unit::Ns, told, Some(Target::AtMost(50e3)))]
    }
}
