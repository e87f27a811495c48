//! Experiments on pools: what they take from a device, what they keep, and when they return it (question 3).

use freehold_driver::cuda::{
    CUdeviceptr, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUstream, DriverError, device, driver, fill,
    memory, pointer, pool, stream, stream_flags,
};

use crate::answer_text::{alignment, byte_runs, choose, code, distance, size};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::id::Id;

const NON_BLOCKING: u32 = stream_flags::NON_BLOCKING;
const MIB: usize = 1 << 20;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(3, 5, 1),
        did: "compare a device's default pool with its current one",
        run: default_is_current,
    },
    Experiment {
        id: Id(3, 5, 2),
        did: "the release threshold and the three reuse attributes of the default pool and of a new one",
        run: defaults,
    },
    Experiment {
        id: Id(3, 5, 3),
        did: "allocate 1 byte of a new pool, then 1 MiB: used and reserved after each",
        run: used_and_reserved,
    },
    Experiment {
        id: Id(3, 5, 4),
        did: "allocate 40 MiB of a new pool, then 100 MiB: reserved after each",
        run: reserved,
    },
    Experiment {
        id: Id(3, 5, 5),
        did: "free 40 MiB and synchronize: reserved with a release threshold of 0, and of all",
        run: released,
    },
    Experiment { id: Id(3, 5, 6), did: "free 40 MiB and wait for nothing: reserved at once", run: not_released },
    Experiment { id: Id(3, 5, 7), did: "trim a pool to 0 that has a live and a freed block of 40 MiB", run: trimmed },
    Experiment {
        id: Id(3, 5, 8),
        did: "set the high mark of used memory to 1, then to 0, when 1 MiB was freed",
        run: high_mark,
    },
    Experiment { id: Id(3, 5, 9), did: "set the used and the reserved memory to 0", run: set_current },
    Experiment {
        id: Id(3, 5, 10),
        did: "destroy a pool with a live block: the code, and whether the block can be used and freed",
        run: destroyed,
    },
    Experiment { id: Id(3, 5, 11), did: "destroy the default pool", run: destroy_default },
    Experiment { id: Id(3, 5, 12), did: "allocate of a destroyed pool", run: alloc_of_dead },
    Experiment { id: Id(3, 5, 13), did: "allocate 0 bytes and 1 PiB with cuMemAllocAsync", run: odd_sizes },
    Experiment {
        id: Id(3, 5, 14),
        did: "how far apart two blocks of 1 byte of a pool lie, and their alignment",
        run: steps,
    },
    Experiment {
        id: Id(3, 5, 15),
        did: "make a new pool current, allocate, destroy it: the block's pool, the current pool afterwards",
        run: current_pool,
    },
    Experiment { id: Id(3, 5, 16), did: "create a pool on device 99, and one of no allocation type", run: odd_pools },
    Experiment { id: Id(3, 5, 17), did: "allocate 64 MiB of a pool of at most 32 MiB", run: bounded },
    Experiment { id: Id(3, 5, 18), did: "cuMemAllocAsync in the null stream with no context current", run: no_context },
    Experiment {
        id: Id(3, 5, 19),
        did: "allocate 64 MiB with cuMemAllocAsync, free it, synchronize: free memory of the device",
        run: device_memory,
    },
    Experiment { id: Id(3, 5, 20), did: "allocate 0 bytes with cuMemAllocAsync: what it gives", run: nothing },
];

fn nothing(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let block = memory::alloc_async(b, 0, stream)?;
    let given = choose(block == CUdeviceptr::NULL, "null", "an address");
    Ok(format!("{given}, free {}", code(memory::free_async(b, block, stream))))
}

fn new_pool(b: &Fixture) -> Result<CUmemoryPool, DriverError> {
    pool::create(b, &CUmemPoolProps::on_device(b.device))
}

fn reserved_by(b: &Fixture, pool: CUmemoryPool) -> Result<String, DriverError> {
    Ok(size(pool::attribute(b, pool, CUmemPool_attribute::RESERVED_MEM_CURRENT)?))
}

fn used_of(b: &Fixture, pool: CUmemoryPool) -> Result<String, DriverError> {
    Ok(size(pool::attribute(b, pool, CUmemPool_attribute::USED_MEM_CURRENT)?))
}

fn default_is_current(b: &Fixture) -> Answer {
    b.init_context()?;
    Ok(choose(device::default_pool(b, b.device)? == device::pool(b, b.device)?, "the same", "two pools"))
}

