//! Experiments on which calls wait while a kernel runs in a stream that no other stream waits for (7.3).

use super::fixture::{BYTES, DISABLE_TIMING, Fixture, MIB, PER_THREAD};
use super::functions::{FuncAttributes, IpcHandle, PointerAttributes, PoolProps, RuntimeError};
use super::spin::Spin;
use crate::experiment::{Answer, Experiment};
use crate::id::Id;
use crate::kernels::KERNELS;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 3, 1),
        did: "a kernel runs in a non-blocking stream: cudaMalloc of 4 KiB",
        run: |r| meanwhile(r, |_| Ok(()), |r, ()| r.malloc(BYTES).map(drop)),
    },
    Experiment {
        id: Id(7, 3, 2),
        did: "a kernel runs in a non-blocking stream: cudaMalloc of 256 MiB",
        run: |r| meanwhile(r, |_| Ok(()), |r, ()| r.malloc(256 * MIB).map(drop)),
    },
    Experiment {
        id: Id(7, 3, 3),
        did: "a kernel runs in a non-blocking stream: cudaFree of 4 KiB",
        run: |r| meanwhile(r, |r| r.malloc(BYTES), |r, block| r.cudaFree(block)),
    },
    Experiment {
        id: Id(7, 3, 4),
        did: "a kernel runs in a non-blocking stream: cudaFree of 256 MiB",
        run: |r| meanwhile(r, |r| r.malloc(256 * MIB), |r, block| r.cudaFree(block)),
    },
    Experiment {
        id: Id(7, 3, 5),
        did: "a kernel runs in a non-blocking stream: cudaFree of null",
        run: |r| meanwhile(r, |_| Ok(()), |r, ()| r.cudaFree(0)),
    },
    Experiment {
        id: Id(7, 3, 6),
        did: "a kernel runs in a non-blocking stream: cudaMallocHost",
        run: |r| meanwhile(r, |_| Ok(()), |r, ()| r.pinned(MIB).map(drop)),
    },
    Experiment {
        id: Id(7, 3, 7),
        did: "a kernel runs in a non-blocking stream: cudaFreeHost",
        run: |r| meanwhile(r, |r| r.pinned(MIB), |r, block| r.cudaFreeHost(block)),
    },
    Experiment {
        id: Id(7, 3, 8),
        did: "a kernel runs in a non-blocking stream: cudaHostRegister",
        run: |r| meanwhile(r, |r| Ok(r.pageable(MIB)), |r, host| r.cudaHostRegister(host, MIB, 0)),
    },
    Experiment {
        id: Id(7, 3, 9),
        did: "a kernel runs in a non-blocking stream: cudaHostUnregister",
        run: |r| meanwhile(r, registered, |r, host| r.cudaHostUnregister(host)),
    },
    Experiment {
        id: Id(7, 3, 10),
        did: "a kernel runs in a non-blocking stream: cudaMallocManaged",
        run: |r| meanwhile(r, |_| Ok(()), |r, ()| r.managed(MIB).map(drop)),
    },
    Experiment {
        id: Id(7, 3, 11),
        did: "a kernel runs in a non-blocking stream: cudaFree of managed memory",
        run: |r| meanwhile(r, |r| r.managed(MIB), |r, block| r.cudaFree(block)),
    },
    Experiment {
        id: Id(7, 3, 12),
        did: "a kernel runs in a non-blocking stream: cudaMallocPitch",
        run: |r| meanwhile(r, |_| Ok(()), |r, ()| r.cudaMallocPitch(Some(&mut 0), Some(&mut 0), 100, 100)),
    },
    Experiment {
        id: Id(7, 3, 13),
        did: "a kernel runs in a non-blocking stream: cudaMallocAsync in another stream",
        run: |r| meanwhile(r, |r| r.non_blocking(), |r, stream| r.malloc_async(MIB, stream).map(drop)),
    },
    Experiment {
        id: Id(7, 3, 14),
        did: "a kernel runs in a non-blocking stream: cudaFreeAsync in the same stream",
        run: |r| {
            let spin = Spin::new(r)?;
            let stream = r.non_blocking()?;
            let block = r.malloc_async(MIB, stream)?;
            spin.run(r, stream)?;
            Ok(spin.pace(|| r.cudaFreeAsync(block, stream)))
        },
    },
    Experiment {
        id: Id(7, 3, 15),
        did: "a kernel runs in a non-blocking stream: cudaFree of memory that cudaMallocAsync has returned",
        run: |r| meanwhile(r, |r| r.malloc_async(MIB, 0), |r, block| r.cudaFree(block)),
    },
    Experiment {
        id: Id(7, 3, 16),
        did: "a kernel runs in a non-blocking stream: cudaMemPoolCreate, and cudaMemPoolDestroy",
        run: |r| {
            meanwhile(
                r,
                |_| Ok(()),
                |r, ()| {
                    let mut pool = 0;
                    let properties = PoolProps { alloc_type: 1, location_type: 1, ..PoolProps::default() };
                    r.cudaMemPoolCreate(Some(&mut pool), Some(&properties))?;
                    r.cudaMemPoolDestroy(pool)
                },
            )
        },
    },
    Experiment {
        id: Id(7, 3, 17),
        did: "a kernel runs in a non-blocking stream: trim the default pool",
        run: |r| meanwhile(r, default_pool, |r, pool| r.cudaMemPoolTrimTo(pool, 0)),
    },
    Experiment {
        id: Id(7, 3, 18),
        did: "a kernel runs in a non-blocking stream: cudaStreamCreate",
        run: |r| meanwhile(r, |_| Ok(()), |r, ()| r.stream().map(drop)),
    },
    Experiment {
        id: Id(7, 3, 19),
        did: "a kernel runs in a non-blocking stream: cudaStreamDestroy of that stream",
        run: |r| {
            let stream = r.non_blocking()?;
            Ok(Spin::running(r, stream)?.pace(|| r.cudaStreamDestroy(stream)))
        },
    },
    Experiment {
        id: Id(7, 3, 20),
        did: "a kernel runs in a non-blocking stream: cudaStreamDestroy of another stream",
        run: |r| meanwhile(r, |r| r.stream(), |r, stream| r.cudaStreamDestroy(stream)),
    },
    Experiment {
        id: Id(7, 3, 21),
        did: "a kernel runs in a non-blocking stream: create, record behind it and destroy an event",
        run: |r| {
            let stream = r.non_blocking()?;
            let spin = Spin::running(r, stream)?;
            Ok(spin.pace(|| {
                let event = r.event(DISABLE_TIMING)?;
                r.cudaEventRecord(event, stream)?;
                r.cudaEventDestroy(event)
            }))
        },
    },
    Experiment {
        id: Id(7, 3, 22),
        did: "a kernel runs in a non-blocking stream: synchronize the device",
        run: |r| meanwhile(r, |_| Ok(()), |r, ()| r.cudaDeviceSynchronize()),
    },
    Experiment {
        id: Id(7, 3, 23),
        did: "a kernel runs in a non-blocking stream: synchronize an event that was never recorded",
        run: |r| meanwhile(r, |r| r.event(0), |r, event| r.cudaEventSynchronize(event)),
    },
    Experiment {
        id: Id(7, 3, 24),
        did: "a kernel runs in a non-blocking stream: ask for free memory",
        run: |r| meanwhile(r, |_| Ok(()), |r, ()| r.free_bytes().map(drop)),
    },
    Experiment {
        id: Id(7, 3, 25),
        did: "a kernel runs in a non-blocking stream: ask for the attributes of a pointer",
        run: |r| {
            let ask = |r: &Fixture, block| r.cudaPointerGetAttributes(Some(&mut PointerAttributes::default()), block);
            meanwhile(r, |r| r.malloc(BYTES), ask)
        },
    },
    Experiment {
        id: Id(7, 3, 26),
        did: "a kernel runs in a non-blocking stream: ask for the attributes of a loaded kernel",
        run: |r| {
            let ask = |r: &Fixture, kernel| r.cudaFuncGetAttributes(Some(&mut FuncAttributes::default()), kernel);
            meanwhile(r, loaded, ask)
        },
    },
    Experiment {
        id: Id(7, 3, 27),
        did: "a kernel runs in a non-blocking stream: allow a loaded kernel more shared memory",
        run: |r| meanwhile(r, loaded, |r, kernel| r.cudaFuncSetAttribute(kernel, 8, 65_536)),
    },
    Experiment {
        id: Id(7, 3, 28),
        did: "a kernel runs in a non-blocking stream: load a library",
        run: |r| meanwhile(r, |_| Ok(()), |r, ()| r.library(KERNELS).map(drop)),
    },
    Experiment {
        id: Id(7, 3, 29),
        did: "a kernel runs in a non-blocking stream: launch a kernel for the first time in another stream",
        run: |r| {
            let prepare = |r: &Fixture| Ok((r.kernel(c"empty")?, r.non_blocking()?));
            meanwhile(r, prepare, |r, (kernel, stream)| r.launch(kernel, stream, &[]))
        },
    },
    Experiment {
        id: Id(7, 3, 30),
        did: "a kernel runs in a non-blocking stream: unload another library whose kernel has run",
        run: |r| {
            let prepare = |r: &Fixture| {
                let library = r.library(KERNELS)?;
                r.launch(r.kernel_of(library, c"empty")?, 0, &[])?;
                r.cudaDeviceSynchronize()?;
                Ok(library)
            };
            meanwhile(r, prepare, |r, library| r.cudaLibraryUnload(library))
        },
    },
    Experiment {
        id: Id(7, 3, 31),
        did: "a kernel runs in a non-blocking stream: instantiate a graph",
        run: |r| meanwhile(r, graph, |r, graph| r.cudaGraphInstantiate(Some(&mut 0), graph, 0)),
    },
    Experiment {
        id: Id(7, 3, 32),
        did: "a kernel runs in a non-blocking stream: launch a graph behind it, and destroy the graph",
        run: |r| {
            let stream = r.non_blocking()?;
            let mut exec = 0;
            r.cudaGraphInstantiate(Some(&mut exec), graph(r)?, 0)?;
            let spin = Spin::running(r, stream)?;
            Ok(spin.pace(|| {
                r.cudaGraphLaunch(exec, stream)?;
                r.cudaGraphExecDestroy(exec)
            }))
        },
    },
    Experiment {
        id: Id(7, 3, 33),
        did: "a kernel runs in a non-blocking stream: set the stack size of threads to 8 KiB",
        run: |r| meanwhile(r, |_| Ok(()), |r, ()| r.cudaDeviceSetLimit(0, 8192)),
    },
    Experiment {
        id: Id(7, 3, 34),
        did: "a kernel runs in a non-blocking stream: enqueue a host function behind it",
        run: |r| {
            let stream = r.non_blocking()?;
            Ok(Spin::running(r, stream)?.pace(|| r.cudaLaunchHostFunc(stream, Some(nothing), 0)))
        },
    },
    Experiment {
        id: Id(7, 3, 35),
        did: "a kernel runs in a non-blocking stream: get an IPC handle",
        run: |r| {
            let get = |r: &Fixture, block| r.cudaIpcGetMemHandle(Some(&mut IpcHandle([0; 64])), block);
            meanwhile(r, |r| r.malloc(2 * MIB), get)
        },
    },
    Experiment {
        id: Id(7, 3, 36),
        did: "a kernel runs in the thread's own stream: another thread makes its first call, and ends",
        run: |r| {
            let spin = Spin::running(r, PER_THREAD)?;
            Ok(spin.pace(|| r.in_thread(|| r.malloc(BYTES))))
        },
    },
];

