//! Blocks: typed memory of a device that has one owner, references to it that are counted, and views of parts.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::panic::Location;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use self::sealed::Sealed;
use crate::api::event::Event;
use crate::api::stream::Stream;
use crate::device::by_address;
use crate::device::context::Context;
use crate::device::exported::Exported;
use crate::device::memory_use::MemoryUse;
use crate::device::raw_block::RawBlock;
use crate::error::{Closed, Error, Result};
use crate::ledger::{Owner, StreamId};
use crate::ordering::access_history::Access;
use crate::pool::Visibility;

/// What device memory can hold: values that are their bytes, whichever those are.
///
/// ```
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Particle {
///     place: [f32; 3],
///     mass: f32,
/// }
///
/// # let device = freehold::open()?;
/// # let stream = device.stream()?;
/// let particles = [Particle { place: [1.0, 2.0, 3.0], mass: 0.5 }; 10];
/// assert_eq!(stream.download(&stream.upload(&particles)?)?, particles);
/// # Ok::<(), freehold::Error>(())
/// ```
pub trait Pod: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> Pod for T {}

/// Keeps traits whose answers are trusted to the types here.
pub(crate) mod sealed {
    pub trait Sealed {}
}

impl<T> Sealed for Block<T> {}
impl<T> Sealed for Shared<T> {}
impl<T> Sealed for View<'_, T> {}
impl<T> Sealed for ViewMut<'_, T> {}

/// What work reads: a block, a reference to one, or a part of one. No other type can be one: copies trust the address.
///
/// ```
/// use freehold::{Pod, Result, Source, Stream};
///
/// /// Of a block, a reference to one, a part, a vector.
/// fn first<T: Pod>(stream: &Stream, from: &impl Source<T>) -> Result<Option<T>> {
///     Ok(stream.download(from)?.first().copied())
/// }
///
/// # let device = freehold::open()?;
/// # let stream = device.stream()?;
/// let x = stream.upload(&[5u8, 6, 7])?;
/// assert_eq!((first(&stream, &x)?, first(&stream, &x.view(2..)?)?), (Some(5), Some(7)));
/// # Ok::<(), freehold::Error>(())
/// ```
pub trait Source<T>: Sealed {
    /// The first address, on the device.
    fn address(&self) -> u64;
    /// In elements.
    fn len(&self) -> usize;
    /// Whether it has no element.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// What orders the work behind other uses of the memory.
    fn used(&self) -> MemoryUse<'_>;
}

/// What work writes: a block, or a part of one. No other type can be one: copies trust the address.
///
/// ```
/// use freehold::{Pod, Result, Stream, Target};
///
/// fn clear<T: Pod>(stream: &Stream, to: &mut impl Target<T>) -> Result<()> {
///     stream.fill(to, T::new_zeroed())
/// }
///
/// # let device = freehold::open()?;
/// # let stream = device.stream()?;
/// let mut x = stream.upload(&[5u8, 6, 7])?;
/// clear(&stream, &mut x.view_mut(1..)?)?;
/// assert_eq!(stream.download(&x)?, [5, 0, 0]);
/// # Ok::<(), freehold::Error>(())
/// ```
pub trait Target<T>: Sealed {
    /// The first address, on the device.
    fn address(&self) -> u64;
    /// In elements.
    fn len(&self) -> usize;
    /// Whether it has no element.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// What orders the work behind other uses of the memory.
    fn used(&self, access: Access) -> MemoryUse<'_>;
}

/// Device memory that has one owner. Dropping it releases it, in any thread, whatever context is current there; the memory
/// is used again when all work with it has passed. Nothing waits for that.
///
/// ```
/// let device = freehold::open()?;
/// let stream = device.stream()?;
/// let mut x = stream.zeros::<u32>(1000)?;
/// let address = x.address();
/// stream.write(&mut x.view_mut(10..12)?, &[7, 8])?;
/// assert_eq!(stream.download(&x.view(9..13)?)?, [0, 7, 8, 0]);
/// drop(x); // at once, whatever the device still does with it
/// assert_eq!(stream.alloc::<u32>(1000)?.address(), address); // behind that, in the same stream
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
            .field("stream", &self.raw.history.in_own_stream().stream)
            .finish_non_exhaustive()
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
        Self::alloc_within(stream, len, Visibility::Process, tag, at)
    }

    #[inline]
    pub(crate) fn alloc_within(
        stream: &Stream,
        len: usize,
        visibility: Visibility,
        tag: Option<&str>,
        at: &'static Location<'static>,
    ) -> Result<Self> {
        Ok(Self::from_raw(RawBlock::alloc(&stream.inner, Self::bytes_of(len)?, visibility, tag, at)?))
    }

    #[inline]
    fn bytes_of(len: usize) -> Result<usize> {
        let element_bytes = size_of::<T>();
        let bytes = len.checked_mul(element_bytes).filter(|&bytes| bytes <= isize::MAX as usize);
        match bytes {
            None => Err(Error::TooManyElements { elements: len, element_bytes }),
            Some(0) => Err(Error::NothingAsked),
            Some(bytes) => Ok(bytes),
        }
    }

    #[inline]
    pub(crate) fn from_raw(raw: RawBlock) -> Self {
        Self { raw, elements: PhantomData }
    }

    /// The first address, on the device.
    pub fn address(&self) -> u64 {
        self.raw.address
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.raw.bytes / size_of::<T>()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// What the ledger has of it.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.alloc_tagged::<f32>(100, "weights")?;
    /// println!("{}", x.owner().expect("it is live")); // with the line that asked for it
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn owner(&self) -> Option<Owner> {
        self.raw.owner()
    }

    /// The context that it lives in.
    pub fn context(&self) -> &Context {
        &self.raw.stream.context
    }

    /// The stream that the block lives in.
    pub fn stream(&self) -> StreamId {
        self.raw.history.in_own_stream().stream
    }

    /// Gives the block another name in the ledger.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.alloc::<f32>(100)?;
    /// x.tag("weights");
    /// assert_eq!(device.live_by_tag(), [("weights".into(), 400)]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn tag(&self, tag: &str) {
        self.raw.retag(tag);
    }

    /// The elements of a range.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.upload(&[1u32, 2, 3, 4])?;
    /// assert_eq!(stream.download(&x.view(1..3)?)?, [2, 3]);
    /// assert!(x.view(2..9).is_err()); // never beyond the block
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        View::new(self.raw.memory_use(Access::Read), 0, self.len(), range)
    }

    /// The elements of a range, to write.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let mut x = stream.zeros::<u32>(4)?;
    /// stream.write(&mut x.view_mut(..2)?, &[7, 8])?;
    /// assert_eq!(stream.download(&x)?, [7, 8, 0, 0]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>> {
        let len = self.len();
        ViewMut::new(self.raw.memory_use(Access::Read), len, range)
    }

    /// Gives up to be the one owner: the block lives until the last of the references is dropped.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.upload(&[1u8; 10])?.share();
    /// let other = x.clone(); // the same memory
    /// assert_eq!((x.count(), other.address()), (2, x.address()));
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn share(self) -> Shared<T> {
        Shared { raw: Arc::new(self.raw), elements: PhantomData }
    }

    /// Lets the block have `len` elements: where it lies, if what follows is free, or else elsewhere, with a copy of what it
    /// held, in the order of `stream`. Whether the address is the same. What is added holds anything.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let mut x = stream.upload(&[1u8, 2, 3])?;
    /// let address = x.address();
    /// let is_in_place = x.resize(&stream, 1000)?;
    /// assert_eq!(is_in_place, x.address() == address);
    /// assert_eq!(stream.download(&x.view(..3)?)?, [1, 2, 3]); // wherever it lies now
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Stream::alloc`]; the block is as it was.
    #[track_caller]
    pub fn resize(&mut self, stream: &Stream, len: usize) -> Result<bool> {
        let bytes = Self::bytes_of(len)?;
        if self.raw.resize(bytes)? {
            return Ok(true);
        }
        let kept = len.min(self.len());
        self.raw.move_elsewhere(&stream.inner, bytes, Location::caller(), |from, to| {
            let from = View::<T>::new(from.memory_use(Access::Read), 0, kept, ..kept)?;
            stream.copy(&from, &mut ViewMut::new(to.memory_use(Access::Read), kept, ..kept)?)
        })?;
        Ok(false)
    }

    /// Releases the block as a drop does, says where, and reports a failure.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.alloc::<u8>(1000)?;
    /// x.close().map_err(|(_block, error)| error)?; // a block that could not be released would come back
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    #[allow(clippy::result_large_err, reason = "a block that is not released comes back, and is no pointer")]
    pub fn close(mut self) -> Closed<Self> {
        match self.raw.release(Some(Location::caller())) {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// Releases the block once the event has passed, too.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.zeros::<u8>(1000)?;
    /// let event = device.stream()?.event()?; // of what other people's code does with it, say
    /// x.release_after(&event).map_err(|(_block, error)| error)?;
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    #[allow(clippy::result_large_err, reason = "a block that is not released comes back, and is no pointer")]
    pub fn release_after(mut self, event: &Event) -> Closed<Self> {
        if let Err(error) = event.check_device(&self.raw.stream.context.inner.device) {
            return Err((self, error));
        }
        self.raw.history.note_unordered(event.fence, Access::Read);
        match self.raw.release(Some(Location::caller())) {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// Waits until all work with the block has passed, and gives its memory back to the driver, as far as no other block lies
    /// in the same chunks of it.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.zeros::<u8>(64 << 20)?;
    /// let free_bytes = device.free_bytes()?;
    /// x.release_now().map_err(|(_block, error)| error)?; // waits for the zeros
    /// assert!(device.free_bytes()? > free_bytes);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    #[allow(clippy::result_large_err, reason = "a block that is not released comes back, and is no pointer")]
    pub fn release_now(mut self) -> Closed<Self> {
        match self.raw.release_now(Some(Location::caller())) {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// What another process needs to have the memory of a block that was asked for with [`Stream::alloc_shareable`].
    ///
    /// What the other process does with it is not known here: whoever exports a block keeps it until the other side is done,
    /// and orders the work of both. A block that is released is handed out again in this process while others still visibility it.
    ///
    /// # Errors
    /// [`Error::NotShareable`] for any other block.
    pub fn export(&self) -> Result<Exported> {
        self.raw.export()
    }

    /// Lets go of the block for other people's code: from now on it is released by its address, with
    /// [`Device::release`](crate::Device::release).
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let address = stream.alloc::<u8>(1000)?.into_address(); // for C, say
    /// device.release(address)?;
    /// assert!(device.release(address).is_err()); // and says what is wrong
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn into_address(self) -> u64 {
        let device = self.raw.stream.context.inner.device.clone();
        by_address::leak_to_address(&device, self.raw)
    }

    /// Lets work use the block without waiting for what other streams do with it. It is still not released before that work
    /// has passed.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
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
    /// Whatever other work reads or writes in the block at the same time, the program means it to.
    pub unsafe fn unordered(&self) -> Unordered<'_, T> {
        let whole = self.raw.memory_use(Access::Read);
        Unordered { view: View { whole, start: 0, len: self.len(), elements: PhantomData } }
    }
}

/// A counted reference to a block, for reading. The block is released when the last one is dropped, in whichever thread.
///
/// ```
/// let device = freehold::open()?;
/// let stream = device.stream()?;
/// let x = stream.upload(&[1.0f32; 10])?.share();
/// let y = x.clone();
/// std::thread::scope(|scope| drop(scope.spawn(move || drop(x))));
/// let mut block = y.into_block().expect("it is the last reference"); // the one owner again, who may write
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
    /// How many references there are.
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.raw)
    }

    /// The block, if this is the only reference.
    pub fn into_block(self) -> std::result::Result<Block<T>, Self> {
        match Arc::try_unwrap(self.raw) {
            Ok(raw) => Ok(Block::from_raw(raw)),
            Err(raw) => Err(Self { raw, elements: PhantomData }),
        }
    }

    /// The first address, on the device.
    pub fn address(&self) -> u64 {
        self.raw.address
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.raw.bytes / size_of::<T>()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The elements of a range.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        View::new(self.raw.memory_use(Access::Read), 0, self.len(), range)
    }
}

