//! Parts that do not depend on CUDA objects: settings, handles, locks, the log.

pub(crate) mod check;
pub mod config;
pub(crate) mod handle_table;
pub(crate) mod host_watch;
pub(crate) mod log;
pub(crate) mod shared_frees;
pub(crate) mod stdio;
pub(crate) mod sync;
pub(crate) mod visible;
