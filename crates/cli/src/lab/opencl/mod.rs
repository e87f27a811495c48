//! The lab's questions to OpenCL: each is one question to a vendor's driver with a short literal answer.

use super::experiment::Experiment;

pub(crate) mod bench;

mod contexts;
mod counts;
mod events;
mod faults;
mod parts;
mod programs;
mod queues;
mod releases;
mod shared;

use bench::Bench;

const GROUPS: [&[Experiment<Bench>]; 9] = [
    contexts::EXPERIMENTS,
    counts::EXPERIMENTS,
    events::EXPERIMENTS,
    faults::EXPERIMENTS,
    parts::EXPERIMENTS,
    programs::EXPERIMENTS,
    queues::EXPERIMENTS,
    releases::EXPERIMENTS,
    shared::EXPERIMENTS,
];

/// Every experiment, in the order of the ids.
pub(crate) fn all() -> Vec<&'static Experiment<Bench>> {
    let mut experiments: Vec<_> = GROUPS.iter().flat_map(|group| group.iter()).collect();
    experiments.sort_by_key(|experiment| experiment.id);
    experiments
}
