//! Arenas: one block, cut into pieces that come and go in scopes. An allocation moves a counter up, the end of a scope moves
//! it back; no driver is called for either.
//!
//! Work of a piece that is gone may still be pending. A piece that lies there afterwards is used behind it: in the arena's own
//! stream by the order of the stream, elsewhere by waits on the device.

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

/// Pieces begin at multiples of this, or of more where the device asks for it.
const ALIGNMENT_BYTES: u64 = 256;

/// One reservation for many short-lived pieces.
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
/// A piece does not outlive its scope:
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
    /// What is taken, from the block's beginning on.
    taken_bytes: u64,
    /// The pieces of the scopes that have not ended, by address.
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

/// Where a piece lies, and what uses it. It is the arena's too: a piece that is forgotten is waited for all the same.
#[derive(Debug)]
struct Region {
    range: Range<u64>,
    context: Context,
    uses: AccessHistory,
}

/// What pieces were used for that are gone.
#[derive(Debug, Default)]
struct Past {
    /// The last seq in the arena's stream.
    home: u64,
    /// Those in other streams.
    abroad: RangeFences,
}

impl Past {
    fn note(&mut self, uses: &AccessHistory, range: &Range<u64>) {
        self.home = self.home.max(uses.in_own_stream().seq);
        uses.in_other_streams().into_iter().for_each(|fence| self.abroad.note(fence, range));
    }
}

impl Arena {
    /// Takes memory for an arena that lives in `stream`.
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
    /// As of [`Stream::alloc`].
    #[track_caller]
    pub fn new(stream: &Stream, bytes: usize) -> Result<Self> {
        let block = Block::alloc(stream, bytes, None, Location::caller())?;
        let mut past = Past::default();
        // Whoever had the memory before the arena.
        past.note(Target::used(&block, Access::Write).uses, &(0..bytes as u64));
        Ok(Self { block, taken_bytes: 0, pieces: Vec::new(), past })
    }

    /// The first address, on the device.
    pub fn address(&self) -> u64 {
        self.block.address()
    }

    /// How many bytes it has in all.
    pub fn capacity_bytes(&self) -> u64 {
        self.block.len() as u64
    }

    /// Calls `work` with a scope. What it allocates there is gone when it returns, for the host; work that was put into
    /// streams with it goes on, and the memory is used again behind that.
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
        let uses = AccessHistory::begin(Fence { stream: self.block.stream(), seq: self.past.home });
        self.past.abroad.forget(|fence| device.streams.is_complete(fence));
        self.past.abroad.within(&range).for_each(|fence| uses.note_unordered(fence, Access::Write));
        let alignment_bytes = device.backend.alignment_bytes().max(ALIGNMENT_BYTES);
        self.taken_bytes = range.end.next_multiple_of(alignment_bytes).min(capacity_bytes);
        let region = Arc::new(Region { range, context, uses });
        self.pieces.push(region.clone());
        Ok(region)
    }

    fn rewind(&mut self, start_bytes: u64) {
        // In a fork the lists of uses may be locked for ever, by threads that are not there.
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
    /// Leaves the uses of its pieces to the block, which is released behind them.
    fn drop(&mut self) {
        self.rewind(0);
        if self.block.context().inner.device.is_child() {
            return;
        }
        let MemoryUse { uses, .. } = Target::used(&self.block, Access::Write);
        uses.note_unordered(Fence { stream: self.block.stream(), seq: self.past.home }, Access::Write);
        self.past.abroad.fences().for_each(|fence| uses.note_unordered(fence, Access::Write));
    }
}

/// Ends a scope, where its work panics too.
struct Rewind<'a> {
    arena: &'a mut Arena,
    start_bytes: u64,
}

impl Drop for Rewind<'_> {
    fn drop(&mut self) {
        self.arena.rewind(self.start_bytes);
    }
}

/// The time between a seq of an arena and its return there.
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
///     scope.scope(|inner| inner.alloc::<u8>(1000).map(drop))?; // gone again
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
    /// A piece of `len` elements, with whatever the memory holds.
    ///
    /// # Errors
    /// [`Error::ArenaFull`] where there is no room for it: an arena does not grow. [`Error::NothingAsked`] for no bytes.
    pub fn alloc<T: Pod>(&mut self, len: usize) -> Result<ArenaSlice<'s, T>> {
        let element_bytes = size_of::<T>();
        let bytes = len.checked_mul(element_bytes).ok_or(Error::TooManyElements { elements: len, element_bytes })?;
        if bytes == 0 {
            return Err(Error::NothingAsked);
        }
        let region = self.arena.region(bytes as u64)?;
        let address = self.arena.address() + region.range.start;
        Ok(ArenaSlice { region, address, len, scope: PhantomData, elements: PhantomData })
    }

    /// A scope within this one: what is allocated there is gone at its end, and what this one has stays.
    pub fn scope<R>(&mut self, work: impl for<'t> FnOnce(&mut Scope<'t>) -> R) -> R {
        self.arena.scope(work)
    }

    /// How much can still be allocated.
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

/// A part of an arena for as long as its scope lasts, used like a [`Block`].
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
    /// The first address, on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The elements of a range.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        View::new(self.whole(Access::Read), 0, self.len, range)
    }

    /// The elements of a range, to write.
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
