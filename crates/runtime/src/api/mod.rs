//! The functions of the runtime, in a file for each group of the manual. Each has the name and the arguments of the C
//! function and returns its error; `exports` adds what they have in common.
//!
//! A function is `unsafe` if the caller must guarantee that handles and addresses are valid, as in C.

#![allow(non_snake_case, reason = "named as C names the functions")]
#![allow(clippy::missing_safety_doc, reason = "the runtime API states the conditions of each function")]
#![allow(clippy::too_many_arguments, reason = "the C functions have these arguments")]

/// Defines functions that are one call of the driver, with a context current.
macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) = $driver:ident($($passed:expr),* $(,)?);)*) => {$(
        pub(crate) unsafe fn $name($($argument: $kind),*) -> $crate::code::cudaError_t {
            let process = $crate::process::with_context()?;
            // SAFETY: the C caller meets the conditions of this function, which are those of the driver's.
            Ok(unsafe { (process.api.$driver)($($passed),*) }?)
        }
    )*};
}

pub(crate) mod array;
pub(crate) mod array_rows;
pub(crate) mod capture;
pub(crate) mod copy;
pub(crate) mod copy_batch;
pub(crate) mod copy_box;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod fill;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod graph_exec;
pub(crate) mod graph_memory;
pub(crate) mod graph_node;
pub(crate) mod host;
pub(crate) mod ipc;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod managed;
pub(crate) mod memory;
pub(crate) mod occupancy;
pub(crate) mod pool;
pub(crate) mod properties;
pub(crate) mod stream;
pub(crate) mod symbol;
pub(crate) mod texture;
