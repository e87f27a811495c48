//! Experiments on two copies of the runtime in one process, such as a static and a shared one (7.9).

use std::io;

use freehold_driver::cuda::CUcontext;

use super::fixture::{BYTES, DISABLE_TIMING, Fixture, code, or_code};
use crate::answer_text::choose;
use crate::experiment::Experiment;
use crate::failure::Failure;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 9, 1),
        did: "both copies make a first call: do they have one context",
        run: |r| {
            let other = second(r)?;
            r.init()?;
            let first = r.current()?;
            other.init()?;
            Ok(choose(first != CUcontext::NULL && first == r.current()?, "one", "two"))
        },
    },
    Experiment {
        id: Id(7, 9, 2),
        did: "one copy allocates, the other one frees, and frees again",
        run: |r| {
            let other = second(r)?;
            let block = r.malloc(BYTES)?;
            Ok(format!("{}, {}", code(other.cudaFree(block)), code(other.cudaFree(block))))
        },
    },
    Experiment {
        id: Id(7, 9, 3),
        did: "one copy allocates pinned memory, the other one frees it",
        run: |r| {
            let other = second(r)?;
            Ok(code(other.cudaFreeHost(r.pinned(BYTES)?)))
        },
    },
    Experiment {
        id: Id(7, 9, 4),
        did: "one copy allocates in a stream, the other one frees in a stream of its own",
        run: |r| {
            let other = second(r)?;
            let block = r.malloc_async(BYTES, 0)?;
            Ok(code(other.cudaFreeAsync(block, other.stream()?)))
        },
    },
    Experiment {
        id: Id(7, 9, 5),
        did: "one copy creates a stream, the other one launches in it and destroys it",
        run: |r| {
            let other = second(r)?;
            let stream = r.stream()?;
            let launched = code(other.launch(other.kernel(c"empty")?, stream, &[]));
            Ok(format!("{launched}, {}", code(other.cudaStreamDestroy(stream))))
        },
    },
    Experiment {
        id: Id(7, 9, 6),
        did: "one copy records an event, the other one waits for it",
        run: |r| {
            let other = second(r)?;
            let event = r.event(DISABLE_TIMING)?;
            r.cudaEventRecord(event, 0)?;
            Ok(format!("{}, {}", code(other.cudaStreamWaitEvent(0, event, 0)), code(other.cudaEventSynchronize(event))))
        },
    },
    Experiment {
        id: Id(7, 9, 7),
        did: "a call of one copy fails: the last errors of both",
        run: |r| {
            let other = second(r)?;
            let failed = code(r.cudaMalloc(None, BYTES));
            Ok(format!("{failed}; {}, {}", code(other.cudaGetLastError()), code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 9, 8),
        did: "one copy loads a library, the other one gets and launches a kernel of it",
        run: |r| {
            let other = second(r)?;
            let library = r.library(crate::kernels::KERNELS)?;
            let kernel = other.kernel_of(library, c"empty");
            let found = code(kernel.clone());
            Ok(format!("{found}, {}", kernel.map_or_else(|_| "none".to_owned(), |it| code(other.launch(it, 0, &[])))))
        },
    },
    Experiment {
        id: Id(7, 9, 9),
        did: "one copy gets a kernel, the other one launches it",
        run: |r| {
            let other = second(r)?;
            other.init()?;
            Ok(code(other.launch(r.kernel(c"empty")?, 0, &[])))
        },
    },
    Experiment {
        id: Id(7, 9, 10),
        did: "one copy resets the device: the other one, which had used it, allocates",
        run: |r| {
            let other = second(r)?;
            other.malloc(BYTES)?;
            r.init()?;
            let reset = code(r.cudaDeviceReset());
            Ok(format!("{reset}, {}", code(other.malloc(BYTES))))
        },
    },
    Experiment {
        id: Id(7, 9, 11),
        did: "one copy begins a capture, the other one launches in the stream and ends it: how many nodes",
        run: |r| {
            let other = second(r)?;
            let (stream, kernel) = (r.stream()?, other.kernel(c"empty")?);
            other.launch(kernel, stream, &[])?;
            r.cudaStreamBeginCapture(stream, 0)?;
            other.launch(kernel, stream, &[])?;
            let (mut graph, mut nodes) = (0, 0);
            let ended = other.cudaStreamEndCapture(stream, Some(&mut graph));
            let counted = ended.and_then(|()| other.cudaGraphGetNodes(graph, 0, Some(&mut nodes)));
            Ok(or_code(counted, |()| nodes.to_string()))
        },
    },
    Experiment {
        id: Id(7, 9, 12),
        did: "after a fault in one copy: what the other one says, and its last error",
        run: |r| {
            let other = second(r)?;
            other.init()?;
            r.fault()?;
            Ok(format!("{}; {}", code(other.malloc(BYTES)), code(other.cudaGetLastError())))
        },
    },
];

/// Loads a copy of the runtime's file: the dynamic linker takes another file for another library.
fn second(r: &Fixture) -> Result<Fixture, Failure> {
    let folder = std::env::temp_dir().join(format!("freehold-lab-{}", std::process::id()));
    let file = folder.join("libcudart-copy.so");
    let copy = || -> io::Result<()> {
        std::fs::create_dir(&folder)?;
        let original = r.file().ok_or(io::ErrorKind::NotFound)?;
        std::fs::copy(original, &file).map(drop)
    };
    let made = copy().map_err(Failure::System);
    let opened = made.and_then(|()| Fixture::open(&file).map_err(|error| Failure::System(io::Error::other(error))));
    std::fs::remove_dir_all(&folder)?;
    opened
}
