//! Times of one kind, and what is told of them.

use std::time::Instant;

use serde::Serialize;

/// Times in nanoseconds: the middle one, and those that a tenth is below and above.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median_ns: f64,
    pub(super) p10_ns: f64,
    pub(super) p90_ns: f64,
}

impl Spread {
    /// # Panics
    /// If nothing was measured.
    pub(super) fn of(mut times_ns: Vec<f64>) -> Self {
        assert!(!times_ns.is_empty(), "something is measured before it is summed up");
        times_ns.sort_unstable_by(f64::total_cmp);
        let last = times_ns.len() - 1;
        let at = |tenths: usize| times_ns[(last * tenths + 5) / 10];
        Self { median_ns: at(5), p10_ns: at(1), p90_ns: at(9) }
    }
}

/// What `act` returned, and how long it took.
pub(super) fn timed<R>(act: impl FnOnce() -> R) -> (R, f64) {
    let start = Instant::now();
    let outcome = act();
    (outcome, start.elapsed().as_nanos() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_of_the_sorted_times() {
        let times = vec![5.0, 1.0, 11.0, 3.0, 2.0, 4.0, 8.0, 6.0, 7.0, 10.0, 9.0];
        assert_eq!(Spread::of(times), Spread { median_ns: 6.0, p10_ns: 2.0, p90_ns: 10.0 });
    }

    #[test]
    fn one_time_is_all_of_its_spread() {
        assert_eq!(Spread::of(vec![7.0]), Spread { median_ns: 7.0, p10_ns: 7.0, p90_ns: 7.0 });
    }
}
