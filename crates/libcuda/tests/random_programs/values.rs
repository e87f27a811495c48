//! What a program computes if its points run in some order.

use std::collections::BTreeMap;

use super::order::{Deed, Order, Place};
use super::program::{Home, Program, Range, Work};

/// What the program has seen and left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) buffers: Vec<Vec<u32>>,
    /// What the host has read, by the number of the step.
    pub(crate) seen: BTreeMap<usize, Vec<u32>>,
}

impl Values {
    /// Before the first step.
    pub(crate) fn initial(program: &Program) -> Self {
        let initial =
            |(number, home): (usize, &Home)| (0..home.words()).map(|word| initial_word(number, word)).collect();
        Self { buffers: program.buffers.iter().enumerate().map(initial).collect(), seen: BTreeMap::new() }
    }

    /// After all points, in this order. Buffers that were freed are empty.
    pub(crate) fn after(program: &Program, order: &Order, points: impl IntoIterator<Item = usize>) -> Self {
        let mut values = Self::initial(program);
        for point in points {
            let point = &order.points[point];
            let (Place::Step(step) | Place::HostFunction(step)) = point.place;
            values.apply(step, &point.deed);
        }
        values.drop_freed(order);
        values
    }

    /// What is left in a block that was freed does not matter.
    fn drop_freed(&mut self, order: &Order) {
        for point in &order.points {
            if let Deed::Free(buffer) = point.deed {
                self.buffers[buffer].clear();
            }
        }
    }

    fn words(&self, range: Range) -> Vec<u32> {
        self.buffers[range.buffer][range.start..range.end].to_vec()
    }

    fn set(&mut self, to: Range, word: impl Fn(usize, u32) -> u32) {
        let words = &mut self.buffers[to.buffer][to.start..to.end];
        words.iter_mut().enumerate().for_each(|(index, old)| *old = word(index, *old));
    }

    fn apply(&mut self, step: usize, deed: &Deed) {
        match *deed {
            Deed::None => {}
            // What is in a block before it is written, and after it is freed, is not known.
            Deed::Allocate(buffer) => self.buffers[buffer].fill(0xa110_cade),
            Deed::Free(buffer) => self.buffers[buffer].fill(0xf4ee_dead),
            Deed::Read(from) => drop(self.seen.insert(step, self.words(from))),
            Deed::Write(to, value) => self.set(to, |index, _| value.wrapping_add(index as u32)),
            Deed::Work(ref work) => self.run(step, work),
        }
    }

    fn run(&mut self, step: usize, work: &Work) {
        match *work {
            Work::Fill { to, value } => self.set(to, |_, _| value),
            Work::Upload { to, value } | Work::UploadNow { to, value } => {
                self.set(to, |index, _| value.wrapping_add(index as u32));
            }
            Work::Copy { to, from } | Work::CopyNow { to, from } => {
                let words = self.words(from);
                self.set(to, |index, _| words[index]);
            }
            Work::Download { from } => drop(self.seen.insert(step, self.words(from))),
            Work::Mix { to, from, add } => {
                let words = self.words(from);
                self.set(to, |index, old| old.wrapping_mul(3).wrapping_add(words[index]).wrapping_add(add));
            }
            Work::Store { to, from, add } => {
                let words = self.words(from);
                self.set(to, |index, _| words[index].wrapping_add(add));
            }
            Work::Add { to, add } => self.set(to, |_, old| old.wrapping_add(add)),
            Work::Host { to, from, add, .. } => {
                let words = self.words(from);
                self.set(to, |index, old| old.wrapping_mul(5).wrapping_add(words[index]).wrapping_add(add));
            }
        }
    }

    /// Names the first difference.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        for (step, seen) in &self.seen {
            if other.seen.get(step) != Some(seen) {
                return Some(format!("step {step} saw {:x?} instead of {seen:x?}", other.seen.get(step)));
            }
        }
        let pairs = self.buffers.iter().zip(&other.buffers).enumerate();
        let mut different = pairs.filter(|(_, (one, two))| one != two);
        different.next().map(|(number, (one, two))| format!("buffer {number} is {two:x?} instead of {one:x?}"))
    }
}

pub(crate) fn initial_word(buffer: usize, word: usize) -> u32 {
    (buffer as u32 + 1) * 0x0101_0000 + word as u32
}