fn defaults(b: &Fixture) -> Answer {
    b.init_context()?;
    let ask = |pool| -> Result<String, DriverError> {
        let mut answers = vec![pool::attribute(b, pool, CUmemPool_attribute::RELEASE_THRESHOLD)?.to_string()];
        for attribute in [
            CUmemPool_attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES,
            CUmemPool_attribute::REUSE_ALLOW_OPPORTUNISTIC,
            CUmemPool_attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES,
        ] {
            answers.push(pool::attribute(b, pool, attribute)?.to_string());
        }
        Ok(answers.join(" "))
    };
    Ok(format!("default {}, new {}", ask(device::default_pool(b, b.device)?)?, ask(new_pool(b)?)?))
}

fn used_and_reserved(b: &Fixture) -> Answer {
    b.init_context()?;
    let (pool, stream) = (new_pool(b)?, stream::create(b, NON_BLOCKING)?);
    let mut answers = Vec::new();
    for bytes in [1, MIB] {
        memory::alloc_from_pool_async(b, bytes, pool, stream)?;
        answers.push(format!("{} used of {}", used_of(b, pool)?, reserved_by(b, pool)?));
    }
    Ok(answers.join(", "))
}

fn reserved(b: &Fixture) -> Answer {
    b.init_context()?;
    let (pool, stream) = (new_pool(b)?, stream::create(b, NON_BLOCKING)?);
    memory::alloc_from_pool_async(b, 40 * MIB, pool, stream)?;
    let first = reserved_by(b, pool)?;
    memory::alloc_from_pool_async(b, 100 * MIB, pool, stream)?;
    Ok(format!("{first}, {}", reserved_by(b, pool)?))
}

fn released(b: &Fixture) -> Answer {
    b.init_context()?;
    let (pool, stream) = (new_pool(b)?, stream::create(b, NON_BLOCKING)?);
    let mut answers = Vec::new();
    for threshold in [0, u64::MAX] {
        pool::set_attribute(b, pool, CUmemPool_attribute::RELEASE_THRESHOLD, threshold)?;
        let block = memory::alloc_from_pool_async(b, 40 * MIB, pool, stream)?;
        memory::free_async(b, block, stream)?;
        stream::synchronize(b, stream)?;
        answers.push(reserved_by(b, pool)?);
    }
    Ok(answers.join(", "))
}

fn not_released(b: &Fixture) -> Answer {
    b.init_context()?;
    let (pool, stream) = (new_pool(b)?, stream::create(b, NON_BLOCKING)?);
    let block = memory::alloc_from_pool_async(b, 40 * MIB, pool, stream)?;
    stream::synchronize(b, stream)?;
    memory::free_async(b, block, stream)?;
    Ok(format!("{} used of {}", used_of(b, pool)?, reserved_by(b, pool)?))
}

fn trimmed(b: &Fixture) -> Answer {
    b.init_context()?;
    let (pool, stream) = (new_pool(b)?, stream::create(b, NON_BLOCKING)?);
    pool::set_attribute(b, pool, CUmemPool_attribute::RELEASE_THRESHOLD, u64::MAX)?;
    memory::alloc_from_pool_async(b, 40 * MIB, pool, stream)?;
    let freed = memory::alloc_from_pool_async(b, 40 * MIB, pool, stream)?;
    memory::free_async(b, freed, stream)?;
    stream::synchronize(b, stream)?;
    let before = reserved_by(b, pool)?;
    let outcome = code(pool::trim(b, pool, 0));
    Ok(format!("{outcome}, {before} before, {} after", reserved_by(b, pool)?))
}

fn high_mark(b: &Fixture) -> Answer {
    b.init_context()?;
    let (pool, stream) = (new_pool(b)?, stream::create(b, NON_BLOCKING)?);
    let block = memory::alloc_from_pool_async(b, MIB, pool, stream)?;
    memory::free_async(b, block, stream)?;
    stream::synchronize(b, stream)?;
    let high = size(pool::attribute(b, pool, CUmemPool_attribute::USED_MEM_HIGH)?);
    let one = code(pool::set_attribute(b, pool, CUmemPool_attribute::USED_MEM_HIGH, 1));
    let zero = code(pool::set_attribute(b, pool, CUmemPool_attribute::USED_MEM_HIGH, 0));
    let after = size(pool::attribute(b, pool, CUmemPool_attribute::USED_MEM_HIGH)?);
    Ok(format!("high {high}; {one}, {zero}; high {after}"))
}

