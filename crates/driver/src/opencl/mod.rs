//! OpenCL: discovery, and a call for each function that is used here, one module per noun.
//!
//! The crate `opencl3` finds the library at run time: building does not need one, and without one every call returns a
//! code that says so. Handles are numbers, as CUDA's are here.
//!
//! # What is safe here
//!
//! As in [`cuda`](crate::cuda), an OpenCL library dereferences a handle without checking that it handed it out. The
//! promise is made once: all handles are made from a device's, and
//! [`InstalledDevice::device`](discovery::InstalledDevice::device) is `unsafe`. Code that has one is responsible for
//! every handle and address that is passed to the calls below. Apart from that, a call is `unsafe` if it takes an
//! address that the driver reads or writes: only the caller knows the length behind it and how long it stays valid.

mod backend;
pub mod call;
pub mod context;
pub mod device;
pub mod discovery;
pub mod event;
pub mod handle;
pub mod kernel;
pub mod memory;
pub mod program;
pub mod queue;
pub mod svm;

pub use backend::{Context, Latch, MemoryModel};
pub use handle::{ContextId, DeviceId, Event, Kernel, Memory, PlatformId, Program, Queue};
