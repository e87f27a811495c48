//! Experiments on what a fault of a kernel ends, and what a reset of the device repairs (7.6).

use std::thread;
use std::time::Duration;

use freehold_driver::cuda::context;

use super::fixture::{BYTES, Fixture, HOST_TO_HOST, TO_DEVICE, TO_HOST, code};
use super::functions::PointerAttributes;
use crate::answer_text;
use crate::experiment::{Answer, Experiment};
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 6, 1),
        did: "a kernel writes to no memory: the codes of its launch and of two synchronizations",
        run: |r| {
            let store = r.faulty_kernel(c"store")?;
            let launched = code(r.launch(store, 0, &[0x10, 1]));
            Ok(format!("{launched}; {}, {}", code(r.cudaDeviceSynchronize()), code(r.cudaDeviceSynchronize())))
        },
    },
    Experiment {
        id: Id(7, 6, 2),
        did: "a kernel writes to no memory, the device is synchronized: get the last error twice",
        run: |r| {
            let store = r.faulty_kernel(c"store")?;
            r.launch(store, 0, &[0x10, 1])?;
            let done = code(r.cudaDeviceSynchronize());
            Ok(format!("{done}; {}, {}", code(r.cudaGetLastError()), code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 6, 3),
        did: "a kernel writes to no memory: query its stream until it has ended, then peek",
        run: |r| {
            let store = r.faulty_kernel(c"store")?;
            r.launch(store, 0, &[0x10, 1])?;
            let mut ended = code(r.cudaStreamQuery(0));
            while ended == "cudaErrorNotReady" {
                thread::sleep(Duration::from_millis(1));
                ended = code(r.cudaStreamQuery(0));
            }
            Ok(format!("{ended}; {}", code(r.cudaPeekAtLastError())))
        },
    },
    Experiment {
        id: Id(7, 6, 4),
        did: "a kernel traps: what cudaDeviceSynchronize says",
        run: |r| ended_with(r, c"traps", &[]),
    },
    Experiment {
        id: Id(7, 6, 5),
        did: "a kernel writes to an address that is not aligned: what cudaDeviceSynchronize says",
        run: |r| ended_with(r, c"store", &[r.malloc(BYTES)? + 1, 1]),
    },
    Experiment {
        id: Id(7, 6, 6),
        did: "after a fault: allocate, free null, and ask for free memory",
        run: |r| {
            r.fault()?;
            Ok(format!("{}, {}, {}", code(r.malloc(BYTES)), code(r.cudaFree(0)), code(r.free_bytes())))
        },
    },
    Experiment {
        id: Id(7, 6, 7),
        did: "after a fault: free a block that was allocated before",
        run: |r| {
            let block = r.malloc(BYTES)?;
            r.fault()?;
            Ok(code(r.cudaFree(block)))
        },
    },
    Experiment {
        id: Id(7, 6, 8),
        did: "after a fault: ask for the device, the number of devices, and an attribute",
        run: |r| {
            r.fault()?;
            let device = code(r.cudaGetDevice(Some(&mut 0)));
            let attribute = code(r.cudaDeviceGetAttribute(Some(&mut 0), 10, 0));
            Ok(format!("{device}, {}, {attribute}", code(r.device_count())))
        },
    },
    Experiment {
        id: Id(7, 6, 9),
        did: "after a fault: set the device, and ask for the versions of runtime and driver",
        run: |r| {
            r.fault()?;
            let set = code(r.cudaSetDevice(0));
            let runtime = code(r.cudaRuntimeGetVersion(Some(&mut 0)));
            Ok(format!("{set}, {runtime}, {}", code(r.cudaDriverGetVersion(Some(&mut 0)))))
        },
    },
    Experiment {
        id: Id(7, 6, 10),
        did: "after a fault: query an event from before it, and destroy it",
        run: |r| {
            let event = r.event(0)?;
            r.cudaEventRecord(event, 0)?;
            r.fault()?;
            Ok(format!("{}, {}", code(r.cudaEventQuery(event)), code(r.cudaEventDestroy(event))))
        },
    },
    Experiment {
        id: Id(7, 6, 11),
        did: "after a fault: query another stream, and destroy it",
        run: |r| {
            let stream = r.stream()?;
            r.fault()?;
            Ok(format!("{}, {}", code(r.cudaStreamQuery(stream)), code(r.cudaStreamDestroy(stream))))
        },
    },
    Experiment {
        id: Id(7, 6, 12),
        did: "after a fault: create a stream, and an event",
        run: |r| {
            r.fault()?;
            Ok(format!("{}, {}", code(r.stream()), code(r.event(0))))
        },
    },
    Experiment {
        id: Id(7, 6, 13),
        did: "after a fault: allocate pinned memory, and free some from before",
        run: |r| {
            let before = r.pinned(BYTES)?;
            r.fault()?;
            Ok(format!("{}, {}", code(r.pinned(BYTES)), code(r.cudaFreeHost(before))))
        },
    },
    Experiment {
        id: Id(7, 6, 14),
        did: "after a fault: copy to the device, from it, and between host memory",
        run: |r| {
            let (block, host, other) = (r.malloc(BYTES)?, r.pageable(BYTES), r.pageable(BYTES));
            r.fault()?;
            let to = code(r.cudaMemcpy(block, host, BYTES, TO_DEVICE));
            let from = code(r.cudaMemcpy(host, block, BYTES, TO_HOST));
            Ok(format!("{to}, {from}, {}", code(r.cudaMemcpy(other, host, BYTES, HOST_TO_HOST))))
        },
    },
    Experiment {
        id: Id(7, 6, 15),
        did: "after a fault: ask for the attributes of a block, register host memory",
        run: |r| {
            let (block, host) = (r.malloc(BYTES)?, r.pageable(BYTES));
            r.fault()?;
            let asked = code(r.cudaPointerGetAttributes(Some(&mut PointerAttributes::default()), block));
            Ok(format!("{asked}, {}", code(r.cudaHostRegister(host, BYTES, 0))))
        },
    },
    Experiment {
        id: Id(7, 6, 16),
        did: "after a fault: launch a kernel, and load a library",
        run: |r| {
            let empty = r.kernel(c"empty")?;
            r.fault()?;
            Ok(format!("{}, {}", code(r.launch(empty, 0, &[])), code(r.kernel(c"empty"))))
        },
    },
    Experiment {
        id: Id(7, 6, 17),
        did: "after a fault: what another thread's last error is, and its next call",
        run: |r| {
            r.fault()?;
            Ok(r.in_thread(|| format!("{}; {}", code(r.cudaGetLastError()), code(r.malloc(BYTES)))))
        },
    },
    Experiment {
        id: Id(7, 6, 18),
        did: "after a fault: synchronize the context through the driver",
        run: |r| {
            r.fault()?;
            Ok(answer_text::code(context::synchronize(&r.driver)))
        },
    },
    Experiment {
        id: Id(7, 6, 19),
        did: "after a fault: reset the device, then allocate, and get the last error",
        run: |r| {
            r.fault()?;
            let reset = code(r.cudaDeviceReset());
            Ok(format!("{reset}, {}; {}", code(r.malloc(BYTES)), code(r.cudaGetLastError())))
        },
    },
    Experiment {
        id: Id(7, 6, 20),
        did: "after a fault: reset the device, then load and run a kernel",
        run: |r| {
            r.fault()?;
            let reset = code(r.cudaDeviceReset());
            let launched = code(r.kernel(c"empty").and_then(|empty| r.launch(empty, 0, &[])));
            Ok(format!("{reset}, {launched}, {}", code(r.cudaDeviceSynchronize())))
        },
    },
    Experiment {
        id: Id(7, 6, 21),
        did: "after a fault: reset the device twice, then allocate",
        run: |r| {
            r.fault()?;
            let (first, second) = (code(r.cudaDeviceReset()), code(r.cudaDeviceReset()));
            Ok(format!("{first}, {second}, {}", code(r.malloc(BYTES))))
        },
    },
];

/// Runs a kernel to its fault.
fn ended_with(r: &Fixture, name: &std::ffi::CStr, arguments: &[u64]) -> Answer {
    let kernel = r.faulty_kernel(name)?;
    r.launch(kernel, 0, arguments)?;
    Ok(code(r.cudaDeviceSynchronize()))
}
