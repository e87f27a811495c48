//! Experiments on programs and kernels: how long they live, and which arguments a launch uses.

use freehold_driver::CallError;
use freehold_driver::opencl::kernel::AddressQualifier;
use freehold_driver::opencl::{Kernel, Memory, kernel, memory, program};

use super::fixture::{BYTES, Fixture, KERNELS, Latch, Session, Spin, launch};
use crate::answer_text::{byte_runs, choose, code, code_and_pace, or_code};
use crate::experiment::{Answer, Experiment};
use crate::id::{Id, OPENCL};

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment { id: Id(OPENCL, 8, 1), did: "the count of a program, then with a kernel of it", run: counted },
    Experiment { id: Id(OPENCL, 8, 2), did: "release a program, launch a kernel of it", run: released_under_kernel },
    Experiment {
        id: Id(OPENCL, 8, 3),
        did: "release program and kernel while a launch is pending: do the releases wait, and what it stored",
        run: released_while_pending,
    },
    Experiment {
        id: Id(OPENCL, 8, 4),
        did: "release program and kernel while the kernel runs: do the releases wait, and what it stored",
        run: released_while_running,
    },
    Experiment {
        id: Id(OPENCL, 8, 5),
        did: "set an argument anew while a launch is pending: which value it stored",
        run: argument_reused,
    },
    Experiment { id: Id(OPENCL, 8, 6), did: "launch a kernel of whose arguments one is not set", run: unset },
    Experiment {
        id: Id(OPENCL, 8, 7),
        did: "set an argument with too few bytes, with too many, and one that there is not",
        run: wrong_arguments,
    },
    Experiment { id: Id(OPENCL, 8, 8), did: "build a text with a mistake, create a kernel of it", run: mistake },
    Experiment { id: Id(OPENCL, 8, 9), did: "create a kernel by a name that the program has not", run: unknown_kernel },
    Experiment { id: Id(OPENCL, 8, 10), did: "create a kernel of a program that was not built", run: unbuilt },
    Experiment { id: Id(OPENCL, 8, 11), did: "build a program again that has a kernel", run: built_again },
    Experiment { id: Id(OPENCL, 8, 12), did: "change the text of a program before it is built", run: text_changed },
    Experiment {
        id: Id(OPENCL, 8, 13),
        did: "ask for a kernel's parameters, built with the option for it, and without",
        run: parameters,
    },
    Experiment { id: Id(OPENCL, 8, 14), did: "launch groups of one work-item too many, and of none", run: group_size },
    Experiment { id: Id(OPENCL, 8, 15), did: "launch with memory of the group", run: group_memory },
    Experiment { id: Id(OPENCL, 8, 16), did: "a program from bytes that are no SPIR-V", run: no_spirv },
    Experiment {
        id: Id(OPENCL, 8, 17),
        did: "release a buffer that is an argument, then launch",
        run: argument_released,
    },
    Experiment { id: Id(OPENCL, 8, 18), did: "release a kernel twice", run: released_twice },
];

fn counted(b: &Fixture) -> Answer {
    let program = b.open_session()?.program()?;
    let alone = program::reference_count(program)?;
    kernel::create(program, c"store")?;
    Ok(format!("{alone}, {}", program::reference_count(program)?))
}

/// Returns the kernel `store` with a buffer and a value as its arguments.
fn ready(session: &Session) -> Result<(Kernel, Memory), CallError> {
    let (store, buffer) = (session.kernel(c"store")?, session.buffer(0)?);
    kernel::set_memory(store, 0, buffer)?;
    kernel::set_value(store, 1, &7_u32.to_le_bytes())?;
    Ok((store, buffer))
}

fn released_under_kernel(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let program = session.program()?;
    let (store, buffer) = (kernel::create(program, c"store")?, session.buffer(0)?);
    let released = code(program::release(program));
    kernel::set_memory(store, 0, buffer)?;
    kernel::set_value(store, 1, &7_u32.to_le_bytes())?;
    launch(session.queue, store, 1)?;
    Ok(format!("{released}, {}", session.word(buffer)?))
}

fn released_while_pending(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let program = session.program()?;
    let (store, buffer) = (kernel::create(program, c"store")?, session.buffer(0)?);
    kernel::set_memory(store, 0, buffer)?;
    kernel::set_value(store, 1, &7_u32.to_le_bytes())?;
    let hold = Latch::new(&session, session.queue)?;
    launch(session.queue, store, 1)?;
    let released = hold.during(|| kernel::release(store).and_then(|()| program::release(program)));
    Ok(format!("{}, {}", code_and_pace(released), session.word(buffer)?))
}

fn released_while_running(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let spin = Spin::run(b, &session)?;
    let released = spin.during(|| kernel::release(spin.kernel).and_then(|()| program::release(spin.program)));
    Ok(format!("{}, {}", code_and_pace(released), session.word(spin.to)?))
}

