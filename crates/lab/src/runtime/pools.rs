//! Experiments on stream-ordered memory and pools (7.13).

use super::fixture::{BYTES, Fixture, MIB, code};
use super::functions::{PoolProps, RuntimeError};
use super::spin::Spin;
use crate::answer_text::{choose, size};
use crate::experiment::Experiment;
use crate::id::Id;

const RELEASE_THRESHOLD: i32 = 4;
const RESERVED: i32 = 5;
const USED: i32 = 7;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 13, 1),
        did: "is the current pool of the device its default pool",
        run: |r| Ok(choose(current(r)? == default(r)?, "yes", "no")),
    },
    Experiment {
        id: Id(7, 13, 2),
        did: "the release threshold of the default pool, and of a new one",
        run: |r| {
            let [old, new] = [default(r)?, create(r)?].map(|pool| bytes(r, pool, RELEASE_THRESHOLD));
            Ok(format!("{}, {}", old?, new?))
        },
    },
    Experiment {
        id: Id(7, 13, 3),
        did: "what the default pool uses and has reserved after cudaMallocAsync of a byte",
        run: |r| {
            let pool = default(r)?;
            r.malloc_async(1, 0)?;
            Ok(format!("{}, {}", bytes(r, pool, USED)?, bytes(r, pool, RESERVED)?))
        },
    },
    Experiment {
        id: Id(7, 13, 4),
        did: "what the default pool has reserved after cudaFreeAsync, after a synchronization, and after a trim",
        run: |r| {
            let pool = default(r)?;
            let block = r.malloc_async(MIB, 0)?;
            r.cudaDeviceSynchronize()?;
            r.cudaFreeAsync(block, 0)?;
            let freed = bytes(r, pool, RESERVED)?;
            r.cudaDeviceSynchronize()?;
            let synchronized = bytes(r, pool, RESERVED)?;
            r.cudaMemPoolTrimTo(pool, 0)?;
            Ok(format!("{freed}, {synchronized}, {}", bytes(r, pool, RESERVED)?))
        },
    },
    Experiment {
        id: Id(7, 13, 5),
        did: "free and allocate again in one stream: is the address the same",
        run: |r| {
            let stream = r.stream()?;
            let first = r.malloc_async(MIB, stream)?;
            r.cudaFreeAsync(first, stream)?;
            Ok(choose(first == r.malloc_async(MIB, stream)?, "the same", "another"))
        },
    },
    Experiment {
        id: Id(7, 13, 6),
        did: "free behind a kernel that runs, and allocate again in that stream: is the address the same",
        run: |r| {
            let spin = Spin::new(r)?;
            let stream = r.non_blocking()?;
            let first = r.malloc_async(MIB, stream)?;
            spin.run(r, stream)?;
            r.cudaFreeAsync(first, stream)?;
            Ok(choose(first == r.malloc_async(MIB, stream)?, "the same", "another"))
        },
    },
    Experiment {
        id: Id(7, 13, 7),
        did: "free behind a kernel that runs, and allocate in another stream: is the address the same",
        run: |r| {
            let spin = Spin::new(r)?;
            let (stream, other) = (r.non_blocking()?, r.non_blocking()?);
            let first = r.malloc_async(MIB, stream)?;
            spin.run(r, stream)?;
            r.cudaFreeAsync(first, stream)?;
            Ok(choose(first == r.malloc_async(MIB, other)?, "the same", "another"))
        },
    },
    Experiment {
        id: Id(7, 13, 8),
        did: "destroy the default pool",
        run: |r| Ok(code(r.cudaMemPoolDestroy(default(r)?))),
    },
    Experiment {
        id: Id(7, 13, 9),
        did: "destroy a pool with a block, then copy from the block and free it",
        run: |r| {
            let pool = create(r)?;
            let mut block = 0;
            r.cudaMallocFromPoolAsync(Some(&mut block), BYTES, pool, 0)?;
            let destroyed = code(r.cudaMemPoolDestroy(pool));
            let copied = code(r.bytes_at(block, 1));
            Ok(format!("{destroyed}, {copied}, {}", code(r.cudaFreeAsync(block, 0))))
        },
    },
    Experiment {
        id: Id(7, 13, 10),
        did: "make a new pool the device's, and allocate: which pool is used, and after the pool was destroyed",
        run: |r| {
            let pool = create(r)?;
            let set = code(r.cudaDeviceSetMemPool(0, pool));
            r.malloc_async(MIB, 0)?;
            let used = choose(bytes(r, pool, USED)? == "0 bytes", "the default", "the new");
            r.cudaMemPoolDestroy(pool)?;
            Ok(format!("{set}, {used}, then {}", choose(current(r)? == default(r)?, "the default", "another")))
        },
    },
    Experiment {
        id: Id(7, 13, 11),
        did: "create a pool with no type of memory, and with a null description",
        run: |r| {
            let untyped = PoolProps { location_type: 1, ..PoolProps::default() };
            let none = code(r.cudaMemPoolCreate(Some(&mut 0), Some(&untyped)));
            Ok(format!("{none}, {}", code(r.cudaMemPoolCreate(Some(&mut 0), None))))
        },
    },
    Experiment {
        id: Id(7, 13, 12),
        did: "ask for the default pool of a device that does not exist, and an attribute that does not",
        run: |r| {
            let absent = code(r.cudaDeviceGetDefaultMemPool(Some(&mut 0), 99));
            Ok(format!("{absent}, {}", code(r.cudaMemPoolGetAttribute(default(r)?, 99, Some(&mut 0)))))
        },
    },
    Experiment {
        id: Id(7, 13, 13),
        did: "free memory of the device after cudaMallocAsync, cudaFreeAsync and a synchronization",
        run: |r| {
            r.init()?;
            let before = r.free_bytes()?;
            let block = r.malloc_async(64 * MIB, 0)?;
            r.cudaDeviceSynchronize()?;
            let taken = size((before - r.free_bytes()?) as u64);
            r.cudaFreeAsync(block, 0)?;
            r.cudaDeviceSynchronize()?;
            Ok(format!("{taken} less, {} less", size((before - r.free_bytes()?) as u64)))
        },
    },
];

fn default(r: &Fixture) -> Result<u64, RuntimeError> {
    let mut pool = 0;
    r.cudaDeviceGetDefaultMemPool(Some(&mut pool), 0).map(|()| pool)
}

fn current(r: &Fixture) -> Result<u64, RuntimeError> {
    let mut pool = 0;
    r.cudaDeviceGetMemPool(Some(&mut pool), 0).map(|()| pool)
}

/// Creates a pool of pinned memory on device 0.
fn create(r: &Fixture) -> Result<u64, RuntimeError> {
    let mut pool = 0;
    let properties = PoolProps { alloc_type: 1, location_type: 1, ..PoolProps::default() };
    r.cudaMemPoolCreate(Some(&mut pool), Some(&properties)).map(|()| pool)
}

/// Returns an attribute of a pool that is a size.
fn bytes(r: &Fixture, pool: u64, attribute: i32) -> Result<String, RuntimeError> {
    let mut value = 0;
    r.cudaMemPoolGetAttribute(pool, attribute, Some(&mut value)).map(|()| size(value))
}
