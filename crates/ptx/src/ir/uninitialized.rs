//! Finds the registers that a thread may read before it has written them. Only these need a value when a frame is made
//! in the memory of another.
//!
//! A register is exempt if the first instruction that always writes it dominates every one that reads it: then no path
//! reaches a read without that write. Instructions whose operands are not listed here count as reads of every register.

use super::instruction::*;
use super::operands::*;
use super::reg::*;

/// The steps of the search for dominators, for each block. Beyond it, all registers count as read.
const STEPS_PER_BLOCK_MAX: usize = 256;

/// The number of slots of each register file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileSizes {
    pub(crate) narrow: u32,
    pub(crate) wide: u32,
    pub(crate) predicates: u32,
}

impl FileSizes {
    /// Returns the number of a register among those of all files.
    fn number(self, reg: Reg) -> usize {
        let number = match reg {
            Reg::Narrow(slot) => slot,
            Reg::Wide(slot) => self.narrow + slot,
            Reg::Predicate(slot) => self.narrow + self.wide + slot,
        };
        number as usize
    }

    fn all(self) -> impl Iterator<Item = Reg> {
        let narrow = (0..self.narrow).map(Reg::Narrow);
        narrow.chain((0..self.wide).map(Reg::Wide)).chain((0..self.predicates).map(Reg::Predicate))
    }
}

/// Returns the registers that may be read first. `constants` have their values from the start.
pub(crate) fn read_before_written(
    instructions: &[Instruction],
    constants: &[(Reg, Constant)],
    files: FileSizes,
) -> Vec<Reg> {
    let count = (files.narrow + files.wide + files.predicates) as usize;
    let mut is_exempt = vec![false; count];
    constants.iter().for_each(|&(reg, _)| is_exempt[files.number(reg)] = true);
    let flow = Flow::new(instructions);
    let Some(tree) = flow.dominators() else {
        return files.all().filter(|&reg| !is_exempt[files.number(reg)]).collect();
    };
    // The position of the first write, plus one; zero without one.
    let mut first_write = vec![0u32; count];
    for (position, instruction) in instructions.iter().enumerate() {
        if instruction.guard.is_none() {
            visit(&instruction.op, &mut |reg, access| {
                let first = &mut first_write[files.number(reg)];
                if access == Access::Write && *first == 0 {
                    *first = position as u32 + 1;
                }
            });
        }
    }
    let is_written = |reg: usize, at: u32| {
        let Some(write) = first_write[reg].checked_sub(1) else { return false };
        let (from, to) = (flow.block_of[write as usize], flow.block_of[at as usize]);
        if from == to { write < at } else { tree.dominates(from, to) }
    };
    let mut is_read = vec![false; count];
    let mut last_unlisted = None;
    for (position, instruction) in instructions.iter().enumerate() {
        let at = position as u32;
        if !tree.is_reached(flow.block_of[position]) {
            continue;
        }
        let mut read = |reg: Reg| {
            let number = files.number(reg);
            is_read[number] |= !is_exempt[number] && !is_written(number, at);
        };
        if let Some(guard) = instruction.guard {
            read(Reg::Predicate(guard.predicate));
        }
        let is_listed = visit(&instruction.op, &mut |reg, access| {
            if access == Access::Read {
                read(reg);
            }
        });
        // One in a block stands for those after it: what is written before it is written before them.
        let block = flow.block_of[position];
        if !is_listed && last_unlisted != Some(block) {
            last_unlisted = Some(block);
            files.all().for_each(read);
        }
    }
    files.all().filter(|&reg| is_read[files.number(reg)]).collect()
}

/// The basic blocks of a function.
struct Flow {
    /// The block of each instruction.
    block_of: Vec<u32>,
    successors: Vec<Vec<u32>>,
}

impl Flow {
    fn new(instructions: &[Instruction]) -> Self {
        let mut is_leader = vec![false; instructions.len() + 1];
        is_leader[0] = true;
        for (position, instruction) in instructions.iter().enumerate() {
            targets(&instruction.op).iter().for_each(|&target| is_leader[target as usize] = true);
            is_leader[position + 1] |= ends(&instruction.op);
        }
        let mut block_of = Vec::with_capacity(instructions.len());
        let mut count = 0;
        for &is_leader in &is_leader[..instructions.len()] {
            count += u32::from(is_leader);
            block_of.push(count - 1);
        }
        let mut successors = vec![Vec::new(); count as usize];
        for (position, instruction) in instructions.iter().enumerate() {
            let block = block_of[position] as usize;
            let is_last = block_of.get(position + 1).is_none_or(|&next| next as usize != block);
            if !is_last {
                continue;
            }
            let to = targets(&instruction.op).iter().filter_map(|&target| block_of.get(target as usize));
            successors[block].extend(to);
            let falls = instruction.guard.is_some() || !ends(&instruction.op);
            successors[block].extend(block_of.get(position + 1).filter(|_| falls));
        }
        Self { block_of, successors }
    }

