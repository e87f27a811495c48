//! Random accesses against a list of accesses for every byte.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Tasks happen before each other if their numbers are equal modulo 3, and the first is smaller.
fn is_before(first: u32, second: u32) -> bool {
    first <= second && first % 3 == second % 3
}

/// What a byte met.
#[derive(Default)]
struct Byte {
    /// What a shadow of this byte alone keeps.
    records: Vec<Record>,
    is_undefined: bool,
    /// All accesses so far. The shadow forgets one that a later access replaces.
    history: Vec<(u32, Effect)>,
}

impl Byte {
    /// Returns whether an access races with any earlier one, or the byte was freed.
    fn is_conflict(&self, task: u32, effect: Effect) -> bool {
        let is_conflict = |&(first, earlier): &(u32, Effect)| match (earlier, effect) {
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
    fn touch(&mut self, task: u32, start: u64, bytes: u64, effect: Effect) -> (bool, bool) {
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
            (1..12u32, 0..40u64, prop_oneof![Just(1), Just(4), 1..300u64, Just(4096), 4000..9000u64], kinds()),
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
