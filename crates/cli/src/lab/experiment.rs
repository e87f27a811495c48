//! What an experiment is, and the list of all of them. Each does one thing with a driver and has a short literal
//! answer.

use std::io;

use freehold_driver::cuda::CallError;

use super::answer_text::{error_name, short_name};
use super::fixture::Fixture;
use super::id::Id;

mod access;
mod addresses;
mod after_fault;
mod allocations;
mod attributes;
mod blocks;
mod contexts;
mod copies;
mod descriptors;
mod devices;
mod events;
mod faults;
mod fills;
mod forks;
mod frees;
mod functions;
mod globals;
mod host_memory;
mod images;
mod ipc_events;
mod ipc_lifetimes;
mod ipc_memory;
mod launches;
mod libraries;
mod links;
mod many_processes;
mod mappings;
mod modules;
mod ownership;
mod pending;
mod pointers;
mod pools;
mod processes;
mod reuse;
mod running_kernels;
mod shared_pools;
mod special_registers;
mod stream_values;
mod streams;

/// The project's five questions, and two groups that all of them need: faults of kernels, and virtual memory. The first
/// number of an id is the index here.
pub(crate) const QUESTIONS: [&str; 7] = [
    "who owns device memory and who may free it",
    "how processes work together on one GPU",
    "when a release really happens",
    "how memory is reallocated",
    "how long a kernel image lives",
    "what a fault of a kernel ends",
    "how memory and its addresses come together",
];

/// An experiment with a fixture: CUDA's or OpenCL's.
pub(crate) struct Experiment<B = Fixture> {
    pub(crate) id: Id,
    /// What is done, in a sentence without its full stop.
    pub(crate) did: &'static str,
    pub(crate) run: fn(&B) -> Answer,
}

impl<B> Experiment<B> {
    pub(crate) fn info(&self) -> ExperimentInfo {
        ExperimentInfo { id: self.id, did: self.did }
    }
}

/// An experiment's id and title, without its code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExperimentInfo {
    pub(crate) id: Id,
    pub(crate) did: &'static str,
}

pub(crate) type Answer = Result<String, Failure>;

/// Why an experiment has no answer: one of its steps failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{} with {}", .0.call, error_name(.0.code))]
    Call(#[from] CallError),
    #[error("{} with {}", .0.call, short_name(.0.code))]
    OpenCl(#[from] freehold_driver::CallError),
    #[error("the system: {0}")]
    System(#[from] io::Error),
    #[error("the other process has ended")]
    Partner,
}

const GROUPS: [&[Experiment]; 39] = [
    access::EXPERIMENTS,
    addresses::EXPERIMENTS,
    after_fault::EXPERIMENTS,
    allocations::EXPERIMENTS,
    attributes::EXPERIMENTS,
    blocks::EXPERIMENTS,
    contexts::EXPERIMENTS,
    copies::EXPERIMENTS,
    descriptors::EXPERIMENTS,
    devices::EXPERIMENTS,
    events::EXPERIMENTS,
    faults::EXPERIMENTS,
    fills::EXPERIMENTS,
    forks::EXPERIMENTS,
    frees::EXPERIMENTS,
    functions::EXPERIMENTS,
    globals::EXPERIMENTS,
    host_memory::EXPERIMENTS,
    images::EXPERIMENTS,
    ipc_events::EXPERIMENTS,
    ipc_lifetimes::EXPERIMENTS,
    ipc_memory::EXPERIMENTS,
    launches::EXPERIMENTS,
    libraries::EXPERIMENTS,
    links::EXPERIMENTS,
    many_processes::EXPERIMENTS,
    mappings::EXPERIMENTS,
    modules::EXPERIMENTS,
    ownership::EXPERIMENTS,
    pending::EXPERIMENTS,
    pointers::EXPERIMENTS,
    pools::EXPERIMENTS,
    processes::EXPERIMENTS,
    reuse::EXPERIMENTS,
    running_kernels::EXPERIMENTS,
    shared_pools::EXPERIMENTS,
    special_registers::EXPERIMENTS,
    streams::EXPERIMENTS,
    stream_values::EXPERIMENTS,
];

/// Returns every experiment, ordered by id.
pub(crate) fn all() -> Vec<&'static Experiment> {
    let mut experiments: Vec<_> = GROUPS.iter().flat_map(|group| group.iter()).collect();
    experiments.sort_by_key(|experiment| experiment.id);
    experiments
}

pub(crate) fn with_id(id: Id) -> Option<&'static Experiment> {
    all().into_iter().find(|experiment| experiment.id == id)
}

/// Returns whether an experiment's kernel makes an invalid access that hardware does not check.
pub(crate) fn is_unchecked(id: Id) -> bool {
    faults::UNCHECKED.contains(&id)
}
