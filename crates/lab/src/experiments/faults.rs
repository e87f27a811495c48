//! Experiments on which kernels end in a fault, and with which code (question 5).

use std::ffi::{CStr, CString};

use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUdeviceptr, CUlimit, DriverError, context, device, fill, memory, module, pool, stream, stream_flags,
};

use crate::answer_text::{code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::host_buffer::HostBuffer;
use crate::id::Id;
use crate::kernels::{DEFAULT, FAULTS, KERNELS, ONE, function, kernel, launch, load, word_at, zeros};
use crate::output_capture::OutputCapture;

/// An address without memory: below everything that a process or a driver maps.
pub(super) const UNMAPPED: u64 = 0x1000_0000;

/// Experiments whose kernel makes an invalid access that hardware does not check. The answer of such an experiment is
/// only the code of its synchronization.
pub(super) const UNCHECKED: &[Id] =
    &[Id(5, 3, 3), Id(5, 3, 4), Id(5, 3, 5), Id(5, 3, 6), Id(5, 3, 7), Id(5, 3, 8), Id(5, 3, 10), Id(5, 3, 13)];

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(5, 2, 1),
        did: "a kernel stores to an address that is not mapped",
        run: |b| end_of(b, c"store", &[UNMAPPED, 1]),
    },
    Experiment {
        id: Id(5, 2, 2),
        did: "a kernel loads from an address that is not mapped",
        run: |b| end_with(b, c"load", |b| Ok(vec![UNMAPPED, zeros(b)?.0])),
    },
    Experiment {
        id: Id(5, 2, 3),
        did: "a kernel adds to an address that is not mapped",
        run: |b| end_of(b, c"adds", &[UNMAPPED]),
    },
    Experiment { id: Id(5, 2, 4), did: "a kernel stores to null", run: |b| end_of(b, c"store", &[0, 1]) },
    Experiment {
        id: Id(5, 2, 5),
        did: "a kernel stores to an address that is no address of 64 bits",
        run: |b| end_of(b, c"store", &[0xffff_f000_0000_0000, 1]),
    },
    Experiment {
        id: Id(5, 2, 6),
        did: "a kernel stores a word to an odd address",
        run: |b| end_with(b, c"store", |b| Ok(vec![zeros(b)?.0 + 1, 1])),
    },
    Experiment {
        id: Id(5, 2, 7),
        did: "a kernel loads a word from an odd address",
        run: |b| {
            end_with(b, c"load", |b| {
                let to = zeros(b)?;
                Ok(vec![to.0 + 2, to.0])
            })
        },
    },
    Experiment {
        id: Id(5, 2, 8),
        did: "a kernel adds to an odd address",
        run: |b| end_with(b, c"adds", |b| Ok(vec![zeros(b)?.0 + 1])),
    },
    Experiment {
        id: Id(5, 2, 9),
        did: "a kernel stores a word to an odd address that is not mapped",
        run: |b| end_of(b, c"store", &[UNMAPPED + 1, 1]),
    },
    Experiment { id: Id(5, 2, 10), did: "a kernel executes trap", run: |b| end_of(b, c"traps", &[]) },
    Experiment { id: Id(5, 2, 11), did: "a kernel executes brkpt", run: |b| end_of(b, c"breaks", &[]) },
    Experiment {
        id: Id(5, 2, 12),
        did: "an assertion of a kernel fails",
        run: |b| {
            let _printed = OutputCapture::stderr()?;
            end_of(b, c"asserts", &[])
        },
    },
    Experiment {
        id: Id(5, 2, 13),
        did: "a kernel calls itself for ever",
        run: |b| end_with(b, c"recurses", |b| Ok(vec![zeros(b)?.0, 0xffff_ffff])),
    },
    Experiment {
        id: Id(5, 2, 14),
        did: "a kernel calls itself 1000 deep with a stack of 1 KiB a thread",
        run: |b| end_with(b, c"recurses", |b| Ok(vec![zeros(b)?.0, 1000])),
    },
    Experiment {
        id: Id(5, 2, 15),
        did: "a kernel calls itself 50 deep with a stack of 32 KiB a thread",
        run: |b| {
            end_with(b, c"recurses", |b| {
                context::set_limit(b, CUlimit::STACK_SIZE, 32 << 10)?;
                let to = zeros(b)?;
                Ok(vec![to.0, 50])
            })
        },
    },
    Experiment {
        id: Id(5, 2, 16),
        did: "a kernel calls a function at an address where none is",
        run: |b| end_of(b, c"calls", &[0x10_0000]),
    },
    Experiment {
        id: Id(5, 2, 18),
        did: "a kernel stores 16 MiB past the end of its shared memory of 256 bytes",
        run: |b| end_of(b, c"shares", &[16 << 20]),
    },
    Experiment {
        id: Id(5, 2, 19),
        did: "a kernel stores a word to an odd place of its shared memory",
        run: |b| end_of(b, c"shares", &[1]),
    },
    Experiment {
        id: Id(5, 2, 20),
        did: "a kernel stores 256 MiB past the end of its local memory of 256 bytes",
        run: |b| end_with(b, c"keeps", |b| Ok(vec![zeros(b)?.0, 256 << 20, 0])),
    },
    Experiment {
        id: Id(5, 2, 21),
        did: "a kernel stores to memory of the host that no driver knows",
        run: |b| {
            let host = HostBuffer::pageable(4096);
            end_of(b, c"store", &[host.address().0, 1])
        },
    },
    Experiment {
        id: Id(5, 2, 22),
        did: "a kernel stores where the host's memory was registered, and is no more",
        run: |b| {
            end_with(b, c"store", |b| {
                let host = b.registered_buffer(4096)?;
                let at = b.device_address(host.address(), 0)?;
                b.unregister(host.address())?;
                Ok(vec![at.0, 1])
            })
        },
    },
    Experiment {
        id: Id(5, 2, 23),
        did: "two faults of different kinds, one after the other in a stream: what the synchronize answers, twice",
        run: |b| {
            b.init_context()?;
            let of = load(b, FAULTS)?;
            let (traps, store) = (function(b, of, c"traps")?, function(b, of, c"store")?);
            launch(b, traps, ONE, DEFAULT, &[])?;
            // The first fault may already have been noticed, and the second launch fail.
            let second = launch(b, store, ONE, DEFAULT, &[UNMAPPED, 1]);
            let waited = context::synchronize(b);
            Ok(format!("{}, {}", code(second.and(waited)), code(context::synchronize(b))))
        },
    },
    Experiment {
        id: Id(5, 2, 24),
        did: "65536 threads store to an address that is not mapped",
        run: |b| {
            b.init_context()?;
            let store = kernel(b, FAULTS, c"store")?;
            let shape = LaunchConfig::linear(64, 1024);
            launch(b, store, shape, DEFAULT, &[UNMAPPED, 1])?;
            Ok(code(context::synchronize(b)))
        },
    },
    Experiment {
        id: Id(5, 2, 25),
        did: "an assertion of a kernel fails: what is printed to standard error",
        run: |b| {
            let printed = OutputCapture::stderr()?;
            end_of(b, c"asserts", &[])?;
            Ok(printed.text()?.trim_end().to_owned())
        },
    },
    Experiment {
        id: Id(5, 3, 1),
        did: "a kernel stores to a block of 64 MiB that was freed",
        run: |b| {
            end_with(b, c"store", |b| {
                let block = memory::alloc(b, 64 << 20)?;
                memory::free(b, block)?;
                Ok(vec![block.0, 1])
            })
        },
    },
    Experiment {
        id: Id(5, 3, 2),
        did: "a kernel loads from a block of 64 MiB that was freed",
        run: |b| {
            end_with(b, c"load", |b| {
                let (block, to) = (memory::alloc(b, 64 << 20)?, zeros(b)?);
                memory::free(b, block)?;
                Ok(vec![block.0, to.0])
            })
        },
    },
    Experiment {
        id: Id(5, 3, 3),
        did: "a kernel stores to a block of 512 bytes that was freed, beside one that was not",
        run: |b| {
            end_with(b, c"store", |b| {
                let (block, _) = freed_beside(b)?;
                Ok(vec![block.0, 1])
            })
        },
    },
    Experiment {
        id: Id(5, 3, 4),
        did: "a kernel loads from a block of 512 bytes that was freed, beside one that was not",
        run: |b| {
            end_with(b, c"load", |b| {
                let (block, live) = freed_beside(b)?;
                Ok(vec![block.0, live.0])
            })
        },
    },
    Experiment {
        id: Id(5, 3, 5),
        did: "a kernel stores right past the end of a block of 512 bytes",
        run: |b| {
            end_with(b, c"store", |b| {
                let block = memory::alloc(b, 512)?;
                Ok(vec![block.0 + 512, 1])
            })
        },
    },
    Experiment {
        id: Id(5, 3, 6),
        did: "a kernel stores to a block of 4 bytes at its byte 256",
        run: |b| {
            end_with(b, c"store", |b| {
                let block = memory::alloc(b, 4)?;
                Ok(vec![block.0 + 256, 1])
            })
        },
    },
    Experiment {
        id: Id(5, 3, 7),
        did: "a kernel stores to pool memory that was freed in its stream, with all memory kept by the pool",
        run: |b| {
            end_with(b, c"store", |b| {
                let pool = device::default_pool(b, b.device)?;
                pool::set_release_threshold(b, pool, u64::MAX)?;
                let block = memory::alloc_async(b, 4096, DEFAULT)?;
                memory::free_async(b, block, DEFAULT)?;
                context::synchronize(b)?;
                Ok(vec![block.0, 1])
            })
        },
    },
    Experiment {
        id: Id(5, 3, 8),
        did: "a kernel stores to a constant by the address that the host has of it",
        run: |b| {
            end_with(b, c"store", |b| {
                let of = load(b, KERNELS)?;
                let factor = module::global(b, of, c"factor")?.base;
                Ok(vec![factor.0, 1])
            })
        },
    },
    Experiment {
        id: Id(5, 3, 9),
        did: "a kernel stores right past the end of its shared memory of 256 bytes",
        run: |b| end_of(b, c"shares", &[256]),
    },
    Experiment {
        id: Id(5, 3, 10),
        did: "a kernel stores right past the end of its local memory of 256 bytes",
        run: |b| end_with(b, c"keeps", |b| Ok(vec![zeros(b)?.0, 256, 0])),
    },
    Experiment {
        id: Id(5, 3, 11),
        did: "a kernel stores 1 GiB past the end of a block of 512 bytes",
        run: |b| {
            end_with(b, c"store", |b| {
                let block = memory::alloc(b, 512)?;
                Ok(vec![block.0 + (1 << 30), 1])
            })
        },
    },
    Experiment {
        id: Id(5, 3, 12),
        did: "a kernel stores to a block of a context that was destroyed",
        run: |b| {
            end_with(b, c"store", |b| {
                let first = context::current(b)?;
                let second = b.second_context()?;
                let block = memory::alloc(b, 64 << 20)?;
                context::destroy(b, second)?;
                context::set_current(b, first)?;
                Ok(vec![block.0, 1])
            })
        },
    },
    Experiment {
        id: Id(5, 3, 13),
        did: "a kernel stores to its parameter by a generic address",
        run: parameter_written,
    },
    Experiment {
        id: Id(5, 4, 1),
        did: "a kernel divides 7 by zero: the end of the kernel, and the quotient",
        run: |b| {
            b.init_context()?;
            let to = zeros(b)?;
            let end = end_of(b, c"divide", &[to.0, 7, 0])?;
            Ok(format!("{end}, {}", or_code(word_at(b, to), |word| format!("{word:#x}"))))
        },
    },
    Experiment {
        id: Id(5, 4, 2),
        did: "a kernel calls itself 3 deep: the end of the kernel, and its sum",
        run: |b| {
            b.init_context()?;
            let to = zeros(b)?;
            let end = end_of(b, c"recurses", &[to.0, 3])?;
            Ok(format!("{end}, {}", or_code(word_at(b, to), |word| word.to_string())))
        },
    },
    Experiment {
        id: Id(5, 4, 3),
        did: "a fault in a stream: what the query of another stream answers in the end",
        run: query_elsewhere,
    },
    Experiment {
        id: Id(5, 4, 4),
        did: "a refused fill of memory that is not there: does the next synchronize know of it",
        run: |b| {
            b.init_context()?;
            let filled = code(fill::d32(b, CUdeviceptr(UNMAPPED), 1, 4));
            Ok(format!("{filled}, {}", code(context::synchronize(b))))
        },
    },
];

