//! The CUDA driver API: its types, the one list of its functions, and a call for each, sorted by noun.
//!
//! # What is safe here
//!
//! A table is trusted to be a CUDA driver: whoever fills a field of [`Api`] vouches that the function there does what
//! the driver API says of it, and touches no memory beyond that.
//!
//! A call is safe where all it takes are numbers, slices and places on the caller's stack. A device address is such a
//! number, and a wrong one is the driver's to refuse. That it may name pinned memory, which the host sees too, or on
//! some machines any memory of the process, does not make the call `unsafe`: the device reaches that memory as a
//! debugger or `/proc/self/mem` does, from outside the language. Whoever makes a reference to memory that a device can
//! write vouches that none does while the reference lives. A handle is a number too, and the caller's to keep valid:
//! a driver is not bound to refuse one that it never handed out.
//!
//! A call is `unsafe` where it is given a pointer of the host that the driver reads or writes, releases, or keeps
//! after the call has returned: the length behind it, and how long it stays good, only the caller knows.

pub mod address;
pub mod allocation;
pub mod api;
mod backend;
pub mod call;
pub mod capture;
pub mod code;
pub mod context;
pub mod copy;
mod current;
pub mod device;
pub mod driver;
pub mod event;
pub mod extension;
pub mod faults;
pub mod fill;
pub mod function;
pub mod graph;
pub mod graph_types;
pub mod host;
pub mod ipc;
pub mod kernel;
pub mod kernel_types;
pub mod launch;
pub mod library;
pub mod link;
pub mod load;
pub mod logs;
pub mod managed;
pub mod managed_types;
pub mod mapping;
pub mod mapping_types;
pub mod memory;
pub mod module;
pub mod occupancy;
pub mod pointer;
pub mod pool;
pub mod primary;
pub mod profiler;
pub mod stream;
pub mod symbols;
pub mod types;
pub mod watch;

pub use api::{Api, Function};
pub use backend::Context;
pub use call::CallError;
pub use code::{CUerror, CUresult};
pub use graph_types::*;
pub use kernel_types::*;
pub use managed_types::*;
pub use mapping_types::*;
pub use types::*;
