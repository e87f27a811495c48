//! The recording of a device: what happened when, and the file that it is written to.

pub(crate) mod log;
pub mod perfetto;
pub(crate) mod timeline;
