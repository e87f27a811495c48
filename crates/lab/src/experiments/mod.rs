//! The list of all experiments of CUDA.

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

use super::experiment::Experiment;
use super::id::Id;

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
pub fn is_unchecked(id: Id) -> bool {
    faults::UNCHECKED.contains(&id)
}
