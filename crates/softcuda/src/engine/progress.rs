//! How far a step of work may go, and how far it went.

use std::time::Duration;

/// How much of a piece of work one step may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantum {
    Unlimited,
    /// So many bytes or instructions, and host functions on a thread of their own, which are waited for so long.
    Limited {
        limit: u64,
        host_fn_timeout: Duration,
        /// What decides in which order the parts of a kernel go on, if anything does.
        seed: Option<u64>,
    },
}

/// How far a step of work got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// A part was carried out.
    Partial,
    /// A part of a kernel was carried out, which may wait for whatever it looks at meanwhile.
    KernelRan,
    /// It waits for something outside its stream.
    Blocked,
}