/// Returns the code of the synchronization after launching a kernel.
fn end_of(b: &Fixture, name: &CStr, arguments: &[u64]) -> Answer {
    end_with(b, name, |_| Ok(arguments.to_vec()))
}

/// The same with arguments created in the primary context after the kernel is loaded, so that nothing of the kernel
/// lies in memory that they have freed.
fn end_with(b: &Fixture, name: &CStr, make: impl FnOnce(&Fixture) -> Result<Vec<u64>, DriverError>) -> Answer {
    b.init_context()?;
    let kernel = kernel(b, FAULTS, name)?;
    let arguments = make(b)?;
    launch(b, kernel, ONE, DEFAULT, &arguments)?;
    Ok(code(context::synchronize(b)))
}

/// Returns a block of 512 bytes that was freed, and a neighbouring one that was not.
fn freed_beside(b: &Fixture) -> Result<(CUdeviceptr, CUdeviceptr), DriverError> {
    let (block, live) = (memory::alloc(b, 512)?, memory::alloc(b, 512)?);
    memory::free(b, block)?;
    Ok((block, live))
}

fn query_elsewhere(b: &Fixture) -> Answer {
    b.init_context()?;
    let traps = kernel(b, FAULTS, c"traps")?;
    let (one, other) = (stream::create(b, stream_flags::NON_BLOCKING)?, stream::create(b, stream_flags::NON_BLOCKING)?);
    launch(b, traps, ONE, one, &[])?;
    let first = code(stream::synchronize(b, one));
    Ok(format!("{first}, {}", code(stream::query(b, other))))
}

fn parameter_written(b: &Fixture) -> Answer {
    b.init_context()?;
    let text = ".version 7.7\n.target sm_70\n.address_size 64\n\
        .visible .entry writes(.param .u32 p)\n{\n\
        .reg .u64 %at;\n.reg .u32 %value;\n\
        mov.b64 %at, p;\ncvta.param.u64 %at, %at;\nmov.u32 %value, 1;\nst.volatile.u32 [%at], %value;\nret;\n}\n";
    let text = CString::new(text).expect("the text holds no NUL");
    launch(b, kernel(b, &text, c"writes")?, ONE, DEFAULT, &[7])?;
    Ok(code(context::synchronize(b)))
}