    /// Returns the blocks in reverse postorder.
    fn order(&self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.successors.len());
        let mut is_seen = vec![false; self.successors.len()];
        let mut stack = vec![(0u32, 0)];
        is_seen[0] = true;
        while let Some((block, next)) = stack.last_mut() {
            match self.successors[*block as usize].get(*next) {
                Some(&successor) => {
                    *next += 1;
                    if !std::mem::replace(&mut is_seen[successor as usize], true) {
                        stack.push((successor, 0));
                    }
                }
                None => {
                    order.push(*block);
                    stack.pop();
                }
            }
        }
        order.reverse();
        order
    }

    /// Returns the tree of dominators, by the iteration of Cooper, Harvey and Kennedy; `None` if it takes too long.
    fn dominators(&self) -> Option<DominatorTree> {
        let order = self.order();
        let mut rank = vec![u32::MAX; self.successors.len()];
        order.iter().enumerate().for_each(|(index, &block)| rank[block as usize] = index as u32);
        let mut predecessors = vec![Vec::new(); order.len()];
        for (index, &block) in order.iter().enumerate() {
            for &successor in &self.successors[block as usize] {
                predecessors[rank[successor as usize] as usize].push(index as u32);
            }
        }
        // By rank: a dominator has a lower one.
        let mut parent = vec![u32::MAX; order.len()];
        parent[0] = 0;
        let mut steps_left = STEPS_PER_BLOCK_MAX * order.len();
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for block in 1..order.len() {
                let mut common = u32::MAX;
                for &other in predecessors[block].iter().filter(|&&other| parent[other as usize] != u32::MAX) {
                    let mut other = other;
                    while common != u32::MAX && common != other {
                        steps_left = steps_left.checked_sub(1)?;
                        if common > other {
                            common = parent[common as usize];
                        } else {
                            other = parent[other as usize];
                        }
                    }
                    common = other;
                }
                steps_left = steps_left.checked_sub(1)?;
                has_changed |= parent[block] != common;
                parent[block] = common;
            }
        }
        Some(DominatorTree::new(rank, &parent))
    }
}

/// The blocks that each block dominates, as an interval of their numbers in preorder.
struct DominatorTree {
    /// `None` for a block that is not reached.
    dominated: Vec<Option<(u32, u32)>>,
}

impl DominatorTree {
    /// `rank` is that of each block; `parent` the rank of the immediate dominator of each rank, which is lower.
    fn new(rank: Vec<u32>, parent: &[u32]) -> Self {
        let mut size = vec![1u32; parent.len()];
        for index in (1..parent.len()).rev() {
            size[parent[index] as usize] += size[index];
        }
        let (mut start, mut next) = (vec![0u32; parent.len()], vec![1u32; parent.len()]);
        for index in 1..parent.len() {
            let above = parent[index] as usize;
            start[index] = next[above];
            next[above] += size[index];
            next[index] = start[index] + 1;
        }
        let interval = |&rank: &u32| {
            let at = rank as usize;
            start.get(at).map(|&start| (start, start + size[at]))
        };
        Self { dominated: rank.iter().map(interval).collect() }
    }

    fn is_reached(&self, block: u32) -> bool {
        self.dominated[block as usize].is_some()
    }

    fn dominates(&self, block: u32, other: u32) -> bool {
        match (self.dominated[block as usize], self.dominated[other as usize]) {
            (Some((start, end)), Some((at, _))) => start <= at && at < end,
            _ => false,
        }
    }
}

fn targets(op: &Op) -> &[u32] {
    match op {
        Op::Branch { target } => std::slice::from_ref(target),
        Op::BranchIndexed { targets, .. } => targets,
        _ => &[],
    }
}

