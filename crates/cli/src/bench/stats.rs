//! Percentiles of measured times.

use std::time::Instant;

use serde::Serialize;

/// The median, the 10th and the 90th percentile, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Percentiles {
    pub(super) median_ns: f64,
    pub(super) p10_ns: f64,
    pub(super) p90_ns: f64,
}

impl Percentiles {
    /// # Panics
    /// If there are no times.
    pub(super) fn of(times_ns: Vec<f64>) -> Self {
        let [p10_ns, median_ns, p90_ns] = percentiles(times_ns, [1, 5, 9]);
        Self { median_ns, p10_ns, p90_ns }
    }
}

/// Returns the values at these tenths.
///
/// # Panics
/// If there are no values.
pub(super) fn percentiles<const N: usize>(mut values: Vec<f64>, tenths: [usize; N]) -> [f64; N] {
    assert!(!values.is_empty(), "there is at least one value");
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len() - 1;
    tenths.map(|tenths| values[(last * tenths + 5) / 10])
}

/// Returns the result of `act`, and how long it took.
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
        assert_eq!(Percentiles::of(times), Percentiles { median_ns: 6.0, p10_ns: 2.0, p90_ns: 10.0 });
    }

    #[test]
    fn one_time_is_all_of_its_spread() {
        assert_eq!(Percentiles::of(vec![7.0]), Percentiles { median_ns: 7.0, p10_ns: 7.0, p90_ns: 7.0 });
    }
}
