//! Which registers an instruction reads and writes, in one exhaustive list: an instruction that is missing does not
//! compile.

use super::bulk::{BulkEnd, MapReplace};
use super::instruction::*;
use super::matrix::{GroupFactor, MatrixOp};
use super::operands::*;
use super::reg::*;
use super::texture::{At, Fetch, FetchKind, Query, SurfaceAccess, SurfaceAccessKind};

/// What an instruction does with a register, in the lanes that execute it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// It writes all bits, and only in the lanes that execute it.
    Write,
    /// It may read the register, and then writes it.
    Update,
}

/// The registers of all instructions of a function.
#[derive(Debug)]
pub(crate) struct RegisterUses {
    uses: Vec<(Reg, Access)>,
    /// The end of each instruction's uses.
    ends: Vec<u32>,
}

impl RegisterUses {
    pub(crate) fn new(instructions: &mut [Instruction]) -> Self {
        let mut uses = Vec::with_capacity(4 * instructions.len());
        let mut ends = Vec::with_capacity(instructions.len());
        for instruction in instructions {
            visit(instruction, |reg, access| {
                uses.push((reg, access));
                reg
            });
            ends.push(uses.len() as u32);
        }
        Self { uses, ends }
    }

    /// Returns the registers of an instruction: those that it reads come first.
    pub(super) fn of(&self, position: usize) -> &[(Reg, Access)] {
        let start = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.uses[start as usize..self.ends[position] as usize]
    }

    /// Replaces every register of the instructions, and in this list.
    pub(crate) fn rename(&mut self, instructions: &mut [Instruction], renamed: impl Fn(Reg) -> Reg) {
        self.uses.iter_mut().for_each(|(reg, _)| *reg = renamed(*reg));
        instructions.iter_mut().for_each(|instruction| visit(instruction, |reg, _| renamed(reg)));
    }
}

/// Calls `each` once for every register of an instruction, those that it reads first, and replaces it with the result.
fn visit(instruction: &mut Instruction, each: impl FnMut(Reg, Access) -> Reg) {
    let mut visitor = Visitor(each);
    if let Some(guard) = &mut instruction.guard {
        visitor.predicate(&mut guard.predicate, Access::Read);
    }
    visitor.op(&mut instruction.op);
}

struct Visitor<F>(F);

impl<F: FnMut(Reg, Access) -> Reg> Visitor<F> {
    fn reg(&mut self, reg: &mut Reg, access: Access) {
        *reg = (self.0)(*reg, access);
    }

    fn narrow(&mut self, slot: &mut Slot, access: Access) {
        let Reg::Narrow(to) = (self.0)(Reg::Narrow(*slot), access) else { unreachable!("a register keeps its file") };
        *slot = to;
    }

    fn wide(&mut self, slot: &mut Slot, access: Access) {
        let Reg::Wide(to) = (self.0)(Reg::Wide(*slot), access) else { unreachable!("a register keeps its file") };
        *slot = to;
    }

    fn predicate(&mut self, slot: &mut Slot, access: Access) {
        let Reg::Predicate(to) = (self.0)(Reg::Predicate(*slot), access) else {
            unreachable!("a register keeps its file")
        };
        *slot = to;
    }

