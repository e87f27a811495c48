//! The functions of the runtime, in a file for each group of the manual. Each has the name and the arguments of the C
//! function and returns its error; `exports` adds what all have in common.
//!
//! A function is `unsafe` where the C function is: handles and addresses are the caller's promise.

#![allow(non_snake_case, reason = "named as C names the functions")]
#![allow(clippy::missing_safety_doc, reason = "the runtime API states the conditions of each function")]

pub(crate) mod copy;
pub(crate) mod copy_batch;
pub(crate) mod copy_box;
pub(crate) mod device;
pub(crate) mod fill;
pub(crate) mod function;
pub(crate) mod host;
pub(crate) mod ipc;
pub(crate) mod launch;
pub(crate) mod managed;
pub(crate) mod memory;
pub(crate) mod occupancy;
pub(crate) mod properties;
pub(crate) mod symbol;