/// A part of a block, for reading. What orders its uses is the whole block.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.stream()?;
/// let x = stream.upload(&[1u32, 2, 3, 4])?;
/// let middle = x.view(1..3)?;
/// assert_eq!(stream.download(&middle)?, [2, 3]);
/// assert_eq!(stream.download(&middle.view(1..)?)?, [3]); // a part of the part
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct View<'a, T> {
    /// What it is a part of, and which.
    whole: MemoryUse<'a>,
    /// In elements.
    start: usize,
    len: usize,
    elements: PhantomData<T>,
}

impl<T> fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("address", &format_args!("{:#x}", place::<T>(self.whole.base, self.start)))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl<'a, T: Pod> View<'a, T> {
    pub(crate) fn new(
        whole: MemoryUse<'a>,
        offset: usize,
        elements: usize,
        range: impl RangeBounds<usize>,
    ) -> Result<Self> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => elements,
        };
        if start >= end || end > elements {
            return Err(Error::OutsideOfBlock { start, end, elements });
        }
        let (start, len) = (offset + start, end - start);
        let whole = MemoryUse { start: place::<T>(whole.base, start), bytes: (len * size_of::<T>()) as u64, ..whole };
        Ok(Self { whole, start, len, elements: PhantomData })
    }

    /// A part of this part.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'a, T>> {
        View::new(self.whole, self.start, self.len, range)
    }
}

