//! Experiments on the variables of modules: their addresses and sizes, and what may be done with them (question 4).

use std::ffi::CStr;
use std::ptr::null_mut;

use freehold_driver::cuda::{
    CUdeviceptr, CUmemorytype, CUmodule, CUpointer_attribute, DriverError, Function, context, copy, fill, memory,
    module, pointer,
};

use crate::answer_text::{choose, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::{Fixture, check};
use crate::id::Id;
use crate::kernels::{DEFAULT, KERNELS, ONE, function, launch, load, word_at, zeros};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(4, 4, 1),
        did: "the sizes of a word, a table and a constant",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let [word, table, constant] = [c"counter", c"table", c"factor"].map(|name| size(b, of, name));
            Ok(format!("{word}, {table}, {constant}"))
        },
    },
    Experiment {
        id: Id(4, 4, 2),
        did: "look up a variable that is not there, one by no name, one by a kernel's",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let [missing, nameless, kernel] = [c"missing", c"", c"empty"].map(|name| size(b, of, name));
            Ok(format!("{missing}, {nameless}, {kernel}"))
        },
    },
    Experiment {
        id: Id(4, 4, 3),
        did: "look up a variable that is not visible, and dynamic shared memory",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            Ok(format!("{}, {}", size(b, of, c"hidden"), size(b, of, c"room")))
        },
    },
    Experiment {
        id: Id(4, 4, 4),
        did: "look up a variable with no place for its address, for its size, for either, and with no name",
        run: null_arguments,
    },
    Experiment {
        id: Id(4, 4, 20),
        did: "look up a variable with no place for its address, and with none for its size: what is said of the other",
        run: one_place,
    },
    Experiment {
        id: Id(4, 4, 5),
        did: "cuMemFree of a module's variable, and whether the variable is still good",
        run: |b| {
            with_counter(b, |b, of, counter| {
                let freed = code(memory::free(b, counter));
                Ok(format!("{freed}, then counts to {}", count(b, of)?))
            })
        },
    },
    Experiment {
        id: Id(4, 4, 6),
        did: "cuMemFreeAsync of a module's variable",
        run: |b| {
            with_counter(b, |b, _, counter| {
                let freed = code(memory::free_async(b, counter, DEFAULT));
                Ok(format!("{freed}, synchronize {}", code(context::synchronize(b))))
            })
        },
    },
    Experiment {
        id: Id(4, 4, 7),
        did: "the memory type, the context and the device of a module's variable",
        run: attributes,
    },
    Experiment {
        id: Id(4, 4, 8),
        did: "the range of a module's variable by its pointer's attributes, against the variable",
        run: |b| with_counter(b, |b, _, counter| Ok(range_by_attributes(b, counter))),
    },
    Experiment {
        id: Id(4, 4, 9),
        did: "cuMemGetAddressRange of a module's variable",
        run: |b| {
            with_counter(b, |b, _, counter| {
                let range = memory::range(b, counter);
                Ok(or_code(range, |range| {
                    let start = choose(range.base == counter, "starts with it", "starts before it");
                    format!("{start}, {}", choose(range.bytes == 4, "of its size", "larger"))
                }))
            })
        },
    },
    Experiment {
        id: Id(4, 4, 10),
        did: "copy a value to a variable from the host, then count",
        run: |b| {
            with_counter(b, |b, of, counter| {
                copy::host_to_device(b, counter, &40_u32.to_le_bytes())?;
                Ok(count(b, of)?.to_string())
            })
        },
    },
    Experiment {
        id: Id(4, 4, 11),
        did: "fill a variable with cuMemsetD32, then count",
        run: |b| {
            with_counter(b, |b, of, counter| {
                fill::d32(b, counter, 60, 1)?;
                Ok(count(b, of)?.to_string())
            })
        },
    },
    Experiment {
        id: Id(4, 4, 12),
        did: "read a variable that has an initial value, and a table of which three bytes have one",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let counter = word_at(b, module::global(b, of, c"counter")?.base)?;
            let table = b.bytes_at(module::global(b, of, c"table")?.base, 24)?;
            let rest = choose(table[3..].iter().all(|&byte| byte == 0), "then zeros", "then others");
            Ok(format!("{counter}; {:?} {rest}", &table[..3]))
        },
    },
    Experiment { id: Id(4, 4, 13), did: "change a constant from the host between two launches", run: constant_between },
    Experiment {
        id: Id(4, 4, 14),
        did: "a variable that holds the address of another: what a kernel finds there",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let to = zeros(b)?;
            launch(b, function(b, of, c"follow")?, ONE, DEFAULT, &[to.0])?;
            Ok(word_at(b, to)?.to_string())
        },
    },
    Experiment {
        id: Id(4, 4, 15),
        did: "the address that a variable holds of another, against that of cuModuleGetGlobal",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let held = b.bytes_at(module::global(b, of, c"pointer")?.base, 8)?;
            let counter = module::global(b, of, c"counter")?.base;
            Ok(choose(held == counter.0.to_le_bytes(), "the same", "another"))
        },
    },
    Experiment {
        id: Id(4, 4, 16),
        did: "copy 1 GiB from a variable of 4 bytes",
        run: |b| {
            with_counter(b, |b, _, counter| {
                let to = memory::alloc(b, 1 << 30)?;
                Ok(code(copy::device_to_device(b, to, counter, 1 << 30)))
            })
        },
    },
    Experiment {
        id: Id(4, 4, 17),
        did: "cuMemFree of a constant",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            Ok(code(memory::free(b, module::global(b, of, c"factor")?.base)))
        },
    },
    Experiment {
        id: Id(4, 4, 18),
        did: "does loading a module with a variable of 64 MiB take that memory, and unloading give it back",
        run: large_variable,
    },
    Experiment {
        id: Id(4, 4, 19),
        did: "load a text with a variable of 1 TiB",
        run: |b| {
            b.init_context()?;
            let text = c".version 6.4\n.target sm_70\n.address_size 64\n.visible .global .b8 huge[1099511627776];\n";
            Ok(code(load(b, text)))
        },
    },
];

