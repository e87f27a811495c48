//! Launch arguments: the types that can be passed, and how they are laid out for the driver.

use std::ffi::c_void;

use freehold_driver::ArgKind;

use self::sealed::Sealed;
use crate::api::arena::ArenaSlice;
use crate::api::block::{Block, Shared, Unordered};
use crate::api::imported::{ImportedSlice, OwnsSlice};
use crate::api::memory::{Pod, Source, Target};
use crate::api::vector::DeviceVec;
use crate::api::view::{View, ViewMut};
use crate::base::signature::Kind;
use crate::device::memory_use::MemoryUse;
use crate::ordering::access_history::Access;
use freehold_driver::Permission;

/// Seals [`Argument`] and [`Arguments`]. Separate from the seal of [`Source`], because owners of slices are sources,
/// and references to them are arguments.
mod sealed {
    pub trait Sealed {}
}

/// A value that can be passed to a kernel: a number, a block or a part of a block. The trait is sealed, because a
/// launch trusts its implementations.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// # let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
/// // Numbers by value; memory to read as `&`, memory to write as `&mut`.
/// let (x, mut total) = (stream.upload(&[1.0f32; 100])?, stream.zeros::<f32>(1)?);
/// // SAFETY: `sum` reads the first `n` elements of `x` and writes one of `total`; all launches are made here.
/// let sum = unsafe { module.kernel("sum")? };
/// stream.launch(&sum, freehold::Grid::line(1, 128), (&x.view(..50)?, &mut total, 50u32))?;
/// assert_eq!(stream.download(&total)?, [50.0]);
/// # Ok::<(), freehold::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a kernel cannot be given `{Self}`",
    label = "not an argument of a kernel",
    note = "memory is given as `&block` to be read and `&mut block` to be written, numbers as they are with their type \
            (`2.0f32`, `n as u32`), and a `#[repr(C)]` structure as `Value(structure)`"
)]
pub trait Argument: Sealed {
    /// The type that the kernel receives.
    #[doc(hidden)]
    type Word: Pod;

    /// The bytes that the kernel receives.
    #[doc(hidden)]
    fn word(&self) -> Self::Word;

    /// The memory that the launch uses, if the argument is memory.
    #[doc(hidden)]
    fn used(&self) -> Option<MemoryUse<'_>> {
        None
    }

    /// The kind of the argument, to be checked against the kernel's parameter.
    #[doc(hidden)]
    const GIVEN: Given;
}

/// The kind of an argument, in addition to its size.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// A number of a known type.
    Number(Kind),
    /// Bytes that the program guarantees to be valid.
    Bytes,
    /// The address of memory.
    Address,
}

/// A device address that is passed to a kernel unchanged, for memory without a [`Block`]: memory of another library, or
/// an address that a kernel computed. A plain `u64` is a number and carries no promise.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// # let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
/// use freehold::{Grid, RawAddress};
///
/// let x = stream.upload(&[1.0f32; 4])?;
/// // SAFETY: `scale` writes 4 elements there, and nothing else uses the block until the stream has passed the launch.
/// let (scale, there) = unsafe { (module.kernel("scale")?, RawAddress::new(x.address())) };
/// stream.launch(&scale, Grid::line(1, 4), (there, 3.0f32, 4u32))?;
/// assert_eq!(stream.download(&x)?, [3.0; 4]); // in the same stream, after the launch
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawAddress(u64);

impl RawAddress {
    /// Makes an argument from an address.
    ///
    /// # Safety
    /// All accesses that kernels make through the address are valid. The memory stays allocated until the kernels have
    /// ended, and nothing else uses it until then, except as the program intends: the address orders nothing and keeps
    /// nothing alive.
    pub unsafe fn new(address: u64) -> Self {
        Self(address)
    }
}

impl Sealed for RawAddress {}

impl Argument for RawAddress {
    type Word = u64;
    const GIVEN: Given = Given::Address;

    fn word(&self) -> u64 {
        self.0
    }
}

