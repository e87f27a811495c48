//! A report of allocators as a table or as one JSON object.

use anstyle::Style;
use serde::Serialize;

use super::super::stats::percentiles;
use crate::output::table::{TableStyle, columns};
use crate::output::text::format_ns;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) device: String,
    pub(super) driver: String,
    /// How many threads can run at once.
    pub(super) processors: usize,
    /// Which device, and why.
    #[serde(skip)]
    pub(super) why: String,
    pub(super) rows: Vec<Row>,
}

/// One workload, on the library and on the driver.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) what: &'static str,
    pub(super) unit: Unit,
    pub(super) ours: Figures,
    pub(super) beside: Vec<Comparison>,
    pub(super) target: Option<Target>,
    met: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    Ns,
    PairsPerS,
    Ratio,
}

/// The median, the 10th and the 90th percentile of some values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) median: f64,
    pub(super) p10: f64,
    pub(super) p90: f64,
}

/// The measurements of other calls.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) calls: Calls,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// Which calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Calls {
    #[serde(rename = "cuMemAllocAsync, cuMemFreeAsync")]
    Ordered,
    #[serde(rename = "cuMemAlloc, cuMemFree")]
    Plain,
    #[serde(rename = "mi_malloc, mi_free")]
    Mimalloc,
}

/// The limit of a median, in the unit of its row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Figures {
    /// # Panics
    /// If there are no values.
    pub(super) fn of(values: Vec<f64>) -> Self {
        let [p10, median, p90] = percentiles(values, [1, 5, 9]);
        Self { median, p10, p90 }
    }
}

impl Row {
    pub(super) fn new(
        id: &'static str,
        what: &'static str,
        unit: Unit,
        ours: Vec<f64>,
        target: Option<Target>,
    ) -> Self {
        let ours = Figures::of(ours);
        let met = target.map(|target| match target {
            Target::AtMost(most) => ours.median <= most,
            Target::AtLeast(least) => ours.median >= least,
        });
        Self { id, what, unit, ours, beside: Vec::new(), target, met }
    }

    /// Adds the values of other calls.
    pub(super) fn beside(mut self, calls: Calls, values: Vec<f64>) -> Self {
        self.beside.push(Comparison { calls, figures: Figures::of(values) });
        self
    }

    /// Returns the median of other calls, if they were measured.
    pub(super) fn median_of(&self, calls: Calls) -> Option<f64> {
        self.beside.iter().find(|beside| beside.calls == calls).map(|beside| beside.figures.median)
    }

    /// Returns the cells before the verdict.
    fn cells(&self) -> [String; 6] {
        let value = |value: f64| self.unit.format(value);
        let of = |calls: Calls| self.median_of(calls).map_or_else(String::new, value);
        let target = match self.target {
            Some(Target::AtMost(most)) => format!("≤ {}", value(most)),
            Some(Target::AtLeast(least)) => format!("≥ {}", value(least)),
            None => String::new(),
        };
        [
            self.what.to_owned(),
            value(self.ours.median),
            format!("{} to {}", value(self.ours.p10), value(self.ours.p90)),
            of(Calls::Ordered),
            of(Calls::Plain),
            target,
        ]
    }
}

impl Unit {
    fn format(self, value: f64) -> String {
        match self {
            Self::Ns => format_ns(value),
            Self::PairsPerS if value < 9.995e6 => format!("{:.2} M/s", value / 1e6),
            Self::PairsPerS => format!("{:.1} M/s", value / 1e6),
            Self::Ratio => format!("{value:.3}"),
        }
    }
}

const NAMES: [&str; 6] = ["what", "freehold", "10 to 90 %", "cuMemAllocAsync", "cuMemAlloc", "target"];

/// Which columns are numbers, aligned right.
const IS_NUMBER: [bool; 6] = [false, true, true, true, true, true];

impl Report {
    pub(super) fn table(&self, style: TableStyle) -> String {
        let rows: Vec<_> = self.rows.iter().map(|row| (row.cells(), row.met)).collect();
        let bold = style.style(Style::new().bold());
        let heading = format!("{}, driver {} ({})", self.device, self.driver, self.why);
        format!("{bold}{heading}{bold:#}\n{}\n\n{}", self.host(), columns(&NAMES, &IS_NUMBER, &rows, style))
    }

    /// Returns how many threads run at once, and the time of a mimalloc pair.
    fn host(&self) -> String {
        let processors = match self.processors {
            1 => "1 processor".to_owned(),
            count => format!("{count} processors"),
        };
        let mimalloc = self.rows.iter().find_map(|row| row.median_of(Calls::Mimalloc));
        let mimalloc = mimalloc.map_or_else(String::new, |ns| format!(", mimalloc pair: {}", format_ns(ns)));
        format!("{processors}{mimalloc}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_at_the_target_meets_it_and_one_beyond_misses_it() {
        let met = |value, target| Row::new("pair", "pair", Unit::Ns, vec![value], Some(target)).met;
        assert_eq!(met(40.0, Target::AtMost(40.0)), Some(true));
        assert_eq!(met(40.5, Target::AtMost(40.0)), Some(false));
        assert_eq!(met(0.8, Target::AtLeast(0.8)), Some(true));
        assert_eq!(met(0.7, Target::AtLeast(0.8)), Some(false));
        assert_eq!(Row::new("pair", "pair", Unit::Ns, vec![1.0], None).met, None);
    }

    #[test]
    fn values_are_formatted_in_their_unit() {
        assert_eq!(Unit::Ns.format(38.25), "38.2 ns");
        assert_eq!(Unit::PairsPerS.format(1_660_000.0), "1.66 M/s");
        assert_eq!(Unit::PairsPerS.format(104_300_000.0), "104.3 M/s");
        assert_eq!(Unit::Ratio.format(1.056), "1.056");
    }

    #[test]
    fn the_table_has_a_column_for_each_call_and_judges_each_row() {
        let rows = vec![
            Row::new("pair", "pair", Unit::Ns, vec![30.0, 31.0, 32.0], Some(Target::AtMost(40.0)))
                .beside(Calls::Ordered, vec![1100.0])
                .beside(Calls::Plain, vec![84_000.0])
                .beside(Calls::Mimalloc, vec![9.0]),
            Row::new("scaling", "scaling", Unit::Ratio, vec![0.5], Some(Target::AtLeast(0.8))),
        ];
        let (device, driver, why) = ("GPU".to_owned(), "13.0".to_owned(), "asked for".to_owned());
        let report = Report { device, driver, processors: 2, why, rows };
        assert_eq!(
            report.table(TableStyle { columns: 120, colour: false }),
            "GPU, driver 13.0 (asked for)\n\
            2 processors, mimalloc pair: 9.0 ns\n\
            \n\
            what     freehold          10 to 90 %  cuMemAllocAsync  cuMemAlloc     target\n\
            pair      31.0 ns  30.0 ns to 32.0 ns          1.10 µs    84.00 µs  ≤ 40.0 ns  met\n\
            scaling     0.500      0.500 to 0.500                                 ≥ 0.800  missed\n"
        );
    }
}
