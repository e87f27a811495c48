//! The same solver for a [`Gpu`] that may be local, at a broker or on another machine. It has no vector that grows in
//! place, and downloads which tiles are steep.

use freehold::Grid;
use freehold_broker::{Argument, Gpu, GpuKernel, GpuResult};
use zerocopy::IntoBytes;

use crate::plan::{Frame, Plan};
use crate::strip::{COARSE_THREADS, FINE_THREADS, KERNELS, PATCH, TILE_THREADS};

/// An upper bound of its device memory: two generations, their lists, and every tile refined, twice while the memory of
/// the cells is replaced.
pub fn memory_bytes(plan: &Plan) -> u64 {
    8 * plan.cells() as u64 + u64::from(plan.tiles()) * (16 * PATCH as u64 + 64) + (16 << 20)
}

/// Computes the field after all steps. `progress` is called with the number of finished epochs.
pub fn solve(gpu: &Gpu, plan: &Plan, mut progress: impl FnMut(u32)) -> GpuResult<Vec<f32>> {
    // SAFETY: every launch below passes buffers of the plan's cells and tiles, and a grid with one block for each entry
    // of the tile lists that it passes.
    let kernel = |name| unsafe { gpu.kernel(KERNELS, name) };
    let (begin, flag, coarse) = (kernel("begin")?, kernel("flag")?, kernel("coarse")?);
    let (prolong, refined, average) = (kernel("prolong")?, kernel("refined")?, kernel("average")?);
    let launch = |kernel: &GpuKernel, blocks: usize, threads: u32, arguments: &[Argument<'_>]| {
        if blocks == 0 { Ok(()) } else { gpu.launch(kernel, Grid::line(blocks as u32, threads), arguments) }
    };
    let [mut field, mut next] = [gpu.alloc::<f32>(plan.cells())?, gpu.alloc::<f32>(plan.cells())?];
    let (size, seed) = (plan.size, plan.seed as u32);
    let arguments = [field.argument(0), size.into(), 0_u32.into(), size.into(), seed.into()];
    launch(&begin, plan.cells().div_ceil(256), 256, &arguments)?;
    let flags = gpu.alloc::<u32>(plan.tiles() as usize)?;
    let (mut tiles, mut list_len, mut fine) = (gpu.alloc::<u32>(1)?, 0, gpu.alloc::<f32>(1)?);
    let mut found = Vec::new();
    for epoch in 0..plan.epochs() {
        let frame: Frame = plan.frame(epoch, 0, 0);
        let frame = || Argument::bytes(frame.as_bytes());
        if plan.look_at(epoch).is_some() {
            let arguments = [flags.argument(0), field.argument(0), 0_u32.into(), frame()];
            launch(&flag, plan.tiles() as usize, FINE_THREADS, &arguments)?;
            found.push(gpu.download(&flags)?);
        }
        if epoch == 0 || plan.look_of(epoch) != plan.look_of(epoch - 1) {
            let flags = &found[plan.look_of(epoch) as usize];
            let (mut list, plain): (Vec<u32>, Vec<u32>) =
                (0..plan.tiles()).partition(|&tile| flags[tile as usize] != 0);
            list_len = list.len();
            list.extend(plain);
            tiles = gpu.upload(&list)?;
            if fine.len() < 2 * list_len * PATCH {
                fine = gpu.alloc(2 * list_len * PATCH)?;
            }
        }
        let plain = [next.argument(0), field.argument(0), tiles.argument(list_len), frame()];
        launch(&coarse, plan.tiles() as usize - list_len, COARSE_THREADS, &plain)?;
        let (mut cells, mut other) = (fine.argument(0), fine.argument(list_len * PATCH));
        let list = tiles.argument(0);
        launch(&prolong, list_len, FINE_THREADS, &[cells.clone(), field.argument(0), list.clone(), frame()])?;
        for done in 1..=plan.frame(epoch, 0, 0).steps {
            launch(&refined, list_len, FINE_THREADS, &[other.clone(), cells.clone(), done.into()])?;
            std::mem::swap(&mut cells, &mut other);
        }
        launch(&average, list_len, TILE_THREADS, &[next.argument(0), cells, list, frame()])?;
        std::mem::swap(&mut field, &mut next);
        progress(epoch + 1);
    }
    gpu.download(&field)
}
