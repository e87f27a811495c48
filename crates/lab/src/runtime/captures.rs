//! Experiments on what calls do to a capture, and on graphs (7.14).

use super::fixture::{BYTES, DISABLE_TIMING, Fixture, PER_THREAD, TO_DEVICE, TO_HOST, code, or_code};
use super::functions::{PointerAttributes, RuntimeError};
use crate::experiment::{Answer, Experiment};
use crate::id::Id;
use crate::kernels::KERNELS;

/// The modes of a capture.
const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment { id: Id(7, 14, 1), did: "during a capture: cudaMalloc", run: |r| during(r, |r, _| r.malloc(BYTES)) },
    Experiment {
        id: Id(7, 14, 2),
        did: "during a capture: cudaFree of a block",
        run: |r| {
            let block = r.malloc(BYTES)?;
            during(r, |r, _| r.cudaFree(block))
        },
    },
    Experiment {
        id: Id(7, 14, 3),
        did: "during a capture: cudaFree of null",
        run: |r| during(r, |r, _| r.cudaFree(0)),
    },
    Experiment {
        id: Id(7, 14, 4),
        did: "during a capture: cudaMallocHost",
        run: |r| during(r, |r, _| r.pinned(BYTES)),
    },
    Experiment {
        id: Id(7, 14, 5),
        did: "during a capture: cudaFreeHost",
        run: |r| {
            let block = r.pinned(BYTES)?;
            during(r, |r, _| r.cudaFreeHost(block))
        },
    },
    Experiment {
        id: Id(7, 14, 6),
        did: "during a capture: cudaHostRegister",
        run: |r| {
            let host = r.pageable(BYTES);
            during(r, |r, _| r.cudaHostRegister(host, BYTES, 0))
        },
    },
    Experiment {
        id: Id(7, 14, 7),
        did: "during a capture: cudaMallocManaged",
        run: |r| during(r, |r, _| r.managed(BYTES)),
    },
    Experiment {
        id: Id(7, 14, 8),
        did: "during a capture: cudaMallocAsync in its stream",
        run: |r| during(r, |r, stream| r.malloc_async(BYTES, stream)),
    },
    Experiment {
        id: Id(7, 14, 9),
        did: "during a capture: cudaMallocAsync in another stream",
        run: |r| {
            let other = r.non_blocking()?;
            during(r, |r, _| r.malloc_async(BYTES, other))
        },
    },
    Experiment {
        id: Id(7, 14, 10),
        did: "during a capture: cudaMemcpy from pageable memory",
        run: |r| {
            let (block, host) = (r.malloc(BYTES)?, r.pageable(BYTES));
            during(r, |r, _| r.cudaMemcpy(block, host, BYTES, TO_DEVICE))
        },
    },
    Experiment {
        id: Id(7, 14, 11),
        did: "during a capture: cudaMemset",
        run: |r| {
            let block = r.malloc(BYTES)?;
            during(r, |r, _| r.cudaMemset(block, 0, BYTES))
        },
    },
    Experiment {
        id: Id(7, 14, 12),
        did: "during a capture: cudaMemcpyAsync in its stream, from pageable memory",
        run: |r| {
            let (block, host) = (r.malloc(BYTES)?, r.pageable(BYTES));
            during(r, |r, stream| r.cudaMemcpyAsync(block, host, BYTES, TO_DEVICE, stream))
        },
    },
    Experiment {
        id: Id(7, 14, 13),
        did: "during a capture: cudaMemcpyAsync in its stream, to pageable memory",
        run: |r| {
            let (block, host) = (r.malloc(BYTES)?, r.pageable(BYTES));
            during(r, |r, stream| r.cudaMemcpyAsync(host, block, BYTES, TO_HOST, stream))
        },
    },
    Experiment {
        id: Id(7, 14, 14),
        did: "during a capture: query its stream",
        run: |r| during(r, |r, stream| r.cudaStreamQuery(stream)),
    },
    Experiment {
        id: Id(7, 14, 15),
        did: "during a capture: synchronize its stream",
        run: |r| during(r, |r, stream| r.cudaStreamSynchronize(stream)),
    },
    Experiment {
        id: Id(7, 14, 16),
        did: "during a capture: query another stream",
        run: |r| {
            let other = r.non_blocking()?;
            during(r, |r, _| r.cudaStreamQuery(other))
        },
    },
    Experiment {
        id: Id(7, 14, 17),
        did: "during a capture: synchronize the device",
        run: |r| during(r, |r, _| r.cudaDeviceSynchronize()),
    },
    Experiment {
        id: Id(7, 14, 18),
        did: "during a capture: record an event in its stream, and query it",
        run: |r| {
            let event = r.event(DISABLE_TIMING)?;
            during(r, |r, stream| r.cudaEventRecord(event, stream).and_then(|()| r.cudaEventQuery(event)))
        },
    },
    Experiment {
        id: Id(7, 14, 19),
        did: "during a capture: query an event that was recorded before it",
        run: |r| {
            let event = r.event(DISABLE_TIMING)?;
            r.cudaEventRecord(event, 0)?;
            r.cudaDeviceSynchronize()?;
            during(r, |r, _| r.cudaEventQuery(event))
        },
    },
    Experiment {
        id: Id(7, 14, 20),
        did: "during a capture: let its stream wait for an event that was recorded before it",
        run: |r| {
            let event = r.event(DISABLE_TIMING)?;
            r.cudaEventRecord(event, 0)?;
            during(r, |r, stream| r.cudaStreamWaitEvent(stream, event, 0))
        },
    },
    Experiment {
        id: Id(7, 14, 21),
        did: "during a capture: let its stream wait for an event that was never recorded",
        run: |r| {
            let event = r.event(DISABLE_TIMING)?;
            during(r, |r, stream| r.cudaStreamWaitEvent(stream, event, 0))
        },
    },
    Experiment {
        id: Id(7, 14, 22),
        did: "during a capture: create and destroy a stream",
        run: |r| during(r, |r, _| r.stream().and_then(|made| r.cudaStreamDestroy(made))),
    },
    Experiment {
        id: Id(7, 14, 23),
        did: "during a capture: create and destroy an event",
        run: |r| during(r, |r, _| r.event(0).and_then(|made| r.cudaEventDestroy(made))),
    },
    Experiment {
        id: Id(7, 14, 24),
        did: "during a capture: ask for free memory, and for the attributes of a pointer",
        run: |r| {
            let block = r.malloc(BYTES)?;
            during(r, |r, _| {
                r.free_bytes()?;
                r.cudaPointerGetAttributes(Some(&mut PointerAttributes::default()), block)
            })
        },
    },
    Experiment {
        id: Id(7, 14, 25),
        did: "during a capture: load a library",
        run: |r| during(r, |r, _| r.library(KERNELS)),
    },
    Experiment {
        id: Id(7, 14, 26),
        did: "during a capture: launch a kernel for the first time",
        run: |r| {
            let empty = r.kernel(c"empty")?;
            during(r, |r, stream| r.launch(empty, stream, &[]))
        },
    },
    Experiment {
        id: Id(7, 14, 27),
        did: "during a capture: set the device",
        run: |r| during(r, |r, _| r.cudaSetDevice(0)),
    },
    Experiment {
        id: Id(7, 14, 28),
        did: "during a capture: enqueue a host function in its stream",
        run: |r| during(r, |r, stream| r.cudaLaunchHostFunc(stream, Some(nothing), 0)),
    },
    Experiment {
        id: Id(7, 14, 29),
        did: "during a capture: add a callback to its stream",
        run: |r| during(r, |r, stream| r.cudaStreamAddCallback(stream, Some(no_callback), 0, 0)),
    },
    Experiment {
        id: Id(7, 14, 30),
        did: "during a capture: a call that fails for another reason",
        run: |r| during(r, |r, _| r.cudaSetDevice(99)),
    },
    Experiment {
        id: Id(7, 14, 31),
        did: "during a capture: a launch with too many threads in its stream",
        run: |r| {
            let empty = r.kernel(c"empty")?;
            let shape = (super::functions::Dim3(1, 1, 1), super::functions::Dim3(1025, 1, 1), 0);
            during(r, |r, stream| r.launch_shaped(empty, shape, stream, &[]))
        },
    },
    Experiment {
        id: Id(7, 14, 32),
        did: "during a capture of a blocking stream: launch in the legacy stream",
        run: |r| {
            let empty = loaded(r)?;
            in_mode(r, r.stream()?, GLOBAL, |r, _| r.launch(empty, 0, &[]))
        },
    },
    Experiment {
        id: Id(7, 14, 33),
        did: "during a capture of a non-blocking stream: launch in the legacy stream",
        run: |r| {
            let empty = loaded(r)?;
            during(r, |r, _| r.launch(empty, 0, &[]))
        },
    },
    Experiment {
        id: Id(7, 14, 34),
        did: "during a capture of a blocking stream: synchronize the legacy stream",
        run: |r| in_mode(r, r.stream()?, RELAXED, |r, _| r.cudaStreamSynchronize(0)),
    },
    Experiment {
        id: Id(7, 14, 35),
        did: "during a relaxed capture: cudaMalloc",
        run: |r| in_mode(r, r.non_blocking()?, RELAXED, |r, _| r.malloc(BYTES)),
    },
    Experiment {
        id: Id(7, 14, 36),
        did: "during a global capture: cudaMalloc in another thread",
        run: |r| in_mode(r, r.non_blocking()?, GLOBAL, |r, _| r.in_thread(|| r.malloc(BYTES))),
    },
    Experiment {
        id: Id(7, 14, 37),
        did: "during a thread-local capture: cudaMalloc in another thread",
        run: |r| in_mode(r, r.non_blocking()?, THREAD_LOCAL, |r, _| r.in_thread(|| r.malloc(BYTES))),
    },
    Experiment {
        id: Id(7, 14, 38),
        did: "during a global capture: cudaMalloc in another thread that is relaxed",
        run: |r| {
            in_mode(r, r.non_blocking()?, GLOBAL, |r, _| {
                r.in_thread(|| {
                    r.cudaThreadExchangeStreamCaptureMode(Some(&mut { RELAXED }))?;
                    r.malloc(BYTES)
                })
            })
        },
    },
    Experiment {
        id: Id(7, 14, 39),
        did: "end a thread-local capture in another thread",
        run: |r| {
            let stream = r.stream()?;
            r.cudaStreamBeginCapture(stream, THREAD_LOCAL)?;
            Ok(r.in_thread(|| code(r.cudaStreamEndCapture(stream, Some(&mut 0)))))
        },
    },
    Experiment {
        id: Id(7, 14, 40),
        did: "begin a capture of stream 0, and of the thread's own stream",
        run: |r| {
            let legacy = code(r.cudaStreamBeginCapture(0, GLOBAL));
            Ok(format!("{legacy}, {}", code(r.cudaStreamBeginCapture(PER_THREAD, GLOBAL))))
        },
    },
    Experiment {
        id: Id(7, 14, 41),
        did: "begin a capture twice, end it twice, and end one that never began",
        run: |r| {
            let (stream, other) = (r.stream()?, r.stream()?);
            r.cudaStreamBeginCapture(stream, GLOBAL)?;
            let again = code(r.cudaStreamBeginCapture(stream, GLOBAL));
            let end = |stream| code(r.cudaStreamEndCapture(stream, Some(&mut 0)));
            Ok(format!("{again}, {}, {}, {}", end(stream), end(stream), end(other)))
        },
    },
    Experiment {
        id: Id(7, 14, 42),
        did: "a second stream joins a capture, and has a kernel that is not joined again: end the capture",
        run: |r| {
            let (empty, stream, other) = (loaded(r)?, r.stream()?, r.stream()?);
            let event = r.event(DISABLE_TIMING)?;
            r.cudaStreamBeginCapture(stream, GLOBAL)?;
            r.cudaEventRecord(event, stream)?;
            r.cudaStreamWaitEvent(other, event, 0)?;
            r.launch(empty, other, &[])?;
            Ok(code(r.cudaStreamEndCapture(stream, Some(&mut 0))))
        },
    },
    Experiment {
        id: Id(7, 14, 43),
        did: "a second stream joins a capture: end the capture in it",
        run: |r| {
            let (stream, other, event) = (r.stream()?, r.stream()?, r.event(DISABLE_TIMING)?);
            r.cudaStreamBeginCapture(stream, GLOBAL)?;
            r.cudaEventRecord(event, stream)?;
            r.cudaStreamWaitEvent(other, event, 0)?;
            Ok(code(r.cudaStreamEndCapture(other, Some(&mut 0))))
        },
    },
    Experiment {
        id: Id(7, 14, 44),
        did: "capture nothing: how many nodes, and can the graph be launched",
        run: |r| {
            let stream = r.stream()?;
            r.cudaStreamBeginCapture(stream, GLOBAL)?;
            let (mut graph, mut nodes, mut exec) = (0, 9, 0);
            r.cudaStreamEndCapture(stream, Some(&mut graph))?;
            r.cudaGraphGetNodes(graph, 0, Some(&mut nodes))?;
            r.cudaGraphInstantiate(Some(&mut exec), graph, 0)?;
            Ok(format!("{nodes}, {}", code(r.cudaGraphLaunch(exec, stream))))
        },
    },
    Experiment {
        id: Id(7, 14, 45),
        did: "destroy a graph that is instantiated, then launch the instance: what it stores",
        run: |r| {
            let (stream, block) = (r.stream()?, r.zeros(BYTES)?);
            r.cudaStreamBeginCapture(stream, GLOBAL)?;
            r.cudaMemsetAsync(block, 3, BYTES, stream)?;
            let (mut graph, mut exec) = (0, 0);
            r.cudaStreamEndCapture(stream, Some(&mut graph))?;
            r.cudaGraphInstantiate(Some(&mut exec), graph, 0)?;
            r.cudaGraphDestroy(graph)?;
            let launched = code(r.cudaGraphLaunch(exec, stream));
            r.cudaStreamSynchronize(stream)?;
            Ok(format!("{launched}, {}", r.bytes_at(block, 1)?[0]))
        },
    },
    Experiment {
        id: Id(7, 14, 46),
        did: "destroy a stream whose capture has begun, and then allocate",
        run: |r| {
            let stream = r.stream()?;
            r.cudaStreamBeginCapture(stream, GLOBAL)?;
            Ok(format!("{}, {}", code(r.cudaStreamDestroy(stream)), code(r.malloc(BYTES))))
        },
    },
    Experiment {
        id: Id(7, 14, 47),
        did: "begin a capture in a mode that does not exist",
        run: |r| Ok(code(r.cudaStreamBeginCapture(r.stream()?, 7))),
    },
];