fn argument_reused(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let (store, buffer) = ready(&session)?;
    let hold = Latch::new(&session, session.queue)?;
    launch(session.queue, store, 1)?;
    kernel::set_value(store, 1, &8_u32.to_le_bytes())?;
    hold.open();
    Ok(choose(session.word(buffer)? == 7, "the one of the launch", "the later one"))
}

fn unset(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let (store, buffer) = (session.kernel(c"store")?, session.buffer(0)?);
    kernel::set_memory(store, 0, buffer)?;
    Ok(code(launch(session.queue, store, 1)))
}

fn wrong_arguments(b: &Fixture) -> Answer {
    let store = b.open_session()?.kernel(c"store")?;
    let few = code(kernel::set_value(store, 1, &[1, 2]));
    let many = code(kernel::set_value(store, 1, &[0; 8]));
    Ok(format!("{few}, {many}, {}", code(kernel::set_value(store, 2, &[0; 4]))))
}

fn mistake(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let made = program::from_source(session.context, "__kernel void wrong(__global uint *to) { *to = nothing; }")?;
    let built = code(program::build(made, session.device, c""));
    let log = program::log(made, session.device)?;
    let names_it = choose(log.contains("nothing"), "the log names it", "the log does not name it");
    Ok(format!("{built}, {names_it}, {}", code(kernel::create(made, c"wrong"))))
}

fn unknown_kernel(b: &Fixture) -> Answer {
    Ok(code(kernel::create(b.open_session()?.program()?, c"nothing")))
}

fn unbuilt(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let made = program::from_source(session.context, KERNELS)?;
    Ok(code(kernel::create(made, c"store")))
}

fn built_again(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let made = session.program()?;
    kernel::create(made, c"store")?;
    Ok(code(program::build(made, session.device, c"")))
}

fn text_changed(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let mut text = KERNELS.to_owned();
    let made = program::from_source(session.context, &text)?;
    text.replace_range(.., &" ".repeat(KERNELS.len()));
    program::build(made, session.device, c"")?;
    let kernel = code(kernel::create(made, c"store"));
    drop(text);
    Ok(kernel)
}

fn parameters(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let known = |kernel| {
        let places = [kernel::parameter(kernel, 0)?, kernel::parameter(kernel, 1)?];
        Ok::<_, CallError>(places)
    };
    let say = |[first, second]: [kernel::Parameter; 2]| {
        let word = |parameter: &kernel::Parameter| {
            let place = match parameter.qualifier {
                AddressQualifier::Global => "global",
                AddressQualifier::Constant => "constant",
                AddressQualifier::Local => "local",
                AddressQualifier::Private => "private",
            };
            format!("{place} {}", parameter.type_name)
        };
        format!("{} and {}", word(&first), word(&second))
    };
    let with = or_code(known(session.kernel(c"store")?), say);
    let made = program::from_source(session.context, KERNELS)?;
    program::build(made, session.device, c"")?;
    Ok(format!("{with}; without {}", or_code(known(kernel::create(made, c"store")?), say)))
}

fn group_size(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let (store, _) = ready(&session)?;
    let most = kernel::group_items_max(store, session.device)? as usize;
    // SAFETY: the arguments are set, and the buffer stays.
    let many = code(unsafe { kernel::launch(session.queue, store, [1, 1, 1], [most + 1, 1, 1], &[]) });
    // SAFETY: as above.
    let none = code(unsafe { kernel::launch(session.queue, store, [1, 1, 1], [0, 1, 1], &[]) });
    Ok(format!("{many}, {none}"))
}

fn group_memory(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let (shared, buffer) = (session.kernel(c"shared")?, session.buffer(0)?);
    kernel::set_local(shared, 0, 256)?;
    kernel::set_memory(shared, 1, buffer)?;
    // SAFETY: the arguments are set, and the buffer stays.
    unsafe { kernel::launch(session.queue, shared, [1, 1, 1], [64, 1, 1], &[]) }?;
    Ok(session.word(buffer)?.to_string())
}

fn no_spirv(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    Ok(code(program::from_spirv(session.context, b"neither text nor image")))
}

fn argument_released(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let (copy, from, to) = (session.kernel(c"copy")?, session.buffer(0x5a)?, session.buffer(0)?);
    kernel::set_memory(copy, 0, from)?;
    kernel::set_memory(copy, 1, to)?;
    memory::release(from)?;
    let launched = launch(session.queue, copy, BYTES / 4);
    Ok(format!("{}, {}", code(launched), or_code(session.bytes(to), |bytes| byte_runs(&bytes))))
}

fn released_twice(b: &Fixture) -> Answer {
    let store = b.open_session()?.kernel(c"store")?;
    let first = code(kernel::release(store));
    Ok(format!("{first}, then {}", code(kernel::release(store))))
}
