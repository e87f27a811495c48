//! Experiments on the attributes of kernels, and on occupancy (question 4).

use std::ffi::CStr;

use freehold_driver::cuda::{
    CUfunc_cache, CUfunction, CUfunction_attribute, CUsharedconfig, DriverError, function, module, occupancy,
};

use crate::answer_text::{choose, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::id::Id;
use crate::kernels::{KERNELS, function, kernel, load};

const MAX_SHARED: CUfunction_attribute = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(4, 10, 1),
        did: "the most threads of a plain kernel, of one for 64 at the most, of one that requires 32 times 2",
        run: |b| each(b, &[c"empty", c"bounded", c"required"], CUfunction_attribute::MAX_THREADS_PER_BLOCK),
    },
    Experiment {
        id: Id(4, 10, 2),
        did: "the shared memory of a plain kernel, of one with 1 KiB, of one with dynamic",
        run: |b| each(b, &[c"empty", c"static_shared", c"dynamic_shared"], CUfunction_attribute::SHARED_SIZE_BYTES),
    },
    Experiment {
        id: Id(4, 10, 3),
        did: "the constants of a kernel that uses one of 4 bytes, and of one that uses none",
        run: |b| each(b, &[c"scale", c"empty"], CUfunction_attribute::CONST_SIZE_BYTES),
    },
    Experiment {
        id: Id(4, 10, 4),
        did: "the PTX version and the binary version of a kernel whose text is of version 6.4 for sm_70",
        run: |b| {
            let text = each(b, &[c"empty"], CUfunction_attribute::PTX_VERSION)?;
            Ok(format!("{text}, {}", each(b, &[c"empty"], CUfunction_attribute::BINARY_VERSION)?))
        },
    },
    Experiment {
        id: Id(4, 10, 5),
        did: "the local memory of a plain kernel, and its cache mode",
        run: |b| {
            let local = each(b, &[c"empty"], CUfunction_attribute::LOCAL_SIZE_BYTES)?;
            Ok(format!("{local}, {}", each(b, &[c"empty"], CUfunction_attribute::CACHE_MODE_CA)?))
        },
    },
    Experiment {
        id: Id(4, 10, 6),
        did: "the most dynamic shared memory of a plain kernel, and of one with 1 KiB of its own",
        run: |b| each(b, &[c"empty", c"static_shared"], MAX_SHARED),
    },
    Experiment {
        id: Id(4, 10, 7),
        did: "set the most dynamic shared memory to 1000, to 232448, to 232449, to -1, each time reading it",
        run: |b| {
            let dynamic = init_and_load(b, c"dynamic_shared")?;
            Ok([1000, 232_448, 232_449, -1].map(|bytes| set(b, dynamic, MAX_SHARED, bytes)).join("; "))
        },
    },
    Experiment {
        id: Id(4, 10, 8),
        did: "of a kernel with 1 KiB of shared memory, set the most dynamic to 231424, to 231425",
        run: |b| {
            let own = init_and_load(b, c"static_shared")?;
            Ok([231_424, 231_425].map(|bytes| set(b, own, MAX_SHARED, bytes)).join("; "))
        },
    },
    Experiment {
        id: Id(4, 10, 9),
        did: "read attribute 99 of a function, set it, and set its number of registers",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            let unknown = CUfunction_attribute(99);
            let (read, write) = (function::attribute(b, empty, unknown), function::set_attribute(b, empty, unknown, 1));
            let registers = function::set_attribute(b, empty, CUfunction_attribute::NUM_REGS, 8);
            Ok(format!("{}, {}, {}", code(read), code(write), code(registers)))
        },
    },
    Experiment {
        id: Id(4, 10, 10),
        did: "the carveout of a function, set to 50, to 101, to -1, to -2, each time reading it",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            let carveout = CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT;
            let before = or_code(function::attribute(b, empty, carveout), |value| value.to_string());
            let set = [50, 101, -1, -2].map(|percent| set(b, empty, carveout, percent)).join("; ");
            Ok(format!("{before}; {set}"))
        },
    },
    Experiment {
        id: Id(4, 10, 11),
        did: "read an attribute of a null function",
        run: |b| {
            b.init_context()?;
            let threads = CUfunction_attribute::MAX_THREADS_PER_BLOCK;
            Ok(code(function::attribute(b, CUfunction::NULL, threads)))
        },
    },
    Experiment {
        id: Id(4, 10, 12),
        did: "where five parameters of 1, 8, 2, 12 and 20 bytes lie, the last aligned to 16, and a sixth",
        run: |b| {
            let mixed = init_and_load(b, c"mixed")?;
            let place = |index| {
                or_code(function::parameter(b, mixed, index), |parameter| {
                    format!("{} at {}", parameter.bytes, parameter.offset)
                })
            };
            Ok([0, 1, 2, 3, 4, 5].map(place).join(", "))
        },
    },
    Experiment {
        id: Id(4, 10, 13),
        did: "a parameter of a kernel that has none",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            Ok(code(function::parameter(b, empty, 0)))
        },
    },
    Experiment {
        id: Id(4, 10, 14),
        did: "the name and the module of a function",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let empty = function(b, of, c"empty")?;
            let own = function::module(b, empty)? == of;
            Ok(format!("{}, {}", function::name(b, empty)?, choose(own, "its module", "another")))
        },
    },
    Experiment {
        id: Id(4, 10, 15),
        did: "set the cache preference of a function to 2 and to 9, and its banks to 8 bytes and to 9",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            let [cache, no_cache] =
                [2, 9].map(|config| code(function::set_cache_config(b, empty, CUfunc_cache(config))));
            let [banks, no_banks] =
                [2, 9].map(|config| code(function::set_shared_config(b, empty, CUsharedconfig(config))));
            Ok(format!("{cache}, {no_cache}, {banks}, {no_banks}"))
        },
    },
    Experiment {
        id: Id(4, 10, 16),
        did: "the attributes of clusters of a plain kernel",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            let ask = |number| {
                or_code(function::attribute(b, empty, CUfunction_attribute(number)), |value| value.to_string())
            };
            Ok([10, 11, 12, 13, 14, 15].map(ask).join(", "))
        },
    },
    Experiment {
        id: Id(4, 10, 17),
        did: "allow one function more dynamic shared memory: what another of its module may have",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let (one, other) = (function(b, of, c"dynamic_shared")?, function(b, of, c"static_shared")?);
            let changed = set(b, one, MAX_SHARED, 100_000);
            Ok(format!("{changed}; the other {}", function::attribute(b, other, MAX_SHARED)?))
        },
    },
    Experiment {
        id: Id(4, 11, 1),
        did: "blocks of a plain kernel that fit at once, of 1, 32, 256, 1024 threads",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            Ok([1, 32, 256, 1024].map(|threads| blocks(b, empty, threads, 0)).join(", "))
        },
    },
    Experiment {
        id: Id(4, 11, 2),
        did: "blocks of 96, of 768 and of 1000 threads that fit at once",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            Ok([96, 768, 1000].map(|threads| blocks(b, empty, threads, 0)).join(", "))
        },
    },
    Experiment {
        id: Id(4, 11, 3),
        did: "blocks of 32 threads that fit at once with 1 KiB, 16 KiB, 48 KiB of dynamic shared memory",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            Ok([1 << 10, 16 << 10, 48 << 10].map(|bytes| blocks(b, empty, 32, bytes)).join(", "))
        },
    },
    Experiment {
        id: Id(4, 11, 4),
        did: "blocks that fit with 64 KiB of dynamic shared memory, not allowed and allowed, and with 227 KiB",
        run: |b| {
            let dynamic = init_and_load(b, c"dynamic_shared")?;
            let before = blocks(b, dynamic, 32, 65_536);
            function::set_attribute(b, dynamic, MAX_SHARED, 232_448)?;
            Ok(format!("{before}, {}, {}", blocks(b, dynamic, 32, 65_536), blocks(b, dynamic, 32, 232_448)))
        },
    },
    Experiment {
        id: Id(4, 11, 5),
        did: "blocks that fit of a kernel with 1 KiB of shared memory, of 32 threads",
        run: |b| {
            let own = init_and_load(b, c"static_shared")?;
            Ok(blocks(b, own, 32, 0))
        },
    },
    Experiment {
        id: Id(4, 11, 6),
        did: "blocks of 1025, of 0 and of -1 threads that fit",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            Ok([1025, 0, -1].map(|threads| blocks(b, empty, threads, 0)).join(", "))
        },
    },
    Experiment {
        id: Id(4, 11, 7),
        did: "blocks of 65 threads that fit of a kernel for 64 at the most, and of 32 of one that requires 64",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let (bounded, required) = (function(b, of, c"bounded")?, function(b, of, c"required")?);
            Ok(format!("{}, {}", blocks(b, bounded, 65, 0), blocks(b, required, 32, 0)))
        },
    },
    Experiment {
        id: Id(4, 11, 8),
        did: "blocks of a null function that fit",
        run: |b| {
            b.init_context()?;
            Ok(blocks(b, CUfunction::NULL, 32, 0))
        },
    },
    Experiment {
        id: Id(4, 11, 9),
        did: "blocks that fit with flags 1, and with flags 8",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            let ask =
                |flags| or_code(occupancy::blocks_with_flags(b, empty, 256, 0, flags), |blocks| blocks.to_string());
            Ok([1, 8].map(ask).join(", "))
        },
    },
    Experiment {
        id: Id(4, 11, 10),
        did: "the best block of a plain kernel: without a limit, with a limit of 100 threads",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            Ok([0, 100].map(|limit| potential(b, empty, 0, limit)).join("; "))
        },
    },
    Experiment {
        id: Id(4, 11, 11),
        did: "the best block with 40 KiB of dynamic shared memory a block",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            Ok(potential(b, empty, 40 << 10, 0))
        },
    },
    Experiment {
        id: Id(4, 11, 12),
        did: "the best block with 64 bytes of dynamic shared memory a thread",
        run: |b| {
            unsafe extern "C" fn of_block(threads: i32) -> usize {
                usize::try_from(threads).unwrap_or(0) * 64
            }
            let empty = init_and_load(b, c"empty")?;
            // SAFETY: the function may be called with any size, does not unwind and calls no driver.
            let best = unsafe { occupancy::potential(b, empty, Some(of_block), 0, 0) };
            Ok(or_code(best, |best| format!("{} blocks of {}", best.grid_size, best.block_size)))
        },
    },
    Experiment {
        id: Id(4, 11, 13),
        did: "the best block of a kernel for 64 threads at the most, and of one that requires 64",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let (bounded, required) = (function(b, of, c"bounded")?, function(b, of, c"required")?);
            Ok(format!("{}; {}", potential(b, bounded, 0, 0), potential(b, required, 0, 0)))
        },
    },
    Experiment {
        id: Id(4, 11, 14),
        did: "the dynamic shared memory that is left for 1, 2, 8 and 33 blocks of 128 threads",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            let ask = |blocks| or_code(occupancy::shared_bytes(b, empty, blocks, 128), |bytes| bytes.to_string());
            Ok([1, 2, 8, 33].map(ask).join(", "))
        },
    },
    Experiment {
        id: Id(4, 11, 15),
        did: "the multiprocessors that the best block fills, against the blocks that fit on one",
        run: |b| {
            b.init_context()?;
            let empty = module::function(b, load(b, KERNELS)?, c"empty")?;
            // SAFETY: there is no function to call.
            let best = unsafe { occupancy::potential(b, empty, None, 0, 0) }?;
            let fit = occupancy::blocks(b, empty, best.block_size, 0)?;
            Ok(format!("{} of {fit}", best.grid_size / fit.max(1)))
        },
    },
];

