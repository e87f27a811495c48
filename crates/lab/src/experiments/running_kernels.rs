//! Experiments on what a running kernel can access, and on which calls wait while one runs (questions 0 and 2).

use freehold_driver::cuda::{
    CUdeviceptr, CUfunction, CUstream, DriverError, attach_flags, context, driver, event, event_flags, fill, memory,
    primary, stream, stream_flags,
};

use super::reuse::{depend, keep_all, same};
use crate::answer_text::{choose, code, code_and_pace, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::host_buffer::HostBuffer;
use crate::id::Id;
use crate::kernels::{DEFAULT, KERNELS, ONE, Spin, kernel, launch, load, word_at, zeros};

const NON_BLOCKING: u32 = stream_flags::NON_BLOCKING;
const BYTES: usize = 1 << 20;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(0, 2, 1),
        did: "a kernel of context 2 writes memory of cuMemAlloc of context 1",
        run: |b| reached(b, |b| memory::alloc(b, 4096)),
    },
    Experiment {
        id: Id(0, 2, 2),
        did: "a kernel of context 2 writes pinned memory of context 1",
        run: |b| reached(b, |b| b.alloc_host(4096)),
    },
    Experiment {
        id: Id(0, 2, 3),
        did: "a kernel of context 2 writes managed memory of context 1",
        run: |b| reached(b, |b| memory::alloc_managed(b, 4096, attach_flags::GLOBAL)),
    },
    Experiment {
        id: Id(0, 2, 4),
        did: "a kernel of context 2 writes memory of cuMemAllocAsync of context 1",
        run: |b| {
            reached(b, |b| {
                let block = memory::alloc_async(b, 4096, DEFAULT)?;
                context::synchronize(b)?;
                Ok(block)
            })
        },
    },
    Experiment {
        id: Id(0, 2, 5),
        did: "a kernel of context 2 writes registered memory of context 1",
        run: |b| reached(b, |b| b.registered_buffer(4096).map(HostBuffer::address)),
    },
    Experiment {
        id: Id(2, 1, 17),
        did: "cuMemFree of an unrelated block while a kernel runs in a non-blocking stream",
        run: |b| beside(b, NON_BLOCKING, |b| memory::alloc(b, 4096), |b, block| memory::free(b, block)),
    },
    Experiment {
        id: Id(2, 1, 18),
        did: "cuMemFree of an unrelated block while a kernel runs in a blocking stream",
        run: |b| beside(b, stream_flags::DEFAULT, |b| memory::alloc(b, 4096), |b, block| memory::free(b, block)),
    },
    Experiment { id: Id(2, 1, 19), did: "cuMemFree of the block that a running kernel will write", run: free_of_used },
    Experiment {
        id: Id(2, 1, 20),
        did: "cuMemFreeHost while a kernel runs",
        run: |b| beside(b, NON_BLOCKING, |b| b.alloc_host(4096), |b, block| b.free_host(block)),
    },
    Experiment {
        id: Id(2, 1, 21),
        did: "cuMemAlloc of 64 MiB while a kernel runs",
        run: |b| beside(b, NON_BLOCKING, |_| Ok(()), |b, ()| memory::alloc(b, 64 << 20)),
    },
    Experiment {
        id: Id(2, 1, 22),
        did: "cuMemAllocHost while a kernel runs",
        run: |b| beside(b, NON_BLOCKING, |_| Ok(()), |b, ()| b.alloc_host(4096)),
    },
    Experiment {
        id: Id(2, 1, 23),
        did: "cuMemAllocManaged while a kernel runs",
        run: |b| beside(b, NON_BLOCKING, |_| Ok(()), |b, ()| memory::alloc_managed(b, 4096, attach_flags::GLOBAL)),
    },
    Experiment {
        id: Id(2, 1, 24),
        did: "cuMemGetInfo while a kernel runs",
        run: |b| beside(b, NON_BLOCKING, |_| Ok(()), |b, ()| memory::info(b)),
    },
    Experiment {
        id: Id(2, 1, 25),
        did: "cuMemHostRegister while a kernel runs",
        run: |b| {
            beside(b, NON_BLOCKING, |_| Ok(HostBuffer::pageable(4096)), |b, host| b.register(host.address(), 4096, 0))
        },
    },
    Experiment {
        id: Id(2, 1, 26),
        did: "cuMemHostUnregister while a kernel runs",
        run: |b| beside(b, NON_BLOCKING, |b| b.registered_buffer(4096), |b, host| b.unregister(host.address())),
    },
    Experiment {
        id: Id(2, 1, 27),
        did: "cuStreamCreate while a kernel runs",
        run: |b| beside(b, NON_BLOCKING, |_| Ok(()), |b, ()| stream::create(b, NON_BLOCKING)),
    },
    Experiment {
        id: Id(2, 1, 28),
        did: "launch and wait for a kernel in another stream while a kernel runs",
        run: |b| {
            beside(
                b,
                NON_BLOCKING,
                |b| Ok((warm(b)?, stream::create(b, NON_BLOCKING)?)),
                |b, (empty, other)| {
                    launch(b, empty, ONE, other, &[])?;
                    stream::synchronize(b, other)
                },
            )
        },
    },
    Experiment {
        id: Id(2, 1, 29),
        did: "launch in the default stream while a kernel runs in a blocking stream",
        run: |b| beside(b, stream_flags::DEFAULT, warm, |b, empty| launch(b, empty, ONE, DEFAULT, &[])),
    },
    Experiment {
        id: Id(2, 1, 30),
        did: "launch and wait in the default stream while a kernel runs in a blocking stream",
        run: |b| {
            beside(b, stream_flags::DEFAULT, warm, |b, empty| {
                launch(b, empty, ONE, DEFAULT, &[])?;
                stream::synchronize(b, DEFAULT)
            })
        },
    },
    Experiment {
        id: Id(2, 1, 31),
        did: "cuMemFree of a block of context 2, current and idle, while a kernel of context 1 runs",
        run: free_of_idle_context,
    },
    Experiment {
        id: Id(2, 1, 32),
        did: "cuMemFree of a block of context 1, a kernel of which runs, with context 2 current",
        run: free_of_busy_context,
    },
    Experiment {
        id: Id(2, 1, 33),
        did: "cuModuleLoadData while a kernel runs",
        run: |b| beside(b, NON_BLOCKING, |b| load(b, KERNELS), |b, _| load(b, KERNELS)),
    },
    Experiment {
        id: Id(2, 2, 11),
        did: "cuMemFreeAsync after a running kernel, then cuMemAllocAsync in that stream",
        run: same_stream,
    },
    Experiment {
        id: Id(2, 2, 12),
        did: "free on stream b what a kernel on a has still to write, allocate on b, fill it: what it holds in the end",
        run: overwritten,
    },
    Experiment {
        id: Id(2, 2, 13),
        did: "free on stream a after a running kernel, allocate on stream b",
        run: |b| across(b, |_, _, _| Ok(())),
    },
    Experiment {
        id: Id(2, 2, 14),
        did: "free on stream a after a running kernel, let b wait for an event after it, allocate on stream b",
        run: |b| across(b, depend),
    },
    Experiment {
        id: Id(2, 3, 4),
        did: "destroy a stream whose kernel runs, then look whether the kernel came to its end",
        run: stream_destroyed,
    },
    Experiment {
        id: Id(2, 3, 5),
        did: "destroy a context whose kernel runs, then look whether the kernel came to its end",
        run: context_destroyed,
    },
    Experiment {
        id: Id(2, 3, 6),
        did: "release the primary context for the last time while its kernel runs: did the kernel come to its end",
        run: primary_released,
    },
    Experiment {
        id: Id(2, 3, 7),
        did: "destroy an event that is recorded after a running kernel",
        run: event_destroyed,
    },
];

