//! Experiments on which call frees which memory (question 0).

use freehold_driver::cuda::{CUdeviceptr, CUstream, attach_flags, context, fill, memory, stream, stream_flags};

use crate::answer_text::code;
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(0, 15, 1),
        did: "cuMemFree of pinned, of registered and of managed memory",
        run: free_of_others,
    },
    Experiment {
        id: Id(0, 15, 2),
        did: "cuMemFree of memory of cuMemAllocAsync, then cuMemFreeAsync of it",
        run: free_of_pool_memory,
    },
    Experiment {
        id: Id(0, 15, 3),
        did: "cuMemFreeAsync of memory of cuMemAlloc, then cuMemFree of it",
        run: free_async_of_mem_alloc,
    },
    Experiment { id: Id(0, 15, 4), did: "cuMemFreeAsync twice", run: free_async_twice },
    Experiment {
        id: Id(0, 15, 5),
        did: "cuMemFreeAsync of null, of an interior address, of an address never allocated",
        run: free_async_invalid,
    },
    Experiment { id: Id(0, 15, 6), did: "cuMemFreeAsync of pinned and of managed memory", run: free_async_of_others },
    Experiment {
        id: Id(0, 15, 7),
        did: "allocate in a stream of context 1, free in a stream of context 2",
        run: free_async_other_stream,
    },
    Experiment {
        id: Id(0, 15, 8),
        did: "allocate in a stream, destroy the stream, free in another",
        run: free_after_stream,
    },
    Experiment {
        id: Id(0, 15, 9),
        did: "cuMemFreeAsync a block, then fill it before anything synchronizes",
        run: use_after_free_async,
    },
];

fn free_of_others(b: &Fixture) -> Answer {
    b.init_context()?;
    let pinned = code(memory::free(b, b.alloc_host(4096)?));
    let registered = code(memory::free(b, b.registered_buffer(4096)?.address()));
    let managed = code(memory::free(b, memory::alloc_managed(b, 4096, attach_flags::GLOBAL)?));
    Ok(format!("{pinned}, {registered}, {managed}"))
}

fn free_of_pool_memory(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let block = memory::alloc_async(b, 4096, stream)?;
    let freed = code(memory::free(b, block));
    Ok(format!("{freed}, then {}", code(memory::free_async(b, block, stream))))
}

fn free_async_of_mem_alloc(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let block = memory::alloc(b, 4096)?;
    let freed = code(memory::free_async(b, block, stream));
    stream::synchronize(b, stream)?;
    Ok(format!("{freed}, then {}", code(memory::free(b, block))))
}

fn free_async_twice(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let block = memory::alloc_async(b, 4096, stream)?;
    let freed = code(memory::free_async(b, block, stream));
    Ok(format!("{freed}, then {}", code(memory::free_async(b, block, stream))))
}

fn free_async_invalid(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let block = memory::alloc_async(b, 4096, stream)?;
    let null = code(memory::free_async(b, CUdeviceptr::NULL, stream));
    let interior = code(memory::free_async(b, CUdeviceptr(block.0 + 256), stream));
    Ok(format!("{null}, {interior}, {}", code(memory::free_async(b, CUdeviceptr(0x1234_5600), stream))))
}

fn free_async_of_others(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let pinned = code(memory::free_async(b, b.alloc_host(4096)?, stream));
    Ok(format!(
        "{pinned}, {}",
        code(memory::free_async(b, memory::alloc_managed(b, 4096, attach_flags::GLOBAL)?, stream))
    ))
}

fn free_async_other_stream(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc_async(b, 4096, CUstream::NULL)?;
    context::synchronize(b)?;
    b.second_context()?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let freed = code(memory::free_async(b, block, stream));
    Ok(format!("{freed}, synchronize {}", code(stream::synchronize(b, stream))))
}

fn free_after_stream(b: &Fixture) -> Answer {
    b.init_context()?;
    let (first, second) =
        (stream::create(b, stream_flags::NON_BLOCKING)?, stream::create(b, stream_flags::NON_BLOCKING)?);
    let block = memory::alloc_async(b, 4096, first)?;
    stream::destroy(b, first)?;
    Ok(code(memory::free_async(b, block, second)))
}

fn use_after_free_async(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let block = memory::alloc_async(b, 4096, stream)?;
    memory::free_async(b, block, stream)?;
    Ok(code(fill::d8_async(b, block, 1, 4096, stream)))
}
