//! Views: parts of blocks.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::api::memory::sealed::Sealed;
use crate::api::memory::{Pod, Source, Target};
use crate::device::memory_use::MemoryUse;
use crate::error::{Error, Result};
use crate::ordering::access_history::Access;

/// A part of a block, for reading. Its uses are ordered as uses of the whole block.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let x = stream.upload(&[1u32, 2, 3, 4])?;
/// let middle = x.view(1..3)?;
/// assert_eq!((middle.len(), stream.download(&middle)?), (2, vec![2, 3]));
/// assert_eq!(stream.download(&middle.view(1..)?)?, [3]); // a part of the part
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct View<'a, T> {
    /// The memory that it is a part of.
    whole: MemoryUse<'a>,
    /// In elements.
    start: usize,
    len: usize,
    elements: PhantomData<T>,
}

impl<T> fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("address", &format_args!("{:#x}", address_at::<T>(self.whole.base, self.start)))
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
        if start > end || end > elements {
            return Err(Error::OutsideOfBlock { start, end, elements });
        }
        let len = end - start;
        // An empty view has the address of the block: any other may be one that a device cannot pass to a kernel.
        let start = if len == 0 { 0 } else { offset + start };
        let whole =
            MemoryUse { start: address_at::<T>(whole.base, start), bytes: (len * size_of::<T>()) as u64, ..whole };
        Ok(Self { whole, start, len, elements: PhantomData })
    }

    /// Makes a view of all elements.
    pub(crate) fn whole(whole: MemoryUse<'a>, elements: usize) -> Self {
        Self { whole, start: 0, len: elements, elements: PhantomData }
    }

    /// Returns the first device address.
    pub fn address(&self) -> u64 {
        address_at::<T>(self.whole.base, self.start)
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a view of a range of this view.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'a, T>> {
        View::new(self.whole, self.start, self.len, range)
    }
}

/// A part of a block, for writing.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let mut x = stream.zeros::<u32>(4)?;
/// let (mut low, mut high) = x.view_mut(..)?.split_at(2)?; // two disjoint parts
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
    /// Makes a view of mutably borrowed memory.
    pub(crate) fn new(whole: MemoryUse<'a>, elements: usize, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self { view: View::new(whole, 0, elements, range)?, exclusive: PhantomData })
    }

    /// Returns the first device address.
    pub fn address(&self) -> u64 {
        self.view.address()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.view.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.view.len == 0
    }

    /// Returns a view of a range of elements.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        self.view.view(range)
    }

    /// Returns a mutable view of a range of elements.
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>> {
        Ok(ViewMut { view: self.view.view(range)?, exclusive: PhantomData })
    }

    /// Splits the view into two disjoint ones: the elements before `middle`, and the others.
    pub fn split_at(self, middle: usize) -> Result<(ViewMut<'a, T>, ViewMut<'a, T>)> {
        let (low, high) = (self.view.view(..middle)?, self.view.view(middle..)?);
        Ok((ViewMut { view: low, exclusive: PhantomData }, ViewMut { view: high, exclusive: PhantomData }))
    }
}

impl<T> Sealed for View<'_, T> {}
impl<T> Sealed for ViewMut<'_, T> {}

impl<T: Pod> Source<T> for View<'_, T> {
    fn address(&self) -> u64 {
        View::address(self)
    }

    fn len(&self) -> usize {
        View::len(self)
    }

    fn used(&self) -> MemoryUse<'_> {
        self.whole
    }
}

impl<T: Pod> Source<T> for ViewMut<'_, T> {
    fn address(&self) -> u64 {
        ViewMut::address(self)
    }

    fn len(&self) -> usize {
        ViewMut::len(self)
    }

    fn used(&self) -> MemoryUse<'_> {
        self.view.whole
    }
}

impl<T: Pod> Target<T> for ViewMut<'_, T> {
    fn address(&self) -> u64 {
        ViewMut::address(self)
    }

    fn len(&self) -> usize {
        ViewMut::len(self)
    }

    fn used(&self, access: Access) -> MemoryUse<'_> {
        MemoryUse { access, ..self.view.whole }
    }
}

fn address_at<T>(base: u64, start: usize) -> u64 {
    base + (start * size_of::<T>()) as u64
}
