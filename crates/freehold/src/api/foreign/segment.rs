//! A piece of the memory that a pool has from the driver.

use freehold_driver::handle::Stream;

/// Memory at consecutive addresses, mapped for one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first address; 0 for memory that is not mapped.
    pub base: u64,
    /// Its length.
    pub bytes: u64,
    /// The stream whose freed blocks it contains; the default stream for memory that is not mapped.
    pub stream: Stream,
}
