//! The checker as the driver calls it: work of streams, in the order in which it runs.

use std::sync::{Arc, Mutex};

use freehold_check::access::{AccessKind, Instruction, LANES, WarpAccess};
use freehold_check::shared_frees::SharedFree;
use freehold_check::{
    BlockKind, Checker, Effect, Epoch, Finding, Kernel, KernelView, Kind, Launch, Location, QueueId, TaskView,
};

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

const POOL: &str = "a function of the pool";

#[test]
fn a_block_may_be_handed_out_before_the_stream_has_allocated_its_memory() {
    let checked = Checked::new();
    let allocation = checked.checker.submit("work", None);
    checked.checker.hand_out(POOL, BLOCK, BYTES, &[]);
    let allocation = checked.checker.begin(epoch(1, 1), &[], &allocation);
    checked.checker.allocate(&allocation, BLOCK, BYTES, BlockKind::Device);
    checked.checker.access(&checked.begin(1, 2, &[]), Effect::Write, BLOCK, BYTES);
    checked.checker.release(POOL, BLOCK);
    assert_eq!(checked.kinds(), []);
    checked.checker.access(&checked.begin(1, 3, &[]), Effect::Write, BLOCK, BYTES);
    assert_eq!(checked.kinds(), [Kind::UseAfterFree]);
}

#[test]
fn memory_that_is_allocated_again_has_none_of_the_blocks_of_a_pool_before() {
    let checked = Checked::new();
    checked.checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
    checked.checker.hand_out(POOL, BLOCK, BYTES, &[]);
    checked.checker.free(&checked.begin(1, 2, &[]), BLOCK, BYTES);
    checked.checker.allocate(&checked.begin(1, 3, &[]), BLOCK, BYTES, BlockKind::Device);
    checked.checker.release(POOL, BLOCK);
    assert_eq!(checked.kinds(), [Kind::InvalidFree]);
}

#[test]
fn blocks_without_bytes_and_null_pointers_are_no_blocks_of_a_pool() {
    let checked = Checked::new();
    checked.checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
    checked.checker.hand_out(POOL, BLOCK, BYTES, &[]);
    checked.checker.hand_out(POOL, BLOCK, 0, &[]);
    checked.checker.hand_out(POOL, 0, 64, &[]);
    checked.checker.release(POOL, 0);
    checked.checker.release(POOL, BLOCK);
    checked.checker.access(&checked.begin(1, 2, &[]), Effect::Write, BLOCK, BYTES);
    checked.checker.release(POOL, BLOCK);
    assert_eq!(checked.kinds(), []);
    checked.checker.access(&checked.begin(1, 3, &[]), Effect::Write, BLOCK, BYTES);
    assert_eq!(checked.kinds(), [Kind::UseAfterFree]);
}

/// Begins work of a graph that a capture has made.
fn launch(checked: &Checked, stream: u64, seq: u64, capture: u64) -> TaskView {
    let submission = checked.checker.submit("launch", None);
    checked.checker.begin_of_graph(epoch(stream, seq), &[], &submission, &[capture])
}

/// A pool whose memory captures are handed out, one after the other, and give back.
fn pool_of_captures(captures: &[u64]) -> Checked {
    let checked = Checked::new();
    checked.checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
    for capture in captures {
        checked.checker.hand_out(POOL, BLOCK, BYTES, &[*capture]);
        checked.checker.release(POOL, BLOCK);
    }
    checked
}

#[test]
fn a_graph_uses_what_its_capture_was_handed_out_after_it_was_given_back() {
    for captures in [&[7][..], &[7, 8]] {
        let checked = pool_of_captures(captures);
        for seq in 2..4 {
            checked.checker.access(&launch(&checked, 1, seq, 7), Effect::Write, BLOCK, BYTES);
        }
        assert_eq!(checked.kinds(), []);
        checked.checker.access(&launch(&checked, 2, 1, 7), Effect::Write, BLOCK, BYTES);
        assert_eq!(checked.kinds(), [Kind::StreamRace], "nothing orders two launches");
    }
}

#[test]
fn others_than_the_graph_of_a_capture_may_not_use_what_it_has_given_back() {
    for is_launch in [true, false] {
        let checked = pool_of_captures(&[7]);
        let view = if is_launch { launch(&checked, 1, 2, 8) } else { checked.begin(1, 2, &[]) };
        checked.checker.access(&view, Effect::Write, BLOCK, BYTES);
        assert_eq!(checked.kinds(), [Kind::UseAfterFree], "launch: {is_launch}");
    }
}

