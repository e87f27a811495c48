//! Experiments on images that the driver links from several (question 4).

use std::ffi::CStr;

use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{CUjitInputType, CUlinkState, CUmodule, DriverError, driver, link, module};

use crate::answer_text::{choose, code, or_code};
use crate::experiment::Experiment;
use crate::failure::Failure;
use crate::fixture::Fixture;
use crate::id::Id;
use crate::kernels::{CALLEE, CALLER, DEFAULT, KERNELS, ONE, function, launch, load, word_at, zeros};

const PTX: CUjitInputType = CUjitInputType::PTX;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(4, 8, 1),
        did: "link a text with one that defines a function of it, load the image, launch a kernel of it",
        run: |b| {
            b.init_context()?;
            let state = linked(b, &[CALLER, CALLEE])?;
            let of = load_linked(b, state)?;
            Ok(doubled(b, of)?.to_string())
        },
    },
    Experiment {
        id: Id(4, 8, 2),
        did: "the same with the texts in the other order",
        run: |b| {
            b.init_context()?;
            let state = linked(b, &[CALLEE, CALLER])?;
            let of = load_linked(b, state)?;
            Ok(doubled(b, of)?.to_string())
        },
    },
    Experiment {
        id: Id(4, 8, 3),
        did: "complete a link that lacks a function",
        run: |b| {
            b.init_context()?;
            let state = create(b)?;
            let added = code(add(b, state, PTX, CALLER.to_bytes_with_nul()));
            Ok(format!("add {added}, complete {}", code(link::complete(b, state))))
        },
    },
    Experiment {
        id: Id(4, 8, 4),
        did: "add a text that defines a function twice, and complete",
        run: |b| {
            b.init_context()?;
            let state = linked(b, &[CALLER, CALLEE])?;
            let added = code(add(b, state, PTX, CALLEE.to_bytes_with_nul()));
            Ok(format!("add {added}, complete {}", code(link::complete(b, state))))
        },
    },
    Experiment {
        id: Id(4, 8, 5),
        did: "add a text to a link that is complete",
        run: |b| {
            b.init_context()?;
            let state = linked(b, &[CALLER, CALLEE])?;
            link::complete(b, state)?;
            Ok(code(add(b, state, PTX, KERNELS.to_bytes_with_nul())))
        },
    },
    Experiment {
        id: Id(4, 8, 6),
        did: "complete a link twice",
        run: |b| {
            b.init_context()?;
            let state = linked(b, &[CALLER, CALLEE])?;
            let first = link::complete(b, state)?;
            let second = link::complete(b, state);
            Ok(or_code(second, |second| choose(second == first, "the same image", "another image")))
        },
    },
    Experiment {
        id: Id(4, 8, 7),
        did: "destroy a link before it is complete",
        run: |b| {
            b.init_context()?;
            let state = linked(b, &[CALLER])?;
            Ok(code(link::destroy(b, state)))
        },
    },
    Experiment {
        id: Id(4, 8, 8),
        did: "load the image of a link, destroy the link, launch",
        run: |b| {
            b.init_context()?;
            let state = linked(b, &[CALLER, CALLEE])?;
            let of = load_linked(b, state)?;
            link::destroy(b, state)?;
            Ok(doubled(b, of)?.to_string())
        },
    },
    Experiment {
        id: Id(4, 8, 9),
        did: "complete a link of nothing",
        run: |b| {
            b.init_context()?;
            let state = create(b)?;
            Ok(code(link::complete(b, state)))
        },
    },
    Experiment {
        id: Id(4, 8, 10),
        did: "add a text as a binary, as an object, as a fat binary",
        run: |b| {
            let [binary, object, fat] =
                [CUjitInputType::CUBIN, CUjitInputType::OBJECT, CUjitInputType::FATBINARY].map(|kind| {
                    b.init_context()?;
                    let state = create(b)?;
                    Ok::<_, Failure>(code(add(b, state, kind, CALLEE.to_bytes_with_nul())))
                });
            Ok(format!("{}, {}, {}", binary?, object?, fat?))
        },
    },
    Experiment {
        id: Id(4, 8, 11),
        did: "add an input of type 99",
        run: |b| {
            b.init_context()?;
            let state = create(b)?;
            Ok(code(add(b, state, CUjitInputType(99), CALLEE.to_bytes_with_nul())))
        },
    },
    Experiment {
        id: Id(4, 8, 12),
        did: "add a text that does not compile",
        run: |b| {
            b.init_context()?;
            let state = create(b)?;
            let broken = b".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry broken() { nothing; }\n\0";
            Ok(code(add(b, state, PTX, broken)))
        },
    },
    Experiment {
        id: Id(4, 8, 13),
        did: "add a text without its NUL",
        run: |b| {
            b.init_context()?;
            let state = create(b)?;
            let caller = code(add(b, state, PTX, CALLER.to_bytes()));
            let callee = code(add(b, state, PTX, CALLEE.to_bytes()));
            let of = load_linked(b, state)?;
            Ok(format!("{caller}, {callee}, {}", doubled(b, of)?))
        },
    },
    Experiment {
        id: Id(4, 8, 14),
        did: "add a file that is not there",
        run: |b| {
            b.init_context()?;
            let state = create(b)?;
            // SAFETY: there are no options.
            Ok(code(unsafe { link::add_file(b, state, PTX, c"/nowhere/text.ptx", &mut Options::new()) }))
        },
    },
    Experiment {
        id: Id(4, 8, 15),
        did: "add no bytes",
        run: |b| {
            b.init_context()?;
            let state = create(b)?;
            Ok(code(add(b, state, PTX, b"")))
        },
    },
    Experiment {
        id: Id(4, 8, 16),
        did: "load a text that calls a function which it does not define",
        run: |b| {
            b.init_context()?;
            Ok(code(load(b, CALLER)))
        },
    },
    Experiment {
        id: Id(4, 8, 20),
        did: "a kernel and a variable of a linked image",
        run: |b| {
            b.init_context()?;
            let state = linked(b, &[CALLER, CALLEE])?;
            let of = load_linked(b, state)?;
            let (also, own) = (module::function(b, of, c"also"), module::global(b, of, c"own"));
            Ok(format!("also {}, own {}", code(also), code(own)))
        },
    },
    Experiment {
        id: Id(4, 8, 18),
        did: "create a link with no context current",
        run: |b| {
            driver::init(b, 0)?;
            Ok(code(create(b)))
        },
    },
    Experiment {
        id: Id(4, 8, 19),
        did: "destroy a link twice",
        run: |b| {
            b.init_context()?;
            let state = create(b)?;
            link::destroy(b, state)?;
            Ok(code(link::destroy(b, state)))
        },
    },
];