/// A part of a block, to write.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.stream()?;
/// let mut x = stream.zeros::<u32>(4)?;
/// let (mut low, mut high) = x.view_mut(..)?.split_at(2)?; // two that can be written at once
/// stream.write(&mut low, &[1, 2])?;
/// stream.copy(&low, &mut high)?;
/// assert_eq!(stream.download(&x)?, [1, 2, 1, 2]);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    view: View<'a, T>,
    exclusive: PhantomData<&'a mut T>,
}

impl<'a, T: Pod> ViewMut<'a, T> {
    /// Of what is borrowed mutably.
    pub(crate) fn new(whole: MemoryUse<'a>, elements: usize, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self { view: View::new(whole, 0, elements, range)?, exclusive: PhantomData })
    }

    /// The elements of a range.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        self.view.view(range)
    }

    /// The elements of a range, to write.
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>> {
        Ok(ViewMut { view: self.view.view(range)?, exclusive: PhantomData })
    }

    /// Two parts that share nothing: the elements before `middle`, and the others.
    pub fn split_at(self, middle: usize) -> Result<(ViewMut<'a, T>, ViewMut<'a, T>)> {
        let (low, high) = (self.view.view(..middle)?, self.view.view(middle..)?);
        Ok((ViewMut { view: low, exclusive: PhantomData }, ViewMut { view: high, exclusive: PhantomData }))
    }
}