/// Says whether a call waits for a kernel in a non-blocking stream. What it needs is made before.
fn meanwhile<T>(
    r: &Fixture,
    prepare: impl FnOnce(&Fixture) -> Result<T, RuntimeError>,
    call: impl FnOnce(&Fixture, T) -> Result<(), RuntimeError>,
) -> Answer {
    let spin = Spin::new(r)?;
    let (stream, prepared) = (r.non_blocking()?, prepare(r)?);
    spin.run(r, stream)?;
    Ok(spin.pace(|| call(r, prepared)))
}

fn registered(r: &Fixture) -> Result<u64, RuntimeError> {
    let host = r.pageable(MIB);
    r.cudaHostRegister(host, MIB, 0).map(|()| host)
}

fn default_pool(r: &Fixture) -> Result<u64, RuntimeError> {
    let mut pool = 0;
    r.cudaDeviceGetDefaultMemPool(Some(&mut pool), 0).map(|()| pool)
}

/// Returns a kernel that has run.
fn loaded(r: &Fixture) -> Result<u64, RuntimeError> {
    let kernel = r.kernel(c"empty")?;
    r.launch(kernel, 0, &[])?;
    r.cudaDeviceSynchronize()?;
    Ok(kernel)
}

/// Returns a graph of one fill.
fn graph(r: &Fixture) -> Result<u64, RuntimeError> {
    let (stream, block) = (r.non_blocking()?, r.malloc(BYTES)?);
    r.cudaStreamBeginCapture(stream, 0)?;
    r.cudaMemsetAsync(block, 1, BYTES, stream)?;
    let mut graph = 0;
    r.cudaStreamEndCapture(stream, Some(&mut graph)).map(|()| graph)
}

extern "C" fn nothing(_: u64) {}