/// Returns whether a thread that executes the instruction does not continue after it.
pub(super) fn ends(op: &Op) -> bool {
    matches!(op, Op::Branch { .. } | Op::BranchIndexed { .. } | Op::Return | Op::Exit | Op::Trap)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Calls `each` for every register of an instruction. Returns `false` if its registers are not listed here.
pub(super) fn visit(op: &Op, each: &mut impl FnMut(Reg, Access)) -> bool {
    use Access::{Read, Write};
    use Reg::{Narrow, Predicate, Wide};
    match op {
        Op::Label | Op::Branch { .. } | Op::Return | Op::Exit | Op::Trap | Op::Breakpoint | Op::Fence | Op::Yield => {}
        Op::ClusterArrive | Op::ClusterWait => {}
        Op::MapRank { to, from, rank, .. } => all(each, &[*from, Narrow(*rank)], &[*to]),
        Op::RankOf { to, from, .. } => all(each, &[*from], &[Narrow(*to)]),
        Op::BranchIndexed { index, .. } => each(Narrow(*index), Read),
        Op::MoveNarrow { to, from } => all(each, &[Narrow(*from)], &[Narrow(*to)]),
        Op::MoveWide { to, from } => all(each, &[Wide(*from)], &[Wide(*to)]),
        Op::MovePredicate { to, from, .. } => all(each, &[Predicate(*from)], &[Predicate(*to)]),
        Op::Split { from, to, .. } => {
            each(*from, Read);
            to.iter().flatten().for_each(|&to| each(to, Write));
        }
        Op::Join { to, from, .. } => all(each, from, &[*to]),
        Op::Read { to, .. } | Op::LoadParameter { to, .. } => each(*to, Write),
        Op::Narrow { to, a, b, c, .. }
        | Op::Bits { to, a, b, c, .. }
        | Op::Single { to, a, b, c, .. }
        | Op::Half { to, a, b, c, .. }
        | Op::Widening { half: true, to, a, b, c: Some(c), .. } => {
            all(each, &[Narrow(*a), Narrow(*b), Narrow(*c)], &[Narrow(*to)]);
        }
        Op::Packed { to, a, b, .. } | Op::Widening { half: true, to, a, b, c: None, .. } => {
            all(each, &[Narrow(*a), Narrow(*b)], &[Narrow(*to)]);
        }
        Op::Wide { to, a, b, c, .. } | Op::Double { to, a, b, c, .. } => {
            all(each, &[Wide(*a), Wide(*b), Wide(*c)], &[Wide(*to)]);
        }
        Op::Widening { half: false, to, a, b, c, .. } => {
            c.iter().for_each(|&c| each(Wide(c), Read));
            all(each, &[Narrow(*a), Narrow(*b)], &[Wide(*to)]);
        }
        Op::ShiftWide { to, a, amount, .. } => all(each, &[Wide(*a), Narrow(*amount)], &[Wide(*to)]),
        Op::Convert { to, from, .. } | Op::ToGeneric { to, from, .. } | Op::FromGeneric { to, from, .. } => {
            all(each, &[*from], &[*to]);
        }
        Op::Compare(compare) => {
            let Compare { a, b, combine, to, second, .. } = &**compare;
            combine.iter().for_each(|&(_, other, _)| each(Predicate(other), Read));
            all(each, &[*a, *b], &[]);
            to.iter().chain(second).for_each(|&to| each(Predicate(to), Write));
        }
        Op::SelectNarrow { to, a, b, predicate, .. } => {
            all(each, &[Narrow(*a), Narrow(*b), Predicate(*predicate)], &[Narrow(*to)]);
        }
        Op::SelectWide { to, a, b, predicate, .. } => {
            all(each, &[Wide(*a), Wide(*b), Predicate(*predicate)], &[Wide(*to)]);
        }
        Op::Logic { to, a, b, .. } => all(each, &[Predicate(*a), Predicate(*b)], &[Predicate(*to)]),
        Op::Load { to, at, .. } => all(each, &[at.base], &[*to]),
        Op::LoadVector { to, at, .. } => {
            each(at.base, Read);
            to.iter().flatten().for_each(|&to| each(to, Write));
        }
        Op::Store { from, at, .. } => all(each, &[at.base, *from], &[]),
        Op::StoreVector { from, at, .. } => {
            each(at.base, Read);
            all(each, from, &[]);
        }
        Op::Atomic(atomic) => {
            all(each, &[atomic.at.base, atomic.operand], &[]);
            atomic.swap.iter().for_each(|&swap| each(swap, Read));
            atomic.to.iter().for_each(|&to| each(to, Write));
        }
        Op::ActiveMask { to } => each(Narrow(*to), Write),
        Op::WarpBarrier { members } => each(Narrow(*members), Read),
        Op::Shuffle { to, valid, a, b, c, members, .. } => {
            members.iter().for_each(|&members| each(Narrow(members), Read));
            all(each, &[Narrow(*a), Narrow(*b), Narrow(*c)], &[Narrow(*to)]);
            valid.iter().for_each(|&valid| each(Predicate(valid), Write));
        }
        // Its result is a narrow register or a predicate: not listed as written.
        Op::Vote { predicate, members, .. } => {
            each(Predicate(*predicate), Read);
            members.iter().for_each(|&members| each(Narrow(members), Read));
        }
        Op::Barrier(barrier) => {
            each(Narrow(barrier.id), Read);
            barrier.threads.iter().for_each(|&threads| each(Narrow(threads), Read));
            if let BarrierKind::Reduce { to, predicate, .. } = barrier.kind {
                all(each, &[Predicate(predicate)], &[to]);
            }
        }
        _ => return false,
    }
    true
}

fn all(each: &mut impl FnMut(Reg, Access), reads: &[Reg], writes: &[Reg]) {
    reads.iter().for_each(|&reg| each(reg, Access::Read));
    writes.iter().for_each(|&reg| each(reg, Access::Write));
}
