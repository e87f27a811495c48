//! Experiments on the lifetime of modules, their functions and their variables, and on their contexts (question 4).

use std::ffi::CString;
use std::thread;

use freehold_driver::cuda::{
    CUcontext, CUdeviceptr, CUfunction, CUfunction_attribute, CUmodule, CUstream, DriverError, context, driver,
    function, memory, module, primary, stream, stream_flags,
};

use crate::answer_text::{choose, code, code_and_pace, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::id::Id;
use crate::kernels::{self, DEFAULT, KERNELS, ONE, Spin, function, kernel, launch, load, word_at, zeros};

const THREADS: CUfunction_attribute = CUfunction_attribute::MAX_THREADS_PER_BLOCK;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(4, 1, 1),
        did: "overwrite the image once cuModuleLoadData has returned, then use a kernel and a variable of it",
        run: image_overwritten,
    },
    Experiment {
        id: Id(4, 1, 2),
        did: "cuModuleUnload of the module whose kernel runs: did the kernel come to its end",
        run: unload_of_running,
    },
    Experiment { id: Id(4, 1, 3), did: "cuModuleUnload of another module while a kernel runs", run: unload_of_idle },
    Experiment {
        id: Id(4, 1, 4),
        did: "cuModuleUnload of a module of context 2, current and idle, while a kernel of context 1 runs",
        run: unload_in_idle_context,
    },
    Experiment {
        id: Id(4, 1, 5),
        did: "cuModuleGetFunction and cuModuleGetGlobal of a loaded module while a kernel runs",
        run: asked_beside,
    },
    Experiment {
        id: Id(4, 2, 1),
        did: "load an image twice, count in both: the handles, and what the counters hold",
        run: loaded_twice,
    },
    Experiment {
        id: Id(4, 2, 2),
        did: "load an image twice, unload the first, use the second",
        run: one_of_two_unloaded,
    },
    Experiment {
        id: Id(4, 2, 3),
        did: "load an image in two contexts, count in both: where the counters lie, and what they hold",
        run: loaded_in_two_contexts,
    },
    Experiment {
        id: Id(4, 2, 4),
        did: "cuModuleGetFunction of one name twice",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            Ok(choose(
                module::function(b, of, c"empty")? == module::function(b, of, c"empty")?,
                "the same handle",
                "two handles",
            ))
        },
    },
    Experiment {
        id: Id(4, 3, 1),
        did: "launch a function of an unloaded module",
        run: |b| unloaded(b, |b, it| code(launch(b, it.function, ONE, DEFAULT, &[]))),
    },
    Experiment {
        id: Id(4, 3, 2),
        did: "cuFuncGetAttribute of a function of an unloaded module",
        run: |b| unloaded(b, |b, it| code(function::attribute(b, it.function, THREADS))),
    },
    Experiment {
        id: Id(4, 3, 3),
        did: "cuModuleGetFunction of an unloaded module",
        run: |b| unloaded(b, |b, it| code(module::function(b, it.module, c"empty"))),
    },
    Experiment {
        id: Id(4, 3, 4),
        did: "cuModuleGetGlobal of an unloaded module",
        run: |b| unloaded(b, |b, it| code(module::global(b, it.module, c"counter"))),
    },
    Experiment {
        id: Id(4, 3, 5),
        did: "unload a module twice",
        run: |b| unloaded(b, |b, it| code(module::unload(b, it.module))),
    },
    Experiment {
        id: Id(4, 3, 6),
        did: "cuFuncGetModule of a function of an unloaded module",
        run: |b| unloaded(b, |b, it| code(function::module(b, it.function))),
    },
    Experiment {
        id: Id(4, 3, 7),
        did: "cuFuncSetAttribute of a function of an unloaded module",
        run: |b| {
            let shared = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
            unloaded(b, |b, it| code(function::set_attribute(b, it.function, shared, 1024)))
        },
    },
    Experiment {
        id: Id(4, 3, 8),
        did: "copy from a variable of an unloaded module",
        run: |b| unloaded(b, |b, it| code(b.bytes_at(it.counter, 4))),
    },
    Experiment {
        id: Id(4, 3, 9),
        did: "launch a function of context 1 in the default stream, with context 2 current",
        run: |b| foreign(b, |b, it| code(launch(b, it.function, ONE, DEFAULT, &[]))),
    },
    Experiment {
        id: Id(4, 3, 10),
        did: "launch a function of context 1 in a stream of context 1, with context 2 current",
        run: |b| foreign(b, |b, it| code(launch(b, it.function, ONE, it.stream, &[]))),
    },
    Experiment {
        id: Id(4, 3, 11),
        did: "cuModuleGetFunction of a module of context 1, with context 2 current, launched in a stream of context 1",
        run: |b| {
            foreign(b, |b, it| {
                let found = module::function(b, it.module, c"empty");
                let launched = found.and_then(|empty| launch(b, empty, ONE, it.stream, &[]));
                format!("{}, {}", code(found), code(launched))
            })
        },
    },
    Experiment {
        id: Id(4, 3, 12),
        did: "cuModuleGetGlobal of a module of context 1, with context 2 current",
        run: |b| {
            foreign(b, |b, it| {
                or_code(module::global(b, it.module, c"counter"), |range| {
                    choose(range.base == it.counter, "where it lies in context 1", "elsewhere")
                })
            })
        },
    },
    Experiment {
        id: Id(4, 3, 13),
        did: "cuModuleUnload of a module of context 1, with context 2 current",
        run: |b| foreign(b, |b, it| code(module::unload(b, it.module))),
    },
    Experiment {
        id: Id(4, 3, 14),
        did: "cuFuncGetAttribute of a function of context 1, with context 2 current",
        run: |b| foreign(b, |b, it| code(function::attribute(b, it.function, THREADS))),
    },
    Experiment {
        id: Id(4, 3, 15),
        did: "launch a function whose context is destroyed, in another context",
        run: |b| orphaned(b, |b, it| code(launch(b, it.function, ONE, DEFAULT, &[]))),
    },
    Experiment {
        id: Id(4, 3, 16),
        did: "cuModuleGetFunction of a module whose context is destroyed",
        run: |b| orphaned(b, |b, it| code(module::function(b, it.module, c"empty"))),
    },
    Experiment {
        id: Id(4, 3, 17),
        did: "cuModuleUnload of a module whose context is destroyed",
        run: |b| orphaned(b, |b, it| code(module::unload(b, it.module))),
    },
    Experiment {
        id: Id(4, 3, 18),
        did: "cuFuncGetAttribute of a function whose context is destroyed",
        run: |b| orphaned(b, |b, it| code(function::attribute(b, it.function, THREADS))),
    },
    Experiment {
        id: Id(4, 3, 19),
        did: "cuModuleGetFunction, cuModuleGetGlobal and cuModuleUnload of a null module",
        run: |b| {
            b.init_context()?;
            let of = CUmodule::NULL;
            let (function, global) = (module::function(b, of, c"empty"), module::global(b, of, c"counter"));
            Ok(format!("{}, {}, {}", code(function), code(global), code(module::unload(b, of))))
        },
    },
    Experiment {
        id: Id(4, 3, 20),
        did: "load, ask and unload in a thread with no context current",
        run: without_context,
    },
    Experiment {
        id: Id(4, 3, 21),
        did: "reset the primary context, then launch a function of it, and unload its module",
        run: primary_reset,
    },
    Experiment {
        id: Id(4, 3, 22),
        did: "look up a kernel that is not there, one by a variable's name, and one by no name",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let [missing, variable, nameless] =
                [c"missing", c"counter", c""].map(|name| code(module::function(b, of, name)));
            Ok(format!("{missing}, {variable}, {nameless}"))
        },
    },
    Experiment {
        id: Id(4, 3, 23),
        did: "count the kernels of a module, and enumerate them",
        run: |b| {
            b.init_context()?;
            let of = load(b, KERNELS)?;
            let count = module::function_count(b, of)?;
            let mut names = module::functions(b, of, count)?
                .into_iter()
                .map(|one| function::name(b, one))
                .collect::<Result<Vec<_>, _>>()?;
            names.sort_unstable();
            Ok(format!("{count}: {}", names.join(" ")))
        },
    },
    Experiment {
        id: Id(4, 3, 24),
        did: "the loading mode, and whether a function that was only looked up is loaded",
        run: |b| {
            b.init_context()?;
            let function = module::function(b, load(b, KERNELS)?, c"empty")?;
            let before = function::loading_state(b, function)?.0;
            function::load(b, function)?;
            let after = function::loading_state(b, function)?.0;
            Ok(format!("mode {}, state {before}, after cuFuncLoad {after}", module::loading_mode(b)?.0))
        },
    },
];

