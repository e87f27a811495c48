//! What the test of the kernels is made of: a kernel's description, the content of its buffers, its record, and the run.
//!
//! Knows nothing of schedules and processes: those are the test's.

pub(crate) mod content;
pub(crate) mod describe;
pub(crate) mod element;
pub(crate) mod record;
pub(crate) mod run;

/// A kernel of the data folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    /// How the name of its source ends.
    pub(crate) extension: &'static str,
    /// Whose first lines describe the launch.
    pub(crate) source: &'static str,
    pub(crate) ptx: &'static str,
    /// What an H200 gave.
    pub(crate) out: &'static str,
}
