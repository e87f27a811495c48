use std::sync::{Arc, Mutex};

use crate::blocks::BlockKind;
use crate::finding::{Finding, Kind};

use super::*;

const CONTEXT: u64 = 9;
const BLOCK: u64 = 0x10_0000;
const BYTES: u64 = 4096;

struct Program {
    checker: CallChecker,
    found: Arc<Mutex<Vec<Finding>>>,
}

fn stream(number: u64) -> StreamKey {
    StreamKey::created(number)
}

impl Program {
    /// A program with a block, two streams that do not wait for the default stream, and one that does.
    fn new() -> Self {
        let found = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&found);
        let checker =
            CallChecker::new(move |finding| written.lock().expect("no test panics here").push(finding.clone()));
        for (number, order) in
            [(1, LegacyOrder::NonBlocking), (2, LegacyOrder::NonBlocking), (3, LegacyOrder::Blocking)]
        {
            checker.create_stream(stream(number), StreamKind { context: CONTEXT, order });
        }
        checker.name_stream(
            legacy(),
            StreamKind { context: CONTEXT, order: LegacyOrder::Legacy },
            "the default stream",
        );
        checker.allocate("alloc", Owner::Context(CONTEXT), BLOCK, BYTES, BlockKind::Device);
        Self { checker, found }
    }

    fn fill(&self, function: &'static str, key: StreamKey) {
        self.access(function, key, CallEffect::Write, BLOCK, BYTES);
    }

    fn access(&self, function: &'static str, key: StreamKey, effect: CallEffect, start: u64, bytes: u64) {
        let accesses = &[Access { effect, rows: Rows::range(start, bytes) }];
        // In a test, kernels alone tell one place from another.
        let kernel = Some(self.checker.kernel(function));
        let item = Item { kernel, module: None, accesses, arguments: &[], is_of_graph: false };
        assert!(self.checker.submit(function, key, &[item], false));
    }

    fn launch(&self, name: &str, key: StreamKey, arguments: &[Argument]) {
        self.submit(name, key, arguments, false);
    }

    fn submit(&self, name: &str, key: StreamKey, arguments: &[Argument], is_of_graph: bool) {
        let kernel = Some(self.checker.kernel(name));
        let item = Item { kernel, module: None, accesses: &[], arguments, is_of_graph };
        assert!(self.checker.submit("launch", key, &[item], false));
    }

    fn free(&self, address: u64, order: FreeOrder) {
        let freeing = self.checker.begin_free("free", address, order);
        self.checker.finish_free(freeing);
    }

    fn kinds(&self) -> Vec<Kind> {
        let found = std::mem::take(&mut *self.found.lock().expect("no test panics here"));
        found.iter().map(|finding| finding.kind).collect()
    }
}

fn legacy() -> StreamKey {
    StreamKey::legacy(CONTEXT)
}

fn whole(value: u64) -> Argument {
    Argument { value, is_whole: true }
}

fn word(value: u64) -> Argument {
    Argument { value, is_whole: false }
}

#[test]
fn the_legacy_default_stream_and_blocking_streams_wait_for_each_other() {
    let program = Program::new();
    program.fill("a", stream(3));
    program.fill("b", legacy());
    program.fill("c", stream(3));
    assert_eq!(program.kinds(), []);
    program.fill("d", stream(1));
    assert_eq!(program.kinds(), [Kind::StreamRace]);
}

#[test]
fn an_event_is_what_was_recorded_last() {
    let program = Program::new();
    program.checker.record_event(7, stream(1));
    program.fill("a", stream(1));
    program.checker.wait_event(stream(2), 7);
    program.fill("b", stream(2));
    assert_eq!(program.kinds(), [Kind::StreamRace]);
    program.checker.record_event(7, stream(2));
    program.checker.wait_event(stream(1), 7);
    program.fill("c", stream(1));
    assert_eq!(program.kinds(), []);
}

#[test]
fn what_the_host_has_waited_for_comes_before_all_later_work() {
    let program = Program::new();
    program.fill("a", stream(1));
    program.checker.record_event(7, stream(1));
    program.checker.wait_event(stream(2), 7);
    let awaited = program.checker.stream_so_far(stream(2));
    program.checker.observe(&awaited);
    program.fill("b", stream(3));
    assert_eq!(program.kinds(), []);
}

#[test]
fn a_point_does_not_include_what_is_submitted_while_a_call_waits() {
    let program = Program::new();
    let awaited = program.checker.stream_so_far(stream(1));
    program.fill("a", stream(1));
    program.checker.observe(&awaited);
    program.fill("b", stream(2));
    assert_eq!(program.kinds(), [Kind::StreamRace]);
}

