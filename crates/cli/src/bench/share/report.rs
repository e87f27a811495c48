//! A report of sharing as a table or as one JSON object.

use anstyle::Style;
use serde::Serialize;

use crate::output::table::{TableStyle, columns};
use crate::output::text::format_ns;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) device: String,
    /// How many threads can run at once: a hand-over has three that spin.
    pub(crate) processors: usize,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    id: &'static str,
    what: &'static str,
    median_ns: f64,
    p99_ns: f64,
    targets: Vec<Target>,
    met: Option<bool>,
}

/// A limit, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    Median(f64),
    P99(f64),
}

impl Row {
    /// # Panics
    /// If there are no times.
    pub(crate) fn new(id: &'static str, what: &'static str, mut times: Vec<f64>, targets: Vec<Target>) -> Self {
        times.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        let (median_ns, p99_ns) = (at(0.5), at(0.99));
        let is_met = |target: &Target| match *target {
            Target::Median(most) => median_ns <= most,
            Target::P99(most) => p99_ns <= most,
        };
        let met = (!targets.is_empty()).then(|| targets.iter().all(is_met));
        Self { id, what, median_ns, p99_ns, targets, met }
    }

    pub(crate) fn median_ns(&self) -> f64 {
        self.median_ns
    }
}

const NAMES: [&str; 4] = ["what", "median", "99 %", "target"];

impl Report {
    pub(crate) fn table(&self, style: TableStyle) -> String {
        let cells = |row: &Row| {
            let targets = row.targets.iter().map(|target| match *target {
                Target::Median(most) => format!("median ≤ {}", format_ns(most)),
                Target::P99(most) => format!("99 % ≤ {}", format_ns(most)),
            });
            let targets: Vec<String> = targets.collect();
            ([row.what.to_owned(), format_ns(row.median_ns), format_ns(row.p99_ns), targets.join(", ")], row.met)
        };
        let rows: Vec<_> = self.rows.iter().map(cells).collect();
        let bold = style.style(Style::new().bold());
        let heading = format!("{bold}{}, {} processors{bold:#}", self.device, self.processors);
        format!("{heading}\n\n{}", columns(&NAMES, &[false, true, true, false], &rows, style))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_targets_of_a_row_must_be_met() {
        let times = || (1..=100).map(f64::from).collect::<Vec<_>>();
        let met = |targets| Row::new("id", "what", times(), targets).met;
        assert_eq!(met(vec![]), None);
        assert_eq!(met(vec![Target::Median(50.0), Target::P99(99.0)]), Some(true));
        assert_eq!(met(vec![Target::Median(50.0), Target::P99(98.0)]), Some(false));
    }
}
