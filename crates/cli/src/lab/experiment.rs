//! What an experiment is, and the list of all. Each is one question to a driver with a short literal answer.

use std::io;

use freehold_driver::cuda::CallError;

use super::answers::error_name;
use super::bench::Bench;
use super::id::Id;

mod blocks;
mod contexts;
mod copies;
mod devices;
mod events;
mod fills;
mod frees;
mod host_memory;
mod ownership;
mod pending;
mod pointers;
mod pools;
mod processes;
mod reuse;
mod streams;
mod words;

/// The five questions that the project answers; the first number of an id is the place here.
pub(crate) const QUESTIONS: [&str; 5] = [
    "who owns device memory and who may free it",
    "how processes work together on one GPU",
    "when a release really happens",
    "how memory is reallocated",
    "how long a kernel image lives",
];

pub(crate) struct Experiment {
    pub(crate) id: Id,
    /// What is done, in a sentence without its full stop.
    pub(crate) did: &'static str,
    pub(crate) run: fn(&Bench) -> Answer,
}

/// What the other process of an experiment does with what it is told.
pub(crate) type Partner = fn(&Bench, &[String]) -> Answer;

pub(crate) type Answer = Result<String, Failure>;

/// Why an experiment has no answer: a step on the way to its question failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{} with {}", .0.call, error_name(.0.code))]
    Call(#[from] CallError),
    #[error("the system: {0}")]
    System(#[from] io::Error),
}

const GROUPS: [&[Experiment]; 16] = [
    blocks::EXPERIMENTS,
    contexts::EXPERIMENTS,
    copies::EXPERIMENTS,
    devices::EXPERIMENTS,
    events::EXPERIMENTS,
    fills::EXPERIMENTS,
    frees::EXPERIMENTS,
    host_memory::EXPERIMENTS,
    ownership::EXPERIMENTS,
    pending::EXPERIMENTS,
    pointers::EXPERIMENTS,
    pools::EXPERIMENTS,
    processes::EXPERIMENTS,
    reuse::EXPERIMENTS,
    streams::EXPERIMENTS,
    words::EXPERIMENTS,
];

/// Every experiment, in the order of the ids.
pub(crate) fn all() -> Vec<&'static Experiment> {
    let mut experiments: Vec<_> = GROUPS.iter().flat_map(|group| group.iter()).collect();
    experiments.sort_by_key(|experiment| experiment.id);
    experiments
}

pub(crate) fn with_id(id: Id) -> Option<&'static Experiment> {
    all().into_iter().find(|experiment| experiment.id == id)
}

pub(crate) fn partner_of(id: Id) -> Option<Partner> {
    processes::PARTNERS.iter().find(|(of, _)| *of == id).map(|(_, partner)| *partner)
}
