//! One function for each of the driver's, named as C names it, over checked arguments.

#![allow(non_snake_case, reason = "named as C names the functions")]

mod address;
mod allocation;
mod context;
mod copy;
mod device;
pub(crate) mod dispatch;
mod driver;
mod event;
mod fill;
mod function;
mod graph;
mod host;
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
mod value;

pub(crate) use address::*;
pub(crate) use allocation::*;
pub(crate) use context::*;
pub(crate) use copy::*;
pub(crate) use device::*;
pub(crate) use driver::*;
pub(crate) use event::*;
pub(crate) use fill::*;
pub(crate) use function::*;
pub(crate) use graph::*;
pub(crate) use host::*;
pub(crate) use ipc::*;
pub(crate) use kernel::*;
pub(crate) use launch::*;
pub(crate) use library::*;
pub(crate) use link::*;
pub(crate) use logs::*;
pub(crate) use managed::*;
pub(crate) use mapping::*;
pub(crate) use memory::*;
pub(crate) use module::*;
pub(crate) use occupancy::*;
pub(crate) use pointer::*;
pub(crate) use pool::*;
pub(crate) use stream::*;
pub(crate) use value::*;
