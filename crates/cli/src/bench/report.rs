//! A report as a table or as one JSON object.

use anstyle::Style;
use serde::Serialize;

use super::stats::Percentiles;
use crate::output::table::{TableStyle, columns};
use crate::output::text::format_ns;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) device: String,
    pub(super) driver: String,
    /// Which device, and why.
    #[serde(skip)]
    pub(super) why: String,
    pub(super) rows: Vec<Row>,
}

/// One measured operation.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    id: &'static str,
    what: &'static str,
    ours: Percentiles,
    driver: Option<Driver>,
    /// Our median divided by the driver's.
    ratio: Option<f64>,
    target: Option<Target>,
    met: Option<bool>,
}

/// The driver's own calls for the same purpose.
#[derive(Debug, Serialize)]
struct Driver {
    call: &'static str,
    #[serde(flatten)]
    times: Percentiles,
}

/// The limit of a median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Target {
    AtMost { ns: f64 },
    OverDriver { percent: f64 },
    TimesAsFast { times: f64 },
}

impl Row {
    pub(super) fn new(id: &'static str, what: &'static str, ours: Percentiles, target: Option<Target>) -> Self {
        let mut row = Self { id, what, ours, driver: None, ratio: None, target, met: None };
        row.judge();
        row
    }

    /// Adds the times of the driver's own calls.
    pub(super) fn beside(mut self, call: &'static str, times: Percentiles) -> Self {
        self.ratio = Some(self.ours.median_ns / times.median_ns);
        self.driver = Some(Driver { call, times });
        self.judge();
        self
    }

    fn judge(&mut self) {
        self.met = match self.target {
            Some(Target::AtMost { ns }) => Some(self.ours.median_ns <= ns),
            Some(Target::OverDriver { percent }) => self.ratio.map(|ratio| ratio <= 1.0 + percent / 100.0),
            Some(Target::TimesAsFast { times }) => self.ratio.map(|ratio| ratio * times <= 1.0),
            None => None,
        };
    }

    /// Returns the cells before the verdict.
    fn cells(&self) -> [String; 7] {
        let Percentiles { median_ns, p10_ns, p90_ns } = self.ours;
        let target = match self.target {
            Some(Target::AtMost { ns }) => format_ns(ns),
            Some(Target::OverDriver { percent }) => format!("+{percent} %"),
            Some(Target::TimesAsFast { times }) => format!("1/{times}"),
            None => String::new(),
        };
        let (call, drivers) = match &self.driver {
            Some(Driver { call, times }) => (*call, format_ns(times.median_ns)),
            None => ("", String::new()),
        };
        [
            self.what.to_owned(),
            format_ns(median_ns),
            format!("{} to {}", format_ns(p10_ns), format_ns(p90_ns)),
            call.to_owned(),
            drivers,
            self.ratio.map_or_else(String::new, proportion),
            target,
        ]
    }
}

const NAMES: [&str; 7] = ["what", "median", "10 to 90 %", "driver's call", "median", "ratio", "target"];

/// Which columns are numbers, aligned right.
const IS_NUMBER: [bool; 7] = [false, true, true, false, true, true, true];

impl Report {
    pub(super) fn table(&self, style: TableStyle) -> String {
        let rows: Vec<_> = self.rows.iter().map(|row| (row.cells(), row.met)).collect();
        let bold = style.style(Style::new().bold());
        let heading = format!("{}, driver {} ({})", self.device, self.driver, self.why);
        format!("{bold}{heading}{bold:#}\n\n{}", columns(&NAMES, &IS_NUMBER, &rows, style))
    }
}

/// Formats a ratio: far below 1 as 1/N.
fn proportion(ratio: f64) -> String {
    if ratio < 0.1 { format!("1/{:.0}", 1.0 / ratio) } else { format!("{ratio:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median_ns: f64) -> Percentiles {
        Percentiles { median_ns, p10_ns: median_ns - 1.0, p90_ns: median_ns + 1.0 }
    }

    #[test]
    fn a_median_at_the_target_meets_it_and_one_above_misses_it() {
        let met = |ns| Row::new("release", "release", spread(ns), Some(Target::AtMost { ns: 1000.0 })).met;
        assert_eq!(met(1000.0), Some(true));
        assert_eq!(met(1000.5), Some(false));
    }

    #[test]
    fn a_target_relative_to_the_driver_is_judged_against_it() {
        let row = |ns| Row::new("launch", "launch", spread(ns), Some(Target::OverDriver { percent: 5.0 }));
        assert_eq!(row(104.0).met, None);
        assert_eq!(row(104.0).beside("cuLaunchKernel", spread(100.0)).met, Some(true));
        assert_eq!(row(106.0).beside("cuLaunchKernel", spread(100.0)).met, Some(false));
    }

    #[test]
    fn a_speedup_target_is_the_inverse_ratio() {
        let row = |ns| Row::new("pair", "pair", spread(ns), Some(Target::TimesAsFast { times: 20.0 }));
        assert_eq!(row(5.0).beside("clSVMAlloc", spread(100.0)).met, Some(true));
        assert_eq!(row(5.1).beside("clSVMAlloc", spread(100.0)).met, Some(false));
    }

    #[test]
    fn the_ratio_is_ours_by_the_drivers() {
        assert_eq!(
            Row::new("launch", "launch", spread(104.0), None).beside("cuLaunchKernel", spread(100.0)).ratio,
            Some(1.04)
        );
        assert_eq!(Row::new("owner-of", "owner_of", spread(104.0), None).ratio, None);
    }

    #[test]
    fn without_a_target_nothing_is_judged() {
        assert_eq!(Row::new("allocate", "allocate", spread(1.0), None).beside("cuMemAlloc", spread(9.0)).met, None);
    }

    #[test]
    fn a_small_ratio_is_one_part_of_many() {
        assert_eq!(proportion(1.02), "1.020");
        assert_eq!(proportion(0.000_001), "1/1000000");
    }

    #[test]
    fn the_table_names_the_device_and_judges_each_row() {
        let rows = vec![
            Row::new("release", "release", spread(90.0), Some(Target::AtMost { ns: 1000.0 }))
                .beside("cuMemFree", spread(2e8)),
            Row::new("owner-of", "owner_of", spread(60.0), Some(Target::AtMost { ns: 50.0 })),
        ];
        let report = Report { device: "GPU".into(), driver: "13.0".into(), why: "asked for".into(), rows };
        let text = report.table(TableStyle { columns: 120, colour: false });
        assert_eq!(
            text,
            "GPU, driver 13.0 (asked for)\n\
            \n\
            what       median          10 to 90 %  driver's call    median      ratio   target\n\
            release   90.0 ns  89.0 ns to 91.0 ns  cuMemFree      200.0 ms  1/2222222  1.00 µs  met\n\
            owner_of  60.0 ns  59.0 ns to 61.0 ns                                      50.0 ns  missed\n"
        );
    }
}
