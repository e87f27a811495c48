//! Launches: submitting a kernel with its grid and arguments to a stream.

use freehold_driver::{self as driver, ArgKind, ErrorKind, LaunchConfig, LaunchLimits};

use crate::api::arguments::{Arguments, Given, LaunchArguments};
use crate::api::module::Kernel;
use crate::api::stream::Stream;
use crate::base::signature::{Kind, Parameter};
use crate::device::memory_use::MemoryUse;
use crate::error::{Error, Result};

/// How many threads run a kernel, and in which groups.
///
/// ```
/// use freehold::Grid;
///
/// assert_eq!(Grid::cover(1000u32, 256).blocks, [4, 1, 1]); // at least 1000 threads
/// assert_eq!(Grid::line(4, 256), Grid::cover(1024u32, 256));
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in each dimension.
    pub blocks: [u32; 3],
    /// Threads of a block in each dimension.
    pub threads: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl Grid {
    /// Returns a one-dimensional grid of `blocks` blocks of `threads` threads.
    pub const fn line(blocks: u32, threads: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads: [threads, 1, 1], shared_bytes: 0 }
    }

    /// Returns a one-dimensional grid of `threads` threads per block with at least one thread for each of `items`. A
    /// negative number, or more items than `u32::MAX` blocks cover, makes a grid that every launch rejects.
    pub fn cover(items: impl TryInto<u64>, threads: u32) -> Self {
        let items: u64 = items.try_into().unwrap_or(u64::MAX);
        let blocks = items.div_ceil(u64::from(threads.max(1)));
        Self::line(u32::try_from(blocks).unwrap_or(u32::MAX), threads)
    }

    /// Returns the grid with this much dynamic shared memory per block.
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

    /// Returns an error for the first limit that the grid exceeds.
    fn beyond(&self, limits: &LaunchLimits) -> Option<Error> {
        let threads = self.threads.iter().fold(1, |all: u64, &one| all.saturating_mul(u64::from(one)));
        let (wide, many) = (limits.block_threads, limits.grid_blocks);
        let rules = [
            ("threads per block", threads, limits.threads_max, "device"),
            ("threads of a block in x", self.threads[0].into(), wide[0], "device"),
            ("threads of a block in y", self.threads[1].into(), wide[1], "device"),
            ("threads of a block in z", self.threads[2].into(), wide[2], "device"),
            ("blocks in x", self.blocks[0].into(), many[0], "device"),
            ("blocks in y", self.blocks[1].into(), many[1], "device"),
            ("blocks in z", self.blocks[2].into(), many[2], "device"),
            ("threads per block", threads, limits.kernel_threads_max, "kernel"),
            (
                "bytes of dynamic shared memory per block",
                self.shared_bytes.into(),
                limits.kernel_shared_bytes_max,
                "kernel",
            ),
        ];
        let found = rules.into_iter().find(|&(_, given, allowed, _)| given > allowed);
        found.map(|(what, given, allowed, of)| Error::ShapeTooLarge { what, given, allowed, of })
    }
}

impl Stream {
    /// Launches a kernel. Mutably borrowed blocks count as written, others as read: the launch is ordered after uses of
    /// them in other streams, and later uses after it. A grid of no blocks launches nothing.
    ///
    /// The kernel's code is not checked: the caller that looked it up guaranteed what it does
    /// ([`Module::kernel`](crate::Module::kernel)).
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// # let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
    /// use freehold::Grid;
    ///
    /// let mut x = stream.upload(&[1.0f32; 1000])?;
    /// // SAFETY: `scale` writes the first `n` elements of `x`, which has as many.
    /// let scale = unsafe { module.kernel("scale")? };
    /// stream.launch(&scale, Grid::cover(1000u32, 256), (&mut x, 2.0f32, 1000u32))?;
    /// assert_eq!(stream.download(&x)?, [2.0; 1000]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ArgumentCount`], [`Error::ArgumentSize`] and, for PTX, [`Error::ArgumentKind`] if the arguments do not
    /// match the kernel's parameters; [`Error::ShapeTooLarge`] and [`Error::NoThreads`] if the device cannot run such a
    /// grid; [`Error::OtherContext`] if the kernel belongs to a context other than the stream's.
    #[inline]
    pub fn launch(&self, kernel: &Kernel, grid: Grid, arguments: impl Arguments) -> Result<()> {
        let inner = &self.inner.context.inner;
        inner.check()?;
        arguments.with(|LaunchArguments { given, passed, pointers, used }| {
            self.fits(kernel, grid, given, passed)?;
            if grid.blocks.contains(&0) {
                return Ok(());
            }
            // The kernel may read what it is given to write.
            used.iter().try_for_each(MemoryUse::check_defined)?;
            self.order(used)?;
            let shape = LaunchConfig { grid: grid.blocks, block: grid.threads, shared_bytes: grid.shared_bytes };
            let arguments = driver::Arguments { pointers, kinds: passed };
            let put = self.put_ordered(kernel.name(), used, |backend, raw| {
                // SAFETY: there is an argument for each parameter, of its size, and the kernel belongs to the stream's
                // context. The caller that looked it up guaranteed that it touches only those arguments, which stay
                // until the launch is complete.
                unsafe { backend.launch(kernel.raw, shape, raw, arguments) }
            });
            let fence = put.map_err(|error| self.explained(error, kernel, grid))?;
            self.inner.state.remember_launch(fence.seq, kernel.number);
            Ok(())
        })
    }

