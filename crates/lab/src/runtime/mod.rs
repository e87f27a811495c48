//! The experiments on the CUDA runtime: each asks a library of the documented C interface one question.
//!
//! The library is loaded at run time, so the same experiments ask NVIDIA's runtime, ours on a GPU, and ours on the
//! software device. Their kernels are the lab's own PTX, loaded with the runtime's library functions: no compiler is
//! needed.

use super::experiment::Experiment;
use super::id::Id;

pub(crate) mod fixture;
#[allow(non_snake_case, reason = "named as C names the functions")]
pub(crate) mod functions;

mod captures;
mod copies;
mod copy_waits;
mod default_streams;
mod devices;
mod errors;
mod events;
mod faults;
mod frees;
mod ipc;
mod launches;
mod mixed;
mod pointers;
mod pools;
mod resets;
mod spin;
mod two_copies;
mod waits;

use fixture::Fixture;

/// The first number of the ids.
pub const QUESTION: u8 = 7;

const GROUPS: [&[Experiment<Fixture>]; 17] = [
    devices::EXPERIMENTS,
    default_streams::EXPERIMENTS,
    waits::EXPERIMENTS,
    copy_waits::EXPERIMENTS,
    errors::EXPERIMENTS,
    faults::EXPERIMENTS,
    resets::EXPERIMENTS,
    mixed::EXPERIMENTS,
    two_copies::EXPERIMENTS,
    frees::EXPERIMENTS,
    pointers::EXPERIMENTS,
    copies::EXPERIMENTS,
    pools::EXPERIMENTS,
    captures::EXPERIMENTS,
    launches::EXPERIMENTS,
    events::EXPERIMENTS,
    ipc::EXPERIMENTS,
];

/// Returns every experiment, ordered by id.
pub(crate) fn all() -> Vec<&'static Experiment<Fixture>> {
    let mut experiments: Vec<_> = GROUPS.iter().flat_map(|group| group.iter()).collect();
    experiments.sort_by_key(|experiment| experiment.id);
    experiments
}

pub(crate) fn with_id(id: Id) -> Option<&'static Experiment<Fixture>> {
    all().into_iter().find(|experiment| experiment.id == id)
}