/// A module of `KERNELS`, the kernel `empty`, a stream, and the address of its counter.
struct Loaded {
    module: CUmodule,
    function: CUfunction,
    stream: CUstream,
    counter: CUdeviceptr,
}

impl Loaded {
    fn new(b: &Fixture) -> Result<Self, DriverError> {
        let module = load(b, KERNELS)?;
        let function = function(b, module, c"empty")?;
        launch(b, function, ONE, DEFAULT, &[])?;
        context::synchronize(b)?;
        let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
        Ok(Self { module, function, stream, counter: module::global(b, module, c"counter")?.base })
    }
}

fn unloaded(b: &Fixture, ask: impl FnOnce(&Fixture, Loaded) -> String) -> Answer {
    b.init_context()?;
    let it = Loaded::new(b)?;
    module::unload(b, it.module)?;
    Ok(ask(b, it))
}

/// Runs `ask` on a module of context 1 with context 2 current, and checks that context 1 still works.
fn foreign(b: &Fixture, ask: impl FnOnce(&Fixture, Loaded) -> String) -> Answer {
    let first = b.init_context()?;
    let it = Loaded::new(b)?;
    b.second_context()?;
    let answer = ask(b, it);
    context::synchronize(b)?;
    context::set_current(b, first)?;
    context::synchronize(b)?;
    Ok(answer)
}

