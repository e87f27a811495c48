//! Memory outside a thread block: the trait through which a kernel accesses the device.

use std::fmt;
use std::sync::Arc;

use crate::observer::Observer;
use crate::texture::{Surface, Texture};

pub(crate) use crate::observer::LANES;

/// The size of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// 8 bits.
    One = 1,
    /// 16 bits.
    Two = 2,
    /// 32 bits.
    Four = 4,
    /// 64 bits.
    Eight = 8,
}

impl Width {
    /// As a number.
    pub fn bytes(self) -> u64 {
        self as u64
    }
}

/// An access outside the memory that it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfBounds {
    /// Where it was.
    pub address: u64,
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory at {:#x}", self.address)
    }
}

impl std::error::Error for OutOfBounds {}

/// Global memory. Addresses are aligned to the width; the caller checks that. Only lanes whose bit is set in `lanes`
/// take part; values are zero-extended.
pub trait Memory {
    /// # Errors
    /// Returns the first lane that is out of bounds; others may have been read.
    fn load(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &mut [u64; LANES],
    ) -> Result<(), OutOfBounds>;

    /// Writes lane by lane, so that of two lanes with the same address the higher one wins.
    ///
    /// # Errors
    /// Returns the first lane that is out of bounds; lanes before it have written.
    fn store(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &[u64; LANES],
    ) -> Result<(), OutOfBounds>;

    /// Reads 32 consecutive words of 4 bytes, one for each lane. Returns `false` if it cannot: the caller then loads
    /// each lane, which reports what is out of bounds. An implementation that can do this faster than lane by lane
    /// does.
    fn load_words(&mut self, _address: u64, _words: &mut [u32; LANES]) -> bool {
        false
    }

    /// Writes 32 consecutive words of 4 bytes, one for each lane. Returns `false`, without having written any, if it
    /// cannot.
    fn store_words(&mut self, _address: u64, _words: &[u32; LANES]) -> bool {
        false
    }

    /// The same for some lanes: each writes its word of the 32 consecutive ones.
    fn store_some_words(&mut self, _address: u64, _words: &[u32; LANES], _lanes: u32) -> bool {
        false
    }

    /// Reads 16 bytes for each lane, aligned to that, as pairs of words. On a GPU that is one access; programs rely on
    /// reading a value as a whole that another thread block stored with one access.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn load_pairs(
        &mut self,
        addresses: &[u64; LANES],
        lanes: u32,
        pairs: &mut [[u64; 2]; LANES],
    ) -> Result<(), OutOfBounds> {
        let (mut low, mut high) = ([0; LANES], [0; LANES]);
        self.load(Width::Eight, addresses, lanes, &mut low)?;
        self.load(Width::Eight, &addresses.map(|address| address.wrapping_add(8)), lanes, &mut high)?;
        for (lane, pair) in pairs.iter_mut().enumerate() {
            *pair = [low[lane], high[lane]];
        }
        Ok(())
    }

    /// Writes 16 bytes for each lane, like [`load_pairs`](Self::load_pairs).
    ///
    /// # Errors
    /// As for [`store`](Self::store).
    fn store_pairs(
        &mut self,
        addresses: &[u64; LANES],
        lanes: u32,
        pairs: &[[u64; 2]; LANES],
    ) -> Result<(), OutOfBounds> {
        self.store(Width::Eight, addresses, lanes, &pairs.map(|pair| pair[0]))?;
        let addresses = addresses.map(|address| address.wrapping_add(8));
        self.store(Width::Eight, &addresses, lanes, &pairs.map(|pair| pair[1]))
    }

    /// Atomically replaces the word (2, 4 or 8 bytes) at `address` by the result of `change`, and returns the old
    /// value. `change` may be called more than once.
    ///
    /// # Errors
    /// Returns an error if the address is out of bounds.
    fn atomic_update(
        &mut self,
        width: Width,
        address: u64,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, OutOfBounds>;

    /// Atomically replaces the 16 bytes at `address`, which is aligned to that, by the result of `change`, and returns the
    /// old ones, the lower half first. `change` may be called more than once. Without an implementation of its own, the
    /// memory updates one half after the other, which is right where one thread runs all blocks.
    ///
    /// # Errors
    /// Returns an error if the address is out of bounds.
    fn atomic_update_pair(
        &mut self,
        address: u64,
        change: &mut dyn FnMut([u64; 2]) -> [u64; 2],
    ) -> Result<[u64; 2], OutOfBounds> {
        let [low, high] = [address, address.wrapping_add(8)];
        let old = [
            self.atomic_update(Width::Eight, low, &mut |old| old)?,
            self.atomic_update(Width::Eight, high, &mut |old| old)?,
        ];
        let new = change(old);
        self.atomic_update(Width::Eight, low, &mut |_| new[0])?;
        self.atomic_update(Width::Eight, high, &mut |_| new[1])?;
        Ok(old)
    }

    /// Orders earlier accesses before later ones, for all observers.
    fn fence(&mut self);

    /// Device `malloc`: returns zero if there is not enough memory.
    fn allocate(&mut self, bytes: u64) -> u64;

    /// Device `free`: returns `false` if no allocation of `allocate` starts at `address`.
    fn release(&mut self, address: u64) -> bool;

    /// Returns the texture that a handle names. There is none unless the implementation has textures.
    fn texture(&mut self, _handle: u64) -> Option<Arc<Texture>> {
        None
    }

    /// Returns the surface that a handle names. There is none unless the implementation has surfaces.
    fn surface(&mut self, _handle: u64) -> Option<Arc<Surface>> {
        None
    }

    /// Returns the observer of the accesses of kernels, if there is one. Called at the start of each slice and, if
    /// there was an observer then, for each access.
    fn observer(&mut self) -> Option<&mut dyn Observer> {
        None
    }

    /// Describes an address that is out of bounds, for a message: "a freed block", "12 bytes beyond the end of a block
    /// of 64".
    fn describe(&mut self, address: u64) -> String;
}
