//! One handle for a GPU, wherever it is: `alloc`, `upload`, `launch`, `download` and `wait` are the same for the device
//! of this process, for the broker on this machine, and for any other [`GpuBackend`].
//!
//! Work is executed in the order in which it is submitted. Only `download` and `wait` wait.

mod backend;
mod broker;
mod local;

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use freehold::{Device, Grid, Pod};
use zerocopy::IntoBytes;

pub use self::backend::{GpuBackend, GpuError, GpuKernel, GpuResult};
use self::broker::BrokerBackend;
use self::local::LocalBackend;
use crate::client::Broker;
use crate::os::socket_path;
use crate::protocol::call_codec::{Argument, Owner};
use crate::protocol::types::Id;

/// A handle to a GPU.
#[derive(Clone, Debug)]
pub struct Gpu {
    backend: Arc<dyn GpuBackend>,
}

/// Memory of a GPU, for elements of one type. Dropping it frees the memory after the work that uses it.
#[derive(Debug)]
pub struct Buffer<T> {
    backend: Arc<dyn GpuBackend>,
    memory: Id,
    len: usize,
    elements: PhantomData<T>,
}

impl Gpu {
    /// Opens the default device of this process.
    ///
    /// # Errors
    /// Those of [`freehold::open()`].
    pub fn local() -> GpuResult<Self> {
        Self::on(&freehold::open()?)
    }

    /// Uses a device of this process.
    ///
    /// # Errors
    /// If the device cannot create a stream.
    pub fn on(device: &Device) -> GpuResult<Self> {
        Ok(Self::with_backend(LocalBackend::new(device)?))
    }

    /// Uses this user's broker: memory is leased there, and kernels run in a private worker. This process copies, with
    /// its own mapping of the memory.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`](crate::LinkError::NoBroker) if none is running.
    pub fn at_broker() -> GpuResult<Self> {
        Self::at_broker_path(&freehold::open()?, &socket_path::resolve())
    }

    /// Like [`at_broker`](Self::at_broker), with the broker at a path and a given device.
    ///
    /// # Errors
    /// Those of [`at_broker`](Self::at_broker).
    pub fn at_broker_path(device: &Device, path: &Path) -> GpuResult<Self> {
        Ok(Self::with_backend(BrokerBackend::new(Broker::connect_at(device, path)?)?))
    }

    /// Returns a GPU that is reached through `backend`.
    pub fn with_backend(backend: impl GpuBackend + 'static) -> Self {
        Self { backend: Arc::new(backend) }
    }

    /// Allocates uninitialized memory for `len` elements.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn alloc<T: Pod>(&self, len: usize) -> GpuResult<Buffer<T>> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        // An empty buffer has memory too: a broker leases none of zero bytes.
        let memory = self.backend.alloc(bytes.max(1))?;
        Ok(Buffer { backend: self.backend.clone(), memory, len, elements: PhantomData })
    }

    /// Allocates memory with a copy of `from`.
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc), and those of the copy.
    pub fn upload<T: Pod>(&self, from: &[T]) -> GpuResult<Buffer<T>> {
        let mut buffer = self.alloc(from.len())?;
        self.write(&mut buffer, from)?;
        Ok(buffer)
    }

    /// Overwrites a buffer.
    ///
    /// # Errors
    /// [`GpuError::LengthsDiffer`], [`GpuError::OtherGpu`], and those of the copy.
    pub fn write<T: Pod>(&self, to: &mut Buffer<T>, from: &[T]) -> GpuResult<()> {
        self.check_owner(to)?;
        if from.len() != to.len {
            return Err(GpuError::LengthsDiffer { from_elements: from.len(), to_elements: to.len });
        }
        if from.is_empty() { Ok(()) } else { self.backend.upload(to.memory, from.as_bytes()) }
    }

    /// Returns the contents of a buffer. Waits for the work submitted before.
    ///
    /// # Errors
    /// [`GpuError::OtherGpu`], those of the copy, and those of the work before it.
    pub fn download<T: Pod>(&self, from: &Buffer<T>) -> GpuResult<Vec<T>> {
        self.check_owner(from)?;
        if from.is_empty() {
            return self.wait().map(|()| Vec::new());
        }
        let mut elements = T::new_vec_zeroed(from.len)
            .map_err(|_| freehold::Error::TooManyElements { elements: from.len, element_bytes: size_of::<T>() })?;
        self.backend.download(from.memory, elements.as_mut_bytes())?;
        Ok(elements)
    }

    /// Returns a kernel of a PTX text. Each text is loaded once.
    ///
    /// # Safety
    /// As for [`freehold::Module::kernel`], of every launch that is made with the handle, except that a kernel may
    /// write all buffers that it is given ([`Buffer::argument`]): work is executed in the order in which it is
    /// submitted, so nothing else uses them at that time.
    ///
    /// # Errors
    /// Those of the compiler; [`freehold::Error::NoSuchKernel`].
    pub unsafe fn kernel(&self, text: &str, name: &str) -> GpuResult<GpuKernel> {
        let (module, kernels) = self.backend.module(text)?;
        let found = kernels.iter().position(|kernel| &*kernel.name == name);
        let index = found.ok_or_else(|| freehold::Error::NoSuchKernel {
            name: name.to_owned(),
            known: kernels.iter().map(|kernel| kernel.name.to_string()).collect(),
        })?;
        let (backend, signature) = (self.backend.clone(), kernels[index].clone());
        Ok(GpuKernel { backend, module, index: index as u32, signature })
    }

    /// Launches a kernel. Numbers become arguments by `into()`, buffers by [`Buffer::argument`]. A grid of no blocks
    /// launches nothing.
    ///
    /// # Errors
    /// [`GpuError::OtherGpu`], and those of arguments that do not match the kernel's parameters. [`wait`](Self::wait)
    /// returns errors that are found later.
    pub fn launch(&self, kernel: &GpuKernel, grid: Grid, arguments: &[Argument<'_>]) -> GpuResult<()> {
        // The same id means another kernel, or other memory, on another GPU.
        let own = Owner::of(&self.backend);
        let is_own = Arc::ptr_eq(&self.backend, &kernel.backend) && arguments.iter().all(|one| one.is_known_to(own));
        if !is_own {
            return Err(GpuError::OtherGpu);
        }
        if grid.blocks.contains(&0) {
            return Ok(());
        }
        self.backend.launch(kernel, grid, arguments)
    }

    /// Waits for all submitted work.
    ///
    /// # Errors
    /// The first error that was not returned yet.
    pub fn wait(&self) -> GpuResult<()> {
        self.backend.wait()
    }

    fn check_owner<T>(&self, buffer: &Buffer<T>) -> GpuResult<()> {
        if Arc::ptr_eq(&self.backend, &buffer.backend) { Ok(()) } else { Err(GpuError::OtherGpu) }
    }
}

impl<T> Buffer<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the buffer as a read-write argument of a kernel of the same GPU, starting at `element`.
    pub fn argument(&self, element: usize) -> Argument<'_> {
        let offset_bytes = (element as u64).saturating_mul(size_of::<T>() as u64);
        Argument::memory(Owner::of(&self.backend), self.memory, offset_bytes)
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.backend.free(self.memory);
    }
}