    /// Returns an error for a launch that must not reach the driver.
    #[inline]
    fn fits(&self, kernel: &Kernel, grid: Grid, given: &[Given], passed: &[ArgKind]) -> Result<()> {
        let parameters = kernel.parameters();
        if parameters.len() != passed.len() {
            let (kernel, wanted, given) = (kernel.shown(), parameters.len(), passed.len());
            return Err(Error::ArgumentCount { kernel, wanted, given });
        }
        let signature = kernel.signature().map_or(&[][..], |signature| &signature.parameters);
        for (index, (parameter, passed)) in parameters.iter().zip(passed).enumerate() {
            let given_bytes = passed.bytes();
            let number = || match given[index] {
                Given::Number(kind) => Some(Parameter { kind, bytes: given_bytes as u32 }),
                Given::Bytes | Given::Address => None,
            };
            let argument = index + 1;
            // A driver that does not report sizes checks them itself.
            if let Some(wanted_bytes) = parameter.bytes.filter(|&bytes| bytes != given_bytes) {
                let (kernel, given) = (kernel.shown(), number());
                return Err(Error::ArgumentSize { kernel, argument, wanted_bytes, given_bytes, given });
            }
            let Some(&wanted) = signature.get(index) else { continue };
            let is_taken = match given[index] {
                Given::Number(kind) => wanted.takes(&Parameter { kind, bytes: given_bytes as u32 }),
                Given::Address => wanted.takes_address(),
                Given::Bytes => wanted.kind != Kind::Pointer,
            };
            if !is_taken {
                let bytes = Parameter { kind: Kind::Bytes, bytes: given_bytes as u32 };
                let given = number().or((given[index] == Given::Bytes).then_some(bytes));
                return Err(Error::ArgumentKind { kernel: kernel.shown(), argument, wanted, given });
            }
        }
        let of = kernel.module().context();
        if !std::sync::Arc::ptr_eq(&of.inner.device, &self.inner.context.inner.device) {
            return Err(Error::OtherDevice { what: "a kernel" });
        }
        if !std::sync::Arc::ptr_eq(&of.inner, &self.inner.context.inner) {
            return Err(Error::OtherContext { what: "a kernel", of: of.id(), within: self.context_id() });
        }
        if grid.threads.contains(&0) {
            return Err(Error::NoThreads);
        }
        // What `Grid::cover` returns for a number that makes no sense. A driver may take it for a long launch.
        if grid.blocks[0] == u32::MAX {
            let (given, allowed) = (u32::MAX.into(), i32::MAX as u64);
            return Err(Error::ShapeTooLarge { what: "blocks in x", given, allowed, of: "device" });
        }
        Ok(())
    }

    /// Returns which limit a refused launch exceeds, if any: the driver's error code does not say.
    #[cold]
    fn explained(&self, error: Error, kernel: &Kernel, grid: Grid) -> Error {
        let Error::Call(refused) = &error else { return error };
        if refused.kind != ErrorKind::Other {
            return error;
        }
        let inner = &self.inner.context.inner;
        let Ok(_shared) = inner.enter() else { return error };
        // SAFETY: the kernel belongs to this context, and keeps its module loaded.
        let Ok(limits) = (unsafe { inner.state.backend.limits(kernel.raw) }) else { return error };
        grid.beyond(&limits).unwrap_or(error)
    }
}
