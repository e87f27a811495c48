//! A neighbour of attackers: two tenants that lease, return and hand over, and the latency of these requests.

use std::time::Instant;

use freehold_broker::wire::{BrokerStats, Fence, Id, Policy, Reply, Request};
use freehold_broker::{Granted, Link, Name};
use freehold_testing::at_effort;

use super::Victim;
use crate::harness::{Harness, stats, until_is};

/// Hand-overs during an attack.
fn hand_overs_min() -> usize {
    at_effort(50, 500, 5000)
}

/// Lease-return pairs for each hand-over.
const PAIRS_EACH: usize = 4;

/// The latency of each request, in nanoseconds.
#[derive(Default)]
pub(super) struct Times {
    pairs: Vec<u64>,
    hand_overs: Vec<u64>,
}

impl Times {
    pub(super) fn is_enough(&self) -> bool {
        self.hand_overs.len() >= hand_overs_min()
    }

    pub(super) fn pairs(&self) -> String {
        median_and_last(&self.pairs)
    }

    pub(super) fn hand_overs(&self) -> String {
        median_and_last(&self.hand_overs)
    }
}

fn median_and_last(times: &[u64]) -> String {
    let mut times = times.to_vec();
    times.sort_unstable();
    let [median, last] = [50, 99].map(|percent| times[times.len() * percent / 100] as f64 / 1000.0);
    format!("{median:.1} / {last:.1}")
}

/// What must be unchanged after an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    stats: BrokerStats,
    /// Of broker and fdstore, without those of segments.
    descriptors: [usize; 2],
}

pub(super) struct Neighbour {
    one: Link,
    other: Link,
    /// What attackers try to end.
    held: Granted,
    name: Id,
    /// The lease that is handed back and forth.
    ball: Id,
}

impl Neighbour {
    pub(super) fn new(harness: &Harness) -> Self {
        let (mut one, other) = (harness.link(), harness.link());
        let name = Name::parse("neighbour/name").expect("a name");
        let published = one.reserve(4096).expect("there is memory");
        let (policy, fence) = (Policy::Restore, Fence::default());
        one.call(Request::Publish { lease: published.lease, policy, fence, name: name.clone() }).expect("it is free");
        let Reply::Number { id, .. } = one.call(Request::Find { name }).expect("it is there").reply else {
            panic!("a name has a number");
        };
        let held = one.reserve(1000).expect("there is memory");
        // SAFETY: nothing imports the descriptor.
        unsafe { one.attach(held.segment) }.expect("it has a lease there");
        let ball = one.reserve(512).expect("there is memory").lease;
        Self { one, other, held, name: id, ball }
    }

    pub(super) fn victim(&self) -> Victim {
        Victim {
            tenant: self.one.tenant().0,
            lease: self.held.lease.0,
            segment: self.held.segment.0,
            name: self.name.0,
        }
    }

    /// Leases, returns and hands over until a condition holds.
    pub(super) fn work(&mut self, mut is_over: impl FnMut(&Times) -> bool) -> Times {
        let mut times = Times::default();
        while !is_over(&times) {
            for _ in 0..PAIRS_EACH {
                let begun = Instant::now();
                let granted = self.one.reserve(512).expect("a lease of its own memory");
                self.one.return_lease(granted.lease, Fence::default()).expect("a broker serves");
                times.pairs.push(begun.elapsed().as_nanos() as u64);
            }
            let begun = Instant::now();
            self.one.give(self.ball, self.other.tenant(), Fence::default()).expect("the other takes it");
            self.ball = self.other.wait_given().expect("it was given").granted.lease;
            times.hand_overs.push(begun.elapsed().as_nanos() as u64);
            std::mem::swap(&mut self.one, &mut self.other);
        }
        if times.hand_overs.len() % 2 == 1 {
            self.one.give(self.ball, self.other.tenant(), Fence::default()).expect("the other takes it");
            self.ball = self.other.wait_given().expect("it was given").granted.lease;
            std::mem::swap(&mut self.one, &mut self.other);
        }
        times
    }

    pub(super) fn standing(&mut self, harness: &Harness) -> Standing {
        let descriptors = harness.descriptors(&mut self.one, "serve");
        let mut stats = stats(&mut self.one);
        // Zeroed memory that is kept for the next tenants has no owner.
        stats.segment_bytes = 0;
        Standing { stats, descriptors }
    }

    /// Checks that everything is as before the attack, and that the neighbour still holds its lease.
    pub(super) fn keeps(&mut self, harness: &Harness, attack: &str, before: Standing) {
        until_is(&format!("everything is as before {attack}"), before, || self.standing(harness));
        let taken = self.other.tenant();
        self.one.give(self.held.lease, taken, Fence::default()).expect("the neighbour still holds its lease");
        let given = self.other.wait_given().expect("it was given").granted;
        assert_eq!((given.segment, given.offset, given.bytes), (self.held.segment, self.held.offset, 1000));
        self.other.give(given.lease, self.one.tenant(), Fence::default()).expect("the other tenant holds the lease");
        self.held = self.one.wait_given().expect("it was given").granted;
        assert_eq!(self.one.take_errors(), [], "no request of the neighbour was refused");
    }
}