#[test]
fn a_kernel_races_with_a_copy_that_writes_all_that_it_can_reach() {
    let program = Program::new();
    program.access("copy", stream(1), CallEffect::Write, BLOCK, BYTES - 1);
    program.launch("part", stream(2), &[whole(BLOCK)]);
    assert_eq!(program.kinds(), []);
    program.launch("rest", stream(3), &[whole(BLOCK + 64)]);
    program.access("copy the rest", stream(1), CallEffect::Write, BLOCK + 64, BYTES - 64);
    assert_eq!(program.kinds(), [Kind::StreamRace]);
}

#[test]
fn kernels_may_share_a_block() {
    let program = Program::new();
    program.launch("one", stream(1), &[whole(BLOCK)]);
    program.launch("other", stream(2), &[whole(BLOCK)]);
    program.access("read", stream(3), CallEffect::Read, BLOCK, BYTES);
    assert_eq!(program.kinds(), []);
}

#[test]
fn a_word_of_a_structure_uses_live_blocks_and_may_be_stale() {
    let program = Program::new();
    program.launch("one", stream(1), &[word(BLOCK)]);
    program.free(BLOCK, FreeOrder::Stream(stream(2)));
    assert_eq!(program.kinds(), [Kind::FreeInUse]);
    program.launch("other", stream(2), &[word(BLOCK)]);
    assert_eq!(program.kinds(), []);
    program.launch("third", stream(2), &[whole(BLOCK)]);
    assert_eq!(program.kinds(), [Kind::UseAfterFree]);
}

#[test]
fn the_end_of_a_block_is_not_the_start_of_the_next() {
    let program = Program::new();
    program.checker.allocate("alloc", Owner::Pool(stream(1)), BLOCK + BYTES, BYTES, BlockKind::Device);
    program.launch("range", stream(2), &[whole(BLOCK), whole(BLOCK + BYTES)]);
    assert_eq!(program.kinds(), []);
    program.launch("both", stream(2), &[whole(BLOCK + BYTES), whole(BLOCK)]);
    assert_eq!(program.kinds(), [Kind::UseBeforeAllocation]);
}

#[test]
fn a_block_that_a_pool_hands_out_again_waits_for_its_last_users() {
    let program = Program::new();
    program.checker.hand_out("out", BLOCK, 1024);
    program.launch("one", stream(1), &[whole(BLOCK)]);
    program.checker.release("back", BLOCK);
    program.checker.hand_out("out", BLOCK, 256);
    program.checker.hand_out("out", BLOCK + 256, 256);
    program.launch("same stream", stream(1), &[whole(BLOCK)]);
    assert_eq!(program.kinds(), []);
    program.launch("other", stream(2), &[whole(BLOCK + 256)]);
    assert_eq!(program.kinds(), [Kind::ReuseRace]);
    program.launch("not handed out", stream(2), &[whole(BLOCK + 512)]);
    assert_eq!(program.kinds(), [Kind::UseAfterFree]);
}

#[test]
fn a_free_of_a_pool_is_wrong_only_in_memory_that_is_known() {
    let program = Program::new();
    let unknown = BLOCK + (1 << 30);
    program.checker.hand_out("out", unknown, 256);
    program.checker.release("back", unknown);
    assert_eq!(program.kinds(), []);
    program.checker.hand_out("out", BLOCK, 256);
    program.checker.release("back", BLOCK);
    program.checker.release("again", BLOCK);
    assert_eq!(program.kinds(), [Kind::DoubleFree]);
    program.free(BLOCK, FreeOrder::Device);
    program.checker.release("late", BLOCK + 64);
    assert_eq!(program.kinds(), [Kind::InteriorFree]);
}

#[test]
fn the_parts_that_a_pool_got_back_last_are_remembered() {
    const PART: u64 = 64;
    let (program, parts) = (Program::new(), 5000);
    let large = BLOCK + (1 << 20);
    program.checker.allocate("alloc", Owner::Context(CONTEXT), large, parts * PART, BlockKind::Device);
    // From the highest address down.
    let starts: Vec<u64> = (0..parts).rev().map(|number| large + number * PART).collect();
    starts.iter().for_each(|start| program.checker.hand_out("out", *start, PART));
    program.launch("owner", stream(1), &[whole(large)]);
    starts.iter().for_each(|start| program.checker.release("back", *start));
    program.checker.hand_out("out", large, PART);
    program.launch("heir", stream(2), &[whole(large)]);
    assert_eq!(program.kinds(), [Kind::ReuseRace]);
}

