//! OpenCL: what is installed, and a call for each of the functions that are used here, sorted by noun.
//!
//! The library is found at run time by the crate `opencl3`: nothing here needs one to build, and where there is none
//! every call answers with a code that says so. Handles are numbers, as CUDA's are here.
//!
//! # What is safe here
//!
//! As in [`cuda`](crate::cuda), an OpenCL library follows a handle that it is given without asking whether it ever handed it out.
//! The promise is made once: all handles come from a device's, and [`InstalledDevice::device`](discovery::InstalledDevice::device) is `unsafe`. Whoever has
//! one vouches for every handle and address that is passed to the calls below. A call is `unsafe` beside that where it is given
//! an address that the driver reads or writes by itself: the length behind it, and how long it stays good, only the caller knows.

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
