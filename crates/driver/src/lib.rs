//! What Freehold needs of a GPU's driver, and all of its foreign functions.
//!
//! | CUDA | here |
//! |---|---|
//! | `libcuda.so.1` | [`cuda::load`] |
//! | the functions of the driver | [`cuda::Api`], a value: several drivers live in one process |
//! | `CUresult` | [`cuda::CUresult`], a `Result` whose error is [`cuda::CUerror`] |
//! | `cuMemAlloc`, `cuMemFree` | [`cuda::memory::alloc`], [`cuda::memory::free`] |
//! | `cuStreamCreate` | [`cuda::stream::create`] |
//! | a call that fails | [`cuda::CallError`], which names the call |
//! | a call that a test makes fail | [`cuda::faults`] |
//! | every call, with its time and outcome | [`cuda::watch`] |
//!
//! OpenCL, where it is installed, is [`opencl`]: [`opencl::find`] says what there is.
//!
//! Above it, for who is to run on any kind of device:
//!
//! | | here |
//! |---|---|
//! | a context on a device | [`Backend`]; CUDA's is [`cuda::Context`], OpenCL's [`opencl::Context`] |
//! | streams, events, memory, modules, kernels | numbers: [`handle`]; naming one in a call is `unsafe` |
//! | what some devices lack | [`Mapping`], [`Sharing`], [`Words`], [`Registering`], [`Contexts`], [`Timing`], [`Foreign`] |
//! | a call that fails, of any driver | [`CallError`] |
//!
//! This crate knows of no software driver, no pool and no owner: it is the seam that those meet at.

mod backend;
pub mod cuda;
mod error;
pub mod handle;
pub mod opencl;

pub use backend::{
    ArgKind, Arguments, Backend, BlockAnnotation, BlockBounds, BlockLookupFn, Contexts, FaultDetails, ForeignStreams,
    HostRegistration, ImageKind, Kernels, LaunchConfig, LaunchLimits, MemoryInfo, Parameter, Pattern, Permission,
    PitchedPtr, Sharing, StreamCapture, StreamMemOps, Timing, VirtualMemory,
};
pub use error::{CallError, Code, ErrorKind, LoadError};
