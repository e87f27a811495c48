//! Memory of a device that cannot map it to addresses: a chunk comes from the driver with addresses of its own, is a region of
//! its lot as a whole, and keeps its addresses until it goes back. No chunk is made of others, so that a request may find
//! none although enough is free in pieces.

use std::sync::{Arc, PoisonError};

use freehold_driver::{Backend, CallError};

use super::{Inside, Making, Piece, Purse, Reach, Supply};
use crate::error::Error;
use crate::pool::heap::{Chunk, PAGE_BYTES};

/// Addresses that the pool can tell apart, on both sides of the first chunk: so many times the device's memory, and at least
/// so many. A driver gives addresses that lie together.
const WINDOW_TIMES: u64 = 4;
const WINDOW_BYTES_MIN: u64 = 64 << 30;

/// The shortest chunk, where there is room for one.
const CHUNK_BYTES_MIN: u64 = 16 << 20;

impl Supply {
    /// Takes the first chunk, which tells where the driver's addresses are.
    pub(super) fn whole(backend: Arc<dyn Backend>, total_bytes: u64, purse: Arc<Purse>) -> Result<Self, Error> {
        let window_bytes = (total_bytes * WINDOW_TIMES).max(WINDOW_BYTES_MIN).next_multiple_of(PAGE_BYTES);
        let mut supply = Self {
            backend,
            reach: Reach::Process,
            making: Making::Whole,
            base: 0,
            bytes: u64::MAX,
            total_bytes,
            purse,
            wholes: Default::default(),
            inside: Default::default(),
            described: Default::default(),
        };
        let first = supply.create_whole(&mut supply.lock(), PAGE_BYTES)?;
        let first = first.ok_or(Error::Short { wanted_bytes: PAGE_BYTES })?;
        supply.base = base_of(first).saturating_sub(window_bytes);
        supply.bytes = base_of(first) - supply.base + window_bytes;
        supply.lock().kept.push(first);
        Ok(supply)
    }

    /// A chunk for a region of its own: one that is kept, or else a new one. Its base and its length; it is kept until
    /// [`take_whole`](Self::take_whole).
    pub(in crate::pool) fn find_whole(
        &self,
        inside: &mut Inside,
        wanted_bytes: u64,
    ) -> Result<Option<(u64, u64)>, CallError> {
        let fitting = inside.kept.iter().filter(|piece| piece.bytes >= wanted_bytes);
        let found = match fitting.min_by_key(|piece| piece.bytes).copied() {
            Some(piece) => Some(piece),
            None => {
                let wish = self.create_whole(inside, wanted_bytes.max(CHUNK_BYTES_MIN))?;
                let made = match wish {
                    None if wanted_bytes < CHUNK_BYTES_MIN => self.create_whole(inside, wanted_bytes)?,
                    wish => wish,
                };
                inside.kept.extend(made);
                made
            }
        };
        Ok(found.map(|piece| (base_of(piece), piece.bytes)))
    }

    /// Takes the chunk that was found at a base.
    pub(in crate::pool) fn take_whole(&self, inside: &mut Inside, base: u64) -> Chunk {
        let index = inside.kept.iter().position(|&piece| base_of(piece) == base);
        let Piece { handle, bytes } = inside.kept.swap_remove(index.expect("a chunk is taken when it was found"));
        Chunk { base, bytes, handle }
    }

    /// New memory with its addresses, if there is some, the budget allows it, and the pool can tell the addresses apart. What
    /// turns out to be of no use is kept or put aside: to give it back at once would wait for all work.
    fn create_whole(&self, inside: &mut Inside, bytes: u64) -> Result<Option<Piece>, CallError> {
        // More of what cannot be used is not asked for.
        if !inside.strays.is_empty() {
            return Ok(None);
        }
        loop {
            let asked_bytes = if inside.is_padded { bytes + PAGE_BYTES } else { bytes };
            let Some(piece) = self.make_whole(asked_bytes)? else { return Ok(None) };
            if !self.covers(base_of(piece)) || !self.covers(base_of(piece) + piece.bytes) {
                inside.strays.push(piece);
                return Ok(None);
            }
            self.wholes.write().unwrap_or_else(PoisonError::into_inner).push(piece);
            if piece.bytes >= bytes {
                return Ok(Some(piece));
            }
            // It is a page short of what was asked for, and serves shorter requests.
            inside.is_padded = true;
            inside.kept.push(piece);
        }
    }

    /// Memory of the driver as it comes, as far as it is whole pages.
    fn make_whole(&self, bytes: u64) -> Result<Option<Piece>, CallError> {
        if !self.set_aside(bytes) {
            return Ok(None);
        }
        let made = self.backend.alloc(bytes);
        if made.is_err() {
            self.uncount(bytes);
        }
        match made {
            Ok(start) if start.is_multiple_of(PAGE_BYTES) => Ok(Some(Piece { handle: start, bytes })),
            Ok(start) => Ok(Some(Piece { handle: start, bytes: bytes - PAGE_BYTES })),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives memory back that was of no use, which waits for all work of the context. How many bytes went.
    pub(super) fn free_strays(&self, inside: &mut Inside) -> Result<u64, CallError> {
        let mut freed_bytes = 0;
        while let Some(&piece) = inside.strays.last() {
            freed_bytes += self.free_whole(piece)?;
            inside.strays.pop();
        }
        Ok(freed_bytes)
    }

    /// Gives a chunk back to the driver, which waits for all work of the context. How many bytes went.
    pub(super) fn free_whole(&self, piece: Piece) -> Result<u64, CallError> {
        let wholes = || self.wholes.write().unwrap_or_else(PoisonError::into_inner);
        // Before the addresses can be another device's.
        let had = wholes().extract_if(.., |whole| *whole == piece).next();
        // SAFETY: the piece is kept or of no use: nothing uses it, and it is freed once.
        if let Err(error) = unsafe { self.backend.free(piece.handle) } {
            wholes().extend(had);
            return Err(error);
        }
        self.uncount(given_bytes(piece));
        Ok(given_bytes(piece))
    }

    /// The first of what `first` finds in the addresses of the chunks.
    pub(super) fn wholes_first(&self, first: impl Fn(u64, u64) -> Option<u64>) -> Option<u64> {
        let wholes = self.wholes.read().unwrap_or_else(PoisonError::into_inner);
        wholes.iter().filter_map(|&piece| first(base_of(piece), piece.bytes)).min()
    }

    pub(super) fn has_whole(&self, address: u64) -> bool {
        let wholes = self.wholes.read().unwrap_or_else(PoisonError::into_inner);
        wholes.iter().any(|&piece| address.wrapping_sub(base_of(piece)) < piece.bytes)
    }
}

/// Where a piece's whole pages begin. The driver's own address is its handle.
fn base_of(piece: Piece) -> u64 {
    piece.handle.next_multiple_of(PAGE_BYTES)
}

/// What the driver gave for a piece: a page more than its whole pages where it does not begin with one.
fn given_bytes(piece: Piece) -> u64 {
    piece.bytes + if piece.handle.is_multiple_of(PAGE_BYTES) { 0 } else { PAGE_BYTES }
}