#[test]
fn blocks_without_bytes_and_null_pointers_are_no_blocks_of_a_pool() {
    let program = Program::new();
    program.checker.hand_out("out", BLOCK, 1024);
    program.checker.hand_out("out", BLOCK, 0);
    program.checker.hand_out("out", 0, 64);
    program.launch("owner", stream(1), &[whole(BLOCK)]);
    program.checker.release("back", 0);
    program.checker.release("back", BLOCK);
    program.launch("owner", stream(1), &[whole(BLOCK)]);
    program.checker.release("back", BLOCK);
    assert_eq!(program.kinds(), []);
    program.launch("late", stream(1), &[whole(BLOCK)]);
    program.checker.release("again", BLOCK);
    assert_eq!(program.kinds(), [Kind::UseAfterFree, Kind::DoubleFree]);
}

#[test]
fn a_graph_uses_what_a_capture_gave_back_until_a_pool_hands_it_out_to_others() {
    for is_captured in [true, false] {
        let program = Program::new();
        if is_captured {
            program.checker.begin_capture("begin", stream(1));
        }
        program.checker.hand_out("out", BLOCK, 1024);
        program.checker.release("back", BLOCK);
        program.checker.end_capture(stream(1));
        program.submit("replay", stream(1), &[whole(BLOCK)], true);
        let expected = if is_captured { vec![] } else { vec![Kind::UseAfterFree] };
        assert_eq!(program.kinds(), expected);
        program.launch("no replay", stream(1), &[whole(BLOCK + 8)]);
        assert_eq!(program.kinds().len(), 1);
        if is_captured {
            program.checker.hand_out("out", BLOCK, 1024);
            program.launch("next owner", stream(2), &[whole(BLOCK)]);
            assert_eq!(program.kinds(), [Kind::ReuseRace]);
            program.checker.release("back", BLOCK);
            program.submit("late replay", stream(1), &[whole(BLOCK)], true);
            assert_eq!(program.kinds(), [Kind::UseAfterFree]);
        }
    }
}

#[test]
fn nothing_is_said_of_a_stream_that_waits_for_a_word() {
    let program = Program::new();
    program.fill("a", stream(1));
    program.checker.wait_memory(stream(2));
    program.fill("b", stream(2));
    program.checker.record_event(7, stream(2));
    program.checker.wait_event(stream(3), 7);
    program.fill("c", stream(3));
    assert_eq!(program.kinds(), []);
    let awaited = program.checker.stream_so_far(stream(2));
    program.checker.observe(&awaited);
    program.fill("d", stream(2));
    program.fill("e", stream(1));
    assert_eq!(program.kinds(), [Kind::StreamRace]);
}

#[test]
fn an_event_that_another_process_may_record_orders_its_waits_after_anything() {
    let program = Program::new();
    program.checker.share_event(7);
    program.fill("a", stream(1));
    program.checker.wait_event(stream(2), 7);
    program.fill("b", stream(2));
    // The host has waited for what the other process knows.
    let awaited = program.checker.event_so_far(7);
    program.checker.observe(&awaited);
    program.fill("c", stream(3));
    assert_eq!(program.kinds(), []);
    program.checker.destroy_event(7);
    program.checker.wait_event(stream(1), 7);
    program.fill("d", stream(1));
    assert_eq!(program.kinds(), [Kind::StreamRace]);
}

#[test]
fn a_free_that_waits_for_the_device_is_in_order() {
    let program = Program::new();
    program.launch("one", stream(1), &[whole(BLOCK)]);
    program.free(BLOCK, FreeOrder::Device);
    assert_eq!(program.kinds(), []);
    program.checker.allocate("alloc", Owner::Pool(stream(1)), BLOCK, BYTES, BlockKind::Device);
    program.launch("two", stream(1), &[whole(BLOCK)]);
    // Memory of the driver's pools is freed at once.
    program.free(BLOCK, FreeOrder::Device);
    assert_eq!(program.kinds(), [Kind::FreeInUse]);
}

