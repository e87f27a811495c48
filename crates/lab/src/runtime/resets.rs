//! Experiments on what a reset of the device ends, and what survives it (7.7).

use freehold_driver::cuda::{CUcontext, context, ctx_flags, primary};

use super::fixture::{BYTES, Fixture, MIB, code, or_code};
use crate::answer_text::{self, choose};
use crate::experiment::Experiment;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 7, 1),
        did: "reset the device, as the first call, and again",
        run: |r| Ok(format!("{}, {}", code(r.cudaDeviceReset()), code(r.cudaDeviceReset()))),
    },
    Experiment {
        id: Id(7, 7, 2),
        did: "reset the device, then free a block from before",
        run: |r| {
            let block = r.malloc(BYTES)?;
            r.cudaDeviceReset()?;
            Ok(code(r.cudaFree(block)))
        },
    },
    Experiment {
        id: Id(7, 7, 3),
        did: "reset the device, then free pinned memory from before",
        run: |r| {
            let block = r.pinned(BYTES)?;
            r.cudaDeviceReset()?;
            Ok(code(r.cudaFreeHost(block)))
        },
    },
    Experiment {
        id: Id(7, 7, 4),
        did: "reset the device, then register host memory again that was registered before",
        run: |r| {
            let host = r.pageable(BYTES);
            r.cudaHostRegister(host, BYTES, 0)?;
            r.cudaDeviceReset()?;
            Ok(code(r.cudaHostRegister(host, BYTES, 0)))
        },
    },
    Experiment {
        id: Id(7, 7, 5),
        did: "reset the device, then query and destroy a stream from before",
        run: |r| {
            let stream = r.stream()?;
            r.cudaDeviceReset()?;
            Ok(format!("{}, {}", code(r.cudaStreamQuery(stream)), code(r.cudaStreamDestroy(stream))))
        },
    },
    Experiment {
        id: Id(7, 7, 6),
        did: "reset the device, then query and destroy an event from before",
        run: |r| {
            let event = r.event(0)?;
            r.cudaDeviceReset()?;
            Ok(format!("{}, {}", code(r.cudaEventQuery(event)), code(r.cudaEventDestroy(event))))
        },
    },
    Experiment {
        id: Id(7, 7, 7),
        did: "reset the device, then launch a kernel of a library from before",
        run: |r| {
            let empty = r.kernel(c"empty")?;
            r.launch(empty, 0, &[])?;
            r.cudaDeviceReset()?;
            Ok(format!("{}, {}", code(r.launch(empty, 0, &[])), code(r.cudaDeviceSynchronize())))
        },
    },
    Experiment {
        id: Id(7, 7, 8),
        did: "reset the device, then get another kernel of a library from before",
        run: |r| {
            let library = r.library(crate::kernels::KERNELS)?;
            r.init()?;
            r.cudaDeviceReset()?;
            Ok(code(r.kernel_of(library, c"empty")))
        },
    },
    Experiment {
        id: Id(7, 7, 9),
        did: "reset the device: does a context exist then, and is one current",
        run: |r| {
            r.init()?;
            r.cudaDeviceReset()?;
            let exists = primary::state(&r.driver, r.driver_device()?)?.active;
            let current = r.current()? != CUcontext::NULL;
            Ok(format!("{}, {}", choose(exists, "exists", "does not exist"), choose(current, "current", "not current")))
        },
    },
    Experiment {
        id: Id(7, 7, 10),
        did: "reset the device: ask for the device, its flags from before, and allocate",
        run: |r| {
            r.cudaSetDeviceFlags(4)?;
            r.init()?;
            r.cudaDeviceReset()?;
            let (mut device, mut flags) = (-9, 0);
            let device = or_code(r.cudaGetDevice(Some(&mut device)), |()| format!("device {device}"));
            let flags = or_code(r.cudaGetDeviceFlags(Some(&mut flags)), |()| format!("flags {flags:#x}"));
            Ok(format!("{device}, {flags}, {}", code(r.malloc(BYTES))))
        },
    },
    Experiment {
        id: Id(7, 7, 11),
        did: "allocate 256 MiB and reset the device: is the memory free again",
        run: |r| {
            r.init()?;
            r.cudaDeviceReset()?;
            let before = r.free_bytes()?;
            r.malloc(256 * MIB)?;
            r.cudaDeviceReset()?;
            let lost = before.saturating_sub(r.free_bytes()?);
            Ok(choose(lost < 128 * MIB, "free again", "still in use"))
        },
    },
    Experiment {
        id: Id(7, 7, 12),
        did: "a thread has used the device; another one resets it: the first allocates",
        run: |r| {
            r.malloc(BYTES)?;
            let reset = r.in_thread(|| code(r.cudaDeviceReset()));
            Ok(format!("{reset}, {}", code(r.malloc(BYTES))))
        },
    },
    Experiment {
        id: Id(7, 7, 13),
        did: "a context of cuCtxCreate is current: reset the device, then synchronize that context",
        run: |r| {
            let made = context::create(&r.driver, r.driver_device()?, ctx_flags::SCHED_AUTO)?;
            let reset = code(r.cudaDeviceReset());
            Ok(format!("{reset}, {}", answer_text::code(context::synchronize_other(&r.driver, made))))
        },
    },
    Experiment {
        id: Id(7, 7, 14),
        did: "set a limit, reset the device: is the limit the default again",
        run: |r| {
            let stack = || context::limit(&r.driver, freehold_driver::cuda::CUlimit::STACK_SIZE);
            r.init()?;
            let before = stack()?;
            r.cudaDeviceSetLimit(0, 8192)?;
            r.cudaDeviceReset()?;
            r.init()?;
            Ok(choose(stack()? == before, "the default", "as it was set"))
        },
    },
];
