//! Experiments on which calls wait for pending work, and on work whose stream or context is destroyed (question 2).

use freehold_driver::cuda::{
    CUdeviceptr, CUpointer_attribute, CUstream, DriverError, attach_flags, context, copy, driver, fill, memory,
    pointer, primary, stream, stream_flags,
};

use crate::answer_text::{byte_runs, code_and_pace};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::host_buffer::HostBuffer;
use crate::id::Id;
use crate::latch::Latch;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(2, 1, 1),
        did: "cuMemFree of an unrelated block while a non-blocking stream has work",
        run: |b| beside(b, |b| memory::alloc(b, 4096), |b, block| memory::free(b, block)),
    },
    Experiment {
        id: Id(2, 1, 2),
        did: "cuMemFreeHost while a non-blocking stream has work",
        run: |b| beside(b, |b| b.alloc_host(4096), |b, block| b.free_host(block)),
    },
    Experiment {
        id: Id(2, 1, 3),
        did: "cuMemAlloc of 64 MiB while a non-blocking stream has work",
        run: |b| beside(b, |_| Ok(()), |b, ()| memory::alloc(b, 64 << 20)),
    },
    Experiment {
        id: Id(2, 1, 4),
        did: "cuMemAllocHost while a non-blocking stream has work",
        run: |b| beside(b, |_| Ok(()), |b, ()| b.alloc_host(4096)),
    },
    Experiment {
        id: Id(2, 1, 5),
        did: "cuMemHostRegister while a non-blocking stream has work",
        run: |b| beside(b, |_| Ok(HostBuffer::pageable(4096)), |b, host| b.register(host.address(), 4096, 0)),
    },
    Experiment {
        id: Id(2, 1, 6),
        did: "cuMemHostUnregister while a non-blocking stream has work",
        run: |b| beside(b, |b| b.registered_buffer(4096), |b, host| b.unregister(host.address())),
    },
    Experiment {
        id: Id(2, 1, 7),
        did: "cuMemFree of managed memory while a non-blocking stream has work",
        run: |b| beside(b, |b| memory::alloc_managed(b, 4096, attach_flags::GLOBAL), |b, block| memory::free(b, block)),
    },
    Experiment {
        id: Id(2, 1, 8),
        did: "cuMemFree of null, and of an address never allocated, while a stream has work",
        run: wrong_frees,
    },
    Experiment {
        id: Id(2, 1, 9),
        did: "cuMemFree of a block of context 2, current and idle, while context 1 has work",
        run: free_of_idle_context,
    },
    Experiment {
        id: Id(2, 1, 10),
        did: "cuMemFree of a block of context 1, which has work, with context 2 current",
        run: free_of_busy_context,
    },
    Experiment {
        id: Id(2, 1, 11),
        did: "cuMemFree of memory of cuMemAllocAsync while its stream has work",
        run: free_of_pool_memory,
    },
    Experiment {
        id: Id(2, 1, 12),
        did: "cuMemGetInfo while a non-blocking stream has work",
        run: |b| beside(b, |_| Ok(()), |b, ()| memory::info(b)),
    },
    Experiment {
        id: Id(2, 1, 13),
        did: "cuCtxCreate while a non-blocking stream has work",
        run: |b| beside(b, |_| Ok(()), |b, ()| b.second_context()),
    },
    Experiment {
        id: Id(2, 1, 14),
        did: "cuMemAllocAsync and cuMemFreeAsync in an idle stream while another stream has work",
        run: pool_beside_work,
    },
    Experiment {
        id: Id(2, 1, 15),
        did: "cuMemFreeAsync of memory of cuMemAlloc in a stream that has work",
        run: free_in_order_of_plain_memory,
    },
    Experiment {
        id: Id(2, 1, 16),
        did: "cuMemFree of memory of cuMemAllocAsync while a blocking stream has work",
        run: free_of_pool_memory_beside_blocking,
    },
    Experiment {
        id: Id(2, 3, 1),
        did: "destroy a stream that has work, then look whether the work was done",
        run: stream_destroyed,
    },
    Experiment { id: Id(2, 3, 2), did: "destroy a context whose stream has work", run: context_destroyed },
    Experiment {
        id: Id(2, 3, 3),
        did: "release the primary context for the last time while its stream has work",
        run: primary_released,
    },
    Experiment {
        id: Id(2, 10, 1),
        did: "cuMemcpyHtoD of 1 KiB while a blocking stream has work",
        run: |b| copy(b, stream_flags::DEFAULT, HostBuffer::pageable(1024), |b, to, host| b.copy_in(to, host)),
    },
    Experiment {
        id: Id(2, 10, 2),
        did: "cuMemcpyHtoD of 1 KiB while a non-blocking stream has work",
        run: |b| copy(b, stream_flags::NON_BLOCKING, HostBuffer::pageable(1024), |b, to, host| b.copy_in(to, host)),
    },
    Experiment {
        id: Id(2, 10, 3),
        did: "cuMemcpyDtoH of 1 KiB while a non-blocking stream has work",
        run: |b| {
            copy(b, stream_flags::NON_BLOCKING, HostBuffer::pageable(1024), |b, from, host| b.copy_out(host, from))
        },
    },
    Experiment {
        id: Id(2, 10, 4),
        did: "cuMemcpyDtoD while a blocking stream has work",
        run: |b| {
            copy(b, stream_flags::DEFAULT, HostBuffer::pageable(1), |b, to, _| {
                copy::device_to_device(b, beyond(to), to, 1024)
            })
        },
    },
    Experiment {
        id: Id(2, 10, 5),
        did: "cuMemcpyDtoD of a block with SYNC_MEMOPS set while a blocking stream has work",
        run: |b| {
            copy(b, stream_flags::DEFAULT, HostBuffer::pageable(1), |b, to, _| {
                pointer::set_attribute(b, to, CUpointer_attribute::SYNC_MEMOPS, 1)?;
                copy::device_to_device(b, beyond(to), to, 1024)
            })
        },
    },
    Experiment {
        id: Id(2, 10, 6),
        did: "cuMemsetD8 of device memory while a blocking stream has work",
        run: |b| copy(b, stream_flags::DEFAULT, HostBuffer::pageable(1), |b, to, _| fill::d8(b, to, 1, 1024)),
    },
    Experiment {
        id: Id(2, 10, 7),
        did: "cuMemsetD8 of pinned memory while a blocking stream has work",
        run: |b| {
            b.init_context()?;
            let host = b.pinned_buffer(1024)?;
            copy(b, stream_flags::DEFAULT, host, |b, _, host| fill::d8(b, host.address(), 1, 1024))
        },
    },
    Experiment {
        id: Id(2, 10, 8),
        did: "cuMemcpyHtoDAsync of 1 KiB of pageable memory in a stream that has work",
        run: |b| copy_in_order(b, HostBuffer::pageable(1 << 10), Fixture::copy_in_async),
    },
    Experiment {
        id: Id(2, 10, 9),
        did: "cuMemcpyHtoDAsync of 1 MiB of pageable memory in a stream that has work",
        run: |b| copy_in_order(b, HostBuffer::pageable(1 << 20), Fixture::copy_in_async),
    },
    Experiment {
        id: Id(2, 10, 10),
        did: "cuMemcpyHtoDAsync of 1 MiB of pinned memory in a stream that has work",
        run: |b| {
            b.init_context()?;
            copy_in_order(b, b.pinned_buffer(1 << 20)?, Fixture::copy_in_async)
        },
    },
    Experiment {
        id: Id(2, 10, 11),
        did: "cuMemcpyHtoDAsync of 1 MiB of registered memory in a stream that has work",
        run: |b| {
            b.init_context()?;
            copy_in_order(b, b.registered_buffer(1 << 20)?, Fixture::copy_in_async)
        },
    },
    Experiment {
        id: Id(2, 10, 12),
        did: "cuMemcpyDtoHAsync of 1 KiB to pageable memory in a stream that has work",
        run: |b| copy_in_order(b, HostBuffer::pageable(1 << 10), copy_out_async),
    },
    Experiment {
        id: Id(2, 10, 13),
        did: "cuMemcpyDtoHAsync of 1 MiB to pinned memory in a stream that has work",
        run: |b| {
            b.init_context()?;
            copy_in_order(b, b.pinned_buffer(1 << 20)?, copy_out_async)
        },
    },
    Experiment {
        id: Id(2, 10, 14),
        did: "cuMemcpyHtoDAsync of 1 KiB of pageable memory after pending work, overwrite it at once: what arrives",
        run: |b| overwritten(b, HostBuffer::pageable(1024)),
    },
    Experiment {
        id: Id(2, 10, 15),
        did: "cuMemcpyHtoDAsync of 1 KiB of pinned memory after pending work, overwrite it at once: what arrives",
        run: |b| {
            b.init_context()?;
            overwritten(b, b.pinned_buffer(1024)?)
        },
    },
    Experiment {
        id: Id(2, 10, 16),
        did: "cuMemcpyHtoDAsync of 64 MiB of pageable memory in a stream that has work",
        run: |b| copy_in_order(b, HostBuffer::pageable(64 << 20), Fixture::copy_in_async),
    },
    Experiment {
        id: Id(2, 10, 17),
        did: "cuMemcpyHtoDAsync of 1 MiB of pageable memory after pending work, overwrite it at once: what arrives",
        run: |b| overwritten(b, HostBuffer::pageable(1 << 20)),
    },
];

