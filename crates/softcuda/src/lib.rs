//! A CUDA driver for machines without a GPU: [`api`] is the same table of functions that NVIDIA's library fills.
//!
//! It is a driver, not a mock: memory has addresses that the host cannot touch (unless it is told to), work runs in its own time, a wrong
//! call gets the code that the real driver gives. It is also an adversary: freed memory is overwritten at once,
//! addresses and handles are used again as soon as possible, and a seeded schedule runs streams in any order that
//! the program allows.
//!
//! | variable | meaning |
//! |---|---|
//! | `FREEHOLD_SOFT_MEMORY` | memory of a device, `8GiB` if not set; used only as it is written to |
//! | `FREEHOLD_SOFT_DEVICES` | how many devices there are, 1 if not set |
//! | `FREEHOLD_SOFT_SCHEDULE` | `threads` (each stream has one), `eager` (work runs in the call that asks for it), `seed:N` (a generator decides at each call) |
//! | `FREEHOLD_SOFT_KERNEL_SECONDS` | a kernel that runs longer is ended with `LAUNCH_TIMEOUT`; not set, each runs as long as it likes |
//! | `FREEHOLD_SOFT_COHERENT` | `1`: the host reads and writes device memory at its device address, as far as devices may |
//! | `FREEHOLD_SOFT_MACHINE` | a name: processes of one user with the same name, and the same memory, share the devices |
//! | `CUDA_LOG_FILE` | where messages of errors are written: `stdout`, `stderr` or a path |

mod advice;
mod api;
mod attributes;
mod block_lookup;
mod capture;
pub mod config;
mod context;
mod device;
mod driver_state;
mod engine;
mod event;
mod extension;
mod ffi;
mod function;
mod graph;
mod handle_table;
mod image;
mod ipc;
mod jit;
mod kernel_memory;
mod launch_env;
mod library;
mod link;
mod log;
mod mapping;
mod memory;
mod module;
mod occupancy;
mod pool;
mod span;
mod stdio;
mod stream;
mod symbol;
mod table;

pub use symbol::{cuGetProcAddress, not_supported};
pub use table::{api, per_thread_api};