#[test]
fn the_state_does_not_grow_with_the_work() {
    let program = Program::new();
    for round in 0..3000_u64 {
        let own = stream(100 + round);
        program.checker.create_stream(own, StreamKind { context: CONTEXT, order: LegacyOrder::Blocking });
        for part in 0..8 {
            program.access("part", own, CallEffect::Write, BLOCK + part * 64 + round % 64, 1);
            program.launch("kernel", own, &[whole(BLOCK + part)]);
        }
        let awaited = program.checker.stream_so_far(own);
        program.checker.observe(&awaited);
        program.checker.destroy_stream(own);
    }
    assert_eq!(program.kinds(), []);
    let (streams, accesses) = program.checker.sizes();
    assert!(streams < 300 && accesses <= 64, "{streams} streams, {accesses} accesses");
}

#[test]
fn the_default_streams_of_threads_end_with_them() {
    let program = Program::new();
    for thread in 1..3000 {
        for context in [CONTEXT, CONTEXT + 1] {
            let key = StreamKey::of_thread(context, thread);
            program.checker.name_stream(key, StreamKind { context, order: LegacyOrder::Blocking }, "a default stream");
            program.fill("kernel", key);
            program.checker.observe(&program.checker.stream_so_far(key));
        }
        program.checker.end_thread(thread);
    }
    assert_eq!(program.kinds(), []);
    assert!(program.checker.sizes().0 < 300 && program.checker.knows_stream(legacy()));
}

#[test]
fn the_end_of_a_block_is_not_the_start_of_a_freed_one() {
    let program = Program::new();
    program.checker.allocate("alloc", Owner::Context(CONTEXT), BLOCK + BYTES, BYTES, BlockKind::Device);
    program.free(BLOCK + BYTES, FreeOrder::Device);
    program.launch("range", stream(1), &[whole(BLOCK), whole(BLOCK + BYTES)]);
    assert_eq!(program.kinds(), []);
    program.launch("freed", stream(1), &[whole(BLOCK + BYTES)]);
    assert_eq!(program.kinds(), [Kind::UseAfterFree]);
}

#[test]
fn the_end_of_a_context_ends_its_own_memory_and_streams() {
    let program = Program::new();
    let other = BLOCK + BYTES;
    program.checker.allocate("alloc", Owner::Context(CONTEXT + 1), other, BYTES, BlockKind::Device);
    program.checker.create_stream(stream(4), StreamKind { context: CONTEXT + 1, order: LegacyOrder::NonBlocking });
    program.checker.hand_out("out", BLOCK, 256);
    program.checker.hand_out("out", other, 256);
    program.access("late", stream(4), CallEffect::Write, BLOCK, 4);
    let ending = program.checker.begin_context_end(CONTEXT + 1);
    program.checker.finish_context_end(&ending);
    assert!(!program.checker.knows_stream(stream(4)) && program.checker.knows_stream(stream(1)));
    // Its work is over.
    program.access("later", stream(1), CallEffect::Write, BLOCK, 4);
    program.checker.release("back", other);
    program.checker.release("back", BLOCK);
    assert_eq!(program.kinds(), []);
    program.checker.release("again", BLOCK);
    assert_eq!(program.kinds(), [Kind::DoubleFree]);
    assert!(program.checker.report_leaks());
    assert_eq!(program.kinds(), [Kind::Leak]);
}

#[test]
fn what_another_thread_gets_while_a_context_is_destroyed_is_kept() {
    let program = Program::new();
    let ending = program.checker.begin_context_end(CONTEXT);
    program.checker.allocate("alloc", Owner::Context(CONTEXT), BLOCK, BYTES, BlockKind::Device);
    program.checker.create_stream(stream(1), StreamKind { context: CONTEXT, order: LegacyOrder::NonBlocking });
    program.checker.finish_context_end(&ending);
    assert!(program.checker.knows_stream(stream(1)) && !program.checker.knows_stream(stream(2)));
    assert!(program.checker.report_leaks());
    assert_eq!(program.kinds(), [Kind::Leak]);
}

#[test]
fn blocks_that_leak_in_one_place_are_one_leak_and_what_occurs_again_is_counted() {
    let program = Program::new();
    program.checker.allocate("alloc", Owner::Context(CONTEXT), 2 * BLOCK, BYTES, BlockKind::Device);
    for _ in 0..3 {
        program.checker.report_call(Kind::StreamInUse, "call", "uses a stream that is destroyed");
    }
    assert!(program.checker.report_leaks());
    program.checker.report_repeats();
    let found = program.found.lock().expect("no test panics here");
    let counts: Vec<_> = found.iter().map(|finding| (finding.kind, finding.count)).collect();
    assert_eq!(counts, [(Kind::StreamInUse, 1), (Kind::Leak, 2), (Kind::StreamInUse, 2)]);
    assert_eq!(found[1].message, "8192 bytes in 2 blocks of alloc were never freed");
}
