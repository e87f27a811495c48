//! The interface of a backend, which owns memory and runs kernels; its kernels and its errors.

use std::fmt;
use std::fmt::Debug;
use std::sync::Arc;

use freehold::Grid;
use freehold::signature::Signature;

use crate::client::{CallError, Error};
use crate::protocol::call_codec::Argument;
use crate::protocol::types::Id;

/// Why an operation of [`Gpu`](crate::Gpu) failed.
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant describes it")]
#[derive(thiserror::Error)]
pub enum GpuError {
    #[error(transparent)]
    Local(Box<freehold::Error>),
    #[error(transparent)]
    Broker(#[from] Error),
    #[error(transparent)]
    Call(#[from] CallError),
    /// An error of a backend outside this crate.
    #[error(transparent)]
    Remote(Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot copy {from_elements} elements to a buffer of {to_elements}")]
    LengthsDiffer { from_elements: usize, to_elements: usize },
    #[error("the memory or the kernel belongs to another GPU")]
    OtherGpu,
}

/// Same as `Display`, so that `unwrap` and a `main` that returns the error print the message.
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

/// The result of an operation of [`Gpu`](crate::Gpu).
pub type GpuResult<T> = std::result::Result<T, GpuError>;

/// Where memory lies and kernels run. A backend identifies memory and modules by ids of its own, and executes work in
/// the order in which it is submitted.
pub trait GpuBackend: Debug + Send + Sync {
    /// Allocates memory and returns its id.
    fn alloc(&self, bytes: u64) -> GpuResult<Id>;
    /// Frees memory, after the work that was submitted with it.
    fn free(&self, memory: Id);
    /// Copies from the host, after the work before it.
    fn upload(&self, to: Id, from: &[u8]) -> GpuResult<()>;
    /// Waits for the work before it.
    fn download(&self, from: Id, to: &mut [u8]) -> GpuResult<()>;
    /// Loads a PTX text. Returns its id and its kernels.
    fn module(&self, text: &str) -> GpuResult<(Id, Vec<Signature>)>;
    /// Launches a kernel. Memory in the [`content`](Argument::content) of an argument is an id of this backend.
    fn launch(&self, kernel: &GpuKernel, grid: Grid, arguments: &[Argument<'_>]) -> GpuResult<()>;
    /// Waits for all work, and returns its first error.
    fn wait(&self) -> GpuResult<()>;
}

/// A kernel of a module that a GPU has loaded.
#[derive(Clone, Debug)]
pub struct GpuKernel {
    pub(super) backend: Arc<dyn GpuBackend>,
    pub(super) module: Id,
    pub(super) index: u32,
    pub(super) signature: Signature,
}

impl GpuKernel {
    /// Returns the id of its module in its backend.
    pub fn module(&self) -> Id {
        self.module
    }

    /// Returns its index in its module.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns its name and parameters.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }
}
