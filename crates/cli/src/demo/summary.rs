//! The results of a run as text or as one JSON object.

use std::path::{Path, PathBuf};

use freehold_mesh::digest;
use freehold_mesh::notes::{Event, Note};
use freehold_mesh::parent::Outcome;
use freehold_mesh::plan::Plan;
use serde::Serialize;

use super::merged_trace::Merged;
use crate::output::size::format;
use crate::output::text::count;

#[derive(Debug, Serialize)]
pub(super) struct Summary {
    device: String,
    #[serde(flatten)]
    plan: Plan,
    /// The SHA-256 of the field, cell by cell from the first row on.
    field: String,
    /// Whether a single process computes the same bits.
    pub(super) same: bool,
    took_ns: u64,
    #[serde(flatten)]
    workers: Option<Workers>,
    files: Files,
}

/// Results of runs in several processes.
#[derive(Debug, Serialize)]
struct Workers {
    killed: Option<Killed>,
    /// The peak over all processes together.
    peak_live_bytes: u64,
    peak_reserved_bytes: u64,
    /// Tile lists copied from the host to the device. Halos are not copied.
    copied_bytes: u64,
    refined_tiles_max: u32,
    growths: usize,
    releases: usize,
    /// The share of refinement in the device's work.
    refinement_part: f64,
    /// Epochs before which the device was idle, because the host had enqueued nothing yet.
    idle_epochs: u32,
    /// The longest call that enqueued work.
    longest_call_ns: u64,
}

#[derive(Debug, Serialize)]
struct Killed {
    worker: u32,
    epoch: u32,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Files {
    pub(super) field: PathBuf,
    pub(super) memory: Option<PathBuf>,
    pub(super) trace: Option<PathBuf>,
}

impl Files {
    pub(super) fn within(folder: &Path) -> Self {
        let file = |name: &str| folder.join(name);
        Self { field: file("field.png"), memory: Some(file("memory.svg")), trace: Some(file("trace.json")) }
    }
}

/// What the workers hold at a time, beyond the domain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemorySample {
    pub(super) live_bytes: u64,
    pub(super) reserved_bytes: u64,
}

/// Returns what each worker holds after each note.
pub(super) fn memory_samples(plan: &Plan, notes: &[Note]) -> Vec<Vec<MemorySample>> {
    let mut now = vec![MemorySample::default(); plan.workers as usize];
    let mut after = Vec::with_capacity(notes.len());
    for note in notes {
        let Note { live_bytes, reserved_bytes, .. } = *note;
        // A process that has ended holds nothing.
        let is_over = matches!(note.event, Event::Killed | Event::Ended { .. });
        now[note.worker as usize] =
            if is_over { MemorySample::default() } else { MemorySample { live_bytes, reserved_bytes } };
        after.push(now.clone());
    }
    after
}

impl Summary {
    pub(super) fn of(
        device: &str,
        plan: &Plan,
        outcome: &Outcome,
        merged: &Merged,
        same: bool,
        files: Files,
    ) -> Option<Self> {
        let notes = &outcome.notes;
        let held = memory_samples(plan, notes);
        let most = |of: fn(&MemorySample) -> u64| held.iter().map(|now| now.iter().map(of).sum::<u64>()).max();
        let mut tiles = vec![0; plan.workers as usize];
        let (mut refined_tiles_max, mut growths, mut releases) = (0, 0, 0);
        let (mut copied_bytes, mut idle_epochs) = (0, 0);
        for note in notes {
            match note.event {
                Event::Refined { tiles: now } => {
                    let before = std::mem::replace(&mut tiles[note.worker as usize], now);
                    growths += usize::from(now > before);
                    releases += usize::from(now < before);
                    refined_tiles_max = refined_tiles_max.max(tiles.iter().sum());
                }
                Event::Ended { copied_bytes: copied, idle_epochs: idle } => {
                    copied_bytes += copied;
                    idle_epochs += idle;
                }
                Event::Killed => tiles[note.worker as usize] = 0,
                Event::Opened | Event::Leased => {}
            }
        }
        let killed = notes.iter().find(|note| note.event == Event::Killed);
        let workers = Workers {
            killed: killed.map(|note| Killed { worker: note.worker, epoch: note.epoch }),
            peak_live_bytes: outcome.domain_bytes + most(|held| held.live_bytes)?,
            peak_reserved_bytes: outcome.segment_bytes + most(|held| held.reserved_bytes)?,
            copied_bytes,
            refined_tiles_max,
            growths,
            releases,
            refinement_part: merged.refinement_part(),
            idle_epochs,
            longest_call_ns: (merged.longest_call_us * 1e3) as u64,
        };
        let (took_ns, field) = (outcome.took.as_nanos() as u64, digest(&outcome.field));
        Some(Self { device: device.to_owned(), plan: *plan, field, same, took_ns, workers: Some(workers), files })
    }

    pub(super) fn of_remote(
        device: String,
        plan: &Plan,
        field: &[f32],
        same: bool,
        took_ns: u64,
        png: PathBuf,
    ) -> Self {
        let files = Files { field: png, memory: None, trace: None };
        Self { device, plan: *plan, field: digest(field), same, took_ns, workers: None, files }
    }

    pub(super) fn text(&self) -> String {
        let Plan { size, steps, workers, seed } = self.plan;
        let took = self.took_ns as f64 / 1e9;
        let mut text = format!("{}\n{size} x {size} cells, {steps} steps, seed {seed}: {took:.1} s", self.device);
        if let Some(of) = &self.workers {
            text += &format!(", {}\n", count(workers.into(), "worker"));
            if let Some(Killed { worker, epoch }) = of.killed {
                text += &format!(
                    "worker {worker} was killed after {} of 8 steps and replaced\n",
                    count(epoch.into(), "epoch")
                );
            }
            let (live, reserved) = (of.peak_live_bytes, of.peak_reserved_bytes);
            let tiles = count(of.refined_tiles_max.into(), "tile");
            text += &format!("live      {} at most, {tiles} refined\n", format(live));
            let part = reserved as f64 / live as f64;
            text += &format!("reserved  {} at most, {part:.3} times live, in chunks of 2 MiB\n", format(reserved));
            text += &format!("copied    {} of tile lists; no halos\n", format(of.copied_bytes));
            text += &format!(
                "refined   {}, {}, ",
                count(of.growths as u64, "growth"),
                count(of.releases as u64, "release")
            );
            text += &format!("{:.1} % of the device's work\n", of.refinement_part * 100.0);
            text += &format!("the device was idle {}\n", count(of.idle_epochs.into(), "time"));
        } else {
            text += "\n";
        }
        text += &format!("field     {}\n", self.field);
        text += match self.same {
            true => "          identical to that of one undisturbed process, bit by bit\n",
            false => "          NOT identical to that of one undisturbed process\n",
        };
        let Files { field, memory, trace } = &self.files;
        text += &format!("{}\n", field.display());
        for (path, what) in [(memory, "who held what"), (trace, "for ui.perfetto.dev")] {
            if let Some(path) = path {
                text += &format!("{}  {what}\n", path.display());
            }
        }
        text
    }
}
