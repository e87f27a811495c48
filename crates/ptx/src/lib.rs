//! PTX text to a program, and its execution in warps of 32 lanes.
//!
//! It reads text, knows instructions, and reaches memory through the trait [`Memory`]. It knows nothing of contexts,
//! streams or handles, makes no threads and does no input or output.

#![forbid(unsafe_code)]

mod arith;
mod bounds;
mod error;
mod exec;
mod fault;
mod grid;
mod image;
mod lower;
mod memory;
mod program;
pub mod syntax;

pub use bounds::{Access, Extent, Pointer};
pub use error::{Error, ErrorKind};
pub use fault::{Fault, FaultKind};
pub use grid::{Block, Grid, Launch, Progress, Slice};
pub use image::{GlobalVariable, Image, Kernel, KernelParameter, LinkError, Program, Unit};
pub use memory::{LANES, Memory, OutOfBounds, Width};