/// Formats the size of a variable, or why it was not found.
fn size(b: &Fixture, of: CUmodule, name: &CStr) -> String {
    or_code(module::global(b, of, name), |range| format!("{} bytes", range.bytes))
}

fn with_counter(b: &Fixture, ask: impl FnOnce(&Fixture, CUmodule, CUdeviceptr) -> Answer) -> Answer {
    b.init_context()?;
    let of = load(b, KERNELS)?;
    let counter = module::global(b, of, c"counter")?.base;
    ask(b, of, counter)
}

/// Returns the counter after the kernel `count` has run.
fn count(b: &Fixture, of: CUmodule) -> Result<u32, DriverError> {
    let to = zeros(b)?;
    launch(b, function(b, of, c"count")?, ONE, DEFAULT, &[to.0])?;
    word_at(b, to)
}

fn null_arguments(b: &Fixture) -> Answer {
    b.init_context()?;
    let of = load(b, KERNELS)?;
    let (mut start, mut bytes) = (CUdeviceptr::NULL, 0);
    let ask = |start: *mut CUdeviceptr, bytes: *mut usize, name: *const std::ffi::c_char| {
        // SAFETY: a pointer other than null points to a value that outlives the call, or to a NUL-terminated string.
        let answer = unsafe { (b.cuModuleGetGlobal_v2)(start, bytes, of, name) };
        code(check(Function::cuModuleGetGlobal_v2, answer))
    };
    let no_address = ask(null_mut(), &mut bytes, c"table".as_ptr());
    let no_size = ask(&mut start, null_mut(), c"table".as_ptr());
    let neither = ask(null_mut(), null_mut(), c"table".as_ptr());
    let no_name = ask(&mut start, &mut bytes, std::ptr::null());
    let place = choose(start == CUdeviceptr::NULL, "not said", "said");
    Ok(format!("{no_address} and {bytes} bytes, {no_size} and the address {place}, {neither}, {no_name}"))
}

