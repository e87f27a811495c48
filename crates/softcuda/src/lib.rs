//! A CUDA driver that runs on the CPU: [`api()`] is the same table of functions that NVIDIA's library fills.
//!
//! It is a driver, not a mock: the host cannot access device memory, work runs asynchronously, and a wrong call returns
//! the error code of the real driver. It also provokes bugs: freed memory is overwritten, addresses and the handles of
//! contexts and streams are reused as soon as possible, and a seeded schedule runs streams in any order that the
//! program allows.
//!
//! | variable | meaning |
//! |---|---|
//! | `FREEHOLD_SOFT_MEMORY` | memory of a device, default `8GiB`; host memory is used only when it is written |
//! | `FREEHOLD_SOFT_DEVICES` | number of devices, default 1 |
//! | `FREEHOLD_SOFT_CC` | compute capability of the devices, such as `8.0` or `120`, default `9.0` |
//! | `FREEHOLD_SOFT_SCHEDULE` | `threads` (one per stream), `eager` (work runs in the call that submits it), `seed:N` (a generator decides at each call), `seed:N,switches:K` (late, with at most K switches between streams) |
//! | `FREEHOLD_SOFT_KERNEL_SECONDS` | ends a kernel that runs longer with `LAUNCH_TIMEOUT`; default no limit |
//! | `FREEHOLD_SOFT_COHERENT` | `1`: the host accesses device memory at its device address, with the rights that devices have |
//! | `FREEHOLD_SOFT_CHECKS` | `0`: kernels may access all pages of a block, as on hardware; default: to the byte |
//! | `FREEHOLD_SOFT_MACHINE` | a name: processes of one user with the same name and memory size share the devices |
//! | `CUDA_VISIBLE_DEVICES` | the devices that the process sees and their order, as indices or UUIDs |
//! | `CUDA_LOG_FILE` | where error messages go: `stdout`, `stderr` or a path |
//!
//! # Modules, lowest layer first
//!
//! A folder imports only folders listed before it, and imports never form a cycle.
//!
//! - `base`: [`config`], `stdio`, `log`, `sync`, and `handle_table`: handles that are looked up and never dereferenced.
//! - `memory`: bytes without an owner. `backing` (memory is a file), `usage_file` (the memory that each process uses),
//!   `arena` (device addresses), `page_heap`, `free_ranges`, `dirty_ranges` (placement, pure), `device_memory` (these
//!   for one device), `mem_ref` (reads and writes that cannot crash), `mapping`, `advice`, `ipc_token`.
//! - `ffi`: C arguments to checked values.
//! - `engine`: `queue` (the work of a stream and its progress), `work` (what work does), `kernel_run` (the blocks of a
//!   launch), `worker_pool` (the threads that run them), `stepper` (schedules without threads),
//!   `priorities` (which stream goes first under few switches).
//! - `objects`: devices, pools, contexts, streams, events, graphs and captures, without the tables that name them.
//! - `space`: what is at an address (`span`, `address_space`, `imports`), and what a kernel may access
//!   (`kernel_memory`, `racing`, `launch_env`, `block_lookup`).
//! - `modules`: images, what they become in a context (`loader`), and the attributes of kernels.
//! - `state`: all of it in one static, and operations on many tables at once.
//! - `api`: one function for each of the driver's. `dispatch` is the entry of every call, `table` the table of
//!   functions.
//!
//! # Invariants
//!
//! - No lock is held while work runs, except the stepper's own, and the heap's while a block freed in stream order is
//!   returned. So no call waits for another stream's work unless CUDA says so.
//! - Work depends only on work submitted before it: queues cannot deadlock on each other.
//! - A kernel accesses live spans only, checked to the byte. Program memory is accessed through system calls: a dead
//!   address gives an error code, not a crash.
//! - Freed memory is overwritten before its address is reused.
//! - Nothing read from a usage file or an IPC token is trusted: an impossible value is an error, never an index or an
//!   address.
//! - Under `seed:N` the order of all steps follows from the seed and the calls of a single-threaded program.

#![warn(missing_docs)]

mod api;
mod base;
mod engine;
mod ffi;
mod memory;
mod modules;
mod objects;
mod space;
mod state;

pub use api::announce;
pub use api::{api, cuGetProcAddress, not_supported, per_thread_api};
pub use base::config;
pub use modules::image::LoadError;
pub use modules::link::Linker;

/// Reports what the checker knows only when the process ends. A fork of the process knows nothing more than the process.
pub fn finish_check() {
    if !state::driver_state::is_forked() {
        base::shared_frees::finish();
    }
}

/// Returns the PTX texts of an image, as a call that loads it finds them.
#[cfg(fuzzing)]
pub fn ptx_in(image: &[u8]) -> Option<Vec<String>> {
    let sources = modules::image::ptx_in(image).ok()?;
    Some(sources.into_iter().map(|source| source.text).collect())
}

/// Returns the PTX texts of an image at an address, as a call that loads it finds them.
#[cfg(fuzzing)]
pub fn ptx_at(address: u64) -> Option<Vec<String>> {
    let sources = modules::image::ptx_at(address).ok()?;
    Some(sources.into_iter().map(|source| source.text).collect())
}

/// The handles can be sent to other threads and shared with them.
const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Linker>();
    send_and_sync::<LoadError>();
};
