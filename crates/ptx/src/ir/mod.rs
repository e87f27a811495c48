//! The executable form of a function: instructions whose operands are slots of register files.
//!
//! A frame has three files: 32-bit registers (also for 8 and 16 bits, zero-extended), 64-bit registers, and predicates
//! (one bit per lane). Constants, addresses and special registers that do not change are slots too, filled when a frame
//! is made: an operand is always a slot.

mod builtin;
mod bulk;
mod chain;
mod code;
mod flow;
mod instruction;
mod invariant;
mod kernel;
mod liveness;
mod matrix;
mod operands;
mod pattern;
mod provenance;
mod range;
mod reg;
mod registers;
mod slots;
mod step;
mod temporary;
mod texture;

pub(crate) use builtin::Builtin;
pub(crate) use bulk::*;
pub(crate) use code::Code;
pub(crate) use instruction::*;
pub use kernel::{Kernel, KernelParameter};
pub(crate) use liveness::FileSizes;
pub(crate) use matrix::*;
pub(crate) use operands::*;
pub(crate) use pattern::{KEPT_PATTERNS, PATTERNS, Pattern};
pub(crate) use provenance::{PointerProvenance, analyze};
pub(crate) use reg::*;
pub(crate) use registers::RegisterUses;
pub(crate) use slots::{SlotAssignment, SlotSharing};
pub(crate) use step::{NO_RESULT, Opcode, Step, UNGUARDED, decode};
pub(crate) use texture::*;
