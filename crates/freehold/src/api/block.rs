//! Blocks: typed device memory with one owner, counted references to it, and their allocation in a stream.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::panic::Location;
use std::sync::Arc;

use crate::api::event::Event;
use crate::api::memory::sealed::Sealed;
use crate::api::memory::{Pod, Source, Target};
use crate::api::stream::Stream;
use crate::api::view::{View, ViewMut};
use crate::device::by_address;
use crate::device::context::Context;
use crate::device::exported::Exported;
use crate::device::memory_use::MemoryUse;
use crate::device::raw_block::RawBlock;
use crate::error::{CloseError, Error, Result};
use crate::ledger::{Owner, StreamId};
use crate::ordering::access_history::Access;
use crate::pool::PoolIndex;

impl<T> Sealed for Block<T> {}
impl<T> Sealed for Shared<T> {}

/// Device memory with one owner. Dropping it releases it, on any thread, whatever context is current there. The memory
/// is reused once all work with it is complete; nothing waits for that.
///
/// ```
/// let device = freehold::open()?;
/// let stream = device.new_stream()?;
/// let mut x = stream.zeros::<u32>(1000)?;
/// let address = x.address();
/// stream.write(&mut x.view_mut(10..12)?, &[7, 8])?;
/// assert_eq!(stream.download(&x.view(9..13)?)?, [0, 7, 8, 0]);
/// drop(x); // returns at once, whatever work is pending
/// assert_eq!(stream.alloc::<u32>(1000)?.address(), address); // reused after that work, in the same stream
/// # Ok::<(), freehold::Error>(())
/// ```
pub struct Block<T> {
    raw: RawBlock,
    elements: PhantomData<T>,
}

impl<T> fmt::Debug for Block<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("address", &format_args!("{:#x}", self.raw.address))
            .field("bytes", &self.raw.bytes)
            .field("stream", &self.raw.history.last_home_use().stream)
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// Allocates a block of `len` elements with unspecified content. Reuses freed memory if possible, without a driver
    /// call. An empty block has no memory, and address 0.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.alloc::<f32>(1000)?; // unspecified content
    /// assert_eq!(x.len(), 1000);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Block<T>> {
        Block::alloc(self, len, None, std::panic::Location::caller())
    }

    /// Like [`alloc`](Self::alloc), with a name for the block, which [`Device::owner_of`](crate::Device::owner_of)
    /// returns.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.alloc_tagged::<f32>(1000, "model/weights")?;
    /// assert_eq!(x.owner().and_then(|owner| owner.tag).as_deref(), Some("model/weights"));
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    pub fn alloc_tagged<T: Pod>(&self, len: usize, tag: &str) -> Result<Block<T>> {
        Block::alloc(self, len, Some(tag), std::panic::Location::caller())
    }

    /// Like [`alloc`](Self::alloc), for memory that other processes can map: see [`Block::export`]. Its chunks contain
    /// no blocks of other kinds.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.alloc_shareable::<f32>(1000)?;
    /// assert_eq!(x.export()?.bytes, 4000);
    /// assert!(stream.alloc::<f32>(1000)?.export().is_err()); // only a shareable block can be exported
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc), and [`Error::CannotShare`] if the device cannot share memory.
    #[track_caller]
    pub fn alloc_shareable<T: Pod>(&self, len: usize) -> Result<Block<T>> {
        Block::alloc_within(self, len, PoolIndex::SHAREABLE, None, std::panic::Location::caller())
    }
}

impl<T: Pod> Block<T> {
    #[inline]
    pub(crate) fn alloc(
        stream: &Stream,
        len: usize,
        tag: Option<&str>,
        at: &'static Location<'static>,
    ) -> Result<Self> {
        Self::alloc_within(stream, len, PoolIndex::MAIN, tag, at)
    }

    #[inline]
    pub(crate) fn alloc_within(
        stream: &Stream,
        len: usize,
        pool: PoolIndex,
        tag: Option<&str>,
        at: &'static Location<'static>,
    ) -> Result<Self> {
        Ok(Self::from_raw(RawBlock::alloc(&stream.inner, Self::bytes_of(len)?, pool, tag, at)?))
    }

    #[inline]
    fn bytes_of(len: usize) -> Result<usize> {
        let element_bytes = size_of::<T>();
        let bytes = len.checked_mul(element_bytes).filter(|&bytes| bytes <= isize::MAX as usize);
        match bytes {
            None => Err(Error::TooManyElements { elements: len, element_bytes }),
            Some(_) if element_bytes == 0 => Err(Error::NothingAsked),
            Some(bytes) => Ok(bytes),
        }
    }

    #[inline]
    pub(crate) fn from_raw(raw: RawBlock) -> Self {
        Self { raw, elements: PhantomData }
    }

