//! Experiments on when memory freed in stream order is reused, and by which stream (question 2).

use freehold_driver::cuda::{
    CUmemPool_attribute, CUstream, DriverError, context, device, event, event_flags, fill, memory, pool, stream,
    stream_flags,
};

use crate::answer_text::{byte_runs, choose, code, code_and_pace};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::id::Id;
use crate::latch::Latch;

const NON_BLOCKING: u32 = stream_flags::NON_BLOCKING;
const BYTES: usize = 1 << 20;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(2, 2, 1),
        did: "cuMemFreeAsync in a stream that has work, then cuMemAllocAsync in that stream",
        run: same_stream,
    },
    Experiment {
        id: Id(2, 2, 2),
        did: "free on stream b what stream a has still to write, allocate on b, fill it: what it holds in the end",
        run: overwritten,
    },
    Experiment {
        id: Id(2, 2, 3),
        did: "free on stream a after pending work, allocate on stream b",
        run: |b| across(b, |_, _, _| Ok(())),
    },
    Experiment {
        id: Id(2, 2, 4),
        did: "free on stream a after pending work, let b wait for an event after it, allocate on stream b",
        run: |b| across(b, depend),
    },
    Experiment {
        id: Id(2, 2, 5),
        did: "free on a after pending work, let b wait for it, allocate on b, without REUSE_FOLLOW_EVENT_DEPENDENCIES",
        run: |b| {
            across(b, |b, from, to| {
                let pool = device::default_pool(b, b.device)?;
                pool::set_attribute(b, pool, CUmemPool_attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES, 0)?;
                depend(b, from, to)
            })
        },
    },
    Experiment {
        id: Id(2, 2, 6),
        did: "free on stream a, wait for a, allocate on stream b",
        run: |b| after(b, |_| Ok(())),
    },
    Experiment {
        id: Id(2, 2, 7),
        did: "free on stream a, wait for a, allocate on stream b, without REUSE_ALLOW_OPPORTUNISTIC",
        run: |b| {
            after(b, |b| {
                let pool = device::default_pool(b, b.device)?;
                pool::set_attribute(b, pool, CUmemPool_attribute::REUSE_ALLOW_OPPORTUNISTIC, 0)
            })
        },
    },
    Experiment { id: Id(2, 2, 8), did: "free 1 MiB in a stream, allocate 512 KiB, then another 512 KiB", run: halves },
    Experiment { id: Id(2, 2, 9), did: "use memory of cuMemAllocAsync in another stream at once", run: other_stream },
    Experiment {
        id: Id(2, 2, 10),
        did: "cuMemAllocAsync after pending work, fill with cuMemsetD8 of the default stream before the work is done",
        run: before_its_time,
    },
];

/// Keeps the default pool from returning memory when something synchronizes.
pub(super) fn keep_all(b: &Fixture) -> Result<(), DriverError> {
    pool::set_release_threshold(b, device::default_pool(b, b.device)?, u64::MAX)
}

pub(super) fn same(holds: bool) -> String {
    choose(holds, "the same address", "another address")
}

fn same_stream(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let first = memory::alloc_async(b, BYTES, stream)?;
    latch.block_stream(b, stream)?;
    fill::d8_async(b, first, 1, BYTES, stream)?;
    let (pace, second) = latch.during(|| {
        memory::free_async(b, first, stream)?;
        memory::alloc_async(b, BYTES, stream)
    });
    stream::synchronize(b, stream)?;
    Ok(format!("{}, {}", pace.text(), same(second? == first)))
}

fn overwritten(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let (first, second) = (stream::create(b, NON_BLOCKING)?, stream::create(b, NON_BLOCKING)?);
    keep_all(b)?;
    let block = memory::alloc_async(b, BYTES, first)?;
    context::synchronize(b)?;
    latch.block_stream(b, first)?;
    fill::d8_async(b, block, 0xaa, BYTES, first)?;
    memory::free_async(b, block, second)?;
    let owned = memory::alloc_async(b, BYTES, second)?;
    fill::d8_async(b, owned, 0xbb, BYTES, second)?;
    let (pace, finished) = latch.during(|| stream::synchronize(b, second));
    finished?;
    let held = byte_runs(&b.bytes_at(owned, BYTES)?);
    Ok(format!("{}, stream b {}, {held} of 0xbb by b and 0xaa by a", same(owned == block), pace.text()))
}

/// Returns whether memory freed on one stream after work is reused on another, after `depend` on both.
fn across(b: &Fixture, depend: impl FnOnce(&Fixture, CUstream, CUstream) -> Result<(), DriverError>) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    keep_all(b)?;
    let (first, second) = (stream::create(b, NON_BLOCKING)?, stream::create(b, NON_BLOCKING)?);
    let block = memory::alloc_async(b, BYTES, first)?;
    context::synchronize(b)?;
    latch.block_stream(b, first)?;
    memory::free_async(b, block, first)?;
    depend(b, first, second)?;
    let (pace, other) = latch.during(|| memory::alloc_async(b, BYTES, second));
    context::synchronize(b)?;
    Ok(format!("{}, {}", pace.text(), same(other? == block)))
}

/// Makes `to` wait for the work enqueued in `from` so far.
pub(super) fn depend(b: &Fixture, from: CUstream, to: CUstream) -> Result<(), DriverError> {
    let event = event::create(b, event_flags::DISABLE_TIMING)?;
    event::record(b, event, from)?;
    stream::wait_event(b, to, event, 0)
}

/// Returns whether memory freed on one stream that was waited for is reused on another.
fn after(b: &Fixture, set: impl FnOnce(&Fixture) -> Result<(), DriverError>) -> Answer {
    b.init_context()?;
    keep_all(b)?;
    set(b)?;
    let (first, second) = (stream::create(b, NON_BLOCKING)?, stream::create(b, NON_BLOCKING)?);
    let block = memory::alloc_async(b, BYTES, first)?;
    memory::free_async(b, block, first)?;
    stream::synchronize(b, first)?;
    Ok(same(memory::alloc_async(b, BYTES, second)? == block))
}

fn halves(b: &Fixture) -> Answer {
    b.init_context()?;
    keep_all(b)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let block = memory::alloc_async(b, BYTES, stream)?;
    memory::free_async(b, block, stream)?;
    let (first, second) = (memory::alloc_async(b, BYTES / 2, stream)?, memory::alloc_async(b, BYTES / 2, stream)?);
    let inside = |at: freehold_driver::cuda::CUdeviceptr| at >= block && at.0 < block.0 + BYTES as u64;
    Ok(format!("{}, {}", choose(inside(first), "inside it", "outside"), choose(inside(second), "inside it", "outside")))
}

fn other_stream(b: &Fixture) -> Answer {
    b.init_context()?;
    let (first, second) = (stream::create(b, NON_BLOCKING)?, stream::create(b, NON_BLOCKING)?);
    let block = memory::alloc_async(b, BYTES, first)?;
    let filled = code(fill::d8_async(b, block, 0x5a, BYTES, second));
    stream::synchronize(b, second)?;
    Ok(format!("{filled}, {}", byte_runs(&b.bytes_at(block, BYTES)?)))
}

fn before_its_time(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    latch.block_stream(b, stream)?;
    let block = memory::alloc_async(b, BYTES, stream)?;
    let answer = code_and_pace(latch.during(|| fill::d8(b, block, 0x5a, BYTES)));
    Ok(format!("{answer}, {}", byte_runs(&b.bytes_at(block, BYTES)?)))
}
