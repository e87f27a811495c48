//! What the lowering makes and the execution runs: instructions whose operands are slots of register files.
//!
//! A frame has three files: 32-bit registers (also for 8 and 16 bits, zero-extended), 64-bit registers, and
//! predicates (a bit a lane). Constants, addresses and special registers that do not change are slots too, filled when
//! a frame is made: an operand is always a slot.

use crate::arith::convert::{Convert, Eighth, Format};
use crate::arith::half::Half;
use crate::arith::integer::{FunnelMode, Permutation};
use crate::arith::{Mode, Property};
use crate::memory::Width;

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
    pub(crate) constants: Vec<(Place, Constant)>,
    /// Local variables, formal parameters and call arguments of one thread.
    pub(crate) local_bytes: u32,
    /// What the start of the frame is a multiple of.
    pub(crate) local_align: u32,
    pub(crate) signature: Signature,
    /// Symbols of the unit that the code mentions.
    pub(crate) mentions: Vec<SymbolIndex>,
    /// Whether it calls through addresses.
    pub(crate) calls_indirectly: bool,
}

/// Index into the symbols of a unit.
pub(crate) type SymbolIndex = u32;

/// Where a value of a thread is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
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
    pub(crate) returns: Vec<Formal>,
    pub(crate) parameters: Vec<Formal>,
    /// All of them with the gaps.
    pub(crate) bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Formal {
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Instruction {
    pub(crate) guard: Option<Guard>,
    pub(crate) op: Op,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) predicate: Slot,
    pub(crate) negated: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Falls into a place that branches come to.
    Land,
    Branch {
        target: u32,
    },
    BranchIndexed {
        index: Slot,
        targets: Box<[u32]>,
    },
    Call(Box<Call>),
    Return,
    Exit,
    Trap,
    Breakpoint,
    Sleep {
        nanoseconds: Slot,
    },
    /// Lets other warps go on.
    Yield,

    MoveNarrow {
        to: Slot,
        from: Slot,
    },
    MoveWide {
        to: Slot,
        from: Slot,
    },
    MovePredicate {
        to: Slot,
        from: Slot,
        negated: bool,
    },
    /// Parts of a register, low ones first; `None` where a part is not wanted.
    Split {
        from: Place,
        part_bits: u32,
        to: Box<[Option<Place>]>,
    },
    Join {
        to: Place,
        part_bits: u32,
        from: Box<[Place]>,
    },
    Read {
        timer: Timer,
        to: Place,
    },

    /// Integers of 32 bits; of 16 bits where `half` says how operands are extended.
    Narrow {
        op: Integer,
        half: Option<Extend>,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// Pairs of 16 bits.
    Packed {
        op: Integer,
        extend: Extend,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Wide {
        op: Integer,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// 32 (or 16) bits times as many, and a 64-bit (or 32-bit) sum.
    Widening {
        signed: bool,
        half: bool,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Option<Slot>,
    },
    /// A 64-bit value shifted by a 32-bit amount.
    ShiftWide {
        op: Shift,
        to: Slot,
        a: Slot,
        amount: Slot,
    },
    Bits {
        op: Bits,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// Bit operations on 64 bits; `to` is wide or narrow as the operation says.
    BitsWide {
        op: BitsWide,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
        d: Slot,
    },
    /// Sums with a carry bit.
    Carry {
        op: CarryOp,
        reads: bool,
        writes: bool,
        to: Place,
        a: Place,
        b: Place,
        c: Place,
    },

    Single {
        op: Float,
        mode: Mode,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Double {
        op: Float,
        mode: Mode,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// f16, bf16, and pairs of them.
    Half {
        op: Float,
        format: Half,
        packed: bool,
        mode: Mode,
        relu: bool,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Convert {
        to_format: Format,
        from_format: Format,
        how: Convert,
        to: Place,
        from: Place,
    },
    /// Two singles to a pair of halves: `a` becomes the high one.
    ConvertPair {
        format: Half,
        how: Convert,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    ConvertTf32 {
        how: Convert,
        to: Slot,
        a: Slot,
    },
    /// Of two f32, or without `b` of a pair of f16.
    PackEighths {
        format: Eighth,
        relu: bool,
        to: Slot,
        a: Slot,
        b: Option<Slot>,
    },
    UnpackEighths {
        format: Eighth,
        relu: bool,
        to: Slot,
        a: Slot,
    },

    Compare(Box<Compare>),
    SelectNarrow {
        to: Slot,
        a: Slot,
        b: Slot,
        predicate: Slot,
        negated: bool,
    },
    SelectWide {
        to: Slot,
        a: Slot,
        b: Slot,
        predicate: Slot,
        negated: bool,
    },
    /// `testp`
    Test {
        class: Property,
        to: Slot,
        from: Place,
    },
    Logic {
        op: Logic,
        to: Slot,
        a: Slot,
        a_negated: bool,
        b: Slot,
        b_negated: bool,
    },

    Load {
        space: MemorySpace,
        width: Width,
        signed: bool,
        to: Place,
        at: Address,
    },
    /// From the arguments of the launch, the same for all lanes.
    LoadParameter {
        width: Width,
        signed: bool,
        to: Place,
        offset: u32,
    },
    LoadVector {
        space: MemorySpace,
        width: Width,
        signed: bool,
        to: Box<[Option<Place>]>,
        at: Address,
    },
    Store {
        space: MemorySpace,
        width: Width,
        from: Place,
        at: Address,
    },
    StoreVector {
        space: MemorySpace,
        width: Width,
        from: Box<[Place]>,
        at: Address,
    },
    Atomic(Box<Atomic>),
    Fence,
    /// A copy from global to shared memory.
    CopyAsync {
        to: Address,
        from: Address,
        bytes: u32,
        source_bytes: Option<Slot>,
    },
    /// Whether a generic address lies in a space.
    IsSpace {
        space: MemorySpace,
        to: Slot,
        from: Place,
    },
    /// An address of a space to a generic one, or back.
    ToGeneric {
        space: MemorySpace,
        to: Place,
        from: Place,
    },
    FromGeneric {
        space: MemorySpace,
        to: Place,
        from: Place,
    },

    ActiveMask {
        to: Slot,
    },
    /// Waits until the lanes of a mask are here.
    WarpBarrier {
        members: Slot,
    },
    Shuffle {
        mode: ShuffleMode,
        to: Slot,
        valid: Option<Slot>,
        a: Slot,
        b: Slot,
        c: Slot,
        members: Option<Slot>,
    },
    Vote {
        mode: VoteMode,
        to: Slot,
        predicate: Slot,
        negated: bool,
        members: Option<Slot>,
    },
    Match {
        all: bool,
        to: Slot,
        valid: Option<Slot>,
        from: Place,
        members: Slot,
    },
    Reduce {
        op: ReduceOp,
        to: Slot,
        from: Slot,
        members: Slot,
    },
    Elect {
        to: Option<Slot>,
        elected: Slot,
        members: Slot,
    },
    Barrier(Box<Barrier>),
    BarrierWord(Box<BarrierWord>),
}

/// How 16 bits become 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extend {
    Zero,
    Sign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Integer {
    Add,
    Sub,
    /// Signed, to the bounds.
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
    /// Logical: 1 for 0, else 0.
    CNot,
    /// Amounts of 32 and more empty the register; only for 32 and 16 bits, see `ShiftWide`.
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

/// Bit operations of 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bits {
    Lop3(u8),
    ExtractUnsigned,
    ExtractSigned,
    /// Of the highest bit, or how far it is from the top.
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
    /// `a` and `b` saturated to so many bits, `b` lowest, and what fits of `c` above.
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
    /// Low or high half of a product, and a sum.
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
    pub(crate) a: Place,
    pub(crate) b: Place,
    pub(crate) combine: Option<(Logic, Slot, bool)>,
    /// The outcome, and that of its opposite; of packed types the two halves.
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
    /// True also if one is NaN.
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
    Shared,
    Local,
    /// Parameters of the kernel; addresses are generic ones.
    Param,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Place,
    pub(crate) offset: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct Atomic {
    pub(crate) space: MemorySpace,
    pub(crate) op: AtomicOp,
    pub(crate) kind: AtomicKind,
    /// Nothing for `red`.
    pub(crate) to: Option<Place>,
    pub(crate) at: Address,
    pub(crate) operand: Place,
    /// What `cas` compares with is `operand`; this is what it writes.
    pub(crate) swap: Option<Place>,
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

/// A barrier of the block.
#[derive(Debug, Clone)]
pub(crate) struct Barrier {
    pub(crate) id: Slot,
    pub(crate) threads: Option<Slot>,
    pub(crate) kind: BarrierKind,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    Reduce { op: BarrierReduce, to: Place, predicate: Slot, negated: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierReduce {
    Count,
    And,
    Or,
}

/// An instruction on a barrier that lives in a word of shared memory.
#[derive(Debug, Clone)]
pub(crate) struct BarrierWord {
    pub(crate) space: MemorySpace,
    pub(crate) at: Address,
    pub(crate) op: BarrierWordOp,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum BarrierWordOp {
    Init {
        count: Slot,
    },
    Invalidate,
    /// `drop` lowers the count of the phases to come; `expect` announces bytes first.
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
    /// Whether the phase of a state (wide), or of a parity (narrow), is over.
    TestState {
        to: Slot,
        state: Slot,
    },
    TestParity {
        to: Slot,
        parity: Slot,
    },
    /// Not an access: how many arrivals a state lacks.
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

/// What a caller gives for a formal parameter, or takes a result into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument {
    /// Bytes of the caller's frame.
    Frame {
        offset: u32,
        bytes: u32,
    },
    Register(Place),
    Nothing,
}