#[test]
fn a_graph_races_with_an_owner_of_its_memory_outside_of_captures() {
    for stream in [1, 2] {
        let checked = pool_of_captures(&[7]);
        checked.checker.access(&launch(&checked, 1, 2, 7), Effect::Write, BLOCK, BYTES);
        checked.checker.hand_out(POOL, BLOCK, BYTES, &[]);
        checked.checker.access(&checked.begin(stream, 3, &[]), Effect::Write, BLOCK, BYTES);
        let expected = if stream == 1 { vec![] } else { vec![Kind::ReuseRace] };
        assert_eq!(checked.kinds(), expected, "in stream {stream}");
    }
}

#[test]
fn a_graph_may_not_use_its_memory_when_an_owner_outside_of_captures_has_given_it_back() {
    let checked = pool_of_captures(&[7]);
    checked.checker.hand_out(POOL, BLOCK, BYTES, &[]);
    checked.checker.release(POOL, BLOCK);
    checked.checker.access(&launch(&checked, 1, 2, 7), Effect::Write, BLOCK, BYTES);
    assert_eq!(checked.kinds(), [Kind::UseAfterFree]);
}

/// A launch of one thread of a kernel.
fn launch_of(name: &str) -> Launch {
    let kernel = Arc::new(Kernel { name: name.into(), source: Box::new(|_| None) });
    Launch { kernel, grid: [1; 3], block: [1; 3] }
}

/// A kernel of one block that reads the first word of the memory.
fn read_word(checked: &Checked, view: &TaskView) {
    read_word_at(checked, view, BLOCK);
}

/// A kernel of one block that reads a word.
fn read_word_at(checked: &Checked, view: &TaskView, address: u64) {
    let access = WarpAccess {
        block: 0,
        warp: 0,
        instruction: Instruction { function: 0, line: 1 },
        kind: AccessKind::Read,
        is_strong: false,
        is_ordering: false,
        is_async: false,
        bytes: 4,
        addresses: &[address; LANES],
        lanes: 1,
        unchanged: 0,
        is_range: false,
    };
    KernelView::new(&checked.checker, view.clone()).access(&access);
}

#[test]
fn a_kernel_that_runs_after_its_block_was_handed_out_again_reads_what_its_owner_has_written() {
    for is_late in [true, false] {
        let checked = Checked::new();
        checked.checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
        checked.checker.hand_out(POOL, BLOCK, BYTES, &[]);
        checked.checker.access(&checked.begin(1, 2, &[]), Effect::Write, BLOCK, BYTES);
        let mut reader = checked.checker.submit("launch", Some(launch_of("k")));
        checked.checker.release(POOL, BLOCK);
        checked.checker.hand_out(POOL, BLOCK, BYTES, &[]);
        if !is_late {
            reader = checked.checker.submit("launch", Some(launch_of("k")));
        }
        read_word(&checked, &checked.checker.begin(epoch(1, 3), &[], &reader));
        let expected = if is_late { vec![] } else { vec![Kind::UninitializedRead] };
        assert_eq!(checked.kinds(), expected, "late: {is_late}");
    }
}

#[test]
fn a_write_of_the_old_owner_that_runs_late_is_no_value_of_the_new_one() {
    // Whole lines, and a part of one.
    for (bytes, effect) in [(BYTES, Effect::Write), (8, Effect::Write), (BYTES, Effect::Atomic), (8, Effect::Atomic)] {
        for writes_itself in [false, true] {
            let checked = Checked::new();
            let checker = &checked.checker;
            checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
            checker.hand_out(POOL, BLOCK, BYTES, &[]);
            let late = checker.submit("work", None);
            checker.release(POOL, BLOCK);
            checker.hand_out(POOL, BLOCK, BYTES, &[]);
            let reader = checker.submit("launch", Some(launch_of("k")));
            checker.access(&checker.begin(epoch(1, 2), &[], &late), effect, BLOCK, bytes);
            if writes_itself {
                checker.access(&checked.begin(1, 3, &[]), effect, BLOCK, bytes);
            }
            read_word(&checked, &checker.begin(epoch(1, 4), &[], &reader));
            let expected = if writes_itself { vec![] } else { vec![Kind::UninitializedRead] };
            assert_eq!(checked.kinds(), expected, "{bytes} {effect:?}, writes: {writes_itself}");
        }
    }
}

