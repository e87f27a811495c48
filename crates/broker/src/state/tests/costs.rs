//! Requests cost the same for any number of objects. Operations are counted where possible; otherwise time is compared
//! where the difference would be a factor of a thousand.

use std::time::{Duration, Instant};

use freehold_testing::at_effort;

use super::*;

/// The limit of a turn, which takes milliseconds on an idle machine.
const SECOND: Duration = Duration::from_secs(1);

/// The shortest of several turns, which is the least disturbed one.
fn shortest(mut turn: impl FnMut()) -> Duration {
    let times = (0..20).map(|_| {
        let begun = Instant::now();
        turn();
        begun.elapsed()
    });
    times.min().unwrap()
}

fn with_names(count: usize) -> State {
    let many = Limits { names: count, user_names: count, blocks: count, leases: count, user_leases: count, ..limits() };
    let mut state = State::new(Limits { tenant_leases: count, ..many }, OPERATOR);
    let tenant = connected(&mut state);
    for number in 0..count {
        let lease = reserved(&mut state, tenant, 512);
        let (policy, fence) = (Policy::Restore, Fence::default());
        let name = Name::parse(&format!("model/layer-{number:05}/weights")).unwrap();
        ask(&mut state, tenant, Request::Publish { lease, policy, fence, name });
    }
    state
}

#[test]
fn the_nearest_names_are_found_among_many_within_a_second() {
    let names = at_effort(10_000, 50_000, 100_000);
    let state = with_names(names);
    let wanted = Name::parse("model/layer-07000/weigths").unwrap();
    let nearest: Vec<&str> = state.nearest(&wanted, 3).into_iter().map(Name::as_str).collect();
    assert_eq!(nearest[0], "model/layer-07000/weights");
    assert_eq!(nearest.len(), 3);
    let time = shortest(|| drop(state.nearest(&wanted, 3)));
    println!("the nearest of {names} names: {time:?}");
    assert!(time < SECOND, "{time:?}");
    let after = Name::parse(&format!("model/layer-{:05}/weights", names - 10)).unwrap();
    let time = shortest(|| drop(state.list(Some(&after))));
    println!("the last names of {names}: {time:?}");
    assert!(time < SECOND, "{time:?}");
    let time = shortest(|| assert_eq!(state.stats().names, names as u32));
    println!("stats of {names} names: {time:?}");
    assert!(time < SECOND, "{time:?}");
}

#[test]
fn few_names_are_all_compared() {
    let mut state = State::new(limits(), OPERATOR);
    let tenant = connected(&mut state);
    for name in ["weights", "zeights", "a/b/c"] {
        published(&mut state, tenant, name, Policy::Restore);
    }
    let wanted = Name::parse("xeights").unwrap();
    let nearest: Vec<&str> = state.nearest(&wanted, 3).into_iter().map(Name::as_str).collect();
    assert_eq!(nearest, ["weights", "zeights"]);
}

/// Counts how often a fence is polled.
struct Counting(std::cell::Cell<u32>);

impl Environment for Counting {
    fn has_room(&self, _: Id) -> Result<(), u32> {
        Ok(())
    }

    fn is_complete(&self, fence: Fence) -> bool {
        self.0.set(self.0.get() + 1);
        fence.value <= 2
    }
}

#[test]
fn a_word_is_looked_at_once_however_many_leases_wait_for_it() {
    let mut state = State::new(limits(), OPERATOR);
    let tenant = connected(&mut state);
    for number in 0..1000 {
        let lease = reserved(&mut state, tenant, 512);
        let fence = Fence { tenant, semaphore: number % 4, value: 3 + u64::from(number) };
        ask_with(&mut state, tenant, Request::Return { lease, fence }, false);
    }
    let environment = Counting(std::cell::Cell::new(0));
    state.poll_fences(&environment);
    assert_eq!((environment.0.get(), state.leases.len()), (4, 1000));
}
