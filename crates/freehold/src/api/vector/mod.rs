//! Vectors: typed device memory that grows. If the device can map memory, a vector keeps its addresses for life and
//! grows by mapping more memory after its last chunk (`mapped`); otherwise it is copied into a longer block.

mod mapped;

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::panic::Location;
use std::sync::Arc;

use self::mapped::Mapped;
use crate::api::block::Block;
use crate::api::memory::sealed::Sealed;
use crate::api::memory::{Pod, Source, Target};
use crate::api::stream::Stream;
use crate::api::view::{View, ViewMut};
use crate::device::context::Context;
use crate::device::memory_use::MemoryUse;
use crate::error::{Error, Result};
use crate::ledger::Owner;
use crate::ordering::access_history::Access;

/// A growable vector in device memory. Growing keeps the address and the elements, copies nothing and waits for
/// nothing, whichever kernels are running; see [`grows_in_place`](Self::grows_in_place) for devices that cannot.
///
/// Dropping it releases its memory after all work with it, without waiting.
///
/// ```
/// use freehold::DeviceVec;
///
/// let device = freehold::open()?;
/// let stream = device.new_stream()?;
/// let mut x = DeviceVec::<u32>::new(&stream)?;
/// x.extend_from_host(&stream, &[1, 2, 3])?;
/// let address = x.address();
/// x.resize(&stream, 1 << 20, 0)?;
/// assert_eq!(x.address(), address);
/// x.truncate(4);
/// assert_eq!(x.download(&stream)?, [1, 2, 3, 0]);
/// # Ok::<(), freehold::Error>(())
/// ```
pub struct DeviceVec<T: Pod> {
    backing: Backing<T>,
    len: usize,
    /// The most elements that it can have.
    room: usize,
}

impl<T: Pod> fmt::Debug for DeviceVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceVec")
            .field("address", &format_args!("{:#x}", self.address()))
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Backing<T: Pod> {
    Mapped(Box<Mapped>),
    /// A block of at least one element.
    Copied(Block<T>),
}

impl<T: Pod> DeviceVec<T> {
    /// Makes an empty vector, with addresses for as many elements as the device has memory for.
    ///
    /// # Errors
    /// [`Error::NothingAsked`] if the elements have no bytes.
    #[track_caller]
    pub fn new(stream: &Stream) -> Result<Self> {
        let room = stream.inner.context.inner.device.pool.chunks.total_bytes as usize / size_of::<T>().max(1);
        Self::begin(stream, room, Location::caller())
    }