fn set_current(b: &Fixture) -> Answer {
    b.init_context()?;
    let pool = new_pool(b)?;
    let used = code(pool::set_attribute(b, pool, CUmemPool_attribute::USED_MEM_CURRENT, 0));
    Ok(format!("{used}, {}", code(pool::set_attribute(b, pool, CUmemPool_attribute::RESERVED_MEM_CURRENT, 0))))
}

fn destroyed(b: &Fixture) -> Answer {
    b.init_context()?;
    let (pool, stream) = (new_pool(b)?, stream::create(b, NON_BLOCKING)?);
    let block = memory::alloc_from_pool_async(b, MIB, pool, stream)?;
    stream::synchronize(b, stream)?;
    let outcome = code(pool::destroy(b, pool));
    fill::d8_async(b, block, 0x5a, MIB, stream)?;
    stream::synchronize(b, stream)?;
    let held = byte_runs(&b.bytes_at(block, MIB)?);
    Ok(format!("{outcome}, holds {held}, free {}", code(memory::free_async(b, block, stream))))
}

fn destroy_default(b: &Fixture) -> Answer {
    b.init_context()?;
    Ok(code(pool::destroy(b, device::default_pool(b, b.device)?)))
}

fn alloc_of_dead(b: &Fixture) -> Answer {
    b.init_context()?;
    let (pool, stream) = (new_pool(b)?, stream::create(b, NON_BLOCKING)?);
    pool::destroy(b, pool)?;
    Ok(code(memory::alloc_from_pool_async(b, MIB, pool, stream)))
}

fn odd_sizes(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    Ok(format!("{}, {}", code(memory::alloc_async(b, 0, stream)), code(memory::alloc_async(b, 1 << 50, stream))))
}

fn steps(b: &Fixture) -> Answer {
    b.init_context()?;
    let (pool, stream) = (new_pool(b)?, stream::create(b, NON_BLOCKING)?);
    let (first, second) =
        (memory::alloc_from_pool_async(b, 1, pool, stream)?, memory::alloc_from_pool_async(b, 1, pool, stream)?);
    Ok(format!("{}, {}, {}", distance(first, second), alignment(first, 2 << 20), alignment(second, 2 << 20)))
}

fn current_pool(b: &Fixture) -> Answer {
    b.init_context()?;
    let (pool, stream) = (new_pool(b)?, stream::create(b, NON_BLOCKING)?);
    device::set_pool(b, b.device, pool)?;
    let block = memory::alloc_async(b, MIB, stream)?;
    let owner = choose(pointer::pool(b, block)? == pool, "the new pool", "another pool");
    memory::free_async(b, block, stream)?;
    stream::synchronize(b, stream)?;
    let outcome = code(pool::destroy(b, pool));
    let default = device::default_pool(b, b.device)?;
    Ok(format!(
        "{owner}, {outcome}, {}",
        choose(device::pool(b, b.device)? == default, "the default pool", "another pool")
    ))
}

fn odd_pools(b: &Fixture) -> Answer {
    b.init_context()?;
    let mut far = CUmemPoolProps::on_device(b.device);
    far.location.id = 99;
    let mut untyped = CUmemPoolProps::on_device(b.device);
    untyped.allocType = freehold_driver::cuda::CUmemAllocationType::INVALID;
    Ok(format!("{}, {}", code(pool::create(b, &far)), code(pool::create(b, &untyped))))
}

fn bounded(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let props = CUmemPoolProps { maxSize: 32 * MIB, ..CUmemPoolProps::on_device(b.device) };
    let pool = pool::create(b, &props)?;
    let large = code(memory::alloc_from_pool_async(b, 64 * MIB, pool, stream));
    Ok(format!("{large}, 16 MiB {}", code(memory::alloc_from_pool_async(b, 16 * MIB, pool, stream))))
}

fn no_context(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    Ok(code(memory::alloc_async(b, MIB, CUstream::NULL)))
}

fn device_memory(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let warm = memory::alloc_async(b, MIB, stream)?;
    memory::free_async(b, warm, stream)?;
    stream::synchronize(b, stream)?;
    let before = memory::info(b)?.free_bytes;
    let block = memory::alloc_async(b, 64 * MIB, stream)?;
    stream::synchronize(b, stream)?;
    let during = memory::info(b)?.free_bytes;
    memory::free_async(b, block, stream)?;
    let freed = memory::info(b)?.free_bytes;
    stream::synchronize(b, stream)?;
    let after = memory::info(b)?.free_bytes;
    let taken = |now: usize| size(before.saturating_sub(now) as u64);
    Ok(format!("{} taken, {} after the free, {} after the wait", taken(during), taken(freed), taken(after)))
}
