//! Experiments on libraries, which belong to no context, and on their kernels (question 4).

use std::ffi::{CStr, CString};

use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{
    CUdeviceptr, CUfunction, CUfunction_attribute, CUkernel, CUlibrary, DriverError, context, driver, function, kernel,
    library, module, stream, stream_flags,
};

use crate::answer_text::{choose, code, code_and_pace, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::id::Id;
use crate::kernels::{DEFAULT, KERNELS, ONE, Spin, launch, word_at, zeros};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(4, 5, 1),
        did: "load a library with no context current, and look up a kernel of it",
        run: |b| {
            driver::init(b, 0)?;
            let of = load(b, KERNELS)?;
            Ok(format!("SUCCESS, {}", code(library::kernel(b, of, c"empty"))))
        },
    },
    Experiment {
        id: Id(4, 5, 2),
        did: "overwrite the image once cuLibraryLoadData has returned, then use a kernel of it",
        run: image_overwritten,
    },
    Experiment {
        id: Id(4, 5, 3),
        did: "cuLibraryUnload while a kernel of it runs: did the kernel come to its end",
        run: unload_of_running,
    },
    Experiment {
        id: Id(4, 5, 4),
        did: "cuLibraryUnload of another library while a kernel runs",
        run: |b| {
            b.init_context()?;
            let spin = Spin::new(b)?;
            let (of, empty) = with_kernel(b, c"empty")?;
            launch(b, empty.into(), ONE, DEFAULT, &[])?;
            context::synchronize(b)?;
            spin.run(b, stream::create(b, stream_flags::NON_BLOCKING)?, CUdeviceptr::NULL, 0)?;
            let answer = code_and_pace(spin.latch.during(|| library::unload(b, of)));
            context::synchronize(b)?;
            Ok(answer)
        },
    },
    Experiment {
        id: Id(4, 5, 5),
        did: "launch a kernel of a library as it is, and as the function that cuKernelGetFunction gives",
        run: |b| {
            b.init_context()?;
            let (_, store) = with_kernel(b, c"store")?;
            let to = zeros(b)?;
            launch(b, store.into(), ONE, DEFAULT, &[to.0, 1])?;
            let as_kernel = word_at(b, to)?;
            launch(b, kernel::function(b, store)?, ONE, DEFAULT, &[to.0, 2])?;
            Ok(format!("{as_kernel}, {}", word_at(b, to)?))
        },
    },
    Experiment {
        id: Id(4, 5, 6),
        did: "cuKernelGetFunction twice in one context, and in another",
        run: functions_of_contexts,
    },
    Experiment {
        id: Id(4, 5, 7),
        did: "count with a library's kernel in two contexts: what the counters hold, and where they lie",
        run: counters_of_contexts,
    },
    Experiment {
        id: Id(4, 5, 8),
        did: "launch the function of context 1 of a library's kernel, with context 2 current",
        run: |b| {
            b.init_context()?;
            let (_, empty) = with_kernel(b, c"empty")?;
            let of_first = kernel::function(b, empty)?;
            b.second_context()?;
            Ok(code(launch(b, of_first, ONE, DEFAULT, &[])))
        },
    },
    Experiment {
        id: Id(4, 5, 9),
        did: "launch a kernel of a library in a stream of context 1, with context 2 current",
        run: |b| {
            b.init_context()?;
            let (_, empty) = with_kernel(b, c"empty")?;
            let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
            b.second_context()?;
            Ok(code(launch(b, empty.into(), ONE, stream, &[])))
        },
    },
    Experiment {
        id: Id(4, 5, 10),
        did: "launch a kernel of a library that is unloaded",
        run: |b| unloaded(b, |b, it| code(launch(b, it.kernel.into(), ONE, DEFAULT, &[]))),
    },
    Experiment {
        id: Id(4, 5, 11),
        did: "launch a function of a kernel of a library that is unloaded",
        run: |b| unloaded(b, |b, it| code(launch(b, it.function, ONE, DEFAULT, &[]))),
    },
    Experiment {
        id: Id(4, 5, 12),
        did: "cuKernelGetFunction of a kernel of a library that is unloaded",
        run: |b| unloaded(b, |b, it| code(kernel::function(b, it.kernel))),
    },
    Experiment {
        id: Id(4, 5, 13),
        did: "cuLibraryGetKernel of a library that is unloaded",
        run: |b| unloaded(b, |b, it| code(library::kernel(b, it.library, c"empty"))),
    },
    Experiment {
        id: Id(4, 5, 14),
        did: "unload a library twice",
        run: |b| unloaded(b, |b, it| code(library::unload(b, it.library))),
    },
    Experiment {
        id: Id(4, 5, 15),
        did: "cuModuleUnload of the module that cuLibraryGetModule gives",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            Ok(code(module::unload(b, library::module(b, of)?)))
        },
    },
    Experiment {
        id: Id(4, 5, 16),
        did: "a variable by cuLibraryGetGlobal, and by cuModuleGetGlobal of the library's module",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let by_library = library::global(b, of, c"counter")?;
            let by_module = module::global(b, library::module(b, of)?, c"counter")?;
            Ok(format!("{} bytes, {}", by_library.bytes, choose(by_library == by_module, "the same", "another")))
        },
    },
    Experiment {
        id: Id(4, 5, 17),
        did: "look up a kernel, a variable and a managed variable that a library does not have",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let kernel = code(library::kernel(b, of, c"missing"));
            let (global, managed) = (library::global(b, of, c"missing"), library::managed(b, of, c"counter"));
            let unified = library::unified_function(b, of, c"empty");
            Ok(format!("{kernel}, {}, {}, unified function {}", code(global), code(managed), code(unified)))
        },
    },
    Experiment {
        id: Id(4, 5, 18),
        did: "count the kernels of a library; the name and the library of one",
        run: |b| {
            b.init_context()?;
            let (of, empty) = with_kernel(b, c"empty")?;
            let count = library::kernel_count(b, of)?;
            let listed = library::kernels(b, of, count)?.contains(&empty);
            let back = kernel::library(b, empty)? == of;
            Ok(format!(
                "{count}, {}, {}, {}",
                choose(listed, "listed", "not listed"),
                kernel::name(b, empty)?,
                choose(back, "of this library", "of another")
            ))
        },
    },
    Experiment {
        id: Id(4, 5, 19),
        did: "load a library twice",
        run: |b| {
            b.init_context()?;
            Ok(choose(load(b, KERNELS)? == load(b, KERNELS)?, "one handle", "two handles"))
        },
    },
    Experiment {
        id: Id(4, 5, 20),
        did: "set the most dynamic shared memory of a kernel, and read it of its function in two contexts",
        run: attribute_of_contexts,
    },
    Experiment {
        id: Id(4, 5, 21),
        did: "unload the library after one of its contexts was destroyed",
        run: |b| {
            let first = b.init_context()?;
            let (of, empty) = with_kernel(b, c"empty")?;
            let second = b.second_context()?;
            launch(b, empty.into(), ONE, DEFAULT, &[])?;
            context::destroy(b, second)?;
            context::set_current(b, first)?;
            let launched = code(launch(b, empty.into(), ONE, DEFAULT, &[]));
            context::synchronize(b)?;
            Ok(format!("launch in the other {launched}, unload {}", code(library::unload(b, of))))
        },
    },
    Experiment {
        id: Id(4, 5, 22),
        did: "ask a kernel for its function, and a library for its module, with no context current",
        run: |b| {
            driver::init(b, 0)?;
            let (of, empty) = with_kernel(b, c"empty")?;
            Ok(format!("{}, {}", code(kernel::function(b, empty)), code(library::module(b, of))))
        },
    },
    Experiment {
        id: Id(4, 5, 23),
        did: "load a library of garbage, and of a text that does not compile",
        run: |b| {
            b.init_context()?;
            let broken = c".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry broken() { nothing; }\n";
            Ok(format!("{}, {}", code(load(b, c"garbage")), code(load(b, broken))))
        },
    },
    Experiment {
        id: Id(4, 5, 24),
        did: "cuFuncGetAttribute and cuFuncGetName of a library's kernel as it is",
        run: |b| {
            b.init_context()?;
            let (_, empty) = with_kernel(b, c"empty")?;
            let as_function = CUfunction::from(empty);
            let threads = function::attribute(b, as_function, CUfunction_attribute::MAX_THREADS_PER_BLOCK);
            let name = function::name(b, as_function);
            Ok(format!("{}, {}", or_code(threads, |threads| threads.to_string()), or_code(name, |name| name)))
        },
    },
];

