//! Random accesses, compared with a model that lists the accesses to every byte.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Tasks happen before each other if their numbers are equal modulo 3, and the first is smaller.
fn is_before(first: u64, second: u64) -> bool {
    first <= second && first % 3 == second % 3
}

/// What a byte met.
#[derive(Default)]
struct Byte {
    /// What a shadow of this byte alone keeps.
    records: Vec<Record>,
    is_undefined: bool,
    /// All accesses so far. The shadow forgets one that a later access replaces.
    history: Vec<(u64, Effect)>,
}

impl Byte {
    /// Returns whether an access races with any earlier one, or the byte was freed.
    fn is_conflict(&self, task: u64, effect: Effect) -> bool {
        let is_conflict = |&(first, earlier): &(u64, Effect)| match (earlier, effect) {
            (Effect::Read, Effect::Read) | (Effect::Atomic, Effect::Atomic) => false,
            (Effect::Free, Effect::Read | Effect::Write | Effect::Atomic) => true,
            _ => !is_before(first, task),
        };
        effect.is_read() && self.is_undefined || self.history.iter().any(is_conflict)
    }
}

/// A shadow with one list of records for every byte.
#[derive(Default)]
struct Model {
    bytes: BTreeMap<u64, Byte>,
}

impl Model {
    /// Returns whether there is a conflict, and whether there is one at a byte that the task has not accessed before.
    fn touch(&mut self, task: u64, start: u64, bytes: u64, effect: Effect) -> (bool, bool) {
        let (mut is_conflict, mut is_new) = (false, false);
        for at in start..start + bytes {
            let byte = self.bytes.entry(at).or_default();
            is_conflict |= byte.is_conflict(task, effect);
            let is_known = byte.history.iter().any(|(earlier, _)| *earlier == task);
            let touch = Touch { effect, task: TaskId(task), spot: Spot::default(), mask: 1 };
            let met = apply(&mut byte.records, touch, &mut |first| is_before(first.0, task)).is_some()
                || effect.is_read() && byte.is_undefined;
            is_new |= met && !is_known;
            byte.is_undefined = effect == Effect::Allocate || effect.is_read() && byte.is_undefined;
            if effect == Effect::Allocate {
                byte.history.retain(|(_, earlier)| *earlier != Effect::Free);
            }
            if !byte.history.contains(&(task, effect)) {
                byte.history.push((task, effect));
            }
        }
        (is_conflict, is_new)
    }
}

fn kinds() -> impl Strategy<Value = Effect> {
    prop_oneof![
        4 => Just(Effect::Read),
        4 => Just(Effect::Write),
        1 => Just(Effect::Atomic),
        1 => Just(Effect::Allocate),
        1 => Just(Effect::Free),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lines_and_chunks_find_what_single_bytes_find(
        accesses in proptest::collection::vec(
            (1..12u64, 0..40u64, prop_oneof![Just(1), Just(4), 1..300u64, Just(4096), 4000..9000u64], kinds()),
            1..40,
        ),
    ) {
        let shadow = Shadow::default();
        let mut model = Model::default();
        for (task, start, bytes, effect) in accesses {
            let start = 4096 * (start % 3) + start * 8 % 4096 * u64::from(bytes != 4096);
            let mut view = ShadowView::new(&shadow, TaskId(task));
            let met = view.touch_range(start, bytes, effect, &mut |first| is_before(first.0, task)).is_some();
            let (is_conflict, is_new) = model.touch(task, start, bytes, effect);
            prop_assert!(is_conflict || !met, "an access without a conflict was reported");
            prop_assert!(met || !is_new, "a conflict was not reported");
        }
    }
}

/// Accesses lines of the first chunk by a kernel: line `n` by thread `n` of block 7, with the instruction at a line of the PTX.
fn touch_lines_of(
    shadow: &Shadow,
    task: u64,
    lines: std::ops::Range<u64>,
    effect: Effect,
    ptx: u32,
) -> Vec<(u64, Conflict)> {
    let mut met = Vec::new();
    ShadowView::new(shadow, TaskId(task)).touch_span(
        lines.start * LINE_BYTES,
        (lines.end - lines.start) * LINE_BYTES,
        effect,
        &mut |at| Spot::new(ptx, 7, (at / LINE_BYTES) as u32),
        &mut |first| is_before(first.0, task),
        &mut |at, conflict| met.push((at / LINE_BYTES, conflict)),
    );
    met
}

/// Returns the tasks, lines of the PTX and threads of conflicts.
fn sides(met: &[(u64, Conflict)]) -> Vec<(u64, u64, u32, u32)> {
    met.iter()
        .map(|&(line, conflict)| match conflict {
            Conflict::With(Record { task, spot, .. }) => (line, task.0, spot.line(), spot.thread()),
            Conflict::Undefined => panic!("line {line} is undefined"),
        })
        .collect()
}

#[test]
fn a_record_of_whole_lines_knows_the_thread_of_each() {
    let shadow = Shadow::default();
    for lines in [0..8, 8..24, 24..64] {
        assert_eq!(touch_lines_of(&shadow, 1, lines, Effect::Write, 30), []);
    }
    assert_eq!(sides(&touch_lines_of(&shadow, 2, 9..10, Effect::Read, 40)), [(9, 1, 30, 9)]);
    assert_eq!(sides(&touch_lines_of(&shadow, 2, 30..32, Effect::Write, 41)), [(30, 1, 30, 30), (31, 1, 30, 31)]);
    assert_eq!(sides(&touch_lines_of(&shadow, 3, 30..31, Effect::Write, 42)), [(30, 2, 41, 30)]);
    // The same when a line has a state of its own.
    let mut view = ShadowView::new(&shadow, TaskId(2));
    view.touch_line(0, 1, Effect::Read, Spot::default(), &mut |_| true);
    assert!(shadow.granule(0).chunks[0].lines.get().is_some());
    assert_eq!(sides(&touch_lines_of(&shadow, 3, 40..41, Effect::Write, 43)), [(40, 1, 30, 40)]);
}

#[test]
fn each_line_of_an_access_has_its_own_conflict() {
    let shadow = Shadow::default();
    assert_eq!(touch_lines_of(&shadow, 1, 0..2, Effect::Write, 30), []);
    assert_eq!(touch_lines_of(&shadow, 2, 2..4, Effect::Write, 31), []);
    let met = touch_lines_of(&shadow, 3, 1..3, Effect::Write, 32);
    assert_eq!(sides(&met), [(1, 1, 30, 1), (2, 2, 31, 2)]);
}

#[test]
fn a_kernel_that_accesses_whole_lines_gives_no_line_a_state() {
    let shadow = Shadow::default();
    for task in [1, 4, 7] {
        for effect in [Effect::Read, Effect::Write] {
            assert_eq!(touch_lines_of(&shadow, task, 0..64, effect, 30), []);
        }
    }
    let granule = shadow.granule(0);
    let chunk = &granule.chunks[0];
    assert!(chunk.lines.get().is_none());
    let state = chunk.state();
    assert_eq!((state.whole.len(), state.spots.len()), (1, 1));
}
