//! Arenas: one block, cut into slices that live in scopes. An allocation moves a counter up, the end of a scope moves
//! it back; neither calls the driver.
//!
//! Work with a slice whose scope has ended may still be pending. A later slice at the same address is used after that
//! work: in the arena's own stream by the stream's order, in other streams by waits on the device.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::panic::Location;
use std::sync::Arc;

use crate::api::block::Block;
use crate::api::memory::sealed::Sealed;
use crate::api::memory::{Pod, Source, Target};
use crate::api::stream::Stream;
use crate::api::view::{View, ViewMut};
use crate::device::context::Context;
use crate::device::memory_use::MemoryUse;
use crate::error::{Error, Result};
use crate::ledger::Fence;
use crate::ordering::access_history::{Access, AccessHistory, RangeFences};
use freehold_driver::Permission;

/// The alignment of slices, unless the device requires more.
const ALIGNMENT_BYTES: u64 = 256;

/// One allocation for many short-lived slices.
///
/// ```
/// # fn main() -> freehold::Result<()> {
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let mut arena = freehold::Arena::new(&stream, 1 << 20)?;
/// for _step in 0..3 {
///     arena.scope(|scope| {
///         let mut x = scope.alloc::<f32>(1000)?; // the same addresses in each step
///         stream.fill_bytes(&mut x, 0)
///     })?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// A slice does not outlive its scope:
///
/// ```compile_fail
/// # fn main() -> freehold::Result<()> {
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let mut arena = freehold::Arena::new(&stream, 1 << 20)?;
/// let piece = arena.scope(|scope| scope.alloc::<f32>(1000))?;
/// # Ok(())
/// # }
/// ```
pub struct Arena {
    block: Block<u8>,
    /// The bytes allocated, from the block's beginning.
    taken_bytes: u64,
    /// The slices of the scopes that have not ended, by address.
    pieces: Vec<Arc<Region>>,
    past: Past,
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("block", &self.block)
            .field("taken_bytes", &self.taken_bytes)
            .finish_non_exhaustive()
    }
}

/// The address range of a slice, and its uses. The arena keeps a reference too, so that a leaked slice is still waited
/// for.
#[derive(Debug)]
struct Region {
    range: Range<u64>,
    context: Context,
    uses: AccessHistory,
}

/// The uses of slices whose scopes have ended.
#[derive(Debug, Default)]
struct Past {
    /// The last seq in the arena's stream.
    home_seq: u64,
    /// The uses in other streams.
    other_streams: RangeFences,
}

impl Past {
    fn note(&mut self, uses: &AccessHistory, range: &Range<u64>) {
        self.home_seq = self.home_seq.max(uses.last_home_use().seq);
        uses.in_other_streams().into_iter().for_each(|fence| self.other_streams.note(fence, range));
    }
}

impl Arena {
    /// Allocates memory for an arena, which lives in `stream`.
    ///
    /// ```
    /// use freehold::Arena;
    ///
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let arena = Arena::new(&stream, 1 << 20)?;
    /// assert_eq!(arena.capacity_bytes(), 1 << 20);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Stream::alloc`].
    #[track_caller]
    pub fn new(stream: &Stream, bytes: usize) -> Result<Self> {
        let block = Block::alloc(stream, bytes, None, Location::caller())?;
        let mut past = Past::default();
        // Uses by the memory's previous owners.
        past.note(Target::used(&block, Access::Write).uses, &(0..bytes as u64));
        Ok(Self { block, taken_bytes: 0, pieces: Vec::new(), past })
    }

    /// Returns the first device address.
    pub fn address(&self) -> u64 {
        self.block.address()
    }

    /// Returns the size of the arena in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.block.len() as u64
    }

    /// Calls `work` with a scope. Slices allocated there end when `work` returns. Work that was submitted with them
    /// continues, and the memory is reused after it.
    pub fn scope<R>(&mut self, work: impl for<'s> FnOnce(&mut Scope<'s>) -> R) -> R {
        let ended = Rewind { start_bytes: self.taken_bytes, arena: self };
        work(&mut Scope { arena: &mut *ended.arena })
    }

    fn region(&mut self, bytes: u64) -> Result<Arc<Region>> {
        self.block.context().inner.check()?;
        let capacity_bytes = self.capacity_bytes();
        let free_bytes = capacity_bytes - self.taken_bytes;
        if bytes > free_bytes {
            return Err(Error::ArenaFull { wanted_bytes: bytes, free_bytes, capacity_bytes });
        }
        let context = self.block.context().clone();
        let device = &context.inner.device;
        let range = self.taken_bytes..self.taken_bytes + bytes;
        let uses = AccessHistory::begin(Fence { stream: self.block.stream(), seq: self.past.home_seq });
        self.past.other_streams.forget(|fence| device.streams.is_complete(fence));
        self.past.other_streams.within(&range).for_each(|fence| uses.note_unordered(fence, Access::Write));
        let alignment_bytes = device.backend.alignment_bytes().max(ALIGNMENT_BYTES);
        self.taken_bytes = range.end.next_multiple_of(alignment_bytes).min(capacity_bytes);
        let region = Arc::new(Region { range, context, uses });
        // An empty slice needs no order, and would begin where the next slice does.
        if bytes > 0 {
            self.pieces.push(region.clone());
        }
        Ok(region)
    }

    fn rewind(&mut self, start_bytes: u64) {
        // In a fork the lists of uses may be locked forever, by threads that do not exist there.
        let is_child = self.block.context().inner.device.is_child();
        while let Some(region) = self.pieces.pop_if(|region| region.range.start >= start_bytes) {
            if !is_child {
                self.past.note(&region.uses, &region.range);
            }
        }
        self.taken_bytes = start_bytes;
    }
}

