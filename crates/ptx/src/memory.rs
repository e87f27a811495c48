//! The memory beyond a block: what a kernel reaches of the device, as whoever runs it provides it.

use std::fmt;

/// Threads of a warp.
pub const LANES: usize = 32;

/// How many bytes one access has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    One = 1,
    Two = 2,
    Four = 4,
    Eight = 8,
}

impl Width {
    pub fn bytes(self) -> u64 {
        self as u64
    }
}

/// An access that met no memory it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfBounds {
    pub address: u64,
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory at {:#x}", self.address)
    }
}

impl std::error::Error for OutOfBounds {}

/// Global memory. Addresses are aligned to the width: that was checked before. Only lanes whose bit is set in `lanes`
/// take part; values are zero-extended.
pub trait Memory {
    /// # Errors
    /// The first lane that strays; others may have been served.
    fn load(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &mut [u64; LANES],
    ) -> Result<(), OutOfBounds>;

    /// Writes lane after lane, so that of two lanes with one address the higher one wins.
    ///
    /// # Errors
    /// The first lane that strays; lanes before it have written.
    fn store(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &[u64; LANES],
    ) -> Result<(), OutOfBounds>;

    /// Replaces the word (2, 4 or 8 bytes) at `address` by what `change` makes of it, as one atomic step, and returns what was there.
    /// `change` may be called more than once.
    ///
    /// # Errors
    /// The address strays.
    fn atomic_update(
        &mut self,
        width: Width,
        address: u64,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, OutOfBounds>;

    /// Orders what came before against what comes after, for everybody.
    fn fence(&mut self);

    /// Device `malloc`: zero if there is no memory.
    fn allocate(&mut self, bytes: u64) -> u64;

    /// Device `free`: false if nothing that `allocate` gave starts at `address`.
    fn release(&mut self, address: u64) -> bool;

    /// What lies at an address that strayed, for a message: "a freed block", "12 bytes beyond the end of a block of 64".
    fn describe(&mut self, address: u64) -> String;
}
