//! Rows of tiles on a device: kernels, refined cells, one epoch. It knows neither processes nor neighbours.
//!
//! Nothing here waits for the device: kernels are submitted to a stream, the vector of refined cells grows while they
//! run, and memory that it no longer needs is freed when they are complete.

use std::ops::Range;

use freehold::{Block, Device, DeviceVec, Grid, Image, Kernel, Stream, Value, View, ViewMut};

use crate::plan::{FINE, Plan, TILE};

/// PTX of the kernels.
pub const KERNELS: &str = include_str!("../kernels/mesh.ptx");

/// Threads of a block: whole rows of what the kernel processes.
pub(crate) const COARSE_THREADS: u32 = 384;
pub(crate) const FINE_THREADS: u32 = 320;
pub(crate) const TILE_THREADS: u32 = 256;

/// Cells of a fine patch.
pub(crate) const PATCH: usize = (FINE * FINE) as usize;

#[derive(Debug)]
pub struct Strip {
    plan: Plan,
    rows: Range<u32>,
    kernels: [Kernel; 6],
    /// The numbers of all tiles, the refined ones first, and how many those are.
    tiles: Block<u32>,
    pub refined: usize,
    /// A patch for each refined tile, then a second one for each: steps go from one to the other.
    fine: DeviceVec<f32>,
    /// Bytes copied from the host to the device.
    pub copied_bytes: u64,
}

impl Strip {
    /// Creates rows of tiles, none of which is refined.
    pub fn new(device: &Device, stream: &Stream, plan: &Plan, rows: Range<u32>) -> freehold::Result<Self> {
        let module = device.module(&Image::ptx(KERNELS)?)?;
        let names = ["begin", "flag", "coarse", "prolong", "refined", "average"];
        // SAFETY: they are only launched here. Each processes as many rows, tiles or patches as its grid and frame say,
        // and `begin`, `look` and `epoch` have checked that the memory has them.
        let [begin, flag, coarse, prolong, refined, average] = names.map(|name| unsafe { module.kernel(name) });
        let kernels = [begin?, flag?, coarse?, prolong?, refined?, average?];
        let (tiles, fine) = (stream.alloc(1)?, DeviceVec::new(stream)?);
        let mut strip = Self { plan: *plan, rows, kernels, tiles, refined: 0, fine, copied_bytes: 0 };
        strip.refine(stream, &vec![0; strip.count() as usize])?;
        Ok(strip)
    }

    /// The number of its tiles.
    pub fn count(&self) -> u32 {
        (self.rows.end - self.rows.start) * self.plan.tile_rows()
    }

    /// The number of its first tile.
    pub fn first(&self) -> u32 {
        self.rows.start * self.plan.tile_rows()
    }

    /// Its own device memory.
    pub fn live_bytes(&self) -> u64 {
        ((self.fine.len() + self.tiles.len()) * 4) as u64
    }

    /// Computes rows of the initial field.
    pub fn begin(&self, stream: &Stream, field: &mut ViewMut<'_, f32>, rows: Range<u32>) -> freehold::Result<()> {
        assert!(field.len() >= self.plan.cells_of(&rows).len(), "memory for all rows");
        let ([begin, ..], Plan { size, seed, .. }, count) = (&self.kernels, self.plan, rows.end - rows.start);
        let grid = Grid::cover(u64::from(count) * u64::from(size), 256);
        stream.launch(begin, grid, (field, size, rows.start, count, seed as u32))
    }

    /// Flags the steep tiles, one word each, in stream order.
    pub fn look(
        &self,
        stream: &Stream,
        epoch: u32,
        (from, in_row): (&View<'_, f32>, u32),
        flags: &mut ViewMut<'_, u32>,
    ) -> freehold::Result<()> {
        self.expect_read(from, in_row);
        assert!(flags.len() >= self.count() as usize, "a word for each tile");
        let ([_, flag, ..], frame) = (&self.kernels, Value(self.plan.frame(epoch, in_row, 0)));
        stream.launch(flag, Grid::line(self.count(), FINE_THREADS), (flags, from, self.first(), frame))
    }

    /// Checks that `from`, which begins with row `in_row`, has all rows that the strip reads.
    fn expect_read(&self, from: &View<'_, f32>, in_row: u32) {
        let reads = self.plan.reads(&self.rows);
        let rows = in_row..reads.end;
        assert!(
            in_row <= reads.start && from.len() >= self.plan.cells_of(&rows).len(),
            "memory of the rows that are read"
        );
    }

    /// Refines the flagged tiles from now on. The memory of the cells is resized to fit.
    pub fn refine(&mut self, stream: &Stream, flags: &[u32]) -> freehold::Result<()> {
        let tiles = self.first()..self.first() + self.count();
        let (mut list, plain): (Vec<u32>, Vec<u32>) =
            tiles.partition(|tile| flags[(tile - self.first()) as usize] != 0);
        self.refined = list.len();
        list.extend(plain);
        // Kernels may still read the old list: its memory is reused after them.
        self.tiles = stream.upload(&list)?;
        self.copied_bytes += (list.len() * 4) as u64;
        let cells = 2 * self.refined * PATCH;
        self.fine.truncate(cells);
        let more = cells - self.fine.len();
        self.fine.reserve(stream, more)?;
        self.fine.extend_unset(stream, more)?; // an epoch writes cells before it reads them
        self.fine.shrink_to_fit()
    }

    /// Computes an epoch of all tiles, from one generation to the next. `from` has the rows that the strip reads, `to`
    /// its own rows.
    pub fn epoch(
        &mut self,
        stream: &Stream,
        epoch: u32,
        (from, in_row): (&View<'_, f32>, u32),
        to: &mut ViewMut<'_, f32>,
    ) -> freehold::Result<()> {
        self.expect_read(from, in_row);
        let own = self.rows.start * TILE..self.rows.end * TILE;
        assert!(to.len() >= self.plan.cells_of(&own).len(), "memory for the strip's rows");
        let [_, _, coarse, prolong, refined, average] = &self.kernels;
        let frame = self.plan.frame(epoch, in_row, self.rows.start * TILE);
        let (count, plain) = (self.refined as u32, self.count() - self.refined as u32);
        if plain > 0 {
            let list = self.tiles.view(self.refined..)?;
            stream.launch(coarse, Grid::line(plain, COARSE_THREADS), (&mut *to, from, &list, Value(frame)))?;
        }
        if count == 0 {
            return Ok(());
        }
        let list = self.tiles.view(..self.refined)?;
        let (mut cells, mut next) = self.fine.view_mut(..)?.split_at(self.refined * PATCH)?;
        stream.launch(prolong, Grid::line(count, FINE_THREADS), (&mut cells, from, &list, Value(frame)))?;
        for done in 1..=frame.steps {
            stream.launch(refined, Grid::line(count, FINE_THREADS), (&mut next, &cells, done))?;
            std::mem::swap(&mut cells, &mut next);
        }
        stream.launch(average, Grid::line(count, TILE_THREADS), (&mut *to, &cells, &list, Value(frame)))
    }
}
