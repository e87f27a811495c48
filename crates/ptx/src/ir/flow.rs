//! The basic blocks of a function and the edges between them.

use super::instruction::*;

/// The control flow of a function. A thread that leaves a block continues in one of its successors.
#[derive(Debug)]
pub(super) struct Flow {
    /// The block of each instruction.
    pub(super) block_of: Vec<u32>,
    /// The first position of each block, then the number of instructions.
    starts: Vec<u32>,
    /// The blocks before each block, one after the other, and the end of each one's.
    predecessors: Vec<u32>,
    ends: Vec<u32>,
}

impl Flow {
    pub(super) fn new(instructions: &[Instruction]) -> Self {
        let mut is_leader = vec![false; instructions.len() + 1];
        is_leader[0] = true;
        for (position, instruction) in instructions.iter().enumerate() {
            targets(&instruction.op).iter().for_each(|&target| is_leader[target as usize] = true);
            is_leader[position + 1] |= ends(&instruction.op);
        }
        let (mut block_of, mut starts) = (Vec::with_capacity(instructions.len()), Vec::new());
        for (position, _) in instructions.iter().enumerate() {
            if is_leader[position] {
                starts.push(position as u32);
            }
            block_of.push(starts.len() as u32 - 1);
        }
        starts.push(instructions.len() as u32);
        let mut edges = Vec::new();
        for block in 0..starts.len() - 1 {
            let last = starts[block + 1] as usize - 1;
            let instruction = &instructions[last];
            let to = targets(&instruction.op).iter().filter_map(|&target| block_of.get(target as usize));
            edges.extend(to.map(|&to| (to, block as u32)));
            let falls = instruction.guard.is_some() || !ends(&instruction.op);
            edges.extend(block_of.get(last + 1).filter(|_| falls).map(|&to| (to, block as u32)));
        }
        let (predecessors, ends) = group(&edges, starts.len() - 1);
        Self { block_of, starts, predecessors, ends }
    }

    pub(super) fn blocks(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the positions of the first and the last instruction of a block.
    pub(super) fn span(&self, block: u32) -> (u32, u32) {
        (self.starts[block as usize], self.starts[block as usize + 1] - 1)
    }

    pub(super) fn predecessors(&self, block: u32) -> &[u32] {
        part(&self.predecessors, &self.ends, block as usize)
    }
}

/// Sorts pairs of a key below `count` and a value by their keys. Returns the values, and where those of each key end.
pub(super) fn group(pairs: &[(u32, u32)], count: usize) -> (Vec<u32>, Vec<u32>) {
    let mut ends = vec![0u32; count + 1];
    pairs.iter().for_each(|&(key, _)| ends[key as usize + 1] += 1);
    for key in 1..ends.len() {
        ends[key] += ends[key - 1];
    }
    let mut values = vec![0; pairs.len()];
    for &(key, value) in pairs {
        let next = &mut ends[key as usize];
        values[*next as usize] = value;
        *next += 1;
    }
    (values, ends)
}

/// Returns the values of a key among those that `group` returned.
pub(super) fn part<'v>(values: &'v [u32], ends: &[u32], key: usize) -> &'v [u32] {
    let start = key.checked_sub(1).map_or(0, |before| ends[before]);
    &values[start as usize..ends[key] as usize]
}

/// Returns the positions that a thread may continue at instead of the next one.
pub(super) fn targets(op: &Op) -> &[u32] {
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
