//! Statistics of a device's memory.

/// How much memory a device's pools have in each state.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Blocks with an owner.
    pub owned_blocks: u64,
    /// The bytes that their owners requested.
    pub owned_bytes: u64,
    /// Blocks that were released and wait for fences.
    pub released_blocks: u64,
    /// The bytes that their owners had requested.
    pub released_bytes: u64,
    /// Memory that can be reused, and internal fragmentation.
    pub cached_bytes: u64,
    /// Memory that the pools have reserved from the driver.
    pub reserved_bytes: u64,
    /// Owned bytes that are asleep and whose contents are kept. They have no device memory.
    pub asleep_kept_bytes: u64,
    /// Owned bytes that are asleep and whose contents were dropped. They have no device memory.
    pub asleep_dropped_bytes: u64,
    /// Pinned host memory that has the contents of sleeping blocks.
    pub asleep_host_bytes: u64,
}
