//! One function for each of the driver's, named as C names it, over checked arguments.

#![allow(non_snake_case, reason = "named as C names the functions")]

#[allow(clippy::too_many_arguments, reason = "as many as C has")]
mod absent;
mod context;
mod copy;
mod device;
mod driver;
mod event;
mod fill;
mod host;
mod memory;
mod pointer;
mod pool;
mod stream;
mod value;

pub(crate) use absent::*;
pub(crate) use context::*;
pub(crate) use copy::*;
pub(crate) use device::*;
pub(crate) use driver::*;
pub(crate) use event::*;
pub(crate) use fill::*;
pub(crate) use host::*;
pub(crate) use memory::*;
pub(crate) use pointer::*;
pub(crate) use pool::*;
pub(crate) use stream::*;
pub(crate) use value::*;