#[test]
fn memory_that_the_driver_uses_itself_is_not_the_block_that_was_freed_there() {
    // The whole block, and a part of it.
    for (offset, bytes) in [(0, BYTES), (64, 128), (8, 24)] {
        let checked = Checked::new();
        let checker = &checked.checker;
        checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
        checker.access(&checked.begin(1, 2, &[]), Effect::Write, BLOCK, BYTES);
        checker.observe(epoch(1, 2));
        checker.free(&checker.begin_on_host("free"), BLOCK, BYTES);
        // A kernel that was launched before takes it.
        let kernel = checker.begin(epoch(2, 1), &[], &checker.submit("launch", None));
        checker.forget(BLOCK + offset, bytes);
        checker.access(&kernel, Effect::Write, BLOCK + offset, bytes);
        checker.access(&kernel, Effect::Read, BLOCK + offset, bytes);
        assert_eq!(checked.kinds(), [], "{offset} {bytes}");
        checker.allocate(&checker.begin_on_host("allocate"), BLOCK + 16 * BYTES, BYTES, BlockKind::Device);
        assert_eq!(checked.kinds(), []);
    }
}

#[test]
fn memory_that_its_owner_frees_is_in_use_until_the_host_or_the_owner_knows_that_the_work_is_done() {
    // Whether the work has run when the free is noted, and who knows that it is done.
    for (has_run, knows) in
        [(true, "nobody"), (false, "nobody"), (true, "host"), (true, "owner"), (true, "owner, of earlier work")]
    {
        let checked = Checked::new();
        let checker = &checked.checker;
        checker.allocate(&checker.begin_on_host("open"), BLOCK, BYTES, BlockKind::Imported);
        checker.access(&checked.begin(1, 1, &[]), Effect::Write, 4 * BLOCK, BYTES);
        let work = checker.submit("work", None);
        let run = || checker.access(&checker.begin(epoch(1, 2), &[], &work), Effect::Read, BLOCK, BYTES);
        if has_run {
            run();
        }
        if knows == "host" {
            checker.observe(epoch(1, 2));
        }
        let location = Location { function: "cudaFree".to_owned(), ..Location::default() };
        let line = SharedFree { process: 7, ..SharedFree::new((1, 2, 3), location) }.to_line();
        let free = SharedFree::from_line(&line).expect("it was just written");
        assert_eq!((free.block, line.lines().count()), ((1, 2, 3), 1));
        let known = match knows {
            "owner" => Some(epoch(1, 2)),
            "owner, of earlier work" => Some(epoch(1, 1)),
            _ => None,
        };
        checker.free_elsewhere(free.call(), known.into_iter(), BLOCK, BYTES);
        if !has_run {
            run();
        }
        let is_known = ["host", "owner"].contains(&knows);
        assert_eq!(checked.kinds(), if is_known { vec![] } else { vec![Kind::IpcClosed] }, "{has_run} {knows}");
        if !is_known {
            let findings = checked.findings.lock().expect("no test panics with it");
            assert!(findings[0].message.starts_with("cudaFree of process 7 frees memory that "), "{findings:?}");
            let functions = [&findings[0].access, &findings[0].other].map(|access| &access.as_ref().unwrap().location);
            assert_eq!(functions.map(|location| location.function.as_str()), ["cudaFree", "work"]);
        }
    }
}

#[test]
fn a_block_that_a_pool_extends_or_cuts_ends_where_its_owner_asked_for() {
    let checked = Checked::new();
    checked.checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
    checked.checker.hand_out(POOL, BLOCK, 64, &[]);
    checked.checker.resize(POOL, BLOCK, 128);
    checked.checker.access(&checked.begin(1, 2, &[]), Effect::Write, BLOCK, 128);
    checked.checker.resize(POOL, BLOCK, 32);
    checked.checker.access(&checked.begin(1, 3, &[]), Effect::Write, BLOCK, 32);
    assert_eq!(checked.kinds(), []);
    checked.checker.access(&checked.begin(1, 4, &[]), Effect::Write, BLOCK, 33);
    assert_eq!(checked.kinds(), [Kind::OutOfBounds]);
}

#[test]
fn a_block_that_is_not_given_back_to_its_pool_leaks_and_the_memory_of_the_pool_does_not() {
    let checked = Checked::new();
    checked.checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
    checked.checker.hand_out(POOL, BLOCK, 64, &[]);
    checked.checker.hand_out(POOL, BLOCK + 64, 64, &[]);
    checked.checker.release(POOL, BLOCK);
    assert!(checked.checker.report_leaks());
    let findings = checked.findings.lock().expect("no test panics with it");
    let leaked: Vec<_> = findings.iter().map(|finding| finding.memory.as_ref().map(|memory| memory.address)).collect();
    assert_eq!(leaked, [Some(BLOCK + 64)]);
}