    /// Makes an empty vector, with addresses for `len_max` elements. Addresses are cheap: they are not memory.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// use freehold::{DeviceVec, Error};
    ///
    /// let mut x = DeviceVec::<u32>::with_max_len(&stream, 1000)?;
    /// x.resize(&stream, 1000, 0)?;
    /// assert!(matches!(x.extend_from_host(&stream, &[1]), Err(Error::VectorFull { .. })));
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NothingAsked`] for zero elements, or if the elements have no bytes.
    #[track_caller]
    pub fn with_max_len(stream: &Stream, len_max: usize) -> Result<Self> {
        Self::begin(stream, len_max, Location::caller())
    }

    fn begin(stream: &Stream, room: usize, at: &'static Location<'static>) -> Result<Self> {
        let device = &stream.inner.context.inner.device;
        device.check()?;
        let element_bytes = size_of::<T>();
        let bytes = room.checked_mul(element_bytes).filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or(Error::TooManyElements { elements: room, element_bytes })?;
        if bytes == 0 {
            return Err(Error::NothingAsked);
        }
        let backing = if device.pool.chunks.can_map() {
            Backing::Mapped(Box::new(Mapped::new(stream, bytes as u64, at)?))
        } else {
            Backing::Copied(Block::alloc(stream, 1, None, at)?)
        };
        Ok(Self { backing, len: 0, room })
    }

    /// Whether the vector keeps its address when it grows. It does not if the device cannot map memory: then it is
    /// copied into a longer block, in the order of the stream that it grows in.
    pub fn grows_in_place(&self) -> bool {
        matches!(self.backing, Backing::Mapped(_))
    }

    /// Returns the first device address.
    pub fn address(&self) -> u64 {
        self.whole(Access::Read).base
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how many elements fit in its memory.
    pub fn capacity(&self) -> usize {
        match &self.backing {
            Backing::Mapped(mapped) => (mapped.mapped_bytes as usize / size_of::<T>()).min(self.room),
            Backing::Copied(block) => block.len(),
        }
    }

    /// Returns the most elements that it can have.
    pub fn max_len(&self) -> usize {
        self.room
    }

    /// Returns its context.
    pub fn context(&self) -> &Context {
        self.whole(Access::Read).context
    }

    /// Returns its entry in the ledger: all of its memory, used or not. Returns `None` for a vector without memory.
    pub fn owner(&self) -> Option<Owner> {
        match &self.backing {
            Backing::Mapped(mapped) => mapped.owner(),
            Backing::Copied(block) => block.owner(),
        }
    }

    /// Allocates memory for `more` elements after the existing ones, and for few more.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = freehold::DeviceVec::<u32>::new(&stream)?;
    /// x.reserve(&stream, 1_000_000)?;
    /// assert!(x.is_empty() && x.capacity() >= 1_000_000);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::VectorFull`] if it has no addresses for so many elements, [`Error::OutOfMemory`] if there is not enough
    /// memory. The vector is unchanged.
    #[track_caller]
    pub fn reserve(&mut self, stream: &Stream, more: usize) -> Result<()> {
        let wanted = self.end_of(more)?;
        self.grow(stream, wanted, wanted, Location::caller())
    }

    /// Appends a copy of `from`, which may change once the call has returned. If the vector needs more memory, its
    /// capacity doubles where enough memory and addresses are available.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = freehold::DeviceVec::<u32>::new(&stream)?;
    /// x.extend_from_host(&stream, &[1, 2])?;
    /// x.extend_from_host(&stream, &[3])?;
    /// assert_eq!(x.download(&stream)?, [1, 2, 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    #[track_caller]
    pub fn extend_from_host(&mut self, stream: &Stream, from: &[T]) -> Result<()> {
        self.extend(stream, from.len(), Location::caller(), |tail| stream.write(tail, from))
    }

    /// Appends a copy of a block, of a part of one, or of another vector, in the order of the stream.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = freehold::DeviceVec::<u32>::new(&stream)?;
    /// let block = stream.upload(&[1u32, 2, 3])?;
    /// x.extend_from_device(&stream, &block.view(1..)?)?;
    /// assert_eq!(x.download(&stream)?, [2, 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    #[track_caller]
    pub fn extend_from_device(&mut self, stream: &Stream, from: &impl Source<T>) -> Result<()> {
        self.extend(stream, from.len(), Location::caller(), |tail| stream.copy(from, tail))
    }

    /// Appends `more` elements with unspecified content, like [`Stream::alloc`]: for a kernel to write.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = freehold::DeviceVec::<u32>::new(&stream)?;
    /// x.extend_from_host(&stream, &[1])?;
    /// x.extend_unset(&stream, 2)?;
    /// stream.write(&mut x.view_mut(1..)?, &[2, 3])?;
    /// assert_eq!(x.download(&stream)?, [1, 2, 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    #[track_caller]
    pub fn extend_unset(&mut self, stream: &Stream, more: usize) -> Result<()> {
        self.extend(stream, more, Location::caller(), |_| Ok(()))
    }

    /// Resizes the vector to `len` elements. New elements are `value`.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = freehold::DeviceVec::<u32>::new(&stream)?;
    /// x.resize(&stream, 3, 1)?;
    /// x.resize(&stream, 5, 0)?;
    /// x.resize(&stream, 4, 0)?;
    /// assert_eq!(x.download(&stream)?, [1, 1, 1, 0]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    #[track_caller]
    pub fn resize(&mut self, stream: &Stream, len: usize, value: T) -> Result<()> {
        match len.checked_sub(self.len) {
            Some(more) => self.extend(stream, more, Location::caller(), |tail| stream.fill(tail, value)),
            None => {
                self.truncate(len);
                Ok(())
            }
        }
    }

    /// Removes the elements from `len` on. Their memory stays.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Removes all elements. Their memory stays.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Gives back memory without elements, in whole chunks: at once if all work with the vector is complete, otherwise
    /// once it is. If the vector grows before that, it takes the memory back. A vector that does not [grow in
    /// place](Self::grows_in_place) keeps its memory.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = freehold::DeviceVec::<u32>::new(&stream)?;
    /// x.resize(&stream, 1_000_000, 0)?;
    /// x.resize(&stream, 10_000_000, 0)?; // a second chunk
    /// x.truncate(10);
    /// stream.synchronize()?;
    /// let capacity = x.capacity();
    /// x.shrink_to_fit()?;
    /// assert!(!x.grows_in_place() || x.capacity() < capacity);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn shrink_to_fit(&mut self) -> Result<()> {
        match &mut self.backing {
            Backing::Mapped(mapped) => mapped.shrink((self.len * size_of::<T>()) as u64),
            Backing::Copied(_) => Ok(()),
        }
    }

    /// Returns a view of a range of elements.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = freehold::DeviceVec::<u32>::new(&stream)?;
    /// x.extend_from_host(&stream, &[1, 2, 3])?;
    /// assert_eq!(stream.download(&x.view(1..)?)?, [2, 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        View::new(self.whole(Access::Read), 0, self.len, range)
    }

    /// Returns a mutable view of a range of elements.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = freehold::DeviceVec::<u32>::new(&stream)?;
    /// x.extend_from_host(&stream, &[1, 2, 3])?;
    /// stream.write(&mut x.view_mut(..1)?, &[7])?;
    /// assert_eq!(x.download(&stream)?, [7, 2, 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>> {
        ViewMut::new(self.whole(Access::Read), self.len, range)
    }

    /// Downloads all elements. Waits, like [`Stream::download`].
    pub fn download(&self, stream: &Stream) -> Result<Vec<T>> {
        stream.download(self)
    }

    /// Returns the number of elements with `more` of them.
    fn end_of(&self, more: usize) -> Result<usize> {
        let wanted = self.len.saturating_add(more);
        if wanted > self.room {
            return Err(Error::VectorFull { wanted_elements: wanted, max_elements: self.room });
        }
        Ok(wanted)
    }

    fn extend(
        &mut self,
        stream: &Stream,
        more: usize,
        at: &'static Location<'static>,
        fill: impl FnOnce(&mut Tail<'_, T>) -> Result<()>,
    ) -> Result<()> {
        let end = self.end_of(more)?;
        let preferred = if end > self.capacity() { self.capacity().saturating_mul(2) } else { end };
        self.grow(stream, end, preferred.clamp(end, self.room), at)?;
        let is_used = self.touch(end);
        let mut whole = self.whole(Access::Write);
        whole.is_ordered = is_used;
        fill(&mut Tail { whole, start: self.len, len: more, elements: PhantomData })?;
        self.len = end;
        Ok(())
    }

    /// Records that work uses the elements up to `end`. Returns whether earlier work may have used the memory beyond
    /// the vector's elements.
    fn touch(&mut self, end: usize) -> bool {
        match &mut self.backing {
            Backing::Mapped(mapped) => {
                let is_used = mapped.touched_bytes > (self.len * size_of::<T>()) as u64;
                mapped.touched_bytes = mapped.touched_bytes.max((end * size_of::<T>()) as u64);
                is_used
            }
            // The memory of a block had other owners before.
            Backing::Copied(_) => true,
        }
    }

    fn grow(&mut self, stream: &Stream, least: usize, preferred: usize, at: &'static Location<'static>) -> Result<()> {
        if !Arc::ptr_eq(&stream.inner.context.inner.device, &self.context().inner.device) {
            return Err(Error::OtherDevice { what: "a stream" });
        }
        match &mut self.backing {
            Backing::Mapped(mapped) => {
                mapped.grow((least * size_of::<T>()) as u64, (preferred * size_of::<T>()) as u64)
            }
            Backing::Copied(block) if least <= block.len() => Ok(()),
            Backing::Copied(block) => {
                let mut longer = Block::alloc(stream, preferred, None, at)?;
                if self.len > 0 {
                    stream.copy(&block.view(..self.len)?, &mut longer.view_mut(..self.len)?)?;
                }
                *block = longer;
                Ok(())
            }
        }
    }

    fn whole(&self, access: Access) -> MemoryUse<'_> {
        let whole = match &self.backing {
            Backing::Mapped(mapped) => mapped.used(access),
            Backing::Copied(block) => Target::used(block, access),
        };
        MemoryUse { bytes: (self.len * size_of::<T>()) as u64, ..whole }
    }
}

impl<T: Pod> Sealed for DeviceVec<T> {}

impl<T: Pod> Source<T> for DeviceVec<T> {
    fn address(&self) -> u64 {
        DeviceVec::address(self)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn used(&self) -> MemoryUse<'_> {
        self.whole(Access::Read)
    }
}

impl<T: Pod> Target<T> for DeviceVec<T> {
    fn address(&self) -> u64 {
        DeviceVec::address(self)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn used(&self, access: Access) -> MemoryUse<'_> {
        self.whole(access)
    }
}

/// The new elements of a vector. If no work has used their memory, writing them waits for nothing.
struct Tail<'a, T> {
    whole: MemoryUse<'a>,
    start: usize,
    len: usize,
    elements: PhantomData<T>,
}

impl<T> Sealed for Tail<'_, T> {}

impl<T: Pod> Target<T> for Tail<'_, T> {
    fn address(&self) -> u64 {
        self.whole.base + (self.start * size_of::<T>()) as u64
    }

    fn len(&self) -> usize {
        self.len
    }

    fn used(&self, access: Access) -> MemoryUse<'_> {
        let (start, bytes) = (self.address(), (self.len * size_of::<T>()) as u64);
        MemoryUse { access, start, bytes, ..self.whole }
    }
}
