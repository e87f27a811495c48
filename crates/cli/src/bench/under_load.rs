//! Releases of blocks and modules while a kernel runs, through the library and through the driver's own calls.
//!
//! Each function is one round next to one kernel, and returns the measured times.

use freehold::{Block, Grid};
use freehold_driver::cuda::{CUdeviceptr, CUstream, event, event_flags, memory, module, stream};

use super::error::Result;
use super::rig::{Rig, VALUES};
use super::stats::timed;

const BLOCK_BYTES: usize = VALUES as usize * size_of::<f32>();

/// Drops blocks used by work queued after the kernel, in the blocks' home stream.
pub(super) fn drops(rig: &Rig, count: usize) -> Result<Vec<f64>> {
    let stream = &rig.stream;
    let mut blocks = blocks(rig, count)?;
    rig.busy(stream)?;
    for block in &mut blocks {
        stream.launch(&rig.scale, Grid::line(1, VALUES), (block, 1.0_f32, VALUES))?;
    }
    let times = blocks.into_iter().map(|block| timed(|| drop(block)).1).collect();
    rig.expect_busy(stream)?;
    stream.synchronize()?;
    Ok(times)
}

/// Drops blocks used in another stream since its last fence: every drop records one.
pub(super) fn drops_with_pending_use(rig: &Rig, count: usize) -> Result<Vec<f64>> {
    let blocks = blocks(rig, count)?;
    rig.busy(&rig.other)?;
    let mut times = Vec::new();
    for mut block in blocks {
        rig.other.launch(&rig.scale, Grid::line(1, VALUES), (&mut block, 1.0_f32, VALUES))?;
        times.push(timed(|| drop(block)).1);
    }
    rig.expect_busy(&rig.other)?;
    rig.other.synchronize()?;
    Ok(times)
}

/// `cuMemFree` of one block, which waits for the kernel (experiments 2.1).
pub(super) fn frees(rig: &Rig) -> Result<Vec<f64>> {
    let api = &rig.opened.api;
    let block = memory::alloc(api, BLOCK_BYTES)?;
    rig.busy(&rig.stream)?;
    rig.raw_scale(block, rig.stream.raw().into())?;
    rig.stream.foreign_work();
    rig.expect_busy(&rig.stream)?;
    let (freed, time) = timed(|| memory::free(api, block));
    freed?;
    rig.stream.synchronize()?;
    Ok(vec![time])
}

/// `cuMemFreeAsync` in the stream of the work.
pub(super) fn async_frees(rig: &Rig, count: usize) -> Result<Vec<f64>> {
    let (api, raw) = (&rig.opened.api, CUstream::from(rig.stream.raw()));
    let blocks = async_blocks(rig, count)?;
    rig.busy(&rig.stream)?;
    for &block in &blocks {
        rig.raw_scale(block, raw)?;
    }
    let mut times = Vec::new();
    for block in blocks {
        let (freed, time) = timed(|| memory::free_async(api, block, raw));
        freed?;
        times.push(time);
    }
    rig.stream.foreign_work();
    rig.expect_busy(&rig.stream)?;
    rig.stream.synchronize()?;
    Ok(times)
}

/// `cuMemFreeAsync` of a block that another stream uses: an event there, a wait here, then the call. Without the first
/// two, the memory is reused too early (experiments 2.2).
pub(super) fn frees_after_join(rig: &Rig, count: usize) -> Result<Vec<f64>> {
    let api = &rig.opened.api;
    let (home, other) = (CUstream::from(rig.stream.raw()), CUstream::from(rig.other.raw()));
    let blocks = async_blocks(rig, count)?;
    let passed = event::create(api, event_flags::DISABLE_TIMING)?;
    rig.busy(&rig.other)?;
    let mut times = Vec::new();
    for block in blocks {
        rig.raw_scale(block, other)?;
        let (freed, time) = timed(|| {
            event::record(api, passed, other)?;
            stream::wait_event(api, home, passed, 0)?;
            memory::free_async(api, block, home)
        });
        freed?;
        times.push(time);
    }
    rig.other.foreign_work();
    rig.stream.foreign_work();
    rig.expect_busy(&rig.other)?;
    rig.other.synchronize()?;
    rig.stream.synchronize()?;
    event::destroy(api, passed)?;
    Ok(times)
}

/// Closes modules that each have a pending launch.
pub(super) fn module_closes(rig: &Rig, count: usize) -> Result<Vec<f64>> {
    let mut loaded = Vec::new();
    for _ in 0..count {
        let module = rig.device.module(&rig.image)?;
        // SAFETY: `nothing` touches no memory.
        loaded.push((unsafe { module.kernel("nothing") }?, module));
    }
    rig.busy(&rig.stream)?;
    let mut times = Vec::new();
    for (kernel, module) in loaded {
        rig.stream.launch(&kernel, Grid::line(1, 1), ())?;
        drop(kernel);
        times.push(timed(|| module.close()).1);
    }
    rig.expect_busy(&rig.stream)?;
    rig.device.synchronize()?;
    Ok(times)
}

/// `cuModuleUnload` of a module with a pending launch, which waits (experiments 4.1).
pub(super) fn unloads(rig: &Rig) -> Result<Vec<f64>> {
    let api = &rig.opened.api;
    let loaded = rig.raw_module()?;
    let nothing = module::function(api, loaded, c"nothing")?;
    // The first launch loads the kernel, which would wait for the running one.
    rig.raw_launch(nothing, rig.stream.raw().into())?;
    rig.stream.foreign_work();
    rig.stream.synchronize()?;
    rig.busy(&rig.stream)?;
    rig.raw_launch(nothing, rig.stream.raw().into())?;
    rig.stream.foreign_work();
    rig.expect_busy(&rig.stream)?;
    let (unloaded, time) = timed(|| module::unload(api, loaded));
    unloaded?;
    rig.stream.synchronize()?;
    Ok(vec![time])
}

fn blocks(rig: &Rig, count: usize) -> Result<Vec<Block<f32>>> {
    let blocks = (0..count).map(|_| rig.stream.zeros(VALUES as usize)).collect::<freehold::Result<_>>()?;
    rig.stream.synchronize()?;
    Ok(blocks)
}

fn async_blocks(rig: &Rig, count: usize) -> Result<Vec<CUdeviceptr>> {
    let (api, raw) = (&rig.opened.api, CUstream::from(rig.stream.raw()));
    let blocks =
        (0..count).map(|_| memory::alloc_async(api, BLOCK_BYTES, raw)).collect::<std::result::Result<_, _>>()?;
    rig.stream.foreign_work();
    rig.stream.synchronize()?;
    Ok(blocks)
}