#[test]
fn a_free_of_memory_that_another_function_frees_is_not_a_second_one() {
    for kind in [BlockKind::Imported, BlockKind::Mapped, BlockKind::Host] {
        let checked = Checked::new();
        checked.checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, kind);
        checked.checker.report_wrong_free("cuMemFree", BLOCK, false);
        assert_eq!(checked.kinds(), [Kind::InvalidFree], "{kind:?}");
    }
}

#[test]
fn memory_of_a_pool_stays_free_when_work_of_its_old_owner_runs_late() {
    let checked = Checked::new();
    checked.checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
    checked.checker.hand_out(POOL, BLOCK, BYTES, &[]);
    let write = checked.checker.submit("work", None);
    checked.checker.release(POOL, BLOCK);
    checked.checker.access(&checked.checker.begin(epoch(1, 2), &[], &write), Effect::Write, BLOCK, BYTES);
    assert_eq!(checked.kinds(), []);
    checked.checker.access(&checked.begin(1, 3, &[]), Effect::Read, BLOCK, BYTES);
    assert_eq!(checked.kinds(), [Kind::UseAfterFree]);
}

#[test]
fn a_copy_that_leaves_its_block_is_reported_at_the_first_byte_outside() {
    let checked = Checked::new();
    checked.checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
    checked.checker.hand_out(POOL, BLOCK, 100, &[]);
    checked.checker.access(&checked.begin(1, 2, &[]), Effect::Write, BLOCK, 101);
    let findings = checked.findings.lock().expect("no test panics with it");
    let found: Vec<_> =
        findings.iter().map(|finding| (finding.kind, finding.memory.as_ref().map(|memory| memory.offset))).collect();
    assert_eq!(found, [(Kind::OutOfBounds, Some(100))]);
}

#[test]
fn memory_that_is_not_registered_any_more_is_the_programs() {
    for is_waited_for in [true, false] {
        let checked = Checked::new();
        checked.checker.allocate(&checked.checker.begin_on_host("register"), BLOCK, BYTES, BlockKind::Registered);
        let copy = checked.checker.submit("copy", None);
        checked.checker.access(&checked.checker.begin(epoch(1, 1), &[], &copy), Effect::Read, BLOCK, BYTES);
        if is_waited_for {
            checked.checker.observe(epoch(1, 1));
        }
        checked.checker.free(&checked.checker.begin_on_host("unregister"), BLOCK, BYTES);
        checked.checker.access(&checked.begin(1, 2, &[]), Effect::Read, BLOCK, BYTES);
        let expected = if is_waited_for { vec![] } else { vec![Kind::HostMemoryFreed] };
        assert_eq!(checked.kinds(), expected, "waited: {is_waited_for}");
    }
}