    fn read_all<'r>(&mut self, regs: impl IntoIterator<Item = &'r mut Reg>) {
        regs.into_iter().for_each(|reg| self.reg(reg, Access::Read));
    }

    fn write_all<'r>(&mut self, regs: impl IntoIterator<Item = &'r mut Reg>) {
        regs.into_iter().for_each(|reg| self.reg(reg, Access::Write));
    }

    /// Reads 32-bit registers, then writes one.
    fn narrow_op<const N: usize>(&mut self, from: [&mut Slot; N], to: &mut Slot) {
        self.read_narrow(from);
        self.narrow(to, Access::Write);
    }

    fn read_narrow<'s>(&mut self, slots: impl IntoIterator<Item = &'s mut Slot>) {
        slots.into_iter().for_each(|slot| self.narrow(slot, Access::Read));
    }

    fn read_wide<'s>(&mut self, slots: impl IntoIterator<Item = &'s mut Slot>) {
        slots.into_iter().for_each(|slot| self.wide(slot, Access::Read));
    }

    fn read_predicates<'s>(&mut self, slots: impl IntoIterator<Item = &'s mut Slot>) {
        slots.into_iter().for_each(|slot| self.predicate(slot, Access::Read));
    }

    fn address(&mut self, at: &mut Address) {
        self.reg(&mut at.base, Access::Read);
    }

    fn op(&mut self, op: &mut Op) {
        use Access::{Read, Write};
        match op {
            Op::Label | Op::Branch { .. } | Op::Return | Op::Exit | Op::Trap | Op::Breakpoint | Op::Yield => {}
            Op::Fence | Op::ClusterArrive | Op::ClusterWait => {}
            Op::BranchIndexed { index, .. } => self.narrow(index, Read),
            Op::Call(call) => self.call(call),
            Op::Sleep { nanoseconds } => self.narrow(nanoseconds, Read),
            Op::MoveNarrow { to, from } => self.narrow_op([from], to),
            Op::MoveWide { to, from } => {
                self.wide(from, Read);
                self.wide(to, Write);
            }
            Op::MovePredicate { to, from, .. } => {
                self.predicate(from, Read);
                self.predicate(to, Write);
            }
            Op::Split { from, to, .. } => {
                self.reg(from, Read);
                self.write_all(to.iter_mut().flatten());
            }
            Op::Join { to, from, .. } => {
                self.read_all(from);
                self.reg(to, Write);
            }
            Op::Read { to, .. } | Op::LoadParameter { to, .. } => self.reg(to, Write),
            Op::Narrow { .. } | Op::Packed { .. } | Op::Wide { .. } | Op::Widening { .. } | Op::ShiftWide { .. } => {
                self.integer(op);
            }
            Op::Bits { to, a, b, c, .. } => self.narrow_op([a, b, c], to),
            Op::BitsWide { op, to, a, b, c, d } => self.bits_wide(*op, to, [a, b, c, d]),
            Op::Carry { to, a, b, c, .. } => {
                self.read_all([a, b, c]);
                self.reg(to, Write);
            }
            Op::Single { .. } | Op::Double { .. } | Op::Half { .. } | Op::Convert { .. } => self.float(op),
            Op::ConvertPair { .. } | Op::ConvertTf32 { .. } | Op::PackEighths { .. } | Op::UnpackEighths { .. } => {
                self.float(op);
            }
            Op::Compare(compare) => {
                self.read_predicates(compare.combine.iter_mut().map(|(_, other, _)| other));
                self.read_all([&mut compare.a, &mut compare.b]);
                compare.to.iter_mut().chain(&mut compare.second).for_each(|to| self.predicate(to, Write));
            }
            Op::SelectNarrow { to, a, b, predicate, .. } => {
                self.predicate(predicate, Read);
                self.narrow_op([a, b], to);
            }
            Op::SelectWide { to, a, b, predicate, .. } => {
                self.predicate(predicate, Read);
                self.read_wide([a, b]);
                self.wide(to, Write);
            }
            Op::Test { to, from, .. } | Op::IsSpace { to, from, .. } => {
                self.reg(from, Read);
                self.predicate(to, Write);
            }
            Op::Logic { to, a, b, .. } => {
                self.read_predicates([a, b]);
                self.predicate(to, Write);
            }
            Op::Load { .. } | Op::LoadVector { .. } | Op::Store { .. } | Op::StoreVector { .. } => self.access(op),
            Op::Atomic(_) | Op::AtomicPair(_) | Op::CopyAsync { .. } | Op::BulkCopy(_) | Op::MapReplace(_) => {
                self.access(op)
            }
            Op::ToGeneric { to, from, .. } | Op::FromGeneric { to, from, .. } => {
                self.reg(from, Read);
                self.reg(to, Write);
            }
            Op::MapRank { to, from, rank, .. } => {
                self.reg(from, Read);
                self.narrow(rank, Read);
                self.reg(to, Write);
            }
            Op::RankOf { to, from, .. } => {
                self.reg(from, Read);
                self.narrow(to, Write);
            }
            Op::ActiveMask { .. } | Op::WarpBarrier { .. } | Op::Shuffle { .. } | Op::Vote { .. } => self.warp(op),
            Op::Match { .. } | Op::Reduce { .. } | Op::Elect { .. } => self.warp(op),
            Op::Barrier(barrier) => {
                self.narrow(&mut barrier.id, Read);
                self.read_narrow(&mut barrier.threads);
                if let BarrierKind::Reduce { to, predicate, .. } = &mut barrier.kind {
                    self.predicate(predicate, Read);
                    self.reg(to, Write);
                }
            }
            Op::Mbarrier(word) => self.mbarrier(word),
            Op::Fetch(fetch) => self.fetch(fetch),
            Op::SurfaceAccess(access) => self.surface(access),
            Op::Query(query) => {
                let Query { handle, level, to, .. } = &mut **query;
                self.reg(handle, Read);
                self.read_narrow(level);
                self.narrow(to, Write);
            }
            Op::Matrix(matrix) => {
                self.narrow(&mut matrix.members, Read);
                matrix.access.iter_mut().for_each(|(_, at)| self.address(at));
                self.matrix(&mut matrix.op);
            }
        }
    }

    fn call(&mut self, call: &mut Call) {
        if let Target::Address(slot) = &mut call.target {
            self.wide(slot, Access::Read);
        }
        let registers = |arguments: &mut Vec<Argument>, access, this: &mut Self| {
            for argument in arguments {
                if let Argument::Register(reg) = argument {
                    this.reg(reg, access);
                }
            }
        };
        registers(&mut call.arguments, Access::Read, self);
        registers(&mut call.results, Access::Write, self);
    }

    fn integer(&mut self, op: &mut Op) {
        use Access::{Read, Write};
        match op {
            Op::Narrow { to, a, b, c, .. } | Op::Widening { half: true, to, a, b, c: Some(c), .. } => {
                self.narrow_op([a, b, c], to);
            }
            Op::Packed { to, a, b, .. } | Op::Widening { half: true, to, a, b, c: None, .. } => {
                self.narrow_op([a, b], to);
            }
            Op::Wide { to, a, b, c, .. } => {
                self.read_wide([a, b, c]);
                self.wide(to, Write);
            }
            Op::Widening { half: false, to, a, b, c, .. } => {
                self.read_wide(c);
                self.read_narrow([a, b]);
                self.wide(to, Write);
            }
            Op::ShiftWide { to, a, amount, .. } => {
                self.wide(a, Read);
                self.narrow(amount, Read);
                self.wide(to, Write);
            }
            _ => unreachable!("not an integer instruction"),
        }
    }

    /// An operation that has fewer operands does not use the other slots.
    fn bits_wide(&mut self, op: BitsWide, to: &mut Slot, [a, b, c, d]: [&mut Slot; 4]) {
        match op {
            BitsWide::ExtractUnsigned | BitsWide::ExtractSigned => {
                self.read_wide([a]);
                self.read_narrow([b, c]);
            }
            BitsWide::Insert => {
                self.read_wide([a, b]);
                self.read_narrow([c, d]);
            }
            BitsWide::InsertNarrow => self.read_narrow([a, b, c, d]),
            BitsWide::Find { .. } | BitsWide::Reverse | BitsWide::LeadingZeros | BitsWide::Count => self.read_wide([a]),
        }
        match op {
            BitsWide::ExtractUnsigned | BitsWide::ExtractSigned | BitsWide::Insert | BitsWide::Reverse => {
                self.wide(to, Access::Write);
            }
            BitsWide::InsertNarrow | BitsWide::Find { .. } | BitsWide::LeadingZeros | BitsWide::Count => {
                self.narrow(to, Access::Write);
            }
        }
    }

    fn float(&mut self, op: &mut Op) {
        match op {
            Op::Single { to, a, b, c, .. } | Op::Half { to, a, b, c, .. } => self.narrow_op([a, b, c], to),
            Op::Double { to, a, b, c, .. } => {
                self.read_wide([a, b, c]);
                self.wide(to, Access::Write);
            }
            Op::Convert { to, from, .. } => {
                self.reg(from, Access::Read);
                self.reg(to, Access::Write);
            }
            Op::ConvertPair { to, a, b, .. } | Op::PackEighths { to, a, b: Some(b), .. } => {
                self.narrow_op([a, b], to);
            }
            Op::ConvertTf32 { to, a, .. }
            | Op::PackEighths { to, a, b: None, .. }
            | Op::UnpackEighths { to, a, .. } => self.narrow_op([a], to),
            _ => unreachable!("not an instruction on floating-point numbers"),
        }
    }

    fn access(&mut self, op: &mut Op) {
        match op {
            Op::Load { to, at, .. } => {
                self.address(at);
                self.reg(to, Access::Write);
            }
            Op::LoadVector { to, at, .. } => {
                self.address(at);
                self.write_all(to.iter_mut().flatten());
            }
            Op::Store { from, at, .. } => {
                self.address(at);
                self.reg(from, Access::Read);
            }
            Op::StoreVector { from, at, .. } => {
                self.address(at);
                self.read_all(from);
            }
            Op::Atomic(atomic) => {
                self.address(&mut atomic.at);
                self.reg(&mut atomic.operand, Access::Read);
                self.read_all(&mut atomic.swap);
                self.write_all(&mut atomic.to);
            }
            Op::AtomicPair(atomic) => {
                self.address(&mut atomic.at);
                self.read_all(atomic.value.iter_mut().chain(atomic.compare.iter_mut().flatten()));
                self.write_all(atomic.to.iter_mut().flatten());
            }
            Op::CopyAsync { to, from, source_bytes, .. } => {
                self.address(to);
                self.address(from);
                self.read_narrow(source_bytes);
            }
            Op::BulkCopy(copy) => {
                for end in [&mut copy.from, &mut copy.to] {
                    match end {
                        BulkEnd::Range { at, .. } => self.address(at),
                        BulkEnd::Box { map, coordinates, offsets } => {
                            self.address(map);
                            self.read_narrow(coordinates);
                            self.read_narrow(offsets.iter_mut().flatten());
                        }
                    }
                }
                copy.barrier.iter_mut().for_each(|at| self.address(at));
                self.read_narrow(copy.bytes.iter_mut().chain(&mut copy.byte_mask).chain(&mut copy.ranks));
            }
            Op::MapReplace(replace) => {
                let MapReplace { at, value, .. } = &mut **replace;
                self.address(at);
                self.reg(value, Access::Read);
            }
            _ => unreachable!("not an access"),
        }
    }

    fn warp(&mut self, op: &mut Op) {
        match op {
            Op::ActiveMask { to } => self.narrow(to, Access::Write),
            Op::WarpBarrier { members } => self.narrow(members, Access::Read),
            Op::Shuffle { to, valid, a, b, c, members, .. } => {
                self.read_narrow(members);
                self.narrow_op([a, b, c], to);
                valid.iter_mut().for_each(|valid| self.predicate(valid, Access::Write));
            }
            Op::Vote { mode, to, predicate, members, .. } => {
                self.read_narrow(members);
                self.predicate(predicate, Access::Read);
                match mode {
                    VoteMode::Ballot => self.narrow(to, Access::Write),
                    VoteMode::All | VoteMode::Any | VoteMode::Uniform => self.predicate(to, Access::Write),
                }
            }
            Op::Match { to, valid, from, members, .. } => {
                self.reg(from, Access::Read);
                self.narrow_op([members], to);
                valid.iter_mut().for_each(|valid| self.predicate(valid, Access::Write));
            }
            Op::Reduce { to, from, members, .. } => self.narrow_op([from, members], to),
            Op::Elect { to, elected, members } => {
                self.narrow(members, Access::Read);
                self.predicate(elected, Access::Write);
                to.iter_mut().for_each(|to| self.narrow(to, Access::Write));
            }
            _ => unreachable!("not an instruction across lanes"),
        }
    }

    fn mbarrier(&mut self, word: &mut Mbarrier) {
        self.address(&mut word.at);
        match &mut word.op {
            MbarrierOp::Init { count } => self.narrow(count, Access::Read),
            MbarrierOp::Invalidate => {}
            MbarrierOp::Arrive { state, count, expect, .. } => {
                self.read_narrow(count.iter_mut().chain(expect));
                state.iter_mut().for_each(|state| self.wide(state, Access::Write));
            }
            MbarrierOp::ExpectBytes { bytes } | MbarrierOp::CompleteBytes { bytes } => self.narrow(bytes, Access::Read),
            MbarrierOp::TestState { to, state } => {
                self.wide(state, Access::Read);
                self.predicate(to, Access::Write);
            }
            MbarrierOp::TestParity { to, parity } => {
                self.narrow(parity, Access::Read);
                self.predicate(to, Access::Write);
            }
            MbarrierOp::PendingCount { to, state } => {
                self.wide(state, Access::Read);
                self.narrow(to, Access::Write);
            }
        }
    }

    fn texel(&mut self, at: &mut At) {
        self.reg(&mut at.handle, Access::Read);
        self.read_narrow(at.layer.iter_mut().chain(&mut at.coordinates));
    }

    fn fetch(&mut self, fetch: &mut Fetch) {
        self.texel(&mut fetch.at);
        match &mut fetch.kind {
            FetchKind::Index | FetchKind::Base | FetchKind::Gather(_) => {}
            FetchKind::Level(level) => self.narrow(level, Access::Read),
            FetchKind::Gradient(x, y) => self.read_narrow(x.iter_mut().chain(y)),
        }
        self.write_all(fetch.to.iter_mut().flatten());
    }

    fn surface(&mut self, access: &mut SurfaceAccess) {
        self.texel(&mut access.at);
        match &mut access.kind {
            SurfaceAccessKind::Load { to, .. } => self.write_all(to.iter_mut().flatten()),
            SurfaceAccessKind::Store { from, .. } | SurfaceAccessKind::StoreConverted { from } => self.read_all(from),
        }
    }

    fn matrix(&mut self, op: &mut MatrixOp) {
        match op {
            MatrixOp::Multiply(multiply) => {
                self.read_all(multiply.a.iter_mut().chain(&mut multiply.b).chain(&mut multiply.c));
                self.read_narrow(multiply.sparsity.iter_mut().map(|sparsity| &mut sparsity.metadata));
                self.write_all(&mut multiply.d);
            }
            MatrixOp::GroupMultiply(multiply) => {
                match &mut multiply.a {
                    GroupFactor::Registers(registers) => self.read_all(registers),
                    GroupFactor::Shared(matrix) => self.wide(&mut matrix.descriptor, Access::Read),
                }
                self.wide(&mut multiply.b.descriptor, Access::Read);
                self.predicate(&mut multiply.adds.0, Access::Read);
                multiply.d.iter_mut().for_each(|d| self.reg(d, Access::Update));
            }
            MatrixOp::LoadFragment(access) => {
                self.read_narrow(&mut access.stride);
                self.write_all(&mut access.registers);
            }
            MatrixOp::StoreFragment(access) => {
                self.read_narrow(&mut access.stride);
                self.read_all(&mut access.registers);
            }
            MatrixOp::LoadTiles(access) => self.write_all(&mut access.registers),
            MatrixOp::StoreTiles(access) => self.read_all(&mut access.registers),
            MatrixOp::Transpose { to, from } => self.narrow_op([from], to),
        }
    }
}