fn one_place(b: &Fixture) -> Answer {
    b.init_context()?;
    let of = load(b, KERNELS)?;
    let (mut start, mut bytes) = (CUdeviceptr::NULL, 0);
    // SAFETY: the size outlives the call, and the name ends in a NUL.
    let sized = unsafe { (b.cuModuleGetGlobal_v2)(null_mut(), &mut bytes, of, c"table".as_ptr()) };
    // SAFETY: the address outlives the call, and the name ends in a NUL.
    let placed = unsafe { (b.cuModuleGetGlobal_v2)(&mut start, null_mut(), of, c"table".as_ptr()) };
    let [sized, placed] = [sized, placed].map(|answer| code(check(Function::cuModuleGetGlobal_v2, answer)));
    let place = choose(start == module::global(b, of, c"table")?.base, "the address", "another address");
    Ok(format!("{sized} and {bytes} bytes, {placed} and {place}"))
}

fn attributes(b: &Fixture) -> Answer {
    let first = b.init_context()?;
    let of = load(b, KERNELS)?;
    let counter = module::global(b, of, c"counter")?.base;
    let ask = |attribute| pointer::attribute(b, counter, attribute);
    let kind = or_code(ask(CUpointer_attribute::MEMORY_TYPE), |kind| {
        choose(kind == u64::from(CUmemorytype::DEVICE.0), "device", "another")
    });
    let owner = or_code(ask(CUpointer_attribute::CONTEXT), |owner| match owner {
        0 => "null".to_owned(),
        owner => choose(owner == first.0 as u64, "the current one", "another"),
    });
    let ordinal = or_code(ask(CUpointer_attribute::DEVICE_ORDINAL), |ordinal| {
        choose(ordinal as u32 == b.device.0 as u32, "this one", "another")
    });
    let managed = or_code(ask(CUpointer_attribute::IS_MANAGED), |managed| managed.to_string());
    Ok(format!("type {kind}, context {owner}, device {ordinal}, managed {managed}"))
}

fn range_by_attributes(b: &Fixture, counter: CUdeviceptr) -> String {
    let start = or_code(pointer::attribute(b, counter, CUpointer_attribute::RANGE_START_ADDR), |start| {
        choose(start == counter.0, "starts with it", "starts before it")
    });
    let bytes = or_code(pointer::attribute(b, counter, CUpointer_attribute::RANGE_SIZE), |bytes| {
        choose(bytes == 4, "of its size", "larger")
    });
    format!("{start}, {bytes}")
}

fn constant_between(b: &Fixture) -> Answer {
    b.init_context()?;
    let of = load(b, KERNELS)?;
    let scale = function(b, of, c"scale")?;
    let to = zeros(b)?;
    launch(b, scale, ONE, DEFAULT, &[to.0, 3])?;
    let before = word_at(b, to)?;
    copy::host_to_device(b, module::global(b, of, c"factor")?.base, &9_u32.to_le_bytes())?;
    launch(b, scale, ONE, DEFAULT, &[to.0, 3])?;
    Ok(format!("{before}, {}", word_at(b, to)?))
}

fn large_variable(b: &Fixture) -> Answer {
    b.init_context()?;
    load(b, KERNELS)?;
    let text = c".version 6.4\n.target sm_70\n.address_size 64\n.visible .global .align 4 .b8 large[67108864];\n";
    let before = memory::info(b)?.free_bytes;
    let of = load(b, text)?;
    module::global(b, of, c"large")?;
    let during = memory::info(b)?.free_bytes;
    module::unload(b, of)?;
    let after = memory::info(b)?.free_bytes;
    let taken = choose(before.saturating_sub(during) >= 64 << 20, "taken", "not taken");
    let back = choose(after.saturating_sub(during) >= 64 << 20, "given back", "kept");
    Ok(format!("{taken}, {back}"))
}