fn create(b: &Fixture) -> Result<CUlinkState, DriverError> {
    // SAFETY: there are no options for the driver to keep.
    unsafe { link::create(b, &mut Options::new()) }
}

fn add(b: &Fixture, state: CUlinkState, kind: CUjitInputType, image: &[u8]) -> Result<(), DriverError> {
    // SAFETY: there are no options.
    unsafe { link::add(b, state, kind, image, c"input", &mut Options::new()) }
}

/// Starts a link with some texts, not completed.
fn linked(b: &Fixture, texts: &[&CStr]) -> Result<CUlinkState, DriverError> {
    let state = create(b)?;
    texts.iter().try_for_each(|text| add(b, state, PTX, text.to_bytes_with_nul()))?;
    Ok(state)
}

fn load_linked(b: &Fixture, state: CUlinkState) -> Result<CUmodule, DriverError> {
    let image = link::complete(b, state)?;
    // SAFETY: the image belongs to the driver and stays until the link is destroyed, which happens later.
    unsafe { module::load(b, image.start) }
}

/// Returns what the kernel that calls the other text's function makes of 21.
fn doubled(b: &Fixture, of: CUmodule) -> Result<u32, DriverError> {
    let to = zeros(b)?;
    launch(b, function(b, of, c"doubles")?, ONE, DEFAULT, &[to.0, 21])?;
    word_at(b, to)
}
