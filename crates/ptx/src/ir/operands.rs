//! The variants within each family of instructions: operations, comparisons, spaces and modes.

use super::reg::*;
use crate::arith::half::Half;
use crate::arith::integer::{FunnelMode, Permutation};
use crate::arith::video::{PartwiseVideo, Video};

/// How 16 bits are extended to 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extend {
    Zero,
    Sign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Integer {
    Add,
    Sub,
    /// Signed, saturating.
    AddSat,
    SubSat,
    Mul,
    MulHighUnsigned,
    MulHighSigned,
    Mad,
    MadHighUnsigned,
    MadHighSigned,
    MadHighSat,
    DivUnsigned,
    DivSigned,
    RemUnsigned,
    RemSigned,
    MinUnsigned,
    MinSigned,
    MaxUnsigned,
    MaxSigned,
    /// Signed, and zero if negative.
    MinRelu,
    MaxRelu,
    Neg,
    Abs,
    SadUnsigned,
    SadSigned,
    And,
    Or,
    Xor,
    Not,
    /// Logical not: 1 for 0, else 0.
    CNot,
    /// A shift by 32 or more yields zero; only for 32 and 16 bits, see `ShiftWide`.
    ShiftLeft,
    ShiftRightUnsigned,
    ShiftRightSigned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shift {
    Left,
    RightUnsigned,
    RightSigned,
}

/// 32-bit bit operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bits {
    Lop3(u8),
    ExtractUnsigned,
    ExtractSigned,
    /// The position of the highest bit, or its distance from the top.
    Find {
        signed: bool,
        shift_amount: bool,
    },
    Reverse,
    LeadingZeros,
    Count,
    /// By index, or in one of the modes.
    Permute(Option<Permutation>),
    /// Shift of the pair `b:a` by `c`.
    FunnelLeft(FunnelMode),
    FunnelRight(FunnelMode),
    Mul24 {
        signed: bool,
        high: bool,
    },
    Mad24 {
        signed: bool,
        high: bool,
    },
    Mad24HighSat,
    Dot4 {
        a_signed: bool,
        b_signed: bool,
    },
    Dot2 {
        a_signed: bool,
        b_signed: bool,
        high: bool,
    },
    SignZeroExtend {
        signed: bool,
        mode: FunnelMode,
    },
    Mask(FunnelMode),
    NthSet,
    Video(Video),
    VideoParts(PartwiseVideo),
    /// `a` and `b` saturated to this many bits, `b` lowest, and the part of `c` that fits above.
    Pack {
        bits: u32,
        signed: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BitsWide {
    /// 64, start, length (narrow): 64.
    ExtractUnsigned,
    ExtractSigned,
    /// 64 into 64 at start, length (narrow): 64.
    Insert,
    /// To narrow.
    Find {
        signed: bool,
        shift_amount: bool,
    },
    Reverse,
    /// To narrow.
    LeadingZeros,
    /// To narrow.
    Count,
    /// All operands narrow: 32-bit insertion, which has four.
    InsertNarrow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CarryOp {
    Add,
    Sub,
    /// The low or high half of a product, plus a sum.
    MadLow,
    MadHigh {
        signed: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Float {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    DivApprox,
    DivFull,
    Sqrt,
    SqrtApprox,
    Rcp,
    RcpApprox,
    RsqrtApprox,
    Sin,
    Cos,
    Exp2,
    Log2,
    Tanh,
    Min { nan: bool, xorsign: bool },
    Max { nan: bool, xorsign: bool },
    Abs,
    Neg,
    CopySign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

/// `setp`: a comparison, combined with another predicate, to one or two predicates.
#[derive(Debug, Clone)]
pub(crate) struct Compare {
    pub(crate) kind: CompareKind,
    pub(crate) relation: Relation,
    pub(crate) a: Reg,
    pub(crate) b: Reg,
    pub(crate) combine: Option<(Logic, Slot, bool)>,
    /// The outcome, and its opposite; for packed types the two halves.
    pub(crate) to: Option<Slot>,
    pub(crate) second: Option<Slot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompareKind {
    Unsigned32,
    Signed32,
    Unsigned16,
    Signed16,
    Unsigned64,
    Signed64,
    Single { ftz: bool },
    Double,
    Half { format: Half, ftz: bool },
    PackedHalf { format: Half, ftz: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Also true if an operand is NaN.
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    /// Neither is NaN.
    Num,
    Nan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemorySpace {
    Generic,
    Global,
    Const,
    /// The block's own.
    Shared,
    /// That of any block of the cluster.
    Cluster,
    Local,
    /// Parameters of the kernel; their addresses are generic.
    Param,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Reg,
    pub(crate) offset: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct Atomic {
    pub(crate) space: MemorySpace,
    pub(crate) op: AtomicOp,
    pub(crate) kind: AtomicKind,
    /// `None` for `red`.
    pub(crate) to: Option<Reg>,
    pub(crate) at: Address,
    pub(crate) operand: Reg,
    /// The value that `cas` writes; it compares with `operand`.
    pub(crate) swap: Option<Reg>,
}

/// `atom.exch` or, with a value to compare with, `atom.cas` of 128 bits. The low register of each pair is first.
#[derive(Debug, Clone)]
pub(crate) struct AtomicPair {
    pub(crate) space: MemorySpace,
    pub(crate) to: Option<[Reg; 2]>,
    pub(crate) at: Address,
    pub(crate) compare: Option<[Reg; 2]>,
    pub(crate) value: [Reg; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
    Exchange,
    CompareExchange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicKind {
    Bits16,
    Unsigned32,
    Signed32,
    Unsigned64,
    Signed64,
    Single,
    Double,
    Half(Half),
    PackedHalf(Half),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReduceOp {
    Add,
    MinUnsigned,
    MinSigned,
    MaxUnsigned,
    MaxSigned,
    And,
    Or,
    Xor,
}

/// A barrier of the thread block.
#[derive(Debug, Clone)]
pub(crate) struct Barrier {
    pub(crate) id: Slot,
    pub(crate) threads: Option<Slot>,
    pub(crate) kind: BarrierKind,
    /// Whether all threads of a warp have to execute it together.
    pub(crate) is_aligned: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    Reduce { op: BarrierReduce, to: Reg, predicate: Slot, negated: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierReduce {
    Count,
    And,
    Or,
}

/// An operation on a barrier in a word of shared memory.
#[derive(Debug, Clone)]
pub(crate) struct Mbarrier {
    pub(crate) space: MemorySpace,
    pub(crate) at: Address,
    pub(crate) op: MbarrierOp,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum MbarrierOp {
    Init {
        count: Slot,
    },
    Invalidate,
    /// `drop` lowers the count of later phases; `expect` announces bytes first.
    Arrive {
        state: Option<Slot>,
        count: Option<Slot>,
        drop: bool,
        expect: Option<Slot>,
    },
    ExpectBytes {
        bytes: Slot,
    },
    CompleteBytes {
        bytes: Slot,
    },
    /// Tests whether the phase of a state (wide), or of a parity (narrow), is over.
    TestState {
        to: Slot,
        state: Slot,
    },
    TestParity {
        to: Slot,
        parity: Slot,
    },
    /// Not an access: the number of arrivals that a state still needs.
    PendingCount {
        to: Slot,
        state: Slot,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) target: Target,
    pub(crate) signature: Signature,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) results: Vec<Argument>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    Symbol(SymbolIndex),
    Address(Slot),
}

/// An argument that a caller passes for a parameter, or the place for a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument {
    /// Bytes in the caller's frame.
    Frame {
        offset: u32,
        bytes: u32,
    },
    Register(Reg),
    Nothing,
}
