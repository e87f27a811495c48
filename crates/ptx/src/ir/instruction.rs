//! An instruction: the operation and its slots.

use super::bulk::{BulkCopy, MapReplace};
use super::matrix::Matrix;
use super::operands::*;
use super::reg::*;
use super::texture::{Fetch, Query, SurfaceAccess};
use crate::arith::convert::{Convert, Format};
use crate::arith::half::Half;
use crate::arith::packed::Fp8;
use crate::arith::{Mode, Property};
use crate::memory::Width;

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
    /// The target of branches. Does nothing.
    Label,
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
    /// Lets other warps run.
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
    /// Parts of a register, low ones first; `None` for a part that is discarded.
    Split {
        from: Reg,
        part_bits: u32,
        to: Box<[Option<Reg>]>,
    },
    Join {
        to: Reg,
        part_bits: u32,
        from: Box<[Reg]>,
    },
    Read {
        timer: Timer,
        to: Reg,
    },

    /// 32-bit integers, or 16-bit ones, where `half` states how operands are extended.
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
    /// A product of two 32-bit (or 16-bit) values plus a 64-bit (or 32-bit) sum.
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
    /// Sums with carry.
    Carry {
        op: CarryOp,
        reads: bool,
        writes: bool,
        to: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
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
        to: Reg,
        from: Reg,
    },
    /// Two f32 to a pair of halves: `a` becomes the high one.
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
    /// From two f32, or, without `b`, from a pair of f16.
    PackEighths {
        format: Fp8,
        relu: bool,
        to: Slot,
        a: Slot,
        b: Option<Slot>,
    },
    UnpackEighths {
        format: Fp8,
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
        from: Reg,
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
        to: Reg,
        at: Address,
    },
    /// Loads from the arguments of the launch, the same for all lanes.
    LoadParameter {
        width: Width,
        signed: bool,
        to: Reg,
        offset: u32,
    },
    LoadVector {
        space: MemorySpace,
        width: Width,
        signed: bool,
        to: Box<[Option<Reg>]>,
        at: Address,
    },
    Store {
        space: MemorySpace,
        width: Width,
        from: Reg,
        at: Address,
    },
    StoreVector {
        space: MemorySpace,
        width: Width,
        from: Box<[Reg]>,
        at: Address,
    },
    Atomic(Box<Atomic>),
    AtomicPair(Box<AtomicPair>),
    Fence,
    /// A copy from global to shared memory.
    CopyAsync {
        to: Address,
        from: Address,
        bytes: u32,
        source_bytes: Option<Slot>,
    },
    BulkCopy(Box<BulkCopy>),
    /// A field of a tensor map.
    MapReplace(Box<MapReplace>),
    /// Tests whether a generic address is in a space.
    IsSpace {
        space: MemorySpace,
        to: Slot,
        from: Reg,
    },
    /// Converts an address of a space to a generic one, or back.
    ToGeneric {
        space: MemorySpace,
        to: Reg,
        from: Reg,
    },
    FromGeneric {
        space: MemorySpace,
        to: Reg,
        from: Reg,
    },

    ActiveMask {
        to: Slot,
    },
    /// Waits until the lanes of a mask have arrived.
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
        from: Reg,
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
    /// `barrier.cluster.arrive` and `barrier.cluster.wait`
    ClusterArrive,
    ClusterWait,
    /// The address of the same variable in the shared memory of a block of the cluster. `is_generic`: both are generic.
    MapRank {
        is_generic: bool,
        to: Reg,
        from: Reg,
        rank: Slot,
    },
    /// The block of the cluster that an address of shared memory is in.
    RankOf {
        is_generic: bool,
        to: Slot,
        from: Reg,
    },
    Mbarrier(Box<Mbarrier>),
    Fetch(Box<Fetch>),
    SurfaceAccess(Box<SurfaceAccess>),
    Query(Box<Query>),
    Matrix(Box<Matrix>),
}
