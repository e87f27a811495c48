//! Experiments on the last error of a thread: what sets it, what forgets it, who sees it (7.5).

use freehold_driver::cuda::memory;

use super::fixture::{BYTES, Fixture, code, device_address};
use super::functions::Dim3;
use super::spin::Spin;
use crate::answer_text;
use crate::experiment::Experiment;
use crate::id::Id;

/// More than any device has.
const TOO_MANY_BYTES: usize = 1 << 46;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 5, 1),
        did: "peek at the last error and get it, as the first calls",
        run: |r| Ok(format!("{}, {}", code(r.cudaPeekAtLastError()), code(r.cudaGetLastError()))),
    },
    Experiment {
        id: Id(7, 5, 2),
        did: "a call fails: peek twice, get twice",
        run: |r| {
            fail(r);
            let peeks = format!("{}, {}", code(r.cudaPeekAtLastError()), code(r.cudaPeekAtLastError()));
            Ok(format!("{peeks}; {}, {}", code(r.cudaGetLastError()), code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 5, 3),
        did: "a call fails, the next one succeeds: get the last error",
        run: |r| {
            fail(r);
            r.malloc(BYTES)?;
            Ok(code(r.cudaGetLastError()))
        },
    },
    Experiment {
        id: Id(7, 5, 4),
        did: "two calls fail, with different codes: get the last error",
        run: |r| {
            fail(r);
            let second = code(r.cudaSetDevice(99));
            Ok(format!("{second}; {}", code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 5, 5),
        did: "query a stream in which a kernel runs: is that the last error",
        run: |r| {
            let stream = r.stream()?;
            let _spin = Spin::running(r, stream)?;
            Ok(format!("{}; {}", code(r.cudaStreamQuery(stream)), code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 5, 6),
        did: "query an event behind a kernel that runs: is that the last error",
        run: |r| {
            let (stream, event) = (r.stream()?, r.event(0)?);
            let _spin = Spin::running(r, stream)?;
            r.cudaEventRecord(event, stream)?;
            Ok(format!("{}; {}", code(r.cudaEventQuery(event)), code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 5, 7),
        did: "a call of another thread fails: get the last error here",
        run: |r| {
            r.init()?;
            r.in_thread(|| fail(r));
            Ok(code(r.cudaGetLastError()))
        },
    },
    Experiment {
        id: Id(7, 5, 8),
        did: "a call fails: get the last error in another thread, then here",
        run: |r| {
            fail(r);
            let there = r.in_thread(|| code(r.cudaGetLastError()));
            Ok(format!("{there}; {}", code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 5, 9),
        did: "a launch with 1025 threads: its code, the last error, and then the device's",
        run: |r| {
            let empty = r.kernel(c"empty")?;
            let launched = code(r.launch_shaped(empty, (Dim3(1, 1, 1), Dim3(1025, 1, 1), 0), 0, &[]));
            Ok(format!("{launched}; {}; {}", code(r.cudaGetLastError()), code(r.cudaDeviceSynchronize())))
        },
    },
    Experiment {
        id: Id(7, 5, 10),
        did: "a call of the driver fails: get the last error of the runtime",
        run: |r| {
            r.init()?;
            let freed = answer_text::code(memory::free(&r.driver, device_address(0x10)));
            Ok(format!("{freed}; {}", code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 5, 11),
        did: "allocate more than the device has, then allocate again: codes and the last error",
        run: |r| {
            let much = code(r.malloc(TOO_MANY_BYTES));
            Ok(format!("{much}, {}; {}", code(r.malloc(BYTES)), code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 5, 12),
        did: "allocate more than the device has in a stream, then allocate again: codes and the last error",
        run: |r| {
            let much = code(r.malloc_async(TOO_MANY_BYTES, 0));
            Ok(format!("{much}, {}; {}", code(r.malloc_async(BYTES, 0)), code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 5, 13),
        did: "a call fails, then a stream in which a kernel runs is queried: get the last error",
        run: |r| {
            let stream = r.stream()?;
            let _spin = Spin::running(r, stream)?;
            fail(r);
            Ok(format!("{}; {}", code(r.cudaStreamQuery(stream)), code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 5, 14),
        did: "a call fails, then cudaDeviceReset: get the last error",
        run: |r| {
            fail(r);
            let reset = code(r.cudaDeviceReset());
            Ok(format!("{reset}; {}", code(r.cudaGetLastError())))
        },
    },
    Experiment { id: Id(7, 5, 15), did: "the name of a code that does not exist", run: |r| Ok(r.error_name(12_345)) },
    Experiment {
        id: Id(7, 5, 16),
        did: "a call fails, then cudaDeviceSynchronize: its code, and the last error",
        run: |r| {
            fail(r);
            Ok(format!("{}; {}", code(r.cudaDeviceSynchronize()), code(r.cudaGetLastError())))
        },
    },
];

/// Makes a call that fails and that has no other effect.
fn fail(r: &Fixture) {
    let outcome = r.cudaMalloc(None, BYTES);
    assert!(outcome.is_err(), "memory was allocated without a place for its address");
}