fn init_and_load(b: &Fixture, name: &CStr) -> Result<CUfunction, DriverError> {
    b.init_context()?;
    kernel(b, KERNELS, name)
}

/// Formats an attribute of several kernels.
fn each(b: &Fixture, names: &[&CStr], attribute: CUfunction_attribute) -> Answer {
    b.init_context()?;
    let of = load(b, KERNELS)?;
    let mut values = Vec::new();
    for name in names {
        let function = function(b, of, name)?;
        values.push(or_code(function::attribute(b, function, attribute), |value| value.to_string()));
    }
    Ok(values.join(", "))
}

/// Sets an attribute. Returns the code, and the value afterwards.
fn set(b: &Fixture, of: CUfunction, attribute: CUfunction_attribute, value: i32) -> String {
    let set = code(function::set_attribute(b, of, attribute, value));
    format!("{set}, {}", or_code(function::attribute(b, of, attribute), |value| value.to_string()))
}

fn blocks(b: &Fixture, of: CUfunction, threads: i32, shared_bytes: usize) -> String {
    or_code(occupancy::blocks(b, of, threads, shared_bytes), |blocks| blocks.to_string())
}

fn potential(b: &Fixture, of: CUfunction, shared_bytes: usize, limit: i32) -> String {
    // SAFETY: there is no function to call.
    let best = unsafe { occupancy::potential(b, of, None, shared_bytes, limit) };
    or_code(best, |best| format!("{} blocks of {}", best.grid_size, best.block_size))
}
