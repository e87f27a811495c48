//! Element types, and the memory that operations read and write.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use self::sealed::Sealed;
use crate::device::memory_use::MemoryUse;
use crate::ordering::access_history::Access;

/// A type that device memory can hold: any bytes are a valid value.
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
#[diagnostic::on_unimplemented(
    message = "device memory cannot hold `{Self}`",
    label = "not a type for device memory",
    note = "numbers and arrays of them work; for a structure, derive `Clone`, `Copy` and zerocopy's `FromBytes`, `IntoBytes` \
            and `Immutable`, with `#[repr(C)]`"
)]
pub trait Pod: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> Pod for T {}

/// Seals traits whose implementations are trusted.
pub(crate) mod sealed {
    pub trait Sealed {}
}

/// Memory that an operation can read: a block, a reference to one, or a part of one. The trait is sealed: copies trust
/// the address.
///
/// ```
/// use freehold::{Pod, Result, Source, Stream};
///
/// /// For a block, a reference to one, a part, or a vector.
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
    /// Returns the first device address.
    fn address(&self) -> u64;
    /// Returns the number of elements.
    fn len(&self) -> usize;
    /// Whether it has no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns what orders an operation after other uses of the memory.
    fn used(&self) -> MemoryUse<'_>;
}

/// Memory that an operation can write: a block, or a part of one. The trait is sealed: copies trust the address.
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
    /// Returns the first device address.
    fn address(&self) -> u64;
    /// Returns the number of elements.
    fn len(&self) -> usize;
    /// Whether it has no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns what orders an operation after other uses of the memory.
    fn used(&self, access: Access) -> MemoryUse<'_>;
}
