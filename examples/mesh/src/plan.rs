//! What is computed: the domain, its epochs, its hot discs, and the rows of each worker. All of it follows from four
//! numbers. Pure.

use std::fmt;
use std::ops::Range;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Cells along the edge of a tile, which is refined as a whole.
pub const TILE: u32 = 32;
/// The most steps of an epoch, which reads one generation and writes the next.
pub const STEPS: u32 = 8;
/// Cells along the edge of a fine patch: those of a tile at half the width, and one more on each side for each step.
pub const FINE: u32 = 2 * TILE + 2 * STEPS;

/// Epochs between two flag passes, which find out which tiles are steep.
const EPOCHS_TO_LOOK: u32 = 4;
/// Epochs from a flag pass to the refinement, so that the host has read the flags by then and the device is never idle.
const EPOCHS_TO_HEAR: u32 = 2;

/// Beyond this the square of a distance overflows `i32`.
const SIZE_MAX: u32 = 16_384;
/// Each is a process.
const WORKERS_MAX: u32 = 64;
const SOURCES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Coarse cells along the edge of the domain.
    pub size: u32,
    pub steps: u32,
    pub workers: u32,
    pub seed: u64,
}

/// Why a plan is invalid.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("a size of {0} cells: expected a multiple of {TILE} from {TILE} to {SIZE_MAX}, as in --size 256")]
    Size(u32),
    #[error("0 steps: expected --steps 1 or more")]
    NoSteps,
    #[error("--workers {workers}: expected 1 to {most}{}", rows_text(*.rows))]
    Workers { workers: u32, rows: u32, most: u32 },
}

/// Says why there are no more workers, unless it is because of [`WORKERS_MAX`].
fn rows_text(rows: u32) -> String {
    match rows {
        ..=WORKERS_MAX => format!(" (--size {} has {rows} rows of tiles; at most one worker each)", rows * TILE),
        _ => String::new(),
    }
}

/// Prints the message of `Display`, which `main` and `unwrap` then show.
impl fmt::Debug for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The parameters of an epoch, as kernels read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Frame {
    pub size: i32,
    /// The first rows of the memory that is read and of the memory that is written.
    pub in_row: i32,
    pub out_row: i32,
    pub steps: i32,
    /// Hot discs.
    pub x: [i32; SOURCES],
    pub y: [i32; SOURCES],
    pub radius: [i32; SOURCES],
}

impl Plan {
    /// The defaults of the demo.
    pub const DEMO: Self = Self { size: 256, steps: 160, workers: 4, seed: 1 };

    /// Checks that a plan can be computed.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.size == 0 || !self.size.is_multiple_of(TILE) || self.size > SIZE_MAX {
            return Err(PlanError::Size(self.size));
        }
        if self.steps == 0 {
            return Err(PlanError::NoSteps);
        }
        let (workers, rows, most) = (self.workers, self.tile_rows(), self.workers_max());
        if workers == 0 || workers > most { Err(PlanError::Workers { workers, rows, most }) } else { Ok(()) }
    }

    /// Returns how many workers can share the domain.
    pub fn workers_max(&self) -> u32 {
        self.tile_rows().min(WORKERS_MAX)
    }

    /// Rows of tiles, which is also the number of tiles in each row.
    pub fn tile_rows(&self) -> u32 {
        self.size / TILE
    }

    pub fn tiles(&self) -> u32 {
        self.tile_rows() * self.tile_rows()
    }

    pub fn cells(&self) -> usize {
        self.size as usize * self.size as usize
    }

    /// The range of cells of some rows.
    pub fn cells_of(&self, rows: &Range<u32>) -> Range<usize> {
        rows.start as usize * self.size as usize..rows.end as usize * self.size as usize
    }

    pub fn epochs(&self) -> u32 {
        self.steps.div_ceil(STEPS)
    }

    /// The rows of tiles of a worker.
    pub fn strip(&self, worker: u32) -> Range<u32> {
        let edge = |worker: u32| (u64::from(worker) * u64::from(self.tile_rows()) / u64::from(self.workers)) as u32;
        edge(worker)..edge(worker + 1)
    }

    /// The rows of cells that an epoch of these rows of tiles reads.
    pub fn reads(&self, strip: &Range<u32>) -> Range<u32> {
        (strip.start * TILE).saturating_sub(STEPS)..(strip.end * TILE + STEPS).min(self.size)
    }

    /// The flag pass, counted from 0, that applies to an epoch.
    pub fn look_of(&self, epoch: u32) -> u32 {
        epoch.saturating_sub(EPOCHS_TO_HEAR) / EPOCHS_TO_LOOK
    }

    /// The flag pass that an epoch makes, on the generation that it begins with.
    pub fn look_at(&self, epoch: u32) -> Option<u32> {
        epoch.is_multiple_of(EPOCHS_TO_LOOK).then_some(epoch / EPOCHS_TO_LOOK)
    }

    /// The worker to kill, and after how many of its epochs.
    pub fn victim(&self) -> (u32, u32) {
        (random(self.seed, 99) as u32 % self.workers, self.epochs() / 2)
    }

    pub fn frame(&self, epoch: u32, in_row: u32, out_row: u32) -> Frame {
        let (steps, size) = (STEPS.min(self.steps - epoch * STEPS), self.size as i32);
        let [mut x, mut y, mut radius] = [[0; SOURCES]; 3];
        for disc in 0..SOURCES {
            let part = |what: u64, of: i32| (random(self.seed, disc as u64 * 8 + what) % of.max(1) as u64) as i32;
            let along = |what: u64| {
                let speed = size / 96 + part(what + 2, size / 48) + 1;
                triangle(part(what, 2 * size).wrapping_add(epoch as i32 * speed), size - 1)
            };
            (x[disc], y[disc]) = (along(0), along(1));
            radius[disc] = size / 48 + size / 12 * triangle(part(5, 64) + epoch as i32, 32) / 32;
        }
        Frame { size, in_row: in_row as i32, out_row: out_row as i32, steps: steps as i32, x, y, radius }
    }
}

/// A triangle wave from 0 to `top` and back.
fn triangle(at: i32, top: i32) -> i32 {
    let within = at.rem_euclid(2 * top.max(1));
    within.min(2 * top.max(1) - within)
}

/// The `which`-th random number of a seed.
fn random(seed: u64, which: u64) -> u64 {
    let mut numbers = SplitMix64::seed_from_u64(seed);
    for _ in 0..which {
        numbers.next_u64();
    }
    numbers.next_u64()
}
