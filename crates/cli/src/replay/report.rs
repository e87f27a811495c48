//! A replay's results as a table or as one JSON object.

use anstyle::Style;
use serde::Serialize;

use super::Op;
use super::history::{Anomalies, History};
use super::log::{Kind, Log};
use super::player::AllocatorResult;
use crate::output::size;
use crate::output::table::{TableStyle, columns};
use crate::output::text::{count, format_ns};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) file: String,
    pub(super) kind: Kind,
    pub(super) device: String,
    pub(super) driver: String,
    /// Which device, and why.
    #[serde(skip)]
    pub(super) why: String,
    #[serde(flatten)]
    pub(super) sums: LogSummary,
    pub(super) passes: u32,
    pub(super) allocators: Vec<AllocatorResult>,
    pub(super) oddities: Anomalies,
}

/// What a log contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LogSummary {
    pub(super) allocations: u64,
    pub(super) frees: u64,
    pub(super) uses: u64,
    pub(super) streams: u32,
    /// If no allocation fails.
    pub(super) peak_live_bytes: u64,
}

impl LogSummary {
    pub(super) fn of(history: &History) -> Self {
        let mut sums = Self { allocations: 0, frees: 0, uses: 0, streams: history.streams, peak_live_bytes: 0 };
        let mut sizes = vec![0; history.blocks as usize];
        // A log may allocate more than 64 bits can count.
        let mut live_bytes = 0_u128;
        for op in &history.ops {
            match *op {
                Op::Allocate { id, bytes, .. } => {
                    sums.allocations += 1;
                    sizes[id as usize] = bytes;
                    live_bytes += u128::from(bytes);
                    sums.peak_live_bytes = sums.peak_live_bytes.max(u64::try_from(live_bytes).unwrap_or(u64::MAX));
                }
                Op::Free { id, .. } => {
                    sums.frees += 1;
                    live_bytes -= u128::from(sizes[id as usize]);
                }
                Op::Use { .. } => sums.uses += 1,
            }
        }
        sums
    }
}

const NAMES: [&str; 7] =
    ["allocator", "first pass", "later passes", "peak live", "peak reserved", "reserved/live", "failed"];

/// Which columns are numbers, aligned right.
const IS_NUMBER: [bool; 7] = [false, true, true, true, true, true, true];

impl Report {
    pub(super) fn table(&self, style: TableStyle) -> String {
        let bold = style.style(Style::new().bold());
        let LogSummary { allocations, frees, uses, streams, peak_live_bytes } = self.sums;
        let mut text = format!(
            "{bold}{}, driver {} ({}){bold:#}\n{}, {}: {}, {}, {}, {}, peak live {}\n",
            self.device,
            self.driver,
            self.why,
            self.file,
            self.kind,
            count(allocations, "allocation"),
            count(frees, "free"),
            count(uses, "use"),
            count(streams.into(), "stream"),
            size::format(peak_live_bytes),
        );
        if let Some(sentence) = self.oddities.summary() {
            text.push_str(&format!("{sentence}\n"));
        }
        let rows: Vec<_> = self.allocators.iter().map(|played| (cells(played), None)).collect();
        text.push_str(&format!("\n{}", columns(&NAMES, &IS_NUMBER, &rows, style)));
        text.push_str("Times are means per allocation or free.\n");
        text
    }
}

impl Log {
    pub(super) fn summary(&self) -> LogSummary {
        LogSummary::of(&self.history)
    }
}

fn cells(played: &AllocatorResult) -> [String; 7] {
    [
        played.allocator.to_owned(),
        format_ns(played.first_ns),
        played.later_ns.map_or_else(|| "-".to_owned(), format_ns),
        size::format(played.peak_live_bytes),
        size::format(played.peak_reserved_bytes),
        ratio(played).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
        played.refused.to_string(),
    ]
}

/// Returns peak reserved divided by peak live memory, unless nothing was allocated.
pub(super) fn ratio(played: &AllocatorResult) -> Option<f64> {
    (played.peak_live_bytes > 0).then(|| played.peak_reserved_bytes as f64 / played.peak_live_bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::super::history::HistoryBuilder;
    use super::*;

    fn report() -> Report {
        let mut builder = HistoryBuilder::default();
        builder.alloc(1, 3 << 20, (0, 0));
        builder.record_use(1, (1, 0));
        builder.free(1, None, (0, 0));
        builder.free(1, None, (0, 0));
        let history = builder.finish();
        let played = |allocator, first_ns, later_ns, refused| AllocatorResult {
            allocator,
            first_ns,
            later_ns,
            peak_live_bytes: if refused == 0 { 3 << 20 } else { 0 },
            peak_reserved_bytes: 32 << 20,
            refused,
            samples: Vec::new(),
        };
        Report {
            file: "a.csv".to_owned(),
            kind: Kind::Rmm,
            device: "Device".to_owned(),
            driver: "13.0".to_owned(),
            why: "asked for".to_owned(),
            sums: LogSummary::of(&history),
            passes: 2,
            allocators: vec![
                played("cuMemAllocAsync", 12_345.0, Some(550.0), 0),
                played("cuMemAlloc", 78_600.0, None, 1),
            ],
            oddities: history.oddities,
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_allocator() {
        let text = report().table(TableStyle { columns: 120, colour: false });
        let expected = "\
Device, driver 13.0 (asked for)
a.csv, an RMM log: 1 allocation, 1 free, 1 use, 2 streams, peak live 3.0 MiB
anomalies in the log: 1 freed twice (skipped)

allocator        first pass  later passes  peak live  peak reserved  reserved/live  failed
cuMemAllocAsync    12.35 µs        550 ns    3.0 MiB       32.0 MiB         10.667       0
cuMemAlloc         78.60 µs             -        0 B       32.0 MiB              -       1
Times are means per allocation or free.
";
        assert_eq!(text, expected);
    }

    #[test]
    fn more_bytes_than_a_number_holds_are_the_most_it_holds() {
        let mut builder = HistoryBuilder::default();
        builder.alloc(1, u64::MAX, (0, 0));
        builder.alloc(2, u64::MAX, (0, 0));
        builder.free(1, None, (0, 0));
        let sums = LogSummary::of(&builder.finish());
        assert_eq!((sums.peak_live_bytes, sums.allocations, sums.frees), (u64::MAX, 2, 1));
    }
}
