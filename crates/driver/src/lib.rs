//! CUDA and OpenCL for the rest of the workspace: every foreign function, and [`Backend`], one trait over both.
//!
//! | CUDA | here |
//! |---|---|
//! | `libcuda.so.1` | [`cuda::load`] |
//! | the driver's functions | [`cuda::Api`], a table that is a value: several drivers can be in one process |
//! | `CUresult` | [`cuda::CUresult`], a `Result` whose error is [`cuda::CUerror`] |
//! | `cuMemAlloc`, `cuStreamCreate` | [`cuda::memory::alloc`], [`cuda::stream::create`]: a module for each noun, a function for each verb |
//! | a failed call | [`cuda::DriverError`], which names the call |
//!
//! OpenCL ([`opencl`]) is a feature of this crate, `opencl`, which is on by default.
//!
//! [`Backend`] is one context on one device, of any driver: [`cuda::Context`] or [`opencl::Context`]. Handles are
//! numbers ([`handle`]), addresses are `u64`, and a failed call is a [`CallError`] whose [`ErrorKind`] says what it
//! means. A feature that only some devices have is a trait of its own, and its method returns `None` where it is
//! missing:
//!
//! | method | what it offers |
//! |---|---|
//! | [`DeviceMemory::virtual_memory`] | addresses, memory without an address, and mapping the one to the other ([`VirtualMemory`]) |
//! | [`DeviceMemory::sharing`] | memory that a file descriptor names ([`Sharing`]) |
//! | [`Backend::stream_mem_ops`] | streams that write words and wait for them ([`StreamMemOps`]) |
//! | [`Backend::host_registration`] | host memory of the program that streams use in place ([`HostRegistration`]) |
//! | [`Backend::contexts`], [`Backend::timing`] | more contexts ([`Contexts`]), events with a time ([`Timing`]) |
//! | [`Backend::foreign_streams`] | streams that others made, and captures ([`ForeignStreams`]) |
//! | [`Backend::peer_copies`] | copies from memory of other devices ([`PeerCopies`]) |
//!
//! # Modules, lowest layer first
//!
//! - `error`, [`handle`]: the parts that all drivers have in common.
//! - In [`cuda`]: `types`, `code` and `api` are the C interface. `api` has the one list of functions, and
//!   `with_functions!` passes it to everything that needs one entry per function: the table, the names, the loading
//!   (`load`), the failing table for tests ([`cuda::faults`]), the observed table ([`cuda::watch`]), and the software
//!   driver.
//! - `backend`: the trait [`Backend`], which may return CUDA's table and so comes after it.
//! - The rest of [`cuda`]: a module for each noun. `current_context` and `cuda/backend` turn a context into a
//!   [`Backend`].
//! - [`opencl`]: the same over the crate `opencl3`, which finds the library at run time. [`opencl::discovery`] lists
//!   what is installed; `backend/address_space` gives addresses to buffers that have none.
//!
//! # Invariants
//!
//! - A driver follows the handles that it is given. So each call of [`Backend`] that names a handle or an address is
//!   `unsafe`, and so is every call that returns a table or a device. The calls on a table are then safe, unless they
//!   take a pointer to host memory.
//! - One build serves CUDA 12 and 13: a function that the library lacks returns `NOT_SUPPORTED`.
//! - A backend leaves the thread's current context as it found it.
//! - This crate does not know the software driver. Its extensions of CUDA are looked up by name ([`cuda::extension`]).

#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
pub mod cuda;
mod error;
pub mod handle;
#[cfg(feature = "opencl")]
pub mod opencl;

pub use backend::{
    ArgKind, Arguments, Backend, BlockAnnotation, BlockBounds, BlockChange, BlockLookupFn, Contexts, DeviceMemory,
    FaultDetails, ForeignStreams, HostRegistration, ImageKind, Kernels, LaunchConfig, LaunchLimits, MemoryInfo,
    Parameter, Pattern, PeerContext, PeerCopies, Permission, PitchedPtr, Sharing, StreamCapture, StreamMemOps, Timing,
    VirtualMemory,
};
pub use error::{CallError, Code, ErrorKind, LoadError};

/// The handles can be sent to other threads and shared with them.
const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<cuda::Api>();
    send_and_sync::<cuda::Context>();
    send_and_sync::<cuda::DriverError>();
    #[cfg(feature = "opencl")]
    send_and_sync::<opencl::Context>();
    send_and_sync::<BlockAnnotation>();
    send_and_sync::<CallError>();
    send_and_sync::<LoadError>();
    send_and_sync::<handle::Event>();
    send_and_sync::<handle::Kernel>();
    send_and_sync::<handle::Memory>();
    send_and_sync::<handle::Module>();
    send_and_sync::<handle::Stream>();
};
