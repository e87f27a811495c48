//! The rules of a CUDA driver. Every test here holds for the software driver and, with `FREEHOLD_DEVICE=cuda`, for
//! NVIDIA's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod capture;
#[path = "../common/chunks.rs"]
mod chunks;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod context;
mod copy;
mod copy_waits;
mod device;
mod event;
mod fill;
mod free_memory;
mod function;
mod graph;
mod graph_memory;
mod graph_update;
#[path = "../harness/mod.rs"]
mod harness;
mod host;
mod host_work;
mod kernels;
mod launch;
mod library;
mod link;
#[path = "../kernels/list.rs"]
mod list;
mod managed;
mod managed_variable;
mod mapping;
mod mapping_data;
mod memory;
mod module;
mod occupancy;
#[path = "../peer/mod.rs"]
mod peer;
mod pointer;
mod pool;
mod processes;
mod sharing;
mod stream;
mod tensor_map;
mod texture;
mod value;