/// Returns whether `call` waits while an unrelated non-blocking stream has work.
fn beside<T, U>(
    b: &Fixture,
    prepare: impl FnOnce(&Fixture) -> Result<T, DriverError>,
    call: impl FnOnce(&Fixture, T) -> Result<U, DriverError>,
) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let prepared = prepare(b)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    latch.block_stream(b, stream)?;
    let answer = code_and_pace(latch.during(|| call(b, prepared)));
    context::synchronize(b)?;
    Ok(answer)
}

fn wrong_frees(b: &Fixture) -> Answer {
    let null = beside(b, |_| Ok(()), |b, ()| memory::free(b, CUdeviceptr::NULL))?;
    let wild = beside(b, |_| Ok(()), |b, ()| memory::free(b, CUdeviceptr(0x1234_5600)))?;
    Ok(format!("null {null}; wild {wild}"))
}

fn free_of_idle_context(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let context = b.second_context()?;
    let block = memory::alloc(b, 4096)?;
    latch.block_stream(b, stream)?;
    let answer = code_and_pace(latch.during(|| memory::free(b, block)));
    context::destroy(b, context)?;
    Ok(answer)
}

fn free_of_busy_context(b: &Fixture) -> Answer {
    let first = b.init_context()?;
    let latch = Latch::new(b)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let block = memory::alloc(b, 4096)?;
    let second = b.second_context()?;
    context::set_current(b, first)?;
    latch.block_stream(b, stream)?;
    context::set_current(b, second)?;
    Ok(code_and_pace(latch.during(|| memory::free(b, block))))
}