    /// Returns the first device address; 0 if the block is empty.
    pub fn address(&self) -> u64 {
        self.raw.address
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.raw.bytes / size_of::<T>()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the block's owner record. An empty block has none.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.alloc_tagged::<f32>(100, "weights")?;
    /// println!("{}", x.owner().expect("it is live")); // with the line that allocated it
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn owner(&self) -> Option<Owner> {
        self.raw.owner()
    }

    /// Returns the context of the block's stream.
    pub fn context(&self) -> &Context {
        &self.raw.stream.context
    }

    /// Returns the stream in which the block was allocated.
    pub fn stream(&self) -> StreamId {
        self.raw.history.last_home_use().stream
    }

    /// Gives the block another name.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.alloc::<f32>(100)?;
    /// x.tag("weights");
    /// assert_eq!(device.live_by_tag(), [("weights".into(), 400)]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn tag(&self, tag: &str) {
        self.raw.retag(tag);
    }

    /// Returns a view of a range of elements.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.upload(&[1u32, 2, 3, 4])?;
    /// assert_eq!(stream.download(&x.view(1..3)?)?, [2, 3]);
    /// assert!(x.view(2..9).is_err()); // beyond the block
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        View::new(self.raw.memory_use(Access::Read), 0, self.len(), range)
    }

    /// Returns a mutable view of a range of elements.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = stream.zeros::<u32>(4)?;
    /// stream.write(&mut x.view_mut(..2)?, &[7, 8])?;
    /// assert_eq!(stream.download(&x)?, [7, 8, 0, 0]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>> {
        let len = self.len();
        ViewMut::new(self.raw.memory_use(Access::Read), len, range)
    }

    /// Converts the block into a counted reference. It is released when the last reference is dropped.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.upload(&[1u8; 10])?.share();
    /// let other = x.clone(); // the same memory
    /// assert_eq!((x.count(), other.address()), (2, x.address()));
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn share(self) -> Shared<T> {
        Shared { raw: Arc::new(self.raw), elements: PhantomData }
    }

    /// Resizes the block to `len` elements: in place if the memory after it is free, otherwise by moving it and copying
    /// its content in the order of `stream`. Returns whether the address is unchanged. The content of added elements is
    /// unspecified.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = stream.upload(&[1u8, 2, 3])?;
    /// let address = x.address();
    /// let is_in_place = x.resize(&stream, 1000)?;
    /// assert_eq!(is_in_place, x.address() == address);
    /// assert_eq!(stream.download(&x.view(..3)?)?, [1, 2, 3]); // moved or not
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Stream::alloc`]; the block is unchanged.
    #[track_caller]
    pub fn resize(&mut self, stream: &Stream, len: usize) -> Result<bool> {
        let bytes = Self::bytes_of(len)?;
        if self.raw.resize(bytes)? {
            return Ok(true);
        }
        if bytes == 0 {
            self.raw = RawBlock::empty(&stream.inner, self.raw.pool_index())?;
            return Ok(false);
        }
        let kept = len.min(self.len());
        self.raw.move_elsewhere(&stream.inner, bytes, Location::caller(), |from, to| {
            let from = View::<T>::new(from.memory_use(Access::Read), 0, kept, ..kept)?;
            stream.copy(&from, &mut ViewMut::new(to.memory_use(Access::Read), kept, ..kept)?)
        })?;
        Ok(false)
    }

    /// Releases the block like a drop, but records the caller's location and returns an error if the release fails.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.alloc::<u8>(1000)?;
    /// x.close()?; // if it failed, the error would return the block
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    #[allow(clippy::result_large_err, reason = "the error returns the block, by value")]
    pub fn close(mut self) -> std::result::Result<(), CloseError<Self>> {
        match self.raw.release(Some(Location::caller())) {
            Ok(()) => Ok(()),
            Err(error) => Err(CloseError::new(self, error)),
        }
    }

    /// Releases the block after an event as well as after its own uses.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.zeros::<u8>(1000)?;
    /// let event = device.new_stream()?.event()?; // for example, after foreign work with it
    /// x.release_after(&event)?;
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    #[allow(clippy::result_large_err, reason = "the error returns the block, by value")]
    pub fn release_after(mut self, event: &Event) -> std::result::Result<(), CloseError<Self>> {
        if let Err(error) = event.check_device(&self.raw.stream.context.inner.device) {
            return Err(CloseError::new(self, error));
        }
        self.raw.history.note_unordered(event.fence, Access::Read);
        match self.raw.release(Some(Location::caller())) {
            Ok(()) => Ok(()),
            Err(error) => Err(CloseError::new(self, error)),
        }
    }

    /// Waits until all work with the block is complete, and returns its memory to the driver, except chunks that also
    /// contain other blocks.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.zeros::<u8>(64 << 20)?;
    /// let free_bytes = device.free_bytes()?;
    /// x.release_now()?; // waits for the zeros
    /// assert!(device.free_bytes()? > free_bytes);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    #[allow(clippy::result_large_err, reason = "the error returns the block, by value")]
    pub fn release_now(mut self) -> std::result::Result<(), CloseError<Self>> {
        match self.raw.release_now(Some(Location::caller())) {
            Ok(()) => Ok(()),
            Err(error) => Err(CloseError::new(self, error)),
        }
    }

    /// Exports the memory of a block from [`Stream::alloc_shareable`] to another process.
    ///
    /// The library does not see the other process's work, so the exporting program must keep the block until the other
    /// side is done, and order the work of both. If the block is released, its memory is reused in this process while
    /// other processes can still access it.
    ///
    /// # Errors
    /// [`Error::NotShareable`] for any other block, [`Error::NothingAsked`] for an empty one.
    pub fn export(&self) -> Result<Exported> {
        self.raw.export()
    }

    /// Leaks the block to foreign code and returns its address. It is then released by its address, with
    /// [`Device::release`](crate::Device::release).
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let address = stream.alloc::<u8>(1000)?.into_address(); // for example, for C
    /// device.release(address)?;
    /// assert!(device.release(address).is_err()); // the error explains why
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn into_address(self) -> u64 {
        let device = self.raw.stream.context.inner.device.clone();
        by_address::leak_to_address(&device, self.raw)
    }

    /// Lets work use the block without waiting for uses in other streams. The block is still not released before that
    /// work is complete.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// # let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
    /// let counts = stream.zeros::<u32>(32)?;
    /// stream.synchronize()?;
    /// // SAFETY: nothing else uses the block now, and nobody reads it before the stream is done.
    /// let arguments = (unsafe { counts.unordered() }, 1u32, 32u32);
    /// // SAFETY: `add` writes the first 32 elements, which the block has.
    /// stream.launch(&unsafe { module.kernel("add")? }, freehold::Grid::line(1, 32), arguments)?;
    /// stream.synchronize()?;
    /// assert_eq!(stream.download(&counts)?, [1; 32]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Safety
    /// Any other work that reads or writes the block at the same time is intended by the program.
    pub unsafe fn unordered(&self) -> Unordered<'_, T> {
        let whole = self.raw.memory_use(Access::Read);
        Unordered { view: View::whole(whole, self.len()) }
    }
}

/// A counted reference to a block, for reading. The block is released when the last reference is dropped, on any
/// thread.
///
/// ```
/// let device = freehold::open()?;
/// let stream = device.new_stream()?;
/// let x = stream.upload(&[1.0f32; 10])?.share();
/// let y = x.clone();
/// std::thread::scope(|scope| drop(scope.spawn(move || drop(x))));
/// let mut block = y.into_block().expect("it is the last reference"); // the only owner again, so it may write
/// stream.fill(&mut block, 0.0)?;
/// # Ok::<(), freehold::Error>(())
/// ```
pub struct Shared<T> {
    raw: Arc<RawBlock>,
    elements: PhantomData<T>,
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("address", &format_args!("{:#x}", self.raw.address))
            .field("bytes", &self.raw.bytes)
            .field("count", &Arc::strong_count(&self.raw))
            .finish_non_exhaustive()
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { raw: self.raw.clone(), elements: PhantomData }
    }
}