/// A block that work uses in no order with other streams.
#[derive(Clone, Copy, Debug)]
pub struct Unordered<'a, T> {
    view: View<'a, T>,
}

macro_rules! source {
    ($kind:ty, $at:ident => $address:expr, $len:expr, $used:expr) => {
        impl<T: Pod> Source<T> for $kind {
            fn address(&self) -> u64 {
                let $at = self;
                $address
            }

            fn len(&self) -> usize {
                let $at = self;
                $len
            }

            fn used(&self) -> MemoryUse<'_> {
                let $at = self;
                $used
            }
        }
    };
}

source!(Block<T>, it => it.raw.address, Block::len(it), it.raw.memory_use(Access::Read));
source!(Shared<T>, it => it.raw.address, Shared::len(it), it.raw.memory_use(Access::Read));
source!(View<'_, T>, it => place::<T>(it.whole.base, it.start), it.len, it.whole);
source!(ViewMut<'_, T>, it => Source::address(&it.view), it.view.len, it.view.whole);

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

impl<T: Pod> Target<T> for ViewMut<'_, T> {
    fn address(&self) -> u64 {
        Source::address(&self.view)
    }

    fn len(&self) -> usize {
        self.view.len
    }

    fn used(&self, access: Access) -> MemoryUse<'_> {
        MemoryUse { access, ..self.view.whole }
    }
}

impl<T: Pod> Unordered<'_, T> {
    pub(crate) fn parts(&self) -> (u64, MemoryUse<'_>) {
        (Source::address(&self.view), MemoryUse { access: Access::Write, is_ordered: false, ..self.view.whole })
    }
}

fn place<T>(base: u64, start: usize) -> u64 {
    base + (start * size_of::<T>()) as u64
}
