//! The memory of the checker stays bounded in a program that runs for a long time.

use std::sync::{Arc, Mutex};

use super::*;
use crate::blocks::BlockKind;
use crate::finding::Finding;
use crate::shadow::Effect;
use crate::tasks::{TaskId, TaskView};

const BLOCK: u64 = 0x1000;
const BYTES: u64 = 256;

/// A checker, and the findings that it writes.
fn checked() -> (Checker, Arc<Mutex<Vec<Finding>>>) {
    let findings = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&findings);
    (Checker::new(move |finding| locked(&list).push(finding.clone())), findings)
}

fn epoch(stream: u64, seq: u64) -> Epoch {
    Epoch { queue: QueueId(stream), seq }
}

fn begin(checker: &Checker, stream: u64, seq: u64) -> TaskView {
    checker.begin(epoch(stream, seq), &[], &checker.submit("work", None))
}

#[test]
fn tasks_that_are_over_and_that_no_record_names_are_dropped() {
    let (checker, findings) = checked();
    let tasks_max = 20_000;
    checker.tasks.set_limit(tasks_max as usize);
    checker.allocate(&checker.begin_on_host("allocate"), BLOCK, BYTES, BlockKind::Device);
    checker.access(&begin(&checker, 1, 1), Effect::Write, BLOCK, 8);
    let running = begin(&checker, 2, 1);
    for seq in 2..3 * tasks_max {
        checker.access(&begin(&checker, 1, seq), Effect::Write, BLOCK + 64, 8);
    }
    let (count, _) = checker.tasks.sizes();
    assert!((4096..2 * tasks_max as usize).contains(&count), "{count}");
    // The first work is still named by its record, and work that has not ended by itself.
    checker.access(&running, Effect::Write, BLOCK + 128, 8);
    checker.access(&begin(&checker, 3, 1), Effect::Write, BLOCK, 8);
    checker.access(&begin(&checker, 3, 2), Effect::Write, BLOCK + 128, 8);
    let positions = |finding: &Finding| {
        let accesses = [finding.other.as_ref().unwrap(), finding.access.as_ref().unwrap()];
        accesses.map(|access| access.position.map(|position| (position.stream, position.work)))
    };
    let first = [Some((1, 1)), Some((3, 1))];
    assert_eq!(locked(&findings).iter().map(positions).collect::<Vec<_>>(), [first]);
    assert_eq!(checker.tasks.get(running.id).epoch, epoch(2, 1));
    assert!(checker.tasks.is_before(TaskId(4), &begin(&checker, 4, 1)), "it is dropped");
}

#[test]
fn what_is_noted_of_dropped_tasks_is_dropped_with_them() {
    let (checker, _) = checked();
    checker.allocate(&checker.begin_on_host("allocate"), BLOCK, BYTES, BlockKind::Device);
    checker.allocate(&checker.begin_on_host("allocate"), 16 * BLOCK, BYTES, BlockKind::Host);
    for seq in 1..20_000 {
        checker.hand_out("hand_out", BLOCK, BYTES, &[7]);
        checker.release("release", BLOCK);
        checker.create_stream(QueueId(seq));
        let view = begin(&checker, seq, 1);
        checker.poll(&view, 16 * BLOCK);
        checker.access(&view, Effect::Write, BLOCK, 8);
        checker.observe(epoch(seq, 1));
        checker.end_queue(epoch(seq, 1));
    }
    checker.tasks.set_limit(1);
    begin(&checker, 100_000, 1);
    begin(&checker, 100_000, 2);
    let (tasks, kept) = checker.tasks.sizes();
    let sets = [locked(&checker.polling).len(), locked(&checker.conflicting).len(), checker.reporter.stream_count()];
    assert!(tasks < 3 * 4096 && kept < 4096 && sets.iter().all(|count| *count < 4096), "{tasks} {kept} {sets:?}");
}
