//! What the lowering makes and the execution runs: instructions whose operands are slots of register files.
//!
//! A frame has three files: 32-bit registers (also for 8 and 16 bits, zero-extended), 64-bit registers, and
//! predicates (a bit a lane). Constants, addresses and special registers that do not change are slots too, filled when
//! a frame is made: an operand is always a slot.

mod instruction;
mod operands;
mod provenance;

pub(crate) use instruction::*;
pub(crate) use operands::*;
pub(crate) use provenance::{PointerProvenance, analyze};

/// An index into one of the three files of a frame; which one, the instruction says.
pub(crate) type Slot = u32;

/// Addresses of the generic space from here on belong to the windows below. No address of a device or a host is so
/// large.
pub(crate) const WINDOWS: u64 = 0x0000_f000_0000_0000;
pub(crate) const FUNCTION_WINDOW: u64 = 0x0000_fb00_0000_0000;
pub(crate) const PARAM_WINDOW: u64 = 0x0000_fc00_0000_0000;
pub(crate) const LOCAL_WINDOW: u64 = 0x0000_fd00_0000_0000;
pub(crate) const SHARED_WINDOW: u64 = 0x0000_fe00_0000_0000;
/// Bytes of each window.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;
/// Distance of the addresses of two functions.
pub(crate) const FUNCTION_BYTES: u64 = 16;

/// A function, lowered.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) instructions: Vec<Instruction>,
    /// The line of the text for each instruction.
    pub(crate) lines: Vec<u32>,
    /// Registers of each file.
    pub(crate) narrow: u32,
    pub(crate) wide: u32,
    pub(crate) predicates: u32,
    /// Slots with a value from the start.
    pub(crate) constants: Vec<(Reg, Constant)>,
    /// Local variables, formal parameters and call arguments of one thread.
    pub(crate) local_bytes: u32,
    /// What the start of the frame is a multiple of.
    pub(crate) local_align: u32,
    pub(crate) signature: Signature,
    /// Symbols of the unit that the code mentions.
    pub(crate) mentions: Vec<SymbolIndex>,
    /// Whether it calls through addresses.
    pub(crate) calls_indirectly: bool,
    /// Which arguments of a launch its addresses come from.
    pub(crate) provenance: PointerProvenance,
}

/// Index into the symbols of a unit.
pub(crate) type SymbolIndex = u32;

/// Where a value of a thread is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reg {
    Narrow(Slot),
    Wide(Slot),
    Predicate(Slot),
}

/// What a slot holds from the start of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Bits(u64),
    Special(Special),
    /// The address of a variable or function of the unit, plus a number.
    Symbol {
        symbol: SymbolIndex,
        generic: bool,
        addend: i64,
    },
    /// An address in the local memory of this frame, in local or in generic space.
    Local {
        offset: u32,
        generic: bool,
    },
}

/// Special registers that keep their value while a thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Lane,
    Warp,
    Warps,
    Sm,
    Sms,
    Grid,
    LaneMask(LaneMask),
    DynamicShared,
    TotalShared,
    Env(u8),
    /// The lanes of a warp: 32.
    WarpSize,
    /// Always zero here, such as the position within a cluster of one block.
    Zero,
    One,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LaneMask {
    Eq,
    Le,
    Lt,
    Ge,
    Gt,
}

/// Special registers that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    Clock,
    ClockHigh,
    Clock64,
    Nanoseconds,
    NanosecondsLow,
    NanosecondsHigh,
}

/// The results and parameters of a function, as bytes at the start of its frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Signature {
    pub(crate) returns: Vec<FormalParameter>,
    pub(crate) parameters: Vec<FormalParameter>,
    /// All of them with the gaps.
    pub(crate) bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FormalParameter {
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}
