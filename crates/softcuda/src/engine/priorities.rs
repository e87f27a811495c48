//! Priorities of queues under a schedule with few switches.
//!
//! Each queue has a random priority. Nothing runs until the program has to wait; then the runnable queue with the highest
//! priority runs until the wait is over. So work runs as late as the program allows, and the work of one stream runs after that
//! of all others: a few seeds expose any missing order between two streams. At a switch, after a random number of steps, the
//! running queue drops to the lowest priority.

use std::collections::HashMap;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The last step at which a switch can come is below two to this power. Each power is as likely as the others.
const STEP_BITS: u64 = 13;

/// After so many steps without an end of its work a queue falls behind all others, which it may wait for.
const STEPS_ALONE_MAX: u32 = 256;

#[derive(Debug)]
pub(super) struct Priorities {
    random: SplitMix64,
    /// By the id of the queue; the highest first.
    by_queue: HashMap<u64, i64>,
    lowest: i64,
    /// The steps after which the running queue is switched, the next one last.
    switches: Vec<u64>,
    step_count: u64,
    /// The queue that advanced last, and how many steps it made since its last work ended.
    running: (u64, u32),
}

impl Priorities {
    pub(super) fn new(seed: u64, switches: u32) -> Self {
        // Not that of the priorities: with fewer switches, the rest of a schedule stays as it is.
        let mut places = SplitMix64::seed_from_u64(!seed);
        let mut switches: Vec<u64> = (0..switches)
            .map(|_| {
                let power = 1 << (places.next_u64() % STEP_BITS);
                power + places.next_u64() % power
            })
            .collect();
        let random = SplitMix64::seed_from_u64(seed);
        switches.sort_unstable_by(|one, other| other.cmp(one));
        Self { random, by_queue: HashMap::new(), lowest: 0, switches, step_count: 0, running: (0, 0) }
    }

    /// Gives a new queue its priority.
    pub(super) fn add(&mut self, queue: u64) {
        let random = &mut self.random;
        self.by_queue.entry(queue).or_insert_with(|| (random.next_u64() >> 2).cast_signed());
    }

    /// Returns what sorts queues, those that go first being the smallest.
    pub(super) fn rank(&self, queue: u64) -> i64 {
        self.by_queue.get(&queue).map_or(0, |priority| -priority)
    }

    /// Returns whether steps are small, so that a switch can come within work.
    pub(super) fn has_switches(&self) -> bool {
        !self.switches.is_empty()
    }

    /// Notes a step of a queue.
    pub(super) fn note(&mut self, queue: u64, is_end_of_work: bool) {
        self.step_count += 1;
        let alone = if self.running.0 == queue { self.running.1 + 1 } else { 1 };
        self.running = (queue, if is_end_of_work { 0 } else { alone });
        let is_due = self.switches.last().is_some_and(|step| *step <= self.step_count);
        if is_due {
            self.switches.pop();
        }
        if is_due || alone >= STEPS_ALONE_MAX {
            self.running.1 = 0;
            self.lowest -= 1;
            self.by_queue.insert(queue, self.lowest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(priorities: &Priorities, queues: &[u64]) -> u64 {
        *queues.iter().min_by_key(|queue| priorities.rank(**queue)).expect("there is a queue")
    }

    #[test]
    fn without_a_switch_one_queue_stays_first_and_each_is_for_some_seed() {
        let mut ever = [0; 3];
        for seed in 0..30 {
            let mut priorities = Priorities::new(seed, 0);
            (1..=3).for_each(|queue| priorities.add(queue));
            let before = first(&priorities, &[1, 2, 3]);
            (0..100_000).for_each(|_| priorities.note(before, true));
            assert_eq!(first(&priorities, &[1, 2, 3]), before);
            ever[before as usize - 1] += 1;
        }
        assert!(ever.iter().all(|&times| times > 3), "{ever:?}");
    }

    #[test]
    fn a_switch_puts_the_running_queue_last_once() {
        let mut priorities = Priorities::new(5, 1);
        (1..=3).for_each(|queue| priorities.add(queue));
        let before = first(&priorities, &[1, 2, 3]);
        (0..1 << STEP_BITS).for_each(|_| priorities.note(before, true));
        let after = first(&priorities, &[1, 2, 3]);
        assert_ne!(after, before);
        assert!(!priorities.has_switches());
        (0..1 << STEP_BITS).for_each(|_| priorities.note(after, true));
        assert_eq!(first(&priorities, &[1, 2, 3]), after);
    }

    #[test]
    fn a_queue_whose_work_does_not_end_lets_others_run() {
        let mut priorities = Priorities::new(1, 0);
        (1..=2).for_each(|queue| priorities.add(queue));
        let before = first(&priorities, &[1, 2]);
        (0..STEPS_ALONE_MAX).for_each(|_| priorities.note(before, false));
        assert_ne!(first(&priorities, &[1, 2]), before);
    }
}
