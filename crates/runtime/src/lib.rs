//! `libcudart.so.13`: the CUDA runtime API, implemented over the driver API.
//!
//! Programs that nvcc or clang compiled call the runtime, not the driver. NVIDIA's runtime needs NVIDIA's driver; this one
//! needs only the documented driver API, so it runs on the software driver as well as on a GPU.
//!
//! # Modules, from bottom to top
//!
//! - `code`: error codes, their names and descriptions. `types`: the structs of the interface; `node_types`: those of graph
//!   nodes.
//! - `log`: messages on stderr, with `FREEHOLD_LOG` set.
//! - `thread`: per-thread state: the device, the last error, pending launch configurations.
//! - `limit`: a limit on the program's device memory.
//! - `calls`: reports the program's calls of the driver to a checker.
//! - `observe`: the program's allocations and frees, for `--leak-check` and `--record`.
//! - `process`: the driver's table, and the primary context of each device.
//! - `ready_blocks`: freed blocks by their size. `runtime_pool`: device memory from Freehold's pool, for frees that do not wait.
//! - `shared_block`: blocks of the pool in other processes. It looks them up in `runtime_pool`, which does not know it.
//! - `registry`: the fat binaries that compilers register before `main`, and their kernels and variables.
//! - `api`: the functions, in a file for each group of the manual.
//! - `list`: the list of functions. `exports`: their C names.
//!
//! # Invariants
//!
//! - Nothing is loaded and no context is created before a call needs it: registering a kernel stores three pointers.
//! - A failing call changes nothing but the thread's last error.
//! - No panic crosses into the program: it becomes `cudaErrorUnknown`.
//! - Only functions that `cuda_runtime_api.h` or a compiler documents are exported, and only documented functions of the
//!   driver are called.

mod api;
mod calls;
mod code;
#[allow(non_snake_case, reason = "named as C names the functions")]
mod exports;
mod limit;
mod list;
mod log;
mod node_types;
mod observe;
mod process;
mod ready_blocks;
mod registry;
mod runtime_pool;
mod shared_block;
mod thread;
mod types;

/// The file name of the library where cargo builds it. Programs look for `libcudart.so.13`, which `freehold run` provides.
pub const LIBRARY_FILE: &str = "libfreehold_runtime.so";