/// Returns what a kernel does to a word that `alloc` allocated in another context.
fn reached(b: &Fixture, alloc: impl FnOnce(&Fixture) -> Result<CUdeviceptr, DriverError>) -> Answer {
    let first = b.init_context()?;
    let block = alloc(b)?;
    b.second_context()?;
    let store = kernel(b, KERNELS, c"store")?;
    let launched = code(launch(b, store, ONE, DEFAULT, &[block.0, 0x77]));
    let done = code(context::synchronize(b));
    context::set_current(b, first)?;
    Ok(format!("launch {launched}, synchronize {done}, {}", or_code(word_at(b, block), |word| format!("{word:#x}"))))
}

/// Returns the kernel `empty`, which has run once.
fn warm(b: &Fixture) -> Result<CUfunction, DriverError> {
    let empty = kernel(b, KERNELS, c"empty")?;
    launch(b, empty, ONE, DEFAULT, &[])?;
    context::synchronize(b)?;
    Ok(empty)
}

/// Returns whether `call` waits while an unrelated kernel runs in a stream with `flags`.
fn beside<T, U>(
    b: &Fixture,
    flags: u32,
    prepare: impl FnOnce(&Fixture) -> Result<T, DriverError>,
    call: impl FnOnce(&Fixture, T) -> Result<U, DriverError>,
) -> Answer {
    b.init_context()?;
    let spin = Spin::new(b)?;
    let prepared = prepare(b)?;
    let stream = stream::create(b, flags)?;
    spin.run(b, stream, CUdeviceptr::NULL, 0)?;
    let answer = code_and_pace(spin.latch.during(|| call(b, prepared)));
    context::synchronize(b)?;
    Ok(answer)
}

fn free_of_used(b: &Fixture) -> Answer {
    b.init_context()?;
    let spin = Spin::new(b)?;
    let block = memory::alloc(b, 64 << 20)?;
    spin.run(b, stream::create(b, NON_BLOCKING)?, block, 1)?;
    let answer = code_and_pace(spin.latch.during(|| memory::free(b, block)));
    Ok(format!("{answer}, synchronize {}", code(context::synchronize(b))))
}

