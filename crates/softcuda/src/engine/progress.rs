//! How far a step of work may run, and how far it ran.

use std::time::Duration;

/// The limit of one step of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantum {
    Unlimited,
    /// At most `limit` bytes or instructions. Host functions run on their own thread, and the step waits for them up to
    /// a timeout.
    Limited {
        limit: u64,
        host_fn_timeout: Duration,
        /// Seed for the order in which the blocks of a kernel run, under a seeded schedule.
        seed: Option<u64>,
    },
}

/// The result of a step of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// A part was done.
    Partial,
    /// A part of a kernel was done. The kernel may be spinning on memory.
    KernelRan,
    /// The work waits for something outside its stream.
    Blocked,
}