impl Drop for Arena {
    /// Moves the uses of the slices to the block, which is released after them.
    fn drop(&mut self) {
        self.rewind(0);
        if self.block.context().inner.device.is_child() {
            return;
        }
        let MemoryUse { uses, .. } = Target::used(&self.block, Access::Write);
        uses.note_unordered(Fence { stream: self.block.stream(), seq: self.past.home_seq }, Access::Write);
        self.past.other_streams.fences().for_each(|fence| uses.note_unordered(fence, Access::Write));
    }
}

/// Ends a scope, even if its work panics.
struct Rewind<'a> {
    arena: &'a mut Arena,
    start_bytes: u64,
}

impl Drop for Rewind<'_> {
    fn drop(&mut self) {
        self.arena.rewind(self.start_bytes);
    }
}

/// A scope of an arena: everything allocated in it is freed at its end.
///
/// ```
/// use freehold::{Arena, Error};
///
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let mut arena = Arena::new(&stream, 4096)?;
/// let sum = arena.scope(|scope| -> freehold::Result<u32> {
///     let mut x = scope.alloc::<u32>(4)?;
///     stream.write(&mut x, &[1, 2, 3, 4])?;
///     scope.scope(|inner| inner.alloc::<u8>(1000).map(drop))?; // freed again
///     assert!(matches!(scope.alloc::<u8>(4096), Err(Error::ArenaFull { .. })));
///     Ok(stream.download(&x)?.iter().sum())
/// })?;
/// assert_eq!(sum, 10);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Debug)]
pub struct Scope<'s> {
    arena: &'s mut Arena,
}

impl<'s> Scope<'s> {
    /// Allocates `len` elements with unspecified content.
    ///
    /// # Errors
    /// [`Error::ArenaFull`] if the arena has no space for it: an arena does not grow. [`Error::NothingAsked`] if
    /// the elements have no bytes.
    pub fn alloc<T: Pod>(&mut self, len: usize) -> Result<ArenaSlice<'s, T>> {
        let element_bytes = size_of::<T>();
        let bytes = len.checked_mul(element_bytes).ok_or(Error::TooManyElements { elements: len, element_bytes })?;
        if element_bytes == 0 {
            return Err(Error::NothingAsked);
        }
        let region = self.arena.region(bytes as u64)?;
        let address = self.arena.address() + region.range.start;
        Ok(ArenaSlice { region, address, len, scope: PhantomData, elements: PhantomData })
    }

    /// Calls `work` with a nested scope: its allocations are freed at its end, and those of this scope stay.
    pub fn scope<R>(&mut self, work: impl for<'t> FnOnce(&mut Scope<'t>) -> R) -> R {
        self.arena.scope(work)
    }

    /// Returns how many bytes can still be allocated.
    ///
    /// ```
    /// use freehold::Arena;
    ///
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut arena = Arena::new(&stream, 4096)?;
    /// arena.scope(|scope| -> freehold::Result<()> {
    ///     assert_eq!(scope.free_bytes(), 4096);
    ///     scope.alloc::<u8>(1024)?;
    ///     assert_eq!(scope.free_bytes(), 3072);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn free_bytes(&self) -> u64 {
        self.arena.capacity_bytes() - self.arena.taken_bytes
    }
}

/// A part of an arena that lives as long as its scope, used like a [`Block`].
///
/// ```
/// use freehold::Arena;
///
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// Arena::new(&stream, 4096)?.scope(|scope| -> freehold::Result<()> {
///     let mut piece = scope.alloc::<f32>(10)?;
///     stream.fill_bytes(&mut piece, 0)?;
///     stream.write(&mut piece.view_mut(3..4)?, &[1.5])?;
///     assert_eq!(stream.download(&piece.view(2..5)?)?, [0.0, 1.5, 0.0]);
///     Ok(())
/// })?;
/// # Ok::<(), freehold::Error>(())
/// ```
pub struct ArenaSlice<'s, T> {
    region: Arc<Region>,
    address: u64,
    /// In elements.
    len: usize,
    scope: PhantomData<&'s ()>,
    elements: PhantomData<T>,
}

impl<T> fmt::Debug for ArenaSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece")
            .field("address", &format_args!("{:#x}", self.address))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl<T: Pod> ArenaSlice<'_, T> {
    /// Returns the first device address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns a view of a range of elements.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        View::new(self.whole(Access::Read), 0, self.len, range)
    }

    /// Returns a mutable view of a range of elements.
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>> {
        ViewMut::new(self.whole(Access::Read), self.len, range)
    }

    fn whole(&self, access: Access) -> MemoryUse<'_> {
        let Region { uses, context, .. } = &*self.region;
        MemoryUse {
            uses,
            context,
            base: self.address,
            start: self.address,
            bytes: (self.len * size_of::<T>()) as u64,
            access,
            is_ordered: true,
            permission: Permission::ReadWrite,
        }
    }
}

impl<T> Sealed for ArenaSlice<'_, T> {}

impl<T: Pod> Source<T> for ArenaSlice<'_, T> {
    fn address(&self) -> u64 {
        ArenaSlice::address(self)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn used(&self) -> MemoryUse<'_> {
        self.whole(Access::Read)
    }
}

impl<T: Pod> Target<T> for ArenaSlice<'_, T> {
    fn address(&self) -> u64 {
        ArenaSlice::address(self)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn used(&self, access: Access) -> MemoryUse<'_> {
        self.whole(access)
    }
}