/// Makes a call during a global capture of a non-blocking stream. Says its code, whether the capture goes on, and how
/// it ends.
fn during<T>(r: &Fixture, call: impl FnOnce(&Fixture, u64) -> Result<T, RuntimeError>) -> Answer {
    in_mode(r, r.non_blocking()?, GLOBAL, call)
}

/// The same, for any stream and mode.
fn in_mode<T>(
    r: &Fixture,
    stream: u64,
    mode: i32,
    call: impl FnOnce(&Fixture, u64) -> Result<T, RuntimeError>,
) -> Answer {
    r.cudaStreamBeginCapture(stream, mode)?;
    let called = code(call(r, stream));
    end_capture(r, stream, &called)
}

/// Ends a capture, and formats what became of it.
fn end_capture(r: &Fixture, stream: u64, called: &str) -> Answer {
    let (mut status, mut graph, mut nodes) = (9, 0, 0);
    let status = or_code(r.cudaStreamIsCapturing(stream, Some(&mut status)), |()| match status {
        0 => "none".to_owned(),
        1 => "active".to_owned(),
        2 => "invalidated".to_owned(),
        other => other.to_string(),
    });
    let ended = r.cudaStreamEndCapture(stream, Some(&mut graph));
    let counted = ended.and_then(|()| r.cudaGraphGetNodes(graph, 0, Some(&mut nodes)));
    Ok(format!("{called}; {status}; {}", or_code(counted, |()| format!("nodes: {nodes}"))))
}

/// Returns a kernel that has run.
fn loaded(r: &Fixture) -> Result<u64, RuntimeError> {
    let empty = r.kernel(c"empty")?;
    r.launch(empty, 0, &[])?;
    r.cudaDeviceSynchronize()?;
    Ok(empty)
}

extern "C" fn nothing(_: u64) {}

extern "C" fn no_callback(_: u64, _: u32, _: u64) {}
