//! Experiments on the runtime and the driver API in one process (7.8).

use freehold_driver::cuda::{
    CUcontext, CUevent, CUstream, CUstreamCaptureMode, capture, context, ctx_flags, event, host, memory, pointer,
    primary, stream,
};

use super::fixture::{BYTES, Fixture, code, device_address, or_code};
use super::functions::{PointerAttributes, RuntimeError};
use crate::answer_text::{self, choose};
use crate::experiment::{Answer, Experiment};
use crate::failure::Failure;
use crate::id::Id;
use crate::kernels::KERNELS;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 8, 1),
        did: "after a first call of the runtime: is its context the primary one",
        run: |r| {
            r.init()?;
            is_primary(r)
        },
    },
    Experiment {
        id: Id(7, 8, 2),
        did: "retain the primary context but make none current, then allocate: which is current",
        run: |r| {
            primary::retain(&r.driver, r.driver_device()?)?;
            let before = choose(r.current()? == CUcontext::NULL, "none", "one");
            r.malloc(BYTES)?;
            Ok(format!("{before}, then {}", is_primary(r)?))
        },
    },
    Experiment {
        id: Id(7, 8, 3),
        did: "free with cudaFree what cuMemAlloc has returned",
        run: |r| {
            r.init()?;
            let block = memory::alloc(&r.driver, BYTES)?;
            Ok(code(r.cudaFree(block.0)))
        },
    },
    Experiment {
        id: Id(7, 8, 4),
        did: "free with cuMemFree what cudaMalloc has returned, then with cudaFree",
        run: |r| {
            let block = r.malloc(BYTES)?;
            let freed = answer_text::code(memory::free(&r.driver, device_address(block)));
            Ok(format!("{freed}, {}", code(r.cudaFree(block))))
        },
    },
    Experiment {
        id: Id(7, 8, 5),
        did: "free with cudaFreeHost what cuMemAllocHost has returned",
        run: |r| {
            r.init()?;
            Ok(code(r.cudaFreeHost(host::alloc(&r.driver, BYTES)? as u64)))
        },
    },
    Experiment {
        id: Id(7, 8, 6),
        did: "free with cuMemFree what cudaMallocManaged has returned",
        run: |r| {
            let block = r.managed(BYTES)?;
            Ok(answer_text::code(memory::free(&r.driver, device_address(block))))
        },
    },
    Experiment {
        id: Id(7, 8, 7),
        did: "query and destroy with the driver a stream of the runtime",
        run: |r| {
            let made = CUstream(r.stream()? as usize);
            let asked = answer_text::ready(stream::query(&r.driver, made));
            Ok(format!("{asked}, {}", answer_text::code(stream::destroy(&r.driver, made))))
        },
    },
    Experiment {
        id: Id(7, 8, 8),
        did: "query and destroy with the runtime a stream of the driver",
        run: |r| {
            r.init()?;
            let made = stream::create(&r.driver, 0)?.0 as u64;
            Ok(format!("{}, {}", code(r.cudaStreamQuery(made)), code(r.cudaStreamDestroy(made))))
        },
    },
    Experiment {
        id: Id(7, 8, 9),
        did: "record with the driver an event of the runtime in a stream of the runtime, and wait for it there",
        run: |r| {
            let (made, at) = (CUevent(r.event(0)? as usize), CUstream(r.stream()? as usize));
            let recorded = answer_text::code(event::record(&r.driver, made, at));
            Ok(format!("{recorded}, {}", code(r.cudaEventSynchronize(made.0 as u64))))
        },
    },
    Experiment {
        id: Id(7, 8, 10),
        did: "begin a capture with the driver: ask the runtime about it, and end it there",
        run: |r| {
            let made = r.stream()?;
            capture::begin(&r.driver, CUstream(made as usize), CUstreamCaptureMode::GLOBAL)?;
            let mut status = 9;
            r.cudaStreamIsCapturing(made, Some(&mut status))?;
            Ok(format!("status {status}, {}", code(r.cudaStreamEndCapture(made, Some(&mut 0)))))
        },
    },
    Experiment {
        id: Id(7, 8, 11),
        did: "a context of cuCtxCreate is current: which context a block of cudaMalloc belongs to",
        run: |r| {
            let made = context::create(&r.driver, r.driver_device()?, ctx_flags::SCHED_AUTO)?;
            let block = r.malloc(BYTES)?;
            let owner = pointer::context(&r.driver, device_address(block))?;
            Ok(choose(owner == made, "the current one", "another one"))
        },
    },
    Experiment {
        id: Id(7, 8, 12),
        did: "a context of cuCtxCreate is current: set the device, and see which is current",
        run: |r| {
            let made = context::create(&r.driver, r.driver_device()?, ctx_flags::SCHED_AUTO)?;
            let set = code(r.cudaSetDevice(0));
            Ok(format!("{set}, {}", choose(r.current()? == made, "the same", &is_primary(r)?)))
        },
    },
    Experiment {
        id: Id(7, 8, 13),
        did: "a context of cuCtxCreate is current: ask for the device, and synchronize it",
        run: |r| {
            context::create(&r.driver, r.driver_device()?, ctx_flags::SCHED_AUTO)?;
            let mut device = -9;
            let asked = or_code(r.cudaGetDevice(Some(&mut device)), |()| format!("device {device}"));
            Ok(format!("{asked}, {}", code(r.cudaDeviceSynchronize())))
        },
    },
    Experiment {
        id: Id(7, 8, 14),
        did: "a context of cuCtxCreate is current: launch a kernel that ran in the primary one",
        run: |r| {
            let empty = r.kernel(c"empty")?;
            r.launch(empty, 0, &[])?;
            context::create(&r.driver, r.driver_device()?, ctx_flags::SCHED_AUTO)?;
            Ok(format!("{}, {}", code(r.launch(empty, 0, &[])), code(r.cudaDeviceSynchronize())))
        },
    },
    Experiment {
        id: Id(7, 8, 15),
        did: "a context of cuCtxCreate is current: launch in a stream of the primary one",
        run: |r| {
            let (empty, at) = (r.kernel(c"empty")?, r.stream()?);
            r.launch(empty, at, &[])?;
            context::create(&r.driver, r.driver_device()?, ctx_flags::SCHED_AUTO)?;
            Ok(code(r.launch(empty, at, &[])))
        },
    },
    Experiment {
        id: Id(7, 8, 16),
        did: "a context of cuCtxCreate is current: free a block of the primary one",
        run: |r| {
            let block = r.malloc(BYTES)?;
            context::create(&r.driver, r.driver_device()?, ctx_flags::SCHED_AUTO)?;
            Ok(code(r.cudaFree(block)))
        },
    },
    Experiment {
        id: Id(7, 8, 17),
        did: "destroy the current context of cuCtxCreate, then allocate: which context is current",
        run: |r| {
            let made = context::create(&r.driver, r.driver_device()?, ctx_flags::SCHED_AUTO)?;
            r.malloc(BYTES)?;
            context::destroy(&r.driver, made)?;
            Ok(format!("{}, {}", code(r.malloc(BYTES)), is_primary(r)?))
        },
    },
    Experiment {
        id: Id(7, 8, 18),
        did: "make no context current, then allocate: which context is current",
        run: |r| {
            r.init()?;
            context::set_current(&r.driver, CUcontext::NULL)?;
            Ok(format!("{}, {}", code(r.malloc(BYTES)), is_primary(r)?))
        },
    },
    Experiment {
        id: Id(7, 8, 19),
        did: "make no context current, then launch, query a stream, and record an event of before",
        run: |r| {
            let (empty, at, made) = (r.kernel(c"empty")?, r.stream()?, r.event(0)?);
            r.launch(empty, at, &[])?;
            let lost = |call: &dyn Fn() -> Result<(), RuntimeError>| -> Answer {
                context::set_current(&r.driver, CUcontext::NULL)?;
                Ok(code(call()))
            };
            let launched = lost(&|| r.launch(empty, at, &[]))?;
            let queried = lost(&|| r.cudaStreamSynchronize(at))?;
            Ok(format!("{launched}, {queried}, {}", lost(&|| r.cudaEventRecord(made, at))?))
        },
    },
    Experiment {
        id: Id(7, 8, 20),
        did: "make no context current, then ask for the last error and the device: is a context current",
        run: |r| {
            r.init()?;
            context::set_current(&r.driver, CUcontext::NULL)?;
            let last = code(r.cudaGetLastError());
            let device = code(r.cudaGetDevice(Some(&mut 0)));
            Ok(format!("{last}, {device}, {}", choose(r.current()? == CUcontext::NULL, "none", "one")))
        },
    },
    Experiment {
        id: Id(7, 8, 21),
        did: "another thread: is a context current before and after its first allocation",
        run: |r| {
            r.init()?;
            r.in_thread(|| -> Answer {
                let before = choose(r.current()? == CUcontext::NULL, "none", "one");
                r.malloc(BYTES)?;
                Ok(format!("{before}, then {}", is_primary(r)?))
            })
        },
    },
    Experiment {
        id: Id(7, 8, 22),
        did: "reset the primary context with the driver, then allocate with the runtime",
        run: |r| {
            r.init()?;
            primary::reset(&r.driver, r.driver_device()?)?;
            Ok(code(r.malloc(BYTES)))
        },
    },
    Experiment {
        id: Id(7, 8, 23),
        did: "release with the driver the primary context that the runtime has retained, then allocate",
        run: |r| {
            r.init()?;
            let released = answer_text::code(primary::release(&r.driver, r.driver_device()?));
            let exists = primary::state(&r.driver, r.driver_device()?)?.active;
            Ok(format!("{released}, {}, {}", choose(exists, "active", "not active"), code(r.malloc(BYTES))))
        },
    },
    Experiment {
        id: Id(7, 8, 24),
        did: "the attributes of memory of cuMemAlloc",
        run: |r| {
            r.init()?;
            let block = memory::alloc(&r.driver, BYTES)?.0;
            let mut found = PointerAttributes::default();
            let asked = r.cudaPointerGetAttributes(Some(&mut found), block);
            Ok(or_code(asked, |()| format!("type {}, device {}", found.kind, found.device)))
        },
    },
    Experiment {
        id: Id(7, 8, 25),
        did: "the attributes in the primary context of memory of another context",
        run: |r| {
            let made = context::create(&r.driver, r.driver_device()?, ctx_flags::SCHED_AUTO)?;
            let block = memory::alloc(&r.driver, BYTES)?.0;
            context::pop_current(&r.driver)?;
            r.init()?;
            let mut found = PointerAttributes::default();
            let asked = r.cudaPointerGetAttributes(Some(&mut found), block);
            let said = or_code(asked, |()| format!("type {}, device {}", found.kind, found.device));
            context::destroy(&r.driver, made)?;
            Ok(said)
        },
    },
    Experiment {
        id: Id(7, 8, 26),
        did: "ask the runtime for the driver's cuMemAlloc, and for a function that does not exist",
        run: |r| {
            let [known, unknown] = [c"cuMemAlloc", c"cuNoSuchCall"].map(|name| {
                let (mut function, mut status) = (0, 9);
                let outcome = r.cudaGetDriverEntryPointByVersion(
                    name.as_ptr(),
                    Some(&mut function),
                    13_000,
                    0,
                    Some(&mut status),
                );
                let found = choose(function == 0, "null", "found");
                format!("{} {found} {status}", code(outcome))
            });
            Ok(format!("{known}; {unknown}"))
        },
    },
    Experiment {
        id: Id(7, 8, 27),
        did: "launch with cudaLaunchKernel a kernel that the driver has loaded as a library",
        run: |r| {
            r.init()?;
            let kernel = driver_kernel(r)?;
            Ok(format!("{}, {}", code(r.launch(kernel, 0, &[])), code(r.cudaDeviceSynchronize())))
        },
    },
    Experiment {
        id: Id(7, 8, 28),
        did: "set flags with cudaSetDeviceFlags, before anything: the flags of the driver's primary context",
        run: |r| {
            r.cudaSetDeviceFlags(4)?;
            let state = primary::state(&r.driver, r.driver_device()?)?;
            Ok(format!("flags {:#x}, {}", state.flags, choose(state.active, "active", "not active")))
        },
    },
];

/// Says whether the primary context is current.
fn is_primary(r: &Fixture) -> Answer {
    let current = r.current()?;
    let primary = primary::retain(&r.driver, r.driver_device()?)?;
    primary::release(&r.driver, r.driver_device()?)?;
    let other = choose(current == CUcontext::NULL, "none", "another one");
    Ok(choose(current == primary, "the primary one", &other))
}

/// Loads a library with the driver, and returns a kernel of it.
fn driver_kernel(r: &Fixture) -> Result<u64, Failure> {
    use freehold_driver::cuda::{library, module::Options};
    // SAFETY: the text ends in a NUL.
    let loaded = unsafe { library::load(&r.driver, KERNELS.as_ptr().cast(), &mut Options::new()) }?;
    Ok(library::kernel(&r.driver, loaded, c"empty")?.0 as u64)
}