fn load(b: &Fixture, text: &CStr) -> Result<CUlibrary, DriverError> {
    // SAFETY: the text ends in a NUL; there are no options.
    unsafe { library::load(b, text.as_ptr().cast(), &mut Options::new()) }
}

fn with_kernel(b: &Fixture, name: &CStr) -> Result<(CUlibrary, CUkernel), DriverError> {
    let of = load(b, KERNELS)?;
    Ok((of, library::kernel(b, of, name)?))
}

/// A library, the kernel `empty`, and its function in the current context.
struct Loaded {
    library: CUlibrary,
    kernel: CUkernel,
    function: CUfunction,
}

fn unloaded(b: &Fixture, ask: impl FnOnce(&Fixture, Loaded) -> String) -> Answer {
    b.init_context()?;
    let (of, empty) = with_kernel(b, c"empty")?;
    let function = kernel::function(b, empty)?;
    launch(b, function, ONE, DEFAULT, &[])?;
    context::synchronize(b)?;
    library::unload(b, of)?;
    Ok(ask(b, Loaded { library: of, kernel: empty, function }))
}

fn image_overwritten(b: &Fixture) -> Answer {
    b.init_context()?;
    let mut image = CString::from(KERNELS).into_bytes_with_nul();
    // SAFETY: the text ends in a NUL; there are no options.
    let of = unsafe { library::load(b, image.as_ptr().cast(), &mut Options::new()) }?;
    image.fill(b'x');
    drop(image);
    let to = zeros(b)?;
    launch(b, library::kernel(b, of, c"scale")?.into(), ONE, DEFAULT, &[to.0, 3])?;
    Ok(word_at(b, to)?.to_string())
}

