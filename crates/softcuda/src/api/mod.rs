//! One function for each function of the driver API, with the C name and checked arguments.

#![allow(non_snake_case, reason = "named as C names the functions")]

mod address;
mod allocation;
pub mod announce;
mod array;
mod capture;
mod context;
mod copy;
mod device;
mod dispatch;
mod driver;
mod event;
mod extension;
mod fill;
mod function;
mod graph;
mod graph_block;
mod graph_edges;
mod graph_memory;
mod graph_node;
mod graph_operation;
mod graph_update;
mod host;
mod host_task;
mod ipc;
mod kernel;
mod launch;
mod library;
mod link;
mod logs;
mod managed;
mod mapping;
mod memory;
mod module;
mod occupancy;
mod pointer;
mod pool;
mod stream;
mod table;
mod tensor_map;
mod texture;
mod user_object;
mod value;

pub use table::{api, cuGetProcAddress, not_supported, per_thread_api};