/// Runs `ask` on a module whose context is destroyed, with the primary one current.
fn orphaned(b: &Fixture, ask: impl FnOnce(&Fixture, Loaded) -> String) -> Answer {
    let first = b.init_context()?;
    let second = b.second_context()?;
    let it = Loaded::new(b)?;
    context::destroy(b, second)?;
    context::set_current(b, first)?;
    Ok(ask(b, it))
}

fn image_overwritten(b: &Fixture) -> Answer {
    b.init_context()?;
    let mut image = CString::from(KERNELS).into_bytes_with_nul();
    // SAFETY: the text ends in a NUL.
    let of = unsafe { module::load(b, image.as_ptr().cast()) }?;
    image.fill(b'x');
    drop(image);
    let to = zeros(b)?;
    launch(b, function(b, of, c"count")?, ONE, DEFAULT, &[to.0])?;
    let count = word_at(b, to)?;
    launch(b, function(b, of, c"scale")?, ONE, DEFAULT, &[to.0, 3])?;
    Ok(format!("counter {count}, 3 scaled {}", word_at(b, to)?))
}

fn unload_of_running(b: &Fixture) -> Answer {
    b.init_context()?;
    let of = load(b, KERNELS)?;
    let spin = Spin::of(b, function(b, of, c"spin")?)?;
    let block = zeros(b)?;
    spin.run(b, stream::create(b, stream_flags::NON_BLOCKING)?, block, 5)?;
    let pace = code_and_pace(spin.latch.during(|| module::unload(b, of)));
    Ok(format!("{pace}, it stored {}", word_at(b, block)?))
}