fn free_of_idle_context(b: &Fixture) -> Answer {
    let first = b.init_context()?;
    let spin = Spin::new(b)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let second = b.second_context()?;
    let block = memory::alloc(b, 4096)?;
    context::set_current(b, first)?;
    spin.run(b, stream, CUdeviceptr::NULL, 0)?;
    context::set_current(b, second)?;
    Ok(code_and_pace(spin.latch.during(|| memory::free(b, block))))
}

fn free_of_busy_context(b: &Fixture) -> Answer {
    let first = b.init_context()?;
    let spin = Spin::new(b)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let block = memory::alloc(b, 4096)?;
    let second = b.second_context()?;
    context::set_current(b, first)?;
    spin.run(b, stream, CUdeviceptr::NULL, 0)?;
    context::set_current(b, second)?;
    Ok(code_and_pace(spin.latch.during(|| memory::free(b, block))))
}

/// Keeps the default pool from returning memory when something synchronizes.
fn same_stream(b: &Fixture) -> Answer {
    b.init_context()?;
    let spin = Spin::new(b)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let first = memory::alloc_async(b, BYTES, stream)?;
    spin.run(b, stream, first, 1)?;
    let (pace, second) = spin.latch.during(|| {
        memory::free_async(b, first, stream)?;
        memory::alloc_async(b, BYTES, stream)
    });
    stream::synchronize(b, stream)?;
    Ok(format!("{}, {}", pace.text(), same(second? == first)))
}

fn overwritten(b: &Fixture) -> Answer {
    b.init_context()?;
    let spin = Spin::new(b)?;
    keep_all(b)?;
    let (first, second) = (stream::create(b, NON_BLOCKING)?, stream::create(b, NON_BLOCKING)?);
    let block = memory::alloc_async(b, BYTES, first)?;
    context::synchronize(b)?;
    spin.run(b, first, block, 0xaaaa_aaaa)?;
    memory::free_async(b, block, second)?;
    let owned = memory::alloc_async(b, BYTES, second)?;
    fill::d8_async(b, owned, 0xbb, BYTES, second)?;
    let (pace, finished) = spin.latch.during(|| stream::synchronize(b, second));
    finished?;
    let held = or_code(word_at(b, owned), |word| format!("{word:#x}"));
    Ok(format!("{}, stream b {}, it holds {held}", same(owned == block), pace.text()))
}

/// Returns whether memory freed on one stream after a kernel is reused on another, after `depend` on both.
fn across(b: &Fixture, depend: impl FnOnce(&Fixture, CUstream, CUstream) -> Result<(), DriverError>) -> Answer {
    b.init_context()?;
    let spin = Spin::new(b)?;
    keep_all(b)?;
    let (first, second) = (stream::create(b, NON_BLOCKING)?, stream::create(b, NON_BLOCKING)?);
    let block = memory::alloc_async(b, BYTES, first)?;
    context::synchronize(b)?;
    spin.run(b, first, block, 1)?;
    memory::free_async(b, block, first)?;
    depend(b, first, second)?;
    let (pace, other) = spin.latch.during(|| memory::alloc_async(b, BYTES, second));
    context::synchronize(b)?;
    Ok(format!("{}, {}", pace.text(), same(other? == block)))
}

fn stream_destroyed(b: &Fixture) -> Answer {
    b.init_context()?;
    let spin = Spin::new(b)?;
    let block = zeros(b)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    spin.run(b, stream, block, 5)?;
    let pace = code_and_pace(spin.latch.during(|| stream::destroy(b, stream)));
    Ok(format!("{pace}, {}", ended(word_at(b, block)?)))
}

fn event_destroyed(b: &Fixture) -> Answer {
    b.init_context()?;
    let spin = Spin::new(b)?;
    let event = event::create(b, event_flags::DISABLE_TIMING)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    spin.run(b, stream, CUdeviceptr::NULL, 0)?;
    event::record(b, event, stream)?;
    let answer = code_and_pace(spin.latch.during(|| event::destroy(b, event)));
    context::synchronize(b)?;
    Ok(answer)
}

/// Formats whether a kernel that stores 5 last has done so.
fn ended(word: u32) -> String {
    choose(word == 5, "the kernel came to its end", "the kernel did not come to its end")
}

fn context_destroyed(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let context = b.second_context()?;
    let spin = Spin::new(b)?;
    let seen = b.registered_buffer(4096)?;
    let to = b.device_address(seen.address(), 0)?;
    spin.run(b, stream::create(b, NON_BLOCKING)?, to, 5)?;
    let pace = code_and_pace(spin.latch.during(|| context::destroy(b, context)));
    Ok(format!("{pace}, {}", ended(u32::from(seen.byte(0).load(std::sync::atomic::Ordering::SeqCst)))))
}

fn primary_released(b: &Fixture) -> Answer {
    b.init_context()?;
    let spin = Spin::new(b)?;
    let seen = b.registered_buffer(4096)?;
    let to = b.device_address(seen.address(), 0)?;
    spin.run(b, stream::create(b, NON_BLOCKING)?, to, 5)?;
    let pace = code_and_pace(spin.latch.during(|| primary::release(b, b.device)));
    Ok(format!("{pace}, {}", ended(u32::from(seen.byte(0).load(std::sync::atomic::Ordering::SeqCst)))))
}
