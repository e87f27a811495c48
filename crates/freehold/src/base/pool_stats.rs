//! How much memory there is, in numbers.

/// How much memory a device's pools have, in which state.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Blocks that somebody has.
    pub owned_blocks: u64,
    /// What the owners asked for.
    pub owned_bytes: u64,
    /// Given up by their owners, while fences have not passed.
    pub released_blocks: u64,
    /// What the owners had asked for.
    pub released_bytes: u64,
    /// What can be handed out again, and what is lost to roundness.
    pub cached_bytes: u64,
    /// What the driver gave.
    pub reserved_bytes: u64,
}