/// A value passed as its bytes, for kernels that take a structure.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// # let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
/// use freehold::{Grid, Value};
///
/// let mut x = stream.upload(&[1.0f32; 4])?;
/// // SAFETY: `scale` writes the first `n` elements of `x`, which has as many.
/// let scale = unsafe { module.kernel("scale")? };
/// stream.launch(&scale, Grid::line(1, 4), (&mut x, Value([3.0f32; 1]), 4u32))?; // or a structure
/// assert_eq!(stream.download(&x)?, [3.0; 4]);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Value<T>(pub T);

macro_rules! numbers {
    ($($kind:ident: $($number:ty)*;)*) => {$($(
        impl Sealed for $number {}

        impl Argument for $number {
            type Word = Self;
            const GIVEN: Given = Given::Number(Kind::$kind);

            fn word(&self) -> Self {
                *self
            }
        }
    )*)*};
}

numbers! {
    Unsigned: u8 u16 u32 u64 usize;
    Signed: i8 i16 i32 i64 isize;
    Float: f32 f64;
}

impl<T> Sealed for Value<T> {}

impl<T: Pod> Argument for Value<T> {
    type Word = T;
    const GIVEN: Given = Given::Bytes;

    fn word(&self) -> T {
        self.0
    }
}

macro_rules! sources {
    ($($kind:ty)*) => {$(
        impl<T: Pod> Sealed for &$kind {}

        impl<T: Pod> Argument for &$kind {
            type Word = u64;
            const GIVEN: Given = Given::Address;

            fn word(&self) -> u64 {
                Source::address(*self)
            }

            fn used(&self) -> Option<MemoryUse<'_>> {
                Some(Source::used(*self))
            }
        }
    )*};
}

macro_rules! targets {
    ($($kind:ty)*) => {$(
        impl<T: Pod> Sealed for &mut $kind {}

        impl<T: Pod> Argument for &mut $kind {
            type Word = u64;
            const GIVEN: Given = Given::Address;

            fn word(&self) -> u64 {
                Target::address(*self)
            }

            fn used(&self) -> Option<MemoryUse<'_>> {
                Some(Target::used(*self, Access::Write))
            }
        }
    )*};
}

sources!(Block<T> Shared<T> View<'_, T> ViewMut<'_, T> DeviceVec<T> ArenaSlice<'_, T> ImportedSlice<T>);
targets!(Block<T> ViewMut<'_, T> DeviceVec<T> ArenaSlice<'_, T> ImportedSlice<T>);

impl<O: OwnsSlice> Sealed for &O {}

impl<O: OwnsSlice> Argument for &O {
    type Word = u64;
    const GIVEN: Given = Given::Address;

    fn word(&self) -> u64 {
        self.slice().address()
    }

    fn used(&self) -> Option<MemoryUse<'_>> {
        Some(Source::used(*self))
    }
}

impl<O: OwnsSlice> Sealed for &mut O {}

impl<O: OwnsSlice> Argument for &mut O {
    type Word = u64;
    const GIVEN: Given = Given::Address;

    fn word(&self) -> u64 {
        self.slice().address()
    }

    fn used(&self) -> Option<MemoryUse<'_>> {
        Some(Target::used(*self, Access::Write))
    }
}

impl<T> Sealed for Unordered<'_, T> {}

impl<T: Pod> Argument for Unordered<'_, T> {
    type Word = u64;
    const GIVEN: Given = Given::Address;

    fn word(&self) -> u64 {
        self.parts().0
    }

    fn used(&self) -> Option<MemoryUse<'_>> {
        Some(self.parts().1)
    }
}

/// A tuple of [`Argument`]s, or a slice of [`DynArg`]s. The trait is sealed, because a launch trusts the pointers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tuple of arguments for a kernel",
    note = "arguments are a tuple of up to 12, also of one: `(&mut x,)`; more, or such as are known at run time alone, are a \
            `&mut [DynArg]`"
)]
pub trait Arguments: Sealed {
    /// Calls `act` with the arguments laid out for a launch.
    #[doc(hidden)]
    fn with<R>(self, act: impl FnOnce(LaunchArguments<'_>) -> R) -> R;
}

/// Arguments laid out for a launch. The first three fields have one element per argument.
#[doc(hidden)]
#[derive(Debug)]
pub struct LaunchArguments<'a> {
    pub(crate) given: &'a [Given],
    pub(crate) passed: &'a [ArgKind],
    pub(crate) pointers: &'a mut [*mut c_void],
    /// The memory among them.
    pub(crate) used: &'a [MemoryUse<'a>],
}

