//! The instructions of this thread that pages are open for.

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
    pages: Vec<(Arc<Block>, usize)>,
}

/// Notes that a page is open for the interrupted instruction, after which there will be a trap.
pub(super) fn begin(block: Arc<Block>, page: usize, registers: &mut ucontext_t) {
    let instruction = instruction::address(registers);
    STEPS.with(|steps| {
        let mut steps = steps.borrow_mut();
        match steps.last_mut().filter(|step| step.instruction == instruction) {
            Some(step) => step.pages.push((block, page)),
            None => steps.push(Step { instruction, pages: vec![(block, page)] }),
        }
    });
    instruction::trap(registers, true);
}

/// Closes the pages that are open for the interrupted instruction, which is not executed now.
pub(super) fn abandon(registers: &mut ucontext_t) {
    let interrupted = instruction::address(registers);
    if let Some(step) = Step::take_last() {
        if step.instruction == interrupted {
            step.close();
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

    /// Closes the pages after the trap.
    pub(super) fn finish(self, registers: &mut ucontext_t) {
        self.close();
        instruction::trap(registers, false);
    }

    fn close(self) {
        for (block, page) in self.pages {
            if let Some(state) = block.live() {
                state.close(page);
            }
        }
    }
}
