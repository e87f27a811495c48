//! Launches: a kernel, its grid and its arguments, put into a stream.

use std::ffi::c_void;

use freehold_driver::{self as driver, Passed, Shape};

use crate::arena::Piece;
use crate::block::sealed::Sealed;
use crate::block::{Block, Plain, Shared, Source, Target, Unordered, View, ViewMut};
use crate::error::{Error, Result};
use crate::imported::{Part, Permission};
use crate::module::Kernel;
use crate::stream::{Stream, Used};
use crate::uses::Access;
use crate::vector::DeviceVec;

/// How many threads run a kernel, and in what groups.
///
/// ```
/// use freehold::Grid;
///
/// assert_eq!(Grid::cover(1000u32, 256).blocks, [4, 1, 1]); // at least a thread for each of 1000
/// assert_eq!(Grid::line(4, 256), Grid::cover(1024u32, 256));
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in each direction.
    pub blocks: [u32; 3],
    /// Threads of a block in each direction.
    pub threads: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl Grid {
    /// `blocks` blocks of `threads` threads in a line.
    pub const fn line(blocks: u32, threads: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads: [threads, 1, 1], shared_bytes: 0 }
    }

    /// As many blocks of `threads` threads as have a thread for each of `items`.
    pub fn cover(items: impl TryInto<u64>, threads: u32) -> Self {
        // More than a `u64` counts, or less than nothing: the launch is refused.
        let items: u64 = items.try_into().unwrap_or(0);
        let blocks = items.div_ceil(u64::from(threads.max(1)));
        Self::line(u32::try_from(blocks).unwrap_or(u32::MAX), threads)
    }

    /// The grid with so much dynamic shared memory for each block.
    ///
    /// ```
    /// use freehold::Grid;
    ///
    /// assert_eq!(Grid::line(4, 256).with_shared(1024).shared_bytes, 1024);
    /// ```
    #[must_use]
    pub const fn with_shared(self, bytes: u32) -> Self {
        Self { shared_bytes: bytes, ..self }
    }
}

/// What a kernel can be given: a number, a block, a part of a block.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.stream()?;
/// # let module = device.module(&freehold::Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
/// // Numbers as they are; memory that is read as `&`, that is written as `&mut`.
/// let (x, mut total) = (stream.upload(&[1.0f32; 100])?, stream.zeros::<f32>(1)?);
/// stream.launch(&module.kernel("sum")?, freehold::Grid::line(1, 128), (&x.view(..50)?, &mut total, 50u32))?;
/// assert_eq!(stream.download(&total)?, [50.0]);
/// # Ok::<(), freehold::Error>(())
/// ```
pub trait Argument {
    /// What the kernel receives.
    type Word: Plain;

    /// The bytes that it is given.
    fn word(&self) -> Self::Word;

    /// The block that is used, if it is one.
    fn used(&self) -> Option<Used<'_>> {
        None
    }
}

/// Any value that is its bytes, for kernels that take a structure.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.stream()?;
/// # let module = device.module(&freehold::Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
/// use freehold::{Grid, Value};
///
/// let mut x = stream.upload(&[1.0f32; 4])?;
/// stream.launch(&module.kernel("scale")?, Grid::line(1, 4), (&mut x, Value([3.0f32; 1]), 4u32))?; // or a structure
/// assert_eq!(stream.download(&x)?, [3.0; 4]);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Value<T>(pub T);