fn unload_of_running(b: &Fixture) -> Answer {
    b.init_context()?;
    let (of, spins) = with_kernel(b, c"spin")?;
    let spin = Spin::of(b, kernel::function(b, spins)?)?;
    let block = zeros(b)?;
    spin.run(b, stream::create(b, stream_flags::NON_BLOCKING)?, block, 5)?;
    let pace = code_and_pace(spin.latch.during(|| library::unload(b, of)));
    Ok(format!("{pace}, it stored {}", word_at(b, block)?))
}

fn functions_of_contexts(b: &Fixture) -> Answer {
    b.init_context()?;
    let (_, empty) = with_kernel(b, c"empty")?;
    let (first, again) = (kernel::function(b, empty)?, kernel::function(b, empty)?);
    b.second_context()?;
    let there = kernel::function(b, empty)?;
    Ok(format!("{}, {}", choose(first == again, "the same", "another"), choose(first == there, "the same", "another")))
}

fn counters_of_contexts(b: &Fixture) -> Answer {
    b.init_context()?;
    let (of, count) = with_kernel(b, c"count")?;
    let counted = |b: &Fixture| -> Result<(u32, CUdeviceptr), DriverError> {
        let to = zeros(b)?;
        launch(b, count.into(), ONE, DEFAULT, &[to.0])?;
        Ok((word_at(b, to)?, library::global(b, of, c"counter")?.base))
    };
    let (first, here) = counted(b)?;
    b.second_context()?;
    let (second, there) = counted(b)?;
    Ok(format!("{first}, {second}, {}", choose(here == there, "one place", "two places")))
}

fn attribute_of_contexts(b: &Fixture) -> Answer {
    const SHARED: CUfunction_attribute = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    b.init_context()?;
    let (_, dynamic) = with_kernel(b, c"dynamic_shared")?;
    let before = kernel::attribute(b, dynamic, SHARED, b.device)?;
    kernel::set_attribute(b, dynamic, SHARED, 100_000, b.device)?;
    let of_kernel = kernel::attribute(b, dynamic, SHARED, b.device)?;
    let here = function::attribute(b, kernel::function(b, dynamic)?, SHARED)?;
    b.second_context()?;
    let there = function::attribute(b, kernel::function(b, dynamic)?, SHARED)?;
    Ok(format!("{before}, then {of_kernel}; {here} and {there}"))
}
