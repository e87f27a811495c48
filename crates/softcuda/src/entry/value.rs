//! Words of memory that streams write and wait for.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUresult, CUstream, CUstreamBatchMemOpParams, CUstreamBatchMemOpType, wait_value_flags,
    write_value_flags,
};

use crate::boundary::List;
use crate::engine::work::{WaitValue, Work};
use crate::memory::place::{Place, Width};
use crate::span::{Span, SpanKind};
use crate::stream::lane;
use crate::world::{World, world};

const BATCH_COUNT_MAX: u32 = 256;

/// Where a word lies, if it lies wholly in memory that the driver knows and that is not managed, on a multiple of its
/// width.
fn word(world: &World, address: CUdeviceptr, width: Width) -> Result<Place, CUerror> {
    let bytes = width.bytes() as u64;
    if !address.0.is_multiple_of(bytes) {
        return Err(CUerror::INVALID_VALUE);
    }
    let fits = |span: &Arc<Span>| address.0 + bytes <= span.end() && !matches!(span.kind, SpanKind::Managed { .. });
    let span = world.span(address.0).filter(fits);
    Ok(world.place(&span.ok_or(CUerror::INVALID_VALUE)?, address.0))
}

fn wait(world: &World, address: CUdeviceptr, width: Width, value: u64, flags: u32) -> Result<Work, CUerror> {
    if flags & wait_value_flags::FLUSH != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    if flags > wait_value_flags::NOR {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(Work::Wait(WaitValue { at: word(world, address, width)?, width, value, comparison: flags }))
}

fn write(world: &World, address: CUdeviceptr, width: Width, value: u64, flags: u32) -> Result<Work, CUerror> {
    // The real driver refuses NO_MEMORY_BARRIER too, where it can write 64 bits.
    if flags != write_value_flags::DEFAULT {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(Work::Write { at: word(world, address, width)?, width, value })
}

pub(crate) fn cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    lane.add(world, wait(world, address, Width::Four, value.into(), flags)?)
}

pub(crate) fn cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    lane.add(world, wait(world, address, Width::Eight, value, flags)?)
}

pub(crate) fn cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    lane.add(world, write(world, address, Width::Four, value.into(), flags)?)
}

pub(crate) fn cuStreamWriteValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    lane.add(world, write(world, address, Width::Eight, value, flags)?)
}

pub(crate) fn cuStreamBatchMemOp_v2(
    stream: CUstream,
    count: u32,
    operations: List<CUstreamBatchMemOpParams>,
    flags: u32,
) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    if flags != 0 || count > BATCH_COUNT_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    // All are checked before the first is added: a refused batch does nothing.
    let operations = operations.read(count as usize)?;
    let works = operations.iter().map(|operation| work(world, operation));
    for work in works.collect::<Result<Vec<_>, _>>()? {
        lane.add(world, work)?;
    }
    Ok(())
}

fn work(world: &World, operation: &CUstreamBatchMemOpParams) -> Result<Work, CUerror> {
    let CUstreamBatchMemOpParams { address, value, flags, .. } = *operation;
    match operation.operation {
        CUstreamBatchMemOpType::WAIT_VALUE_32 => wait(world, address, Width::Four, value & 0xffff_ffff, flags),
        CUstreamBatchMemOpType::WAIT_VALUE_64 => wait(world, address, Width::Eight, value, flags),
        CUstreamBatchMemOpType::WRITE_VALUE_32 => write(world, address, Width::Four, value & 0xffff_ffff, flags),
        CUstreamBatchMemOpType::WRITE_VALUE_64 => write(world, address, Width::Eight, value, flags),
        CUstreamBatchMemOpType::BARRIER => Ok(Work::Nothing),
        CUstreamBatchMemOpType::FLUSH_REMOTE_WRITES => Err(CUerror::NOT_SUPPORTED),
        _ => Err(CUerror::INVALID_VALUE),
    }
}
