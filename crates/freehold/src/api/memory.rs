//! What memory holds, and what work reads and writes.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use self::sealed::Sealed;
use crate::device::memory_use::MemoryUse;
use crate::ordering::access_history::Access;

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
/// # let stream = device.new_stream()?;
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
/// # let stream = device.new_stream()?;
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
/// # let stream = device.new_stream()?;
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
