//! Experiments after a kernel's fault: which calls still work in the process (question 5).

use std::ffi::CStr;
use std::thread;

use freehold_driver::cuda::{
    CUcontext, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute, CUlimit, CUmodule, CUpointer_attribute,
    CUstream, DriverError, context, copy, device, driver, event, event_flags, fill, function, memory, module,
    occupancy, pointer, primary, stream, stream_flags,
};

use super::faults::UNMAPPED;
use crate::answer_text::{code, ready};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::host_buffer::HostBuffer;
use crate::id::Id;
use crate::kernels::{DEFAULT, FAULTS, KERNELS, ONE, function, kernel, launch, load, zeros};
use crate::output_capture::OutputCapture;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(5, 1, 1),
        did: "a kernel faults: the launch, the synchronize, and the same synchronize again",
        run: |b| {
            b.init_context()?;
            let store = kernel(b, FAULTS, c"store")?;
            let launched = code(launch(b, store, ONE, DEFAULT, &[UNMAPPED, 1]));
            let waited = code(context::synchronize(b));
            Ok(format!("{launched}, {waited}, {}", code(context::synchronize(b))))
        },
    },
    Experiment {
        id: Id(5, 1, 2),
        did: "a kernel faults in a stream: what cuStreamSynchronize of it answers, and cuCtxSynchronize",
        run: |b| {
            b.init_context()?;
            let store = kernel(b, FAULTS, c"store")?;
            let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
            launch(b, store, ONE, stream, &[UNMAPPED, 1])?;
            let waited = code(stream::synchronize(b, stream));
            Ok(format!("{waited}, {}", code(context::synchronize(b))))
        },
    },
    Experiment {
        id: Id(5, 1, 3),
        did: "a kernel faults: what cuEventSynchronize of an event after it answers",
        run: |b| {
            b.init_context()?;
            let store = kernel(b, FAULTS, c"store")?;
            let event = event::create(b, event_flags::DISABLE_TIMING)?;
            launch(b, store, ONE, DEFAULT, &[UNMAPPED, 1])?;
            // The fault may already have been noticed.
            let recorded = event::record(b, event, DEFAULT);
            let waited = event::synchronize(b, event);
            Ok(code(recorded.and(waited)))
        },
    },
    Experiment {
        id: Id(5, 1, 4),
        did: "a kernel faults: what a copy to the host answers that is the first to wait",
        run: |b| {
            b.init_context()?;
            let store = kernel(b, FAULTS, c"store")?;
            let block = zeros(b)?;
            launch(b, store, ONE, DEFAULT, &[UNMAPPED, 1])?;
            Ok(code(b.copy_out(HostBuffer::pageable(4096), block)))
        },
    },
    Experiment {
        id: Id(5, 1, 5),
        did: "after a fault: cuMemAlloc",
        run: |b| after(b, |b, _| code(memory::alloc(b, 4096))),
    },
    Experiment {
        id: Id(5, 1, 6),
        did: "after a fault: cuMemFree",
        run: |b| after(b, |b, it| code(memory::free(b, it.block))),
    },
    Experiment { id: Id(5, 1, 7), did: "after a fault: cuMemGetInfo", run: |b| after(b, |b, _| code(memory::info(b))) },
    Experiment {
        id: Id(5, 1, 8),
        did: "after a fault: cuMemcpyHtoD, cuMemcpyDtoH, cuMemcpyDtoD",
        run: |b| {
            after(b, |b, it| {
                let host = HostBuffer::pageable(64);
                let (to, from) = (b.copy_in(it.block, host), b.copy_out(host, it.block));
                let within = copy::device_to_device(b, it.block, CUdeviceptr(it.block.0 + 1024), 64);
                format!("{}, {}, {}", code(to), code(from), code(within))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 9),
        did: "after a fault: cuMemsetD8",
        run: |b| after(b, |b, it| code(fill::d8(b, it.block, 1, 64))),
    },
    Experiment {
        id: Id(5, 1, 10),
        did: "after a fault: a launch",
        run: |b| after(b, |b, it| code(launch(b, it.function, ONE, DEFAULT, &[]))),
    },
    Experiment {
        id: Id(5, 1, 11),
        did: "after a fault: cuModuleLoadData",
        run: |b| after(b, |b, _| code(load(b, KERNELS))),
    },
    Experiment {
        id: Id(5, 1, 12),
        did: "after a fault: cuModuleUnload",
        run: |b| after(b, |b, it| code(module::unload(b, it.module))),
    },
    Experiment {
        id: Id(5, 1, 13),
        did: "after a fault: cuModuleGetFunction, cuModuleGetGlobal",
        run: |b| {
            after(b, |b, it| {
                let function = module::function(b, it.module, c"empty");
                format!("{}, {}", code(function), code(module::global(b, it.module, c"counter")))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 14),
        did: "after a fault: cuFuncGetAttribute, cuFuncGetName",
        run: |b| {
            after(b, |b, it| {
                let threads = function::attribute(b, it.function, CUfunction_attribute::MAX_THREADS_PER_BLOCK);
                format!("{}, {}", code(threads), code(function::name(b, it.function)))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 15),
        did: "after a fault: cuOccupancyMaxActiveBlocksPerMultiprocessor",
        run: |b| after(b, |b, it| code(occupancy::blocks(b, it.function, 32, 0))),
    },
    Experiment {
        id: Id(5, 1, 16),
        did: "after a fault: cuStreamCreate",
        run: |b| after(b, |b, _| code(stream::create(b, stream_flags::NON_BLOCKING))),
    },
    Experiment {
        id: Id(5, 1, 17),
        did: "after a fault: cuStreamQuery and cuStreamSynchronize of an idle stream",
        run: |b| {
            after(b, |b, it| {
                format!("{}, {}", ready(stream::query(b, it.stream)), code(stream::synchronize(b, it.stream)))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 18),
        did: "after a fault: cuStreamDestroy",
        run: |b| after(b, |b, it| code(stream::destroy(b, it.stream))),
    },
    Experiment {
        id: Id(5, 1, 19),
        did: "after a fault: cuEventCreate",
        run: |b| after(b, |b, _| code(event::create(b, event_flags::DISABLE_TIMING))),
    },
    Experiment {
        id: Id(5, 1, 20),
        did: "after a fault: cuEventQuery and cuEventSynchronize of an event that was reached before it",
        run: |b| {
            after(b, |b, it| format!("{}, {}", ready(event::query(b, it.event)), code(event::synchronize(b, it.event))))
        },
    },
    Experiment {
        id: Id(5, 1, 21),
        did: "after a fault: cuEventRecord",
        run: |b| after(b, |b, it| code(event::record(b, it.event, DEFAULT))),
    },
    Experiment {
        id: Id(5, 1, 22),
        did: "after a fault: cuEventDestroy",
        run: |b| after(b, |b, it| code(event::destroy(b, it.event))),
    },
    Experiment {
        id: Id(5, 1, 23),
        did: "after a fault: cuCtxGetCurrent, cuCtxGetDevice",
        run: |b| after(b, |b, _| format!("{}, {}", code(context::current(b)), code(context::device(b)))),
    },
    Experiment {
        id: Id(5, 1, 24),
        did: "after a fault: cuCtxSetCurrent, cuCtxPushCurrent, cuCtxPopCurrent",
        run: |b| {
            after(b, |b, it| {
                let set = code(context::set_current(b, it.context));
                let pushed = code(context::push_current(b, it.context));
                format!("{set}, {pushed}, {}", code(context::pop_current(b)))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 25),
        did: "after a fault: cuCtxGetLimit, cuCtxSetLimit, cuCtxGetFlags, cuCtxGetApiVersion",
        run: |b| {
            after(b, |b, it| {
                let limit = code(context::limit(b, CUlimit::STACK_SIZE));
                let set = code(context::set_limit(b, CUlimit::STACK_SIZE, 2048));
                let version = code(context::api_version(b, it.context));
                format!("{limit}, {set}, {}, {version}", code(context::flags(b)))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 26),
        did: "after a fault: cuCtxCreate",
        run: |b| after(b, |b, _| code(b.second_context())),
    },
    Experiment {
        id: Id(5, 1, 27),
        did: "after a fault in context 1: cuMemAlloc and cuCtxSynchronize in context 2, which was there before",
        run: |b| {
            after(b, |b, it| {
                let set = code(context::set_current(b, it.other));
                format!("{set}, {}, {}", code(memory::alloc(b, 4096)), code(context::synchronize(b)))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 28),
        did: "after a fault: cuCtxDestroy of another context, of the primary one cuDevicePrimaryCtxRelease",
        run: |b| {
            after(b, |b, it| {
                format!("{}, {}", code(context::destroy(b, it.other)), code(primary::release(b, b.device)))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 29),
        did: "after a fault in the primary context: reset it, retain it, allocate",
        run: |b| {
            after(b, |b, _| {
                let reset = code(primary::reset(b, b.device));
                let retained = primary::retain(b, b.device);
                let current = retained.and_then(|context| context::set_current(b, context));
                format!("{reset}, {}, {}, {}", code(retained), code(current), code(memory::alloc(b, 4096)))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 30),
        did: "after a fault in a context of our own: destroy it, create another, allocate there",
        run: own_context,
    },
    Experiment {
        id: Id(5, 1, 31),
        did: "after a fault: cuInit, cuDriverGetVersion, cuGetErrorName",
        run: |b| {
            after(b, |b, _| {
                let init = code(driver::init(b, 0));
                format!("{init}, {}, {}", code(driver::version(b)), code(driver::error_name(b, 700)))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 32),
        did: "after a fault: cuDeviceGetCount, cuDeviceGet, cuDeviceGetName, cuDeviceTotalMem",
        run: |b| {
            after(b, |b, _| {
                let (count, at) = (code(device::count(b)), code(device::at(b, 0)));
                format!(
                    "{count}, {at}, {}, {}",
                    code(device::name(b, b.device)),
                    code(device::total_bytes(b, b.device))
                )
            })
        },
    },
    Experiment {
        id: Id(5, 1, 33),
        did: "after a fault: cuPointerGetAttribute, cuMemGetAddressRange",
        run: |b| {
            after(b, |b, it| {
                let kind = pointer::attribute(b, it.block, CUpointer_attribute::MEMORY_TYPE);
                format!("{}, {}", code(kind), code(memory::range(b, it.block)))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 34),
        did: "after a fault: cuMemAllocHost, cuMemHostRegister, cuMemFreeHost",
        run: |b| {
            after(b, |b, it| {
                let host = HostBuffer::pageable(4096);
                let (new, register) = (b.alloc_host(4096), b.register(host.address(), 4096, 0));
                format!("{}, {}, {}", code(new), code(register), code(b.free_host(it.pinned)))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 35),
        did: "after a fault: cuMemAllocAsync, cuMemFreeAsync",
        run: |b| {
            after(b, |b, it| {
                let new = memory::alloc_async(b, 4096, DEFAULT);
                format!("{}, {}", code(new), code(memory::free_async(b, it.pooled, DEFAULT)))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 36),
        did: "after a fault: cuMemAlloc in a thread with no context current, and cuCtxSetCurrent there",
        run: |b| {
            after(b, |b, it| {
                thread::scope(|scope| {
                    let asked = scope.spawn(|| {
                        let alloc = code(memory::alloc(b, 4096));
                        format!("{alloc}, {}", code(context::set_current(b, it.context)))
                    });
                    asked.join().expect("the thread does not panic")
                })
            })
        },
    },
    Experiment {
        id: Id(5, 1, 37),
        did: "after a fault: calls with wrong arguments: cuMemAlloc of nothing, cuMemFree of null, a null function",
        run: |b| {
            after(b, |b, _| {
                let (nothing, null) = (code(memory::alloc(b, 0)), code(memory::free(b, CUdeviceptr::NULL)));
                format!("{nothing}, {null}, {}", code(launch(b, CUfunction::NULL, ONE, DEFAULT, &[])))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 38),
        did: "after a trap: cuMemAlloc, cuCtxSynchronize, and both in another context",
        run: |b| after_other(b, c"traps"),
    },
    Experiment {
        id: Id(5, 1, 39),
        did: "after a failed assertion: cuMemAlloc, cuCtxSynchronize, and both in another context",
        run: |b| after_other(b, c"asserts"),
    },
    Experiment {
        id: Id(5, 1, 40),
        did: "after an illegal access: cuMemAlloc, cuCtxSynchronize, and both in a context created afterwards",
        run: |b| {
            after(b, |b, _| {
                let here = both(b);
                let created = code(b.second_context());
                format!("{here}; create {created}, {}", both(b))
            })
        },
    },
    Experiment {
        id: Id(5, 1, 41),
        did: "before anything waits, once a kernel has faulted: what a query of its stream answers in the end",
        run: queried,
    },
];

/// What was created before the fault, in the primary context, which is current.
struct Before {
    context: CUcontext,
    other: CUcontext,
    block: CUdeviceptr,
    pinned: CUdeviceptr,
    pooled: CUdeviceptr,
    stream: CUstream,
    event: CUevent,
    module: CUmodule,
    function: CUfunction,
}

impl Before {
    fn new(b: &Fixture) -> Result<Self, DriverError> {
        let context = b.init_context()?;
        let other = b.second_context()?;
        context::set_current(b, context)?;
        let module = load(b, KERNELS)?;
        let event = event::create(b, event_flags::DISABLE_TIMING)?;
        event::record(b, event, DEFAULT)?;
        let before = Self {
            context,
            other,
            block: memory::alloc(b, 4096)?,
            pinned: b.alloc_host(4096)?,
            pooled: memory::alloc_async(b, 4096, DEFAULT)?,
            stream: stream::create(b, stream_flags::NON_BLOCKING)?,
            event,
            module,
            function: function(b, module, c"empty")?,
        };
        context::synchronize(b)?;
        Ok(before)
    }
}

/// Lets a kernel store to unmapped memory, waits for the fault, and returns its code.
fn faulted(b: &Fixture) -> Result<(Before, String), DriverError> {
    let before = Before::new(b)?;
    let store = kernel(b, FAULTS, c"store")?;
    launch(b, store, ONE, DEFAULT, &[UNMAPPED, 1])?;
    let fault = code(context::synchronize(b));
    Ok((before, fault))
}

/// Runs `ask` after a kernel has stored to unmapped memory and the fault was waited for.
fn after(b: &Fixture, ask: impl FnOnce(&Fixture, &Before) -> String) -> Answer {
    let (before, fault) = faulted(b)?;
    let answer = ask(b, &before);
    Ok(if fault == "ILLEGAL_ADDRESS" { answer } else { format!("the fault was {fault}: {answer}") })
}

fn both(b: &Fixture) -> String {
    format!("{}, {}", code(memory::alloc(b, 4096)), code(context::synchronize(b)))
}

fn after_other(b: &Fixture, name: &CStr) -> Answer {
    let before = Before::new(b)?;
    let _printed = OutputCapture::stderr()?;
    launch(b, kernel(b, FAULTS, name)?, ONE, DEFAULT, &[])?;
    let fault = code(context::synchronize(b));
    let here = both(b);
    let set = code(context::set_current(b, before.other));
    Ok(format!("{fault}; {here}; set current {set}, {}", both(b)))
}

fn own_context(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let context = b.second_context()?;
    let store = kernel(b, FAULTS, c"store")?;
    launch(b, store, ONE, DEFAULT, &[UNMAPPED, 1])?;
    let fault = code(context::synchronize(b));
    let destroyed = code(context::destroy(b, context));
    let created = code(b.second_context());
    Ok(format!("{fault}, destroy {destroyed}, create {created}, allocate {}", code(memory::alloc(b, 4096))))
}

fn queried(b: &Fixture) -> Answer {
    b.init_context()?;
    let store = kernel(b, FAULTS, c"store")?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    launch(b, store, ONE, stream, &[UNMAPPED, 1])?;
    loop {
        match stream::query(b, stream) {
            Ok(false) => thread::yield_now(),
            ended => return Ok(ready(ended)),
        }
    }
}
