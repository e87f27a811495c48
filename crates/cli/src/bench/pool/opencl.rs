//! A warm allocation and release of the pool on OpenCL, next to OpenCL's own calls and the same pool on CUDA, in one
//! run.

use std::hint::black_box;

use freehold::Stream;
use freehold::open;
use freehold_driver::opencl::{ContextId, context, memory, svm};

use super::super::report::{Report, Row, Target};
use super::super::stats::{Percentiles, timed};
use crate::bench::error::Result;

/// The block sizes, with the ids of their rows.
const SIZES: [(usize, [&str; 3], &str); 3] = [
    (512, ["pair-512", "pair-512-svm", "pair-512-cuda"], "allocate and release 512 B"),
    (64 << 10, ["pair-64k", "pair-64k-svm", "pair-64k-cuda"], "allocate and release 64 KiB"),
    (2 << 20, ["pair-2m", "pair-2m-svm", "pair-2m-cuda"], "allocate and release 2 MiB"),
];

/// The minimum speed-up over OpenCL's own calls, and the maximum cost over the pool on CUDA.
const TIMES_AS_FAST: f64 = 20.0;
const OVER_CUDA_PERCENT: f64 = 30.0;

/// How many pairs to time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    batches: usize,
    /// Pairs timed together: of the pool, of buffers, of shared virtual memory.
    pairs: usize,
    buffers: usize,
    blocks: usize,
}

impl Effort {
    pub(super) const FULL: Self = Self { batches: 200, pairs: 10_000, buffers: 50, blocks: 5 };
    pub(super) const QUICK: Self = Self { batches: 3, pairs: 100, buffers: 5, blocks: 5 };
}

pub(super) fn measure(opened: &open::opencl::Opened, effort: Effort) -> Result<Report> {
    let stream = open::device(Some(&opened.selector()))?.new_stream()?;
    let (cuda, on_cuda) = cuda()?;
    // SAFETY: the calls below use only objects created here.
    let context = context::create(unsafe { opened.found.device() })?;
    let mut rows = Vec::new();
    for (bytes, [plain, shared, other], what) in SIZES {
        // In turns, so that a busy phase of the machine affects all of them.
        let mut times = [const { Vec::new() }; 4];
        pairs(&stream, bytes, effort.pairs)?;
        pairs(&cuda, bytes, effort.pairs)?;
        for _ in 0..effort.batches {
            times[0].push(pairs(&stream, bytes, effort.pairs)?);
            times[1].push(pairs(&cuda, bytes, effort.pairs)?);
            times[2].push(buffers(context, bytes, effort.buffers)?);
            times[3].push(blocks(context, bytes, effort.blocks)?);
        }
        let [ours, cudas, buffers, blocks] = times.map(Percentiles::of);
        let fast = Some(Target::TimesAsFast { times: TIMES_AS_FAST });
        let like_cuda = Some(Target::OverDriver { percent: OVER_CUDA_PERCENT });
        rows.push(Row::new(plain, what, ours, fast).beside("clCreateBuffer, clReleaseMemObject", buffers));
        rows.push(Row::new(shared, "the same", ours, fast).beside("clSVMAlloc, clSVMFree", blocks));
        rows.push(Row::new(other, "the same", ours, like_cuda).beside(on_cuda, cudas));
    }
    context::release(context)?;
    let facts = &opened.found.info;
    Ok(Report { device: facts.name.clone(), driver: facts.driver.clone(), why: opened.why(), rows })
}

/// Returns a stream of the best CUDA device, and a name for its pool.
fn cuda() -> Result<(Stream, &'static str)> {
    match open::device(Some("cuda")) {
        Ok(device) => Ok((device.new_stream()?, "the pool on CUDA")),
        Err(_) => Ok((open::device(Some("soft"))?.new_stream()?, "the pool on the software device")),
    }
}

/// Returns the time of one pair of the pool, of `count` timed together.
fn pairs(stream: &Stream, bytes: usize, count: usize) -> Result<f64> {
    let (done, time) =
        timed(|| (0..count).try_for_each(|_| stream.alloc::<u8>(black_box(bytes)).map(|block| drop(black_box(block)))));
    done?;
    Ok(time / count as f64)
}

fn buffers(context: ContextId, bytes: usize, count: usize) -> Result<f64> {
    let (done, time) =
        timed(|| (0..count).try_for_each(|_| memory::release(black_box(memory::create(context, bytes)?))));
    done?;
    Ok(time / count as f64)
}

fn blocks(context: ContextId, bytes: usize, count: usize) -> Result<f64> {
    let (done, time) = timed(|| {
        (0..count).try_for_each(|_| {
            let start = black_box(svm::alloc(context, bytes, 0)?);
            // SAFETY: the block was allocated above, and nothing uses it.
            unsafe { svm::free(context, start) }
        })
    });
    done?;
    Ok(time / count as f64)
}
