//! The CUDA driver API: its types, the list of its functions, and a call for each, one module per noun.
//!
//! # What is safe here
//!
//! A driver does not check its arguments: handles are pointers that it dereferences, and an address may be host memory.
//! The code that obtains a table makes the promise once: [`load::load`] and everything else that returns one is
//! `unsafe`, and code that has an [`Api`] guarantees that every handle and address passed with it is valid for the
//! call, and that nothing refers to memory while a driver accesses it. So the calls below are safe if all their other
//! arguments are numbers, slices and locations on the caller's stack.
//!
//! A call is `unsafe` if it takes a host pointer that the driver reads, writes or frees, or keeps after the call has
//! returned: only the caller knows the length behind it and how long it stays valid.
//!
//! A table is trusted to be a CUDA driver. [`DriverContract::new`], without which no [`Api`] can be made, states the
//! whole promise; code that replaces a field of a table is responsible for the new function as well.

pub mod address;
pub mod allocation;
pub mod api;
pub mod array;
pub mod array_types;
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
pub mod graph_exec;
pub mod graph_node;
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
pub mod node_types;
pub mod occupancy;
pub mod pointer;
pub mod pool;
pub mod primary;
pub mod profiler;
pub mod stream;
pub mod symbols;
pub mod tensor_map;
pub mod texture;
pub mod types;
pub mod user_object;
pub mod watch;

pub use api::{Api, DriverContract, Function};
pub use array_types::*;
pub use backend::Context;
pub use call::DriverError;
pub use code::{CUerror, CUresult};
pub use graph_types::*;
pub use kernel_types::*;
pub use managed_types::*;
pub use mapping_types::*;
pub use node_types::*;
pub use types::*;