fn unload_of_idle(b: &Fixture) -> Answer {
    b.init_context()?;
    let spin = Spin::new(b)?;
    let idle = Loaded::new(b)?;
    spin.run(b, stream::create(b, stream_flags::NON_BLOCKING)?, CUdeviceptr::NULL, 0)?;
    let answer = code_and_pace(spin.latch.during(|| module::unload(b, idle.module)));
    context::synchronize(b)?;
    Ok(answer)
}

fn unload_in_idle_context(b: &Fixture) -> Answer {
    let first = b.init_context()?;
    let spin = Spin::new(b)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let second = b.second_context()?;
    let idle = Loaded::new(b)?;
    context::set_current(b, first)?;
    spin.run(b, stream, CUdeviceptr::NULL, 0)?;
    context::set_current(b, second)?;
    Ok(code_and_pace(spin.latch.during(|| module::unload(b, idle.module))))
}

fn asked_beside(b: &Fixture) -> Answer {
    b.init_context()?;
    let spin = Spin::new(b)?;
    let of = Loaded::new(b)?.module;
    spin.run(b, stream::create(b, stream_flags::NON_BLOCKING)?, CUdeviceptr::NULL, 0)?;
    let (pace, asked) = spin.latch.during(|| {
        module::function(b, of, c"empty")?;
        module::global(b, of, c"counter")
    });
    context::synchronize(b)?;
    Ok(code_and_pace((pace, asked)))
}

/// Returns what the kernel `count` of a module returns.
fn count(b: &Fixture, of: CUmodule) -> Result<u32, DriverError> {
    let to = zeros(b)?;
    launch(b, function(b, of, c"count")?, ONE, DEFAULT, &[to.0])?;
    let count = word_at(b, to)?;
    memory::free(b, to)?;
    Ok(count)
}

fn loaded_twice(b: &Fixture) -> Answer {
    b.init_context()?;
    let (first, second) = (load(b, KERNELS)?, load(b, KERNELS)?);
    let handles = choose(first == second, "one handle", "two handles");
    count(b, first)?;
    Ok(format!("{handles}, {}, {}", count(b, first)?, count(b, second)?))
}

fn one_of_two_unloaded(b: &Fixture) -> Answer {
    b.init_context()?;
    let (first, second) = (load(b, KERNELS)?, load(b, KERNELS)?);
    count(b, first)?;
    count(b, second)?;
    let unloaded = code(module::unload(b, first));
    Ok(format!("{unloaded}, the second counts to {}", count(b, second)?))
}

fn loaded_in_two_contexts(b: &Fixture) -> Answer {
    let first_context = b.init_context()?;
    let first = load(b, KERNELS)?;
    let here = module::global(b, first, c"counter")?.base;
    b.second_context()?;
    let second = load(b, KERNELS)?;
    let there = module::global(b, second, c"counter")?.base;
    let counted = count(b, second)?;
    context::set_current(b, first_context)?;
    let places = choose(here == there, "the same place", "two places");
    Ok(format!("{places}, {counted}, {}", count(b, first)?))
}

fn without_context(b: &Fixture) -> Answer {
    b.init_context()?;
    let it = Loaded::new(b)?;
    thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let load = code(load(b, KERNELS));
            let function = code(module::function(b, it.module, c"empty"));
            let launch = code(kernels::launch(b, it.function, ONE, DEFAULT, &[]));
            let in_stream = code(kernels::launch(b, it.function, ONE, it.stream, &[]));
            let unload = code(module::unload(b, it.module));
            format!(
                "load {load}, function {function}, launch {launch}, in a stream of its context {in_stream}, unload {unload}"
            )
        });
        Ok(asked.join().expect("the thread does not panic"))
    })
}

fn primary_reset(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    b.init_context()?;
    let it = Loaded::new(b)?;
    primary::reset(b, b.device)?;
    let again: CUcontext = primary::retain(b, b.device)?;
    context::set_current(b, again)?;
    let launched = code(launch(b, it.function, ONE, DEFAULT, &[]));
    let asked = code(kernel(b, KERNELS, c"empty"));
    Ok(format!("launch {launched}, unload {}, load again {asked}", code(module::unload(b, it.module))))
}