impl Sealed for () {}

impl Arguments for () {
    fn with<R>(self, act: impl FnOnce(LaunchArguments<'_>) -> R) -> R {
        act(LaunchArguments { given: &[], passed: &[], pointers: &mut [], used: &[] })
    }
}

macro_rules! tuples {
    ($($first:ident $($rest:ident)*;)*) => {$(
        impl<$first: Argument, $($rest: Argument),*> Sealed for ($first, $($rest,)*) {}

        impl<$first: Argument, $($rest: Argument),*> Arguments for ($first, $($rest,)*) {
            #[inline]
            #[allow(non_snake_case, reason = "an argument is named as its type")]
            fn with<R>(self, act: impl FnOnce(LaunchArguments<'_>) -> R) -> R {
                let given = &[$first::GIVEN, $($rest::GIVEN,)*];
                let ($first, $($rest,)*) = &self;
                let found = [$first.used(), $($rest.used(),)*];
                let ($first, $($rest,)*) = ($first.word(), $($rest.word(),)*);
                let mut passed =
                    [ArgKind::Value { bytes: size_of_val(&$first) }, $(ArgKind::Value { bytes: size_of_val(&$rest) },)*];
                for (passed, given) in passed.iter_mut().zip(given) {
                    if *given == Given::Address {
                        *passed = ArgKind::Address;
                    }
                }
                for (passed, used) in passed.iter_mut().zip(&found) {
                    if let Some(used) = used {
                        *passed = passed_as(used);
                    }
                }
                let passed = &passed;
                let mut pointers = [
                    std::ptr::from_ref(&$first).cast_mut().cast::<c_void>(),
                    $(std::ptr::from_ref(&$rest).cast_mut().cast::<c_void>(),)*
                ];
                // The blocks, moved to the front.
                let mut count = 0;
                let mut used = found;
                for index in 0..used.len() {
                    if used[index].is_some() {
                        used.swap(count, index);
                        count += 1;
                    }
                }
                let pointers = &mut pointers;
                match used.first().copied().flatten() {
                    None => act(LaunchArguments { given, passed, pointers, used: &[] }),
                    Some(first) => {
                        let used = used.map(|used| used.unwrap_or(first));
                        act(LaunchArguments { given, passed, pointers, used: &used[..count] })
                    }
                }
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
    A B C D E F G H I J K;
    A B C D E F G H I J K L;
}

/// An argument whose kind is known only at run time: a slice of them is [`Arguments`] too.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// # let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
/// use freehold::{DynArg, Grid};
///
/// let mut x = stream.upload(&[1u32, 2, 3])?;
/// let (more, count) = ([10], [3]); // for example, read from a request
/// let arguments = [DynArg::memory_mut(&mut x, 0), DynArg::bytes(&more, 4), DynArg::bytes(&count, 4)];
/// let mut arguments = arguments.map(|one| one.expect("the memory is long enough"));
/// // SAFETY: `add` writes the first 3 elements of `x`, which has as many.
/// let add = unsafe { module.kernel("add")? };
/// stream.launch(&add, Grid::line(1, 32), &mut arguments[..])?;
/// assert_eq!(stream.download(&x)?, [11, 12, 13]);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Debug)]
pub struct DynArg<'a>(Known<'a>);

#[derive(Clone, Copy, Debug)]
enum Known<'a> {
    /// Words that hold this many bytes.
    Bytes(&'a [u64], usize),
    Memory(u64, MemoryUse<'a>),
}

impl<'a> DynArg<'a> {
    /// Makes an argument from the first `bytes` bytes of `words`. Returns `None` if they hold fewer.
    pub fn bytes(words: &'a [u64], bytes: usize) -> Option<Self> {
        (bytes <= size_of_val(words)).then_some(Self(Known::Bytes(words, bytes)))
    }

    /// Makes an argument from memory to be read, starting at `element`. Returns `None` if there is no such element; for
    /// empty memory, element 0 is allowed.
    pub fn memory<T: Pod>(memory: &'a impl Source<T>, element: usize) -> Option<Self> {
        Self::from_element::<T>(memory.address(), memory.len(), element, memory.used())
    }

    /// Makes an argument from memory to be read and written, starting at `element`. Returns `None` if there is no such
    /// element; for empty memory, element 0 is allowed.
    pub fn memory_mut<T: Pod>(memory: &'a mut impl Target<T>, element: usize) -> Option<Self> {
        Self::from_element::<T>(memory.address(), memory.len(), element, memory.used(Access::Write))
    }

    /// Like [`memory_mut`](Self::memory_mut), for memory that is also borrowed elsewhere or is another argument of the
    /// launch. Memory that was imported read-only counts as read, not as written.
    ///
    /// # Safety
    /// Until the launch with this argument has returned, no other thread submits work that uses the memory: the two
    /// would not be ordered. Other borrowers of the memory must tolerate that it changes.
    pub unsafe fn memory_shared<T: Pod>(memory: &'a impl Target<T>, element: usize) -> Option<Self> {
        let written = memory.used(Access::Write);
        let access = if written.permission == Permission::Read { Access::Read } else { Access::Write };
        Self::from_element::<T>(memory.address(), memory.len(), element, MemoryUse { access, ..written })
    }

    fn from_element<T>(start: u64, elements: usize, element: usize, used: MemoryUse<'a>) -> Option<Self> {
        (element < elements || element == 0)
            .then(|| Self(Known::Memory(start + (element * size_of::<T>()) as u64, used)))
    }
}

impl Sealed for &mut [DynArg<'_>] {}

/// Argument count that fits on the stack.
const FEW: usize = 32;

/// Exclusive, so that no two threads launch with memory that one of them borrowed mutably.
impl Arguments for &mut [DynArg<'_>] {
    #[inline]
    fn with<R>(self, act: impl FnOnce(LaunchArguments<'_>) -> R) -> R {
        let count = self.len();
        if count <= FEW {
            let (mut given, mut passed) = ([Given::Bytes; FEW], [ArgKind::Address; FEW]);
            let mut pointers = [std::ptr::null_mut(); FEW];
            return lay_out(self, &mut given[..count], &mut passed[..count], &mut pointers[..count], act);
        }
        let (mut given, mut passed) = (vec![Given::Bytes; count], vec![ArgKind::Address; count]);
        let mut pointers = vec![std::ptr::null_mut(); count];
        lay_out(self, &mut given, &mut passed, &mut pointers, act)
    }
}

/// Lays out the kind and the location of each argument.
fn lay_out<R>(
    actuals: &[DynArg<'_>],
    given: &mut [Given],
    passed: &mut [ArgKind],
    pointers: &mut [*mut c_void],
    act: impl FnOnce(LaunchArguments<'_>) -> R,
) -> R {
    let mut used = Vec::new();
    for (index, DynArg(known)) in actuals.iter().enumerate() {
        match known {
            &Known::Bytes(words, bytes) => {
                passed[index] = ArgKind::Value { bytes };
                pointers[index] = words.as_ptr().cast_mut().cast();
            }
            Known::Memory(address, by) => {
                given[index] = Given::Address;
                passed[index] = passed_as(by);
                pointers[index] = std::ptr::from_ref(address).cast_mut().cast();
                used.push(*by);
            }
        }
    }
    act(LaunchArguments { given, passed, pointers, used: &used })
}

/// The permission with which memory is passed to a kernel: a device that checks kernels reports one that writes to
/// read-only memory.
#[inline]
fn passed_as(used: &MemoryUse<'_>) -> ArgKind {
    match used.access {
        Access::Read => ArgKind::ReadOnly { start: used.start, bytes: used.bytes },
        Access::Write => ArgKind::Address,
    }
}