#[test]
fn what_the_program_maps_where_pinned_memory_was_is_other_memory() {
    for is_unmapped in [true, false] {
        let checked = Checked::new();
        checked.checker.allocate(&checked.checker.begin_on_host("allocate"), BLOCK, BYTES, BlockKind::Host);
        checked.checker.free(&checked.checker.begin_on_host("free"), BLOCK, BYTES);
        if is_unmapped {
            checked.checker.unmap_host(BLOCK);
        }
        checked.checker.access(&checked.begin(1, 1, &[]), Effect::Read, BLOCK, BYTES);
        let expected = if is_unmapped { vec![] } else { vec![Kind::HostMemoryFreed] };
        assert_eq!(checked.kinds(), expected, "unmapped: {is_unmapped}");
    }
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

#[test]
fn a_block_that_a_pool_announces_ends_where_its_memory_ends() {
    for bytes in [BYTES + 1, 1 << 40, u64::MAX] {
        let checked = Checked::new();
        checked.checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
        checked.checker.hand_out(POOL, BLOCK, bytes, &[]);
        assert_eq!(checked.checker.pool_block(BLOCK), Some((BLOCK..BLOCK + BYTES, BLOCK..BLOCK + BYTES)), "{bytes}");
        checked.checker.hand_out(POOL, 16 * BLOCK, bytes, &[]);
        checked.checker.access(&checked.begin(1, 2, &[]), Effect::Write, BLOCK, BYTES);
        assert_eq!(checked.kinds(), []);
    }
}

#[test]
fn findings_of_two_kernels_that_one_call_launches_are_two_and_of_one_kernel_one() {
    let found = |names: [&str; 2]| {
        let checked = Checked::new();
        let checker = &checked.checker;
        for (number, name) in names.into_iter().enumerate() {
            let block = BLOCK * (number as u64 + 1);
            checker.allocate(&checker.begin_on_host("allocate"), block, BYTES, BlockKind::Defined);
            checker.access(&checked.begin(1, number as u64 + 1, &[]), Effect::Write, block, BYTES);
            let launch = checker.submit("launch", Some(launch_of(name)));
            read_word_at(&checked, &checker.begin(epoch(2, number as u64 + 1), &[], &launch), block);
        }
        checked.kinds()
    };
    assert_eq!(found(["one", "other"]), [Kind::StreamRace; 2]);
    assert_eq!(found(["one", "one"]), [Kind::StreamRace]);
}

#[test]
fn each_free_by_another_process_is_reported_where_it_is() {
    let checked = Checked::new();
    let checker = &checked.checker;
    for (number, function) in ["cudaFree", "cuMemFree"].into_iter().enumerate() {
        let (block, seq) = (BLOCK * (number as u64 + 1), number as u64 + 1);
        checker.allocate(&checker.begin_on_host("open"), block, BYTES, BlockKind::Imported);
        checker.access(&checked.begin(1, seq, &[]), Effect::Read, block, BYTES);
        let location = Location { function: function.to_owned(), ..Location::default() };
        let free = SharedFree { process: 7, ..SharedFree::new((1, 2, number as u64), location) };
        checker.free_elsewhere(free.call(), std::iter::empty(), block, BYTES);
    }
    let findings = checked.findings.lock().expect("no test panics with it");
    let functions: Vec<_> =
        findings.iter().map(|finding| finding.access.as_ref().unwrap().location.function.as_str()).collect();
    assert_eq!(functions, ["cudaFree", "cuMemFree"]);
}

#[test]
fn an_allocation_in_stream_order_takes_the_place_of_earlier_ones_at_its_addresses() {
    // Where the earlier one starts, and how long it is.
    for (start, bytes) in [(BLOCK + 32, 16), (BLOCK + 64, BYTES), (BLOCK + 128, 1)] {
        let checked = Checked::new();
        let checker = &checked.checker;
        checker.grant(&checker.submit("allocate", None), epoch(1, 1), start, bytes);
        checker.allocate(&checked.begin(1, 1, &[]), BLOCK, BYTES, BlockKind::Device);
        checker.free(&checked.begin(1, 2, &[]), BLOCK, BYTES);
        let allocation = checker.submit("allocate", None);
        checker.grant(&allocation, epoch(1, 3), BLOCK, BYTES);
        let view = checked.begin(2, 1, &[epoch(1, 1)]);
        checker.access(&view, Effect::Write, BLOCK + 136, 8);
        assert_eq!(checked.kinds(), [Kind::UseBeforeAllocation], "{start:#x} {bytes}");
    }
}

#[test]
fn what_occurs_again_is_counted_and_written_at_the_end() {
    let checked = Checked::new();
    let counts = || {
        let findings = checked.findings.lock().expect("no test panics with it");
        findings.iter().map(|finding| (finding.kind, finding.count)).collect::<Vec<_>>()
    };
    for _ in 0..5 {
        checked.checker.report_wrong_free("cuMemFree", BLOCK, false);
    }
    checked.checker.report_call(Kind::StreamInUse, "cuStreamSynchronize", "uses a stream", None);
    let first = [(Kind::InvalidFree, 1), (Kind::StreamInUse, 1)];
    assert_eq!(counts(), first);
    for _ in 0..2 {
        checked.checker.report_repeats();
        assert_eq!(counts(), [&first[..], &[(Kind::InvalidFree, 4)]].concat());
    }
    let findings = checked.findings.lock().expect("no test panics with it");
    assert_eq!((&findings[0].message, &findings[0].access), (&findings[2].message, &findings[2].access));
}

#[test]
fn blocks_that_leak_in_one_place_are_one_leak_with_all_their_bytes() {
    for (count, expected) in [(1, "1048576 bytes of "), (1000, "1048576000 bytes in 1000 blocks of ")] {
        let checked = Checked::new();
        for number in 1..=count {
            let call = checked.checker.begin_on_host("allocate");
            checked.checker.allocate(&call, number << 21, 1 << 20, BlockKind::Device);
        }
        assert!(checked.checker.report_leaks());
        checked.checker.report_repeats();
        let findings = checked.findings.lock().expect("no test panics with it");
        assert_eq!(findings.iter().map(|finding| finding.count).collect::<Vec<_>>(), [count]);
        assert!(findings[0].message.starts_with(expected), "{findings:?}");
        assert_eq!(findings[0].memory.as_ref().map(|memory| memory.bytes), Some(1 << 20));
    }
}