impl<T: Pod> Shared<T> {
    /// Returns the number of references.
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.raw)
    }

    /// Returns the block, if this is the only reference; otherwise returns the reference.
    pub fn into_block(self) -> std::result::Result<Block<T>, Self> {
        match Arc::try_unwrap(self.raw) {
            Ok(raw) => Ok(Block::from_raw(raw)),
            Err(raw) => Err(Self { raw, elements: PhantomData }),
        }
    }

    /// Returns the first device address.
    pub fn address(&self) -> u64 {
        self.raw.address
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.raw.bytes / size_of::<T>()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a view of a range of elements.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        View::new(self.raw.memory_use(Access::Read), 0, self.len(), range)
    }
}

/// A block that work uses without ordering against other streams.
#[derive(Clone, Copy, Debug)]
pub struct Unordered<'a, T> {
    view: View<'a, T>,
}

impl<T: Pod> Source<T> for Block<T> {
    fn address(&self) -> u64 {
        self.raw.address
    }

    fn len(&self) -> usize {
        Block::len(self)
    }

    fn used(&self) -> MemoryUse<'_> {
        self.raw.memory_use(Access::Read)
    }
}

impl<T: Pod> Source<T> for Shared<T> {
    fn address(&self) -> u64 {
        self.raw.address
    }

    fn len(&self) -> usize {
        Shared::len(self)
    }

    fn used(&self) -> MemoryUse<'_> {
        self.raw.memory_use(Access::Read)
    }
}

impl<T: Pod> Target<T> for Block<T> {
    fn address(&self) -> u64 {
        self.raw.address
    }

    fn len(&self) -> usize {
        Block::len(self)
    }

    fn used(&self, access: Access) -> MemoryUse<'_> {
        self.raw.memory_use(access)
    }
}

impl<T: Pod> Unordered<'_, T> {
    pub(crate) fn parts(&self) -> (u64, MemoryUse<'_>) {
        (Source::address(&self.view), MemoryUse { access: Access::Write, is_ordered: false, ..self.view.used() })
    }
}
