//! One handle for a GPU, wherever it is: `alloc`, `upload`, `launch`, `download` and `wait` read the same for the device of this
//! process, for the broker on this machine, and for whatever else is a [`Place`].
//!
//! Work is carried out in the order in which it is asked for. Nothing waits but `download` and `wait`.

mod broker;
mod local;

use std::fmt;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use freehold::{Device, Grid, Pod};
use zerocopy::IntoBytes;

use self::broker::BrokerBackend;
use self::local::LocalBackend;
use crate::call_codec::{Argument, Owner};
use crate::client::{Broker, CallError, Error};
use crate::socket_path;
use crate::wire::Id;
use freehold::signature::Signature;

/// Why a GPU did not do what it was asked.
#[derive(thiserror::Error)]
pub enum GpuError {
    #[error(transparent)]
    Local(Box<freehold::Error>),
    #[error(transparent)]
    Broker(#[from] Error),
    #[error(transparent)]
    Call(#[from] CallError),
    /// Of a backend that this crate does not know.
    #[error(transparent)]
    Remote(Box<dyn std::error::Error + Send + Sync>),
    #[error("{from_elements} elements cannot be copied to where {to_elements} are")]
    LengthsDiffer { from_elements: usize, to_elements: usize },
    #[error("the memory or the kernel is of another GPU")]
    OtherGpu,
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for GpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<freehold::Error> for GpuError {
    fn from(error: freehold::Error) -> Self {
        Self::Local(Box::new(error))
    }
}

pub type GpuResult<T> = std::result::Result<T, GpuError>;

/// Where memory lies and kernels run. Memory and modules are known by numbers of the backend's own; what is asked for is carried out in
/// its order.
pub trait GpuBackend: Debug + Send + Sync {
    fn alloc(&self, bytes: u64) -> GpuResult<Id>;
    /// Gives memory back, behind the work that was asked for with it.
    fn free(&self, memory: Id);
    fn upload(&self, to: Id, from: &[u8]) -> GpuResult<()>;
    /// Waits for the work before it.
    fn download(&self, from: Id, to: &mut [u8]) -> GpuResult<()>;
    /// Has a text of PTX loaded: its number, and its kernels.
    fn module(&self, text: &str) -> GpuResult<(Id, Vec<Signature>)>;
    /// Memory among the arguments is numbers of this backend: the [`content`](Argument::content) tells.
    fn launch(&self, kernel: &GpuKernel, grid: Grid, arguments: &[Argument<'_>]) -> GpuResult<()>;
    /// Waits for all work, and tells what went wrong with it.
    fn wait(&self) -> GpuResult<()>;
}

/// A GPU. A handle.
#[derive(Clone, Debug)]
pub struct Gpu {
    backend: Arc<dyn GpuBackend>,
}

/// A kernel of a module that a GPU has loaded.
#[derive(Clone, Debug)]
pub struct GpuKernel {
    backend: Arc<dyn GpuBackend>,
    module: Id,
    index: u32,
    signature: Signature,
}

impl GpuKernel {
    /// The number that its backend has given its module.
    pub fn module(&self) -> Id {
        self.module
    }

    /// Its backend among the kernels of its module.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its name, and what it takes.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }
}

/// Memory of a GPU, for elements of one type. Dropped, it is given back behind the work with it.
#[derive(Debug)]
pub struct Buffer<T> {
    backend: Arc<dyn GpuBackend>,
    memory: Id,
    len: usize,
    elements: PhantomData<T>,
}

impl Gpu {
    /// The device of this process.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn local() -> GpuResult<Self> {
        Self::on(&freehold::open()?)
    }

    /// A device of this process.
    ///
    /// # Errors
    /// Where it makes no stream.
    pub fn on(device: &Device) -> GpuResult<Self> {
        Ok(Self::with_backend(LocalBackend::new(device)?))
    }

    /// This user's broker: memory is leased there, and kernels run in a worker of its own. Copies are this process's, on its own
    /// view of the device.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`](crate::LinkError::NoBroker) where none is running.
    pub fn at_broker() -> GpuResult<Self> {
        Self::at_broker_path(&freehold::open()?, &socket_path::resolve())
    }

    /// As [`at_broker`](Self::at_broker), at a path, with a device.
    ///
    /// # Errors
    /// As [`at_broker`](Self::at_broker).
    pub fn at_broker_path(device: &Device, path: &Path) -> GpuResult<Self> {
        Ok(Self::with_backend(BrokerBackend::new(Broker::connect_at(device, path)?)?))
    }

    pub fn with_backend(backend: impl GpuBackend + 'static) -> Self {
        Self { backend: Arc::new(backend) }
    }

    /// Memory for `len` elements, with whatever is in it.
    ///
    /// # Errors
    /// Where there is none.
    pub fn alloc<T: Pod>(&self, len: usize) -> GpuResult<Buffer<T>> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let memory = self.backend.alloc(bytes)?;
        Ok(Buffer { backend: self.backend.clone(), memory, len, elements: PhantomData })
    }

    /// Memory with a copy of `from`.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), and those of the copy.
    pub fn upload<T: Pod>(&self, from: &[T]) -> GpuResult<Buffer<T>> {
        let buffer = self.alloc(from.len())?;
        self.backend.upload(buffer.memory, from.as_bytes())?;
        Ok(buffer)
    }

    /// Writes all of a buffer anew.
    ///
    /// # Errors
    /// [`GpuError::LengthsDiffer`], [`GpuError::OtherGpu`], and those of the copy.
    pub fn write<T: Pod>(&self, to: &mut Buffer<T>, from: &[T]) -> GpuResult<()> {
        self.check_owner(to)?;
        if from.len() != to.len {
            return Err(GpuError::LengthsDiffer { from_elements: from.len(), to_elements: to.len });
        }
        self.backend.upload(to.memory, from.as_bytes())
    }

    /// What is in a buffer. This waits.
    ///
    /// # Errors
    /// [`GpuError::OtherGpu`], those of the copy, and of the work before it.
    pub fn download<T: Pod>(&self, from: &Buffer<T>) -> GpuResult<Vec<T>> {
        self.check_owner(from)?;
        let mut elements = T::new_vec_zeroed(from.len)
            .map_err(|_| freehold::Error::TooManyElements { elements: from.len, element_bytes: size_of::<T>() })?;
        self.backend.download(from.memory, elements.as_mut_bytes())?;
        Ok(elements)
    }

    /// The kernel of a text of PTX, which is loaded once for each.
    ///
    /// # Safety
    /// As for [`freehold::Module::kernel`], of every launch that is made with the handle, but that a kernel may write all buffers which it is
    /// given ([`Buffer::argument`]): what is asked for is carried out in its order, so nothing else uses them meanwhile.
    ///
    /// # Errors
    /// What the compiler says; [`freehold::Error::NoSuchKernel`].
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

    /// Launches a kernel: numbers are arguments by `into()`, buffers by [`Buffer::argument`].
    ///
    /// # Errors
    /// [`GpuError::OtherGpu`], and those of arguments that are not the kernel's parameters. What is found out later is told by
    /// [`wait`](Self::wait).
    pub fn launch(&self, kernel: &GpuKernel, grid: Grid, arguments: &[Argument<'_>]) -> GpuResult<()> {
        // Another GPU has another kernel, or other memory, under that number.
        let own = Owner::of(&self.backend);
        let is_own = Arc::ptr_eq(&self.backend, &kernel.backend) && arguments.iter().all(|one| one.is_known_to(own));
        if !is_own {
            return Err(GpuError::OtherGpu);
        }
        self.backend.launch(kernel, grid, arguments)
    }

    /// Waits for all that was asked for, and tells what went wrong with it.
    ///
    /// # Errors
    /// The first that was not told yet.
    pub fn wait(&self) -> GpuResult<()> {
        self.backend.wait()
    }

    fn check_owner<T>(&self, buffer: &Buffer<T>) -> GpuResult<()> {
        if Arc::ptr_eq(&self.backend, &buffer.backend) { Ok(()) } else { Err(GpuError::OtherGpu) }
    }
}

impl<T> Buffer<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// As an argument of a kernel of the same GPU, from an element on, to be read and written.
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
