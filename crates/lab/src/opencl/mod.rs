//! The OpenCL experiments: each does one thing with a vendor's driver and has a short literal answer.

use super::experiment::Experiment;

pub(crate) mod fixture;

mod contexts;
mod events;
mod faults;
mod programs;
mod queues;
mod reference_counts;
mod releases;
mod sub_buffers;
mod svm;

use fixture::Fixture;

const GROUPS: [&[Experiment<Fixture>]; 9] = [
    contexts::EXPERIMENTS,
    reference_counts::EXPERIMENTS,
    events::EXPERIMENTS,
    faults::EXPERIMENTS,
    sub_buffers::EXPERIMENTS,
    programs::EXPERIMENTS,
    queues::EXPERIMENTS,
    releases::EXPERIMENTS,
    svm::EXPERIMENTS,
];

/// Returns every experiment, ordered by id.
pub(crate) fn all() -> Vec<&'static Experiment<Fixture>> {
    let mut experiments: Vec<_> = GROUPS.iter().flat_map(|group| group.iter()).collect();
    experiments.sort_by_key(|experiment| experiment.id);
    experiments
}
