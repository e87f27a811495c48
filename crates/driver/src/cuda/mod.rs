//! The CUDA driver API: its types, the one list of its functions, and a call for each, sorted by noun.
//!
//! # What is safe here
//!
//! A driver does not check what it is given: handles are pointers that it follows, and an address may lead to memory of the
//! host. That promise is made once, by whoever gets a table: [`load::load`] and all else that hands one out is `unsafe`, and whoever
//! has an [`Api`] vouches that every handle and address that is passed with it is good for the call, and that memory which a
//! driver reaches is not referred to meanwhile. So the calls below are safe, where all else that they take are numbers, slices
//! and places on the caller's stack.
//!
//! A call is `unsafe` where it is given a pointer of the host that the driver reads or writes, releases, or keeps
//! after the call has returned: the length behind it, and how long it stays good, only the caller knows.
//!
//! A table is trusted to be a CUDA driver. [`Vouched::new`], without which no [`Api`] is made, states the whole promise; whoever
//! replaces a field of a table vouches for the function there as well.

pub mod address;
pub mod allocation;
pub mod api;
mod backend;
pub mod call;
pub mod capture;
pub mod code;
pub mod context;
pub mod copy;
mod current_context;
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

pub use api::{Api, Function, Vouched};
pub use backend::Context;
pub use call::CallError;
pub use code::{CUerror, CUresult};
pub use graph_types::*;
pub use kernel_types::*;
pub use managed_types::*;
pub use mapping_types::*;
pub use types::*;
