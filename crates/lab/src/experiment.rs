//! What an experiment is: it does one thing with a driver and has a short literal answer.

use super::failure::Failure;
use super::fixture::Fixture;
use super::id::Id;

/// The project's five questions, two groups that all of them need (faults of kernels, and virtual memory), and the CUDA
/// runtime. The first number of an id is the index here.
pub const QUESTIONS: [&str; 8] = [
    "who owns device memory and who may free it",
    "how processes work together on one GPU",
    "when a release really happens",
    "how memory is reallocated",
    "how long a kernel image lives",
    "what a fault of a kernel ends",
    "how memory and its addresses come together",
    "what the CUDA runtime does with a driver",
];

/// An experiment with a fixture: the driver's, the runtime's or OpenCL's.
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
pub struct ExperimentInfo {
    pub id: Id,
    pub did: &'static str,
}

pub(crate) type Answer = Result<String, Failure>;
