//! The instructions of this thread for which pages are open.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use libc::ucontext_t;

use super::block::Block;
use super::instruction;

thread_local! {
    /// The last one is executed now. Those before it wait for the signal handlers of the program that interrupted them. Never
    /// dropped, so that it works in the destructors of other thread-locals; it is empty whenever a thread can end.
    static STEPS: ManuallyDrop<RefCell<Vec<Step>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// An instruction, and the pages that are open until it is over.
#[derive(Debug)]
pub(super) struct Step {
    /// Its address.
    instruction: usize,
    /// Whether the accesses of all its repetitions were noted.
    is_whole: bool,
    pages: Vec<(Arc<Block>, usize)>,
}

/// Notes that a page is open for the interrupted instruction, after which there will be a trap.
pub(super) fn begin(block: Arc<Block>, page: usize, is_whole: bool, registers: &mut ucontext_t) {
    let instruction = instruction::address(registers);
    STEPS.with(|steps| {
        let mut steps = steps.borrow_mut();
        match steps.last_mut().filter(|step| step.instruction == instruction) {
            Some(step) => step.pages.push((block, page)),
            None => steps.push(Step { instruction, is_whole, pages: vec![(block, page)] }),
        }
    });
    instruction::trap(registers, true);
}

/// Closes the pages that are open for the interrupted instruction, which is not executed now.
pub(super) fn abandon(registers: &mut ucontext_t) {
    let interrupted = instruction::address(registers);
    if let Some(mut step) = Step::take_last() {
        if step.instruction == interrupted {
            step.close(|_, _| true);
            instruction::trap(registers, false);
        } else {
            step.put_back();
        }
    }
}

impl Step {
    pub(super) fn take_last() -> Option<Self> {
        STEPS.with(|steps| steps.borrow_mut().pop())
    }

    fn put_back(self) {
        STEPS.with(|steps| steps.borrow_mut().push(self));
    }

    /// Closes the pages after the trap, unless a prefix repeats the instruction and it has more to access in them.
    pub(super) fn finish(mut self, registers: &mut ucontext_t) {
        let is_again = self.is_whole && instruction::address(registers) == self.instruction;
        // SAFETY: a repetition of the instruction was executed before the trap.
        let rest = if is_again { unsafe { instruction::rest(registers) } } else { None };
        self.close(|block, page| !rest.as_ref().is_some_and(|rest| rest.overlaps(&block.bytes_of(page))));
        if self.pages.is_empty() {
            instruction::trap(registers, false);
        } else {
            self.put_back();
        }
    }

    /// Closes the pages for which `is_over` holds.
    fn close(&mut self, is_over: impl Fn(&Block, usize) -> bool) {
        self.pages.retain(|(block, page)| {
            let is_over = is_over(block, *page);
            if is_over && let Some(state) = block.live() {
                state.close(*page);
            }
            !is_over
        });
    }
}
