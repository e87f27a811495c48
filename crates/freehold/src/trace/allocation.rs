//! How a block was allocated, for the log of a recording.

use std::panic::Location;
use std::time::Duration;

#[cfg_attr(not(feature = "timeline"), expect(dead_code, reason = "nothing is recorded"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation<'a> {
    pub(crate) base: u64,
    pub(crate) bytes: usize,
    pub(crate) tag: Option<&'a str>,
    pub(crate) at: &'static Location<'static>,
    /// Whether the memory came from the pool.
    pub(crate) is_reuse: bool,
    pub(crate) asked: Duration,
}