macro_rules! numbers {
    ($($kind:ty)*) => {$(
        impl Argument for $kind {
            type Word = Self;

            fn word(&self) -> Self {
                *self
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);

impl<T: Plain> Argument for Value<T> {
    type Word = T;

    fn word(&self) -> T {
        self.0
    }
}

macro_rules! sources {
    ($($kind:ty)*) => {$(
        impl<T: Plain> Argument for &$kind {
            type Word = u64;

            fn word(&self) -> u64 {
                Source::address(*self)
            }

            fn used(&self) -> Option<Used<'_>> {
                Some(Source::used(*self))
            }
        }
    )*};
}

macro_rules! targets {
    ($($kind:ty)*) => {$(
        impl<T: Plain> Argument for &mut $kind {
            type Word = u64;

            fn word(&self) -> u64 {
                Target::address(*self)
            }

            fn used(&self) -> Option<Used<'_>> {
                Some(Target::used(*self, Access::Write))
            }
        }
    )*};
}

sources!(Block<T> Shared<T> View<'_, T> ViewMut<'_, T> DeviceVec<T> Piece<'_, T> Part<T>);
targets!(Block<T> ViewMut<'_, T> DeviceVec<T> Piece<'_, T> Part<T>);

impl<T: Plain> Argument for Unordered<'_, T> {
    type Word = u64;

    fn word(&self) -> u64 {
        self.parts().0
    }

    fn used(&self) -> Option<Used<'_>> {
        Some(self.parts().1)
    }
}

/// A tuple of [`Argument`]s, or a slice of [`Actual`]s. No other type can be one: a launch trusts the pointers.
pub trait Arguments: Sealed {
    /// Calls `act` with what each argument is, a pointer to each, and the blocks among them.
    fn with<R>(&self, act: impl FnOnce(&[Passed], &mut [*mut c_void], &[Used<'_>]) -> R) -> R;
}

impl Sealed for () {}

impl Arguments for () {
    fn with<R>(&self, act: impl FnOnce(&[Passed], &mut [*mut c_void], &[Used<'_>]) -> R) -> R {
        act(&[], &mut [], &[])
    }
}

macro_rules! tuples {
    ($($first:ident $($rest:ident)*;)*) => {$(
        impl<$first: Argument, $($rest: Argument),*> Sealed for ($first, $($rest,)*) {}

        impl<$first: Argument, $($rest: Argument),*> Arguments for ($first, $($rest,)*) {
            #[inline]
            #[allow(non_snake_case, reason = "an argument is named as its type")]
            fn with<R>(&self, act: impl FnOnce(&[Passed], &mut [*mut c_void], &[Used<'_>]) -> R) -> R {
                let ($first, $($rest,)*) = self;
                let found = [$first.used(), $($rest.used(),)*];
                let ($first, $($rest,)*) = ($first.word(), $($rest.word(),)*);
                let mut passed =
                    [Passed::Value { bytes: size_of_val(&$first) }, $(Passed::Value { bytes: size_of_val(&$rest) },)*];
                for (passed, used) in passed.iter_mut().zip(&found) {
                    if let Some(used) = used {
                        *passed = passed_as(used);
                    }
                }
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
                match used.first().copied().flatten() {
                    None => act(&passed, &mut pointers, &[]),
                    Some(first) => {
                        let used = used.map(|used| used.unwrap_or(first));
                        act(&passed, &mut pointers, &used[..count])
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

/// An argument whose kind is known at run time alone: a slice of them is [`Arguments`] too.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.stream()?;
/// # let module = device.module(&freehold::Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
/// use freehold::{Actual, Grid};
///
/// let mut x = stream.upload(&[1u32, 2, 3])?;
/// let (more, count) = ([10], [3]); // read from a request, say
/// let words = "they hold as much";
/// let arguments = [Actual::memory(&mut x, 0), Actual::bytes(&more, 4), Actual::bytes(&count, 4)].map(|one| one.expect(words));
/// stream.launch(&module.kernel("add")?, Grid::line(1, 32), &arguments[..])?;
/// assert_eq!(stream.download(&x)?, [11, 12, 13]);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Actual<'a>(Known<'a>);

#[derive(Clone, Copy, Debug)]
enum Known<'a> {
    /// Words that hold so many bytes.
    Bytes(&'a [u64], usize),
    Memory(u64, Used<'a>),
}

impl<'a> Actual<'a> {
    /// The first `bytes` bytes of words. Nothing where they hold fewer.
    pub fn bytes(words: &'a [u64], bytes: usize) -> Option<Self> {
        (bytes <= size_of_val(words)).then_some(Self(Known::Bytes(words, bytes)))
    }

    /// Memory from an element on: written where it may be, for nobody knows what the kernel does. Nothing where there are fewer
    /// elements.
    pub fn memory<T: Plain>(memory: &'a impl Target<T>, element: usize) -> Option<Self> {
        if element >= memory.len() {
            return None;
        }
        let written = memory.used(Access::Write);
        let access = if written.permission == Permission::Read { Access::Read } else { Access::Write };
        let address = memory.address() + (element * size_of::<T>()) as u64;
        Some(Self(Known::Memory(address, Used { access, ..written })))
    }
}

impl Sealed for &[Actual<'_>] {}

/// So many arguments are laid out without memory of their own.
const FEW: usize = 32;

impl Arguments for &[Actual<'_>] {
    #[inline]
    fn with<R>(&self, act: impl FnOnce(&[Passed], &mut [*mut c_void], &[Used<'_>]) -> R) -> R {
        let count = self.len();
        if count <= FEW {
            let (mut passed, mut pointers) = ([Passed::Address; FEW], [std::ptr::null_mut(); FEW]);
            let used = lay_out(self, &mut passed[..count], &mut pointers[..count]);
            return act(&passed[..count], &mut pointers[..count], &used);
        }
        let (mut passed, mut pointers) = (vec![Passed::Address; count], vec![std::ptr::null_mut(); count]);
        let used = lay_out(self, &mut passed, &mut pointers);
        act(&passed, &mut pointers, &used)
    }
}

/// Writes down what each argument is and where it lies: the memory among them.
fn lay_out<'a>(actuals: &'a [Actual<'a>], passed: &mut [Passed], pointers: &mut [*mut c_void]) -> Vec<Used<'a>> {
    let mut used = Vec::new();
    for ((Actual(known), passed), pointer) in actuals.iter().zip(passed).zip(pointers) {
        match known {
            &Known::Bytes(words, bytes) => {
                (*passed, *pointer) = (Passed::Value { bytes }, words.as_ptr().cast_mut().cast());
            }
            Known::Memory(address, by) => {
                (*passed, *pointer) = (passed_as(by), std::ptr::from_ref(address).cast_mut().cast());
                used.push(*by);
            }
        }
    }
    used
}

/// How memory is handed to a kernel: a device that checks kernels reports one that writes what it may only read.
#[inline]
fn passed_as(used: &Used<'_>) -> Passed {
    match used.access {
        Access::Read => Passed::ReadOnly { start: used.start, bytes: used.bytes },
        Access::Write => Passed::Address,
    }
}

impl Stream {
    /// Launches a kernel. Blocks that are borrowed mutably are written, others read: by that the launch is ordered after
    /// what other streams do with them, and they after it.
    ///
    /// A kernel is trusted like a program on another machine: it is to read and write its arguments' blocks as they are
    /// borrowed, and to stay within them.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// # let module = device.module(&freehold::Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
    /// use freehold::Grid;
    ///
    /// let mut x = stream.upload(&[1.0f32; 1000])?;
    /// stream.launch(&module.kernel("scale")?, Grid::cover(1000u32, 256), (&mut x, 2.0f32, 1000u32))?;
    /// assert_eq!(stream.download(&x)?, [2.0; 1000]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ArgumentCount`] and [`Error::ArgumentSize`] where the arguments are not the kernel's parameters,
    /// [`Error::OtherContext`] where the kernel is of another context than the stream.
    #[inline]
    pub fn launch(&self, kernel: &Kernel, grid: Grid, arguments: impl Arguments) -> Result<()> {
        let inner = &self.home.context.inner;
        inner.check()?;
        arguments.with(|passed, pointers, used| {
            self.fits(kernel, grid, passed)?;
            // Nobody knows whether the kernel reads what it is given to write.
            used.iter().try_for_each(Used::check_defined)?;
            self.order(used)?;
            let shape = Shape { grid: grid.blocks, block: grid.threads, shared_bytes: grid.shared_bytes };
            let arguments = driver::Arguments { pointers, passed };
            let mark = self.put_ordered(kernel.name(), used, |backend, raw| {
                // SAFETY: there is an argument for each parameter, of its size.
                unsafe { backend.launch(kernel.raw, shape, raw, arguments) }
            })?;
            self.home.track.remember_launch(mark.position, kernel.number);
            Ok(())
        })
    }

    /// Refuses a launch that the driver must not see.
    #[inline]
    fn fits(&self, kernel: &Kernel, grid: Grid, passed: &[Passed]) -> Result<()> {
        let parameters = kernel.parameters();
        if parameters.len() != passed.len() {
            let (kernel, wanted, given) = (kernel.name().clone(), parameters.len(), passed.len());
            return Err(Error::ArgumentCount { kernel, wanted, given });
        }
        for (index, (parameter, passed)) in parameters.iter().zip(passed).enumerate() {
            let given_bytes = passed.bytes();
            // A driver that does not tell looks at the size itself.
            if let Some(wanted_bytes) = parameter.bytes.filter(|&bytes| bytes != given_bytes) {
                return Err(Error::ArgumentSize { kernel: kernel.name().clone(), index, wanted_bytes, given_bytes });
            }
        }
        let of = kernel.module().context();
        if !std::sync::Arc::ptr_eq(&of.inner.core, &self.home.context.inner.core) {
            return Err(Error::OtherDevice { what: "a kernel" });
        }
        if !std::sync::Arc::ptr_eq(&of.inner, &self.home.context.inner) {
            return Err(Error::OtherContext { what: "a kernel", of: of.id(), within: self.context_id() });
        }
        if grid.blocks.contains(&0) || grid.threads.contains(&0) {
            return Err(Error::EmptyGrid);
        }
        Ok(())
    }
}
