//! Experiments on who owns memory that two contexts of one process can access, and on invalid frees (question 0).

use freehold_driver::cuda::{CUcontext, CUdeviceptr, DriverError, context, driver, fill, memory, pointer};

use crate::answer_text::{alignment, choose, code, distance};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::host_buffer::HostBuffer;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(0, 1, 1),
        did: "allocate in context 1, make context 2 current, ask for the context of the address",
        run: owner_is_the_context_that_allocated,
    },
    Experiment {
        id: Id(0, 1, 2),
        did: "allocate in context 1, copy to it and fill it with context 2 current",
        run: other_context_writes,
    },
    Experiment {
        id: Id(0, 1, 3),
        did: "allocate in context 1, free with context 2 current, free again with context 1 current",
        run: other_context_frees,
    },
    Experiment {
        id: Id(0, 3, 1),
        did: "allocate 1 GiB in a context, destroy the context, look at the free memory",
        run: destroyed_context_gives_memory_back,
    },
    Experiment {
        id: Id(0, 3, 2),
        did: "allocate in a context, destroy the context, free the address",
        run: free_after_destroy,
    },
    Experiment {
        id: Id(0, 4, 1),
        did: "free the second byte of a block, its byte 256, then fill the block",
        run: free_of_interior,
    },
    Experiment { id: Id(0, 4, 2), did: "free null", run: |b| begun(b, |b| memory::free(b, CUdeviceptr::NULL)) },
    Experiment {
        id: Id(0, 4, 3),
        did: "free an address that was never allocated",
        run: |b| begun(b, |b| memory::free(b, CUdeviceptr(0x1234_5600))),
    },
    Experiment { id: Id(0, 4, 4), did: "allocate 0 bytes", run: |b| begun(b, |b| memory::alloc(b, 0)) },
    Experiment { id: Id(0, 4, 5), did: "allocate 1 PiB", run: |b| begun(b, |b| memory::alloc(b, 1 << 50)) },
    Experiment { id: Id(0, 4, 6), did: "allocate 1 byte twice", run: two_bytes },
    Experiment { id: Id(0, 4, 7), did: "look at the address of the first allocation", run: first_address },
    Experiment { id: Id(0, 4, 8), did: "free a block twice", run: free_twice },
    Experiment { id: Id(0, 4, 9), did: "allocate and free with no context current", run: no_context },
];

/// Returns the code of one call with the primary context current.
fn begun<T>(b: &Fixture, call: impl FnOnce(&Fixture) -> Result<T, DriverError>) -> Answer {
    b.init_context()?;
    Ok(code(call(b)))
}

/// Returns a block of the first of two contexts, with the second current: block, first, second.
fn two_contexts(b: &Fixture) -> Result<(CUdeviceptr, CUcontext, CUcontext), DriverError> {
    driver::init(b, 0)?;
    let first = b.second_context()?;
    let block = memory::alloc(b, 4096)?;
    let second = b.second_context()?;
    Ok((block, first, second))
}

fn owner_is_the_context_that_allocated(b: &Fixture) -> Answer {
    let (block, first, second) = two_contexts(b)?;
    let owner = pointer::context(b, block)?;
    Ok(choose(owner == first, "context 1", &choose(owner == second, "context 2", "neither")))
}

fn other_context_writes(b: &Fixture) -> Answer {
    let (block, _, _) = two_contexts(b)?;
    let copied = b.copy_in(block, HostBuffer::pageable(4096));
    Ok(format!("copy {}, fill {}", code(copied), code(fill::d32(b, block, 7, 1024))))
}

fn other_context_frees(b: &Fixture) -> Answer {
    let (block, first, _) = two_contexts(b)?;
    let freed = memory::free(b, block);
    context::set_current(b, first)?;
    Ok(format!("{}, then {}", code(freed), code(memory::free(b, block))))
}

fn destroyed_context_gives_memory_back(b: &Fixture) -> Answer {
    let primary = b.init_context()?;
    let context = b.second_context()?;
    memory::alloc(b, 1 << 30)?;
    context::set_current(b, primary)?;
    let before = memory::info(b)?.free_bytes;
    context::destroy(b, context)?;
    let after = memory::info(b)?.free_bytes;
    Ok(choose(after >= before + (1 << 30), "at least 1 GiB came back at once", "less than 1 GiB came back at once"))
}

fn free_after_destroy(b: &Fixture) -> Answer {
    let primary = b.init_context()?;
    let context = b.second_context()?;
    let block = memory::alloc(b, 1 << 20)?;
    context::set_current(b, primary)?;
    context::destroy(b, context)?;
    Ok(code(memory::free(b, block)))
}

fn free_of_interior(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    let second = code(memory::free(b, CUdeviceptr(block.0 + 1)));
    let later = code(memory::free(b, CUdeviceptr(block.0 + 256)));
    Ok(format!("{second}, {later}, fill {}", code(fill::d8(b, block, 1, 4096))))
}

fn two_bytes(b: &Fixture) -> Answer {
    b.init_context()?;
    let first = memory::alloc(b, 1)?;
    Ok(distance(first, memory::alloc(b, 1)?))
}

fn first_address(b: &Fixture) -> Answer {
    b.init_context()?;
    Ok(format!("on a boundary of {}", alignment(memory::alloc(b, 1)?, 2 << 20)))
}

fn free_twice(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    Ok(format!("{}, then {}", code(memory::free(b, block)), code(memory::free(b, block))))
}

fn no_context(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    context::set_current(b, CUcontext::NULL)?;
    let allocated = code(memory::alloc(b, 4096));
    Ok(format!("allocate {allocated}, free {}", code(memory::free(b, block))))
}