fn free_of_pool_memory(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let block = memory::alloc_async(b, 4096, stream)?;
    latch.block_stream(b, stream)?;
    Ok(code_and_pace(latch.during(|| memory::free(b, block))))
}

fn free_in_order_of_plain_memory(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let block = memory::alloc(b, 4096)?;
    latch.block_stream(b, stream)?;
    Ok(code_and_pace(latch.during(|| memory::free_async(b, block, stream))))
}

fn free_of_pool_memory_beside_blocking(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let (busy, idle) = (stream::create(b, stream_flags::DEFAULT)?, stream::create(b, stream_flags::NON_BLOCKING)?);
    let block = memory::alloc_async(b, 4096, idle)?;
    latch.block_stream(b, busy)?;
    Ok(code_and_pace(latch.during(|| memory::free(b, block))))
}

fn pool_beside_work(b: &Fixture) -> Answer {
    beside(
        b,
        |b| stream::create(b, stream_flags::NON_BLOCKING),
        |b, stream| {
            let block = memory::alloc_async(b, 4096, stream)?;
            memory::free_async(b, block, stream)
        },
    )
}

fn stream_destroyed(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let block = memory::alloc(b, 4096)?;
    fill::d8(b, block, 0x11, 4096)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    context::synchronize(b)?;
    latch.block_stream(b, stream)?;
    fill::d8_async(b, block, 0x22, 4096, stream)?;
    let pace = code_and_pace(latch.during(|| stream::destroy(b, stream)));
    Ok(format!("{pace}, the block holds {}", byte_runs(&b.bytes_at(block, 4096)?)))
}

fn context_destroyed(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let context = b.second_context()?;
    let latch = Latch::new(b)?;
    latch.block_stream(b, stream::create(b, stream_flags::NON_BLOCKING)?)?;
    Ok(code_and_pace(latch.during(|| context::destroy(b, context))))
}

fn primary_released(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    latch.block_stream(b, stream::create(b, stream_flags::NON_BLOCKING)?)?;
    Ok(code_and_pace(latch.during(|| primary::release(b, b.device))))
}

/// Returns whether a call of the default stream on a device block waits while a stream with `flags` has work.
fn copy(
    b: &Fixture,
    flags: u32,
    host: HostBuffer,
    call: impl FnOnce(&Fixture, CUdeviceptr, HostBuffer) -> Result<(), DriverError>,
) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let block = memory::alloc(b, 8192)?;
    latch.block_stream(b, stream::create(b, flags)?)?;
    let answer = code_and_pace(latch.during(|| call(b, block, host)));
    context::synchronize(b)?;
    Ok(answer)
}

/// Returns the second half of the block that `copy` creates.
fn beyond(block: CUdeviceptr) -> CUdeviceptr {
    CUdeviceptr(block.0 + 4096)
}

/// Returns whether an asynchronous copy waits for the work of its own stream.
fn copy_in_order(
    b: &Fixture,
    host: HostBuffer,
    call: impl FnOnce(&Fixture, CUdeviceptr, HostBuffer, CUstream) -> Result<(), DriverError>,
) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let block = memory::alloc(b, host.bytes())?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    latch.block_stream(b, stream)?;
    let answer = code_and_pace(latch.during(|| call(b, block, host, stream)));
    stream::synchronize(b, stream)?;
    Ok(answer)
}

fn copy_out_async(b: &Fixture, from: CUdeviceptr, to: HostBuffer, stream: CUstream) -> Result<(), DriverError> {
    b.copy_out_async(to, from, stream)
}

fn overwritten(b: &Fixture, host: HostBuffer) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let block = memory::alloc(b, host.bytes())?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    host.fill(0x11);
    latch.block_stream(b, stream)?;
    let (_, copied) = latch.unless_held(|| b.copy_in_async(block, host, stream));
    copied?;
    host.fill(0x22);
    latch.open();
    stream::synchronize(b, stream)?;
    Ok(format!("{} of 0x11 then 0x22", byte_runs(&b.bytes_at(block, host.bytes())?)))
}
