//! The executable form of a function: instructions whose operands are slots of register files.
//!
//! A frame has three files: 32-bit registers (also for 8 and 16 bits, zero-extended), 64-bit registers, and predicates
//! (one bit per lane). Constants, addresses and special registers that do not change are slots too, filled when a frame
//! is made: an operand is always a slot.

mod builtin;
mod bulk;
mod code;
mod instruction;
mod kernel;
mod matrix;
mod operands;
mod pattern;
mod provenance;
mod reg;
mod step;
mod texture;
mod uninitialized;

pub(crate) use builtin::Builtin;
pub(crate) use bulk::*;
pub(crate) use code::Code;
pub(crate) use instruction::*;
pub use kernel::{Kernel, KernelParameter};
pub(crate) use matrix::*;
pub(crate) use operands::*;
pub(crate) use pattern::{PATTERNS, Pattern};
pub(crate) use provenance::{PointerProvenance, analyze};
pub(crate) use reg::*;
pub(crate) use step::{NO_RESULT, Opcode, Step, UNGUARDED, decode};
pub(crate) use texture::*;
pub(crate) use uninitialized::{FileSizes, read_before_written};
