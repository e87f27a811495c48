//! Random kernels: recording accesses one at a time and recording them batched find the same errors.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::access::Instruction;
use crate::blocks::BlockKind;
use crate::clock::{Epoch, QueueId};
use crate::origin::{Kernel, Launch};

const ARRAYS: u64 = 0x10_0000;
const ARRAY_BYTES: u64 = 4096;
const STREAMS: usize = 3;

/// An access of each warp: to the elements that have its number, or to others at a distance.
#[derive(Clone, Copy, Debug)]
struct Instr {
    kind: AccessKind,
    is_strong: bool,
    array: u64,
    bytes: u64,
    shift: u64,
    lanes: u32,
}

/// Warps of a block, one after another, in a stream.
#[derive(Clone, Debug)]
struct Step {
    stream: usize,
    /// Whether it is another kernel, and what that comes after.
    begins: bool,
    after: Option<usize>,
    block: u64,
    warps: std::ops::Range<u32>,
    instructions: Vec<Instr>,
}

fn instructions() -> impl Strategy<Value = Instr> {
    let kind = prop_oneof![4 => Just(AccessKind::Read), 4 => Just(AccessKind::Write), 1 => Just(AccessKind::Atomic)];
    let lanes = prop_oneof![6 => Just(u32::MAX), 1 => any::<u32>().prop_map(|lanes| lanes | 1)];
    let (bytes, shift) = (prop_oneof![Just(4), Just(8)], prop_oneof![4 => Just(0), 1 => Just(8), 1 => Just(128)]);
    (kind, prop::bool::weighted(0.05), 0..3u64, bytes, shift, lanes)
        .prop_map(|(kind, is_strong, array, bytes, shift, lanes)| Instr { kind, is_strong, array, bytes, shift, lanes })
}

fn steps() -> impl Strategy<Value = Step> {
    let warps = (0..8u32, 1..5u32).prop_map(|(first, count)| first..(first + count).min(8));
    let instructions = proptest::collection::vec(instructions(), 1..4);
    (0..STREAMS, any::<bool>(), prop::option::of(0..STREAMS), 0..2u64, warps, instructions).prop_map(
        |(stream, begins, after, block, warps, instructions)| Step {
            stream,
            begins,
            after,
            block,
            warps,
            instructions,
        },
    )
}

/// A kind, and the kernel of the later access with the kind of that. A kernel that accesses bytes again is not always told of again, and
/// which of several earlier accesses is named depends on the size of the later one.
type Found = (String, Option<(u64, u32)>);

/// Returns all findings.
fn findings(steps: &[Step], is_deferred: bool) -> BTreeSet<Found> {
    let found = Arc::new(Mutex::new(BTreeSet::new()));
    let list = Arc::clone(&found);
    let checker = Checker::new(move |finding| {
        let line =
            |access: &Option<crate::finding::Access>| access.as_ref().and_then(|access| access.location.ptx_line);
        let last = line(&finding.access).max(line(&finding.other));
        list.lock().expect("no test panics here").insert((format!("{:?}", finding.kind), last));
    });
    let host = checker.begin_on_host("allocate");
    for array in 0..3 {
        checker.allocate(&host, ARRAYS + array * ARRAY_BYTES, ARRAY_BYTES, BlockKind::Device);
        // Some of it has a value.
        checker.access(&host, Effect::Write, ARRAYS + array * ARRAY_BYTES, array * 700);
    }
    let mut kernels = Vec::new();
    let mut seqs = [0; STREAMS];
    let mut views: [Option<KernelView<'_>>; STREAMS] = std::array::from_fn(|_| None);
    for (number, step) in (1..).zip(steps) {
        let queue = |stream: usize| QueueId(stream as u64 + 1);
        if step.begins || views[step.stream].is_none() {
            seqs[step.stream] += 1;
            let kernel = Arc::new(Kernel { name: "k".into(), source: Box::new(|_| None) });
            let submission = checker.submit("launch", Some(Launch { kernel, grid: [2, 1, 1], block: [256, 1, 1] }));
            let after: Vec<_> =
                step.after.map(|other| Epoch { queue: queue(other), seq: seqs[other] }).into_iter().collect();
            let epoch = Epoch { queue: queue(step.stream), seq: seqs[step.stream] };
            views[step.stream] = Some(KernelView::new(&checker, checker.begin(epoch, &after, &submission)));
        }
        let view = views[step.stream].as_mut().expect("the kernel has begun");
        kernels.push(view.view.id.0);
        for warp in step.warps.clone() {
            for instruction in &step.instructions {
                let start = ARRAYS + instruction.array * ARRAY_BYTES + instruction.shift;
                let element = |lane: usize| u64::from(warp) * LANES as u64 + lane as u64;
                let access = WarpAccess {
                    block: step.block,
                    warp,
                    instruction: Instruction { function: 0, line: 10 * number + instruction.kind as u32 },
                    kind: instruction.kind,
                    is_strong: instruction.is_strong,
                    is_ordering: false,
                    is_async: false,
                    bytes: instruction.bytes,
                    addresses: &std::array::from_fn(|lane| start + element(lane) * instruction.bytes),
                    lanes: instruction.lanes,
                    unchanged: 0,
                    is_range: false,
                };
                view.access(&access.with_range());
                if !is_deferred {
                    view.flush();
                }
            }
        }
        view.flush();
    }
    drop(views);
    let found = found.lock().expect("no test panics here");
    // Each line is one of a step that reads, writes or adds.
    let kernel_of = |line: u32| (kernels[line as usize / 10 - 1], line % 10);
    found.iter().map(|(kind, line): &(String, Option<u32>)| (kind.clone(), line.map(kernel_of))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn deferred_accesses_find_what_single_ones_find(steps in proptest::collection::vec(steps(), 1..12)) {
        prop_assert_eq!(findings(&steps, true), findings(&steps, false));
    }
}

#[test]
fn a_kernel_that_reads_what_its_threads_have_written_reads_defined_memory() {
    let one = |kind, array| Instr { kind, is_strong: false, array, bytes: 4, shift: 0, lanes: u32::MAX };
    let step = |instructions: &[Instr]| Step {
        stream: 0,
        begins: true,
        after: None,
        block: 0,
        warps: 0..4,
        instructions: instructions.to_vec(),
    };
    let (read, write) = (one(AccessKind::Read, 0), one(AccessKind::Write, 0));
    assert_eq!(findings(&[step(&[write, read])], true).len(), 0);
    let undefined = ("UninitializedRead".to_owned(), Some((2, 0)));
    assert_eq!(findings(&[step(&[read, write])], true), BTreeSet::from([undefined]));
}

#[test]
fn a_race_with_some_bytes_hides_no_others_without_a_value() {
    let step = |stream, warps, instruction| Step {
        stream,
        begins: false,
        after: None,
        block: 0,
        warps,
        instructions: vec![instruction],
    };
    let one = |kind, bytes, lanes| Instr { kind, is_strong: false, array: 0, bytes, shift: 8, lanes };
    // The last two of its elements are in the line that the first ones of the other stream are in.
    let steps =
        [step(0, 0..4, one(AccessKind::Write, 8, 2_157_052_033)), step(1, 6..8, one(AccessKind::Read, 4, u32::MAX))];
    let found = findings(&steps, true);
    assert_eq!(found, findings(&steps, false));
    assert!(found.iter().any(|(kind, _)| kind == "UninitializedRead"), "{found:?}");
}
