//! The measurements as a table or as JSON, and their targets.

use std::fmt::Write;

use freehold_mpi::{Attempt, AttemptOutcome, Path, Probe, World};
use serde::Serialize;

use crate::Failure;

/// How much the wrapper may cost over raw calls on device memory: an absolute and a relative limit.
const COST_NS_MAX: f64 = 100.0;
const COST_PART_MAX: f64 = 0.02;

/// The minimum share of the slower of pinned copies and raw calls for staged messages, and the length from which it
/// applies.
const STAGED_PART_MIN: f64 = 0.85;
const STAGED_BYTES_MIN: usize = 16 << 20;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    library: String,
    device: String,
    ranks: i32,
    path: &'static str,
    why: String,
    rows: Vec<Judged>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) bytes: usize,
    pub(crate) latency_ns: f64,
    pub(crate) raw_host_latency_ns: f64,
    pub(crate) raw_device_latency_ns: Option<f64>,
    /// Cost over raw calls on device memory.
    pub(crate) cost_ns: Option<f64>,
    pub(crate) bytes_per_s: f64,
    pub(crate) raw_host_bytes_per_s: f64,
    pub(crate) raw_device_bytes_per_s: Option<f64>,
    pub(crate) pinned_copy_bytes_per_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Judged {
    #[serde(flatten)]
    row: Row,
    /// Share of the slower of pinned copies and raw calls on host memory.
    part_of_slower: Option<f64>,
    met: Option<bool>,
}

impl Row {
    fn judged(self, path: Path) -> Judged {
        let slower = self.pinned_copy_bytes_per_s.map(|copy| copy.min(self.raw_host_bytes_per_s));
        let part_of_slower = slower.map(|slower| self.bytes_per_s / slower);
        let met = match path {
            Path::Direct => self
                .cost_ns
                .zip(self.raw_device_latency_ns)
                .map(|(cost_ns, raw_ns)| cost_ns <= COST_NS_MAX || cost_ns <= raw_ns * COST_PART_MAX),
            Path::Shared => None,
            Path::Staged => {
                part_of_slower.filter(|_| self.bytes >= STAGED_BYTES_MIN).map(|part| part >= STAGED_PART_MIN)
            }
        };
        Judged { row: self, part_of_slower, met }
    }
}

impl Report {
    pub(crate) fn new(world: &World, rows: Vec<Row>) -> Result<Self, Failure> {
        let path = world.path_choice().transfers;
        Ok(Self {
            library: freehold_mpi::library(),
            device: world.device().name()?,
            ranks: world.size(),
            path: path.name(),
            why: world.path_choice().reason.clone(),
            rows: rows.into_iter().map(|row| row.judged(path)).collect(),
        })
    }

    pub(crate) fn json(&self) -> String {
        let text = serde_json::to_string(self).expect("numbers and strings serialize");
        format!("{text}\n")
    }

    pub(crate) fn table(&self) -> String {
        let Self { library, device, ranks, path, why, rows } = self;
        let mut text = format!("{library}, {device}, {ranks} ranks, {path}: {why}\n\n");
        let heads =
            ["bytes", "µs", "raw host", "raw device", "GB/s", "raw host", "raw device", "pinned copy", "target"];
        write_row(&mut text, &heads.map(str::to_owned));
        for Judged { row, met, part_of_slower } in rows {
            let us = |ns: f64| format!("{:.2}", ns / 1e3);
            let rate = |rate: f64| format!("{:.3}", rate / 1e9);
            let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            let what = match (row.cost_ns, part_of_slower) {
                (Some(cost_ns), _) => format!("{cost_ns:+.0} ns"),
                (None, Some(part)) => format!("{:.0} %", part * 100.0),
                (None, None) => String::new(),
            };
            let target = match met {
                None => String::new(),
                Some(true) => format!("{what} met"),
                Some(false) => format!("{what} missed"),
            };
            write_row(
                &mut text,
                &[
                    row.bytes.to_string(),
                    us(row.latency_ns),
                    us(row.raw_host_latency_ns),
                    or(row.raw_device_latency_ns.map(us)),
                    rate(row.bytes_per_s),
                    rate(row.raw_host_bytes_per_s),
                    or(row.raw_device_bytes_per_s.map(rate)),
                    or(row.pinned_copy_bytes_per_s.map(rate)),
                    target,
                ],
            );
        }
        text
    }
}

/// Describes a probe as text: each attempt with its output, then the conclusion.
pub(crate) fn describe_probe(probe: &Probe) -> String {
    let Probe { takes_messages, takes_reductions, why, attempts, withheld } = probe;
    let mut text = format!("withheld     {}\n", withheld.join(" "));
    for Attempt { command, took_ms, ending, printed, complained } in attempts {
        let ending = match ending {
            AttemptOutcome::Taken => "took device memory".to_owned(),
            AttemptOutcome::Died(how) => format!("crashed: {how}"),
            AttemptOutcome::Late => "timed out, and was killed".to_owned(),
            AttemptOutcome::NotBegun(why) => format!("did not start: {why}"),
        };
        text += &format!("\n$ {command}\nafter {took_ms} ms  {ending}\n");
        for (name, said) in [("printed", printed), ("complained", complained)] {
            said.lines().for_each(|line| text += &format!("  {name:<12}{line}\n"));
        }
    }
    let takes = |takes: &bool| if *takes { "accept" } else { "do not accept" };
    let (messages, collectives) = (takes(takes_messages), takes(takes_reductions));
    text + &format!("\nmessages {messages} device memory, collective calls {collectives} it\nbecause      {why}\n")
}

fn write_row(text: &mut String, cells: &[String; 9]) {
    let widths = [10, 12, 12, 12, 10, 10, 12, 12, 18];
    for (cell, width) in cells.iter().zip(widths) {
        write!(text, "{cell:>width$}").expect("a string can be written to");
    }
    text.push('\n');
}
