//! The checker as the driver calls it: work of streams, in the order in which it runs.

use std::sync::{Arc, Mutex};

use freehold_check::{BlockKind, Checker, Effect, Epoch, Finding, Kind, QueueId, TaskView};

const BLOCK: u64 = 0x1000;
const BYTES: u64 = 256;

/// A checker, and its findings.
struct Checked {
    checker: Checker,
    findings: Arc<Mutex<Vec<Finding>>>,
}

impl Checked {
    fn new() -> Self {
        let findings = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&findings);
        let add = move |finding: &Finding| list.lock().expect("no test panics with it").push(finding.clone());
        Self { checker: Checker::new(add), findings }
    }

    /// Submits and begins work.
    fn begin(&self, stream: u64, seq: u64, after: &[Epoch]) -> TaskView {
        let submission = self.checker.submit("work", None);
        self.checker.begin(Epoch { queue: QueueId(stream), seq }, after, &submission)
    }

    fn kinds(&self) -> Vec<Kind> {
        self.findings.lock().expect("no test panics with it").iter().map(|finding| finding.kind).collect()
    }
}

fn epoch(stream: u64, seq: u64) -> Epoch {
    Epoch { queue: QueueId(stream), seq }
}

#[test]
fn an_atomic_access_races_with_a_write_that_came_before_another_atomic_access() {
    for last in [Effect::Atomic, Effect::Read] {
        let checked = Checked::new();
        checked.checker.access(&checked.begin(1, 1, &[]), Effect::Write, BLOCK, BYTES);
        checked.checker.access(&checked.begin(1, 2, &[]), Effect::Atomic, BLOCK, BYTES);
        checked.checker.access(&checked.begin(2, 1, &[epoch(1, 2)]), Effect::Atomic, BLOCK, BYTES);
        assert_eq!(checked.kinds(), []);
        checked.checker.access(&checked.begin(3, 1, &[]), last, BLOCK, BYTES);
        assert_eq!(checked.kinds(), [Kind::StreamRace], "{last:?}");
    }
}

#[test]
fn a_pool_may_hand_out_a_block_that_another_stream_has_freed() {
    let checked = Checked::new();
    checked.checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
    checked.checker.access(&checked.begin(1, 2, &[]), Effect::Write, BLOCK, BYTES);
    checked.checker.free(&checked.begin(1, 3, &[]), BLOCK, BYTES);
    // The pool knows that the first stream has got there. The program does not.
    checked.checker.allocate(&checked.begin(2, 1, &[]), BLOCK, BYTES, BlockKind::Device);
    assert_eq!(checked.kinds(), []);
    // It orders nothing else.
    checked.checker.access(&checked.begin(1, 4, &[]), Effect::Write, 2 * BLOCK, BYTES);
    checked.checker.access(&checked.begin(2, 2, &[]), Effect::Write, 2 * BLOCK, BYTES);
    assert_eq!(checked.kinds(), [Kind::StreamRace]);
}

#[test]
fn a_free_that_runs_before_its_allocation_is_found_in_either_order() {
    let either = |is_free_first: bool| {
        let checked = Checked::new();
        let (allocation, free) = (checked.checker.submit("allocate", None), checked.checker.submit("free", None));
        let allocate = || {
            let view = checked.checker.begin(epoch(1, 1), &[], &allocation);
            checked.checker.allocate(&view, BLOCK, BYTES, BlockKind::Device);
        };
        let free = || {
            let view = checked.checker.begin(epoch(2, 1), &[], &free);
            checked.checker.free(&view, BLOCK, BYTES);
        };
        if is_free_first {
            free();
            allocate();
        } else {
            allocate();
            free();
        }
        checked.kinds()
    };
    assert_eq!(either(false), [Kind::FreeInUse]);
    assert_eq!(either(true), [Kind::FreeInUse]);
}

#[test]
fn an_access_before_its_allocation_is_that_even_if_the_block_was_freed_before() {
    let either = |is_access_first: bool| {
        let checked = Checked::new();
        let checker = &checked.checker;
        checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
        let free = checker.submit("free", None);
        let allocation = checker.submit("allocate", None);
        checker.grant(&allocation, epoch(1, 3), BLOCK, BYTES);
        let work = checker.submit("write", None);
        let access = || {
            let view = checker.begin(epoch(2, 1), &[epoch(1, 1)], &work);
            checker.access(&view, Effect::Write, BLOCK + 64, 64);
        };
        let rest = || {
            checker.free(&checker.begin(epoch(1, 2), &[], &free), BLOCK, BYTES);
            checker.allocate(&checker.begin(epoch(1, 3), &[], &allocation), BLOCK, BYTES, BlockKind::Device);
        };
        if is_access_first {
            access();
            rest();
        } else {
            rest();
            access();
        }
        checked.kinds()
    };
    assert_eq!(either(true), [Kind::UseBeforeAllocation]);
    assert_eq!(either(false), [Kind::UseBeforeAllocation]);
}
