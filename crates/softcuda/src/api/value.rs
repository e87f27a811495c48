//! Memory words that streams write and wait for.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUresult, CUstream, CUstreamBatchMemOpParams, CUstreamBatchMemOpType, wait_value_flags,
    write_value_flags,
};

use crate::engine::work::{WaitValue, Work};
use crate::ffi::args::InArray;
use crate::memory::mem_ref::{MemRef, WordWidth};
use crate::space::span::{Span, SpanKind};
use crate::state::driver_state::{DriverState, driver};

const BATCH_COUNT_MAX: u32 = 256;

/// Returns a reference to a word. The word must be aligned to its width and lie wholly in memory that the driver knows
/// and that is not managed.
fn word_ref(driver: &DriverState, address: CUdeviceptr, width: WordWidth) -> Result<MemRef, CUerror> {
    let bytes = width.bytes() as u64;
    if !address.0.is_multiple_of(bytes) {
        return Err(CUerror::INVALID_VALUE);
    }
    let fits = |span: &Arc<Span>| address.0 + bytes <= span.end() && !matches!(span.kind, SpanKind::Managed { .. });
    let span = driver.space.find_span(address.0).filter(fits);
    Ok(driver.space.mem_ref(&span.ok_or(CUerror::INVALID_VALUE)?, address.0))
}

fn wait(driver: &DriverState, address: CUdeviceptr, width: WordWidth, value: u64, flags: u32) -> Result<Work, CUerror> {
    if flags & wait_value_flags::FLUSH != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    if flags > wait_value_flags::NOR {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(Work::WaitValue(WaitValue { at: word_ref(driver, address, width)?, width, value, comparison: flags }))
}

fn write(
    driver: &DriverState,
    address: CUdeviceptr,
    width: WordWidth,
    value: u64,
    flags: u32,
) -> Result<Work, CUerror> {
    // The real driver refuses NO_MEMORY_BARRIER too if it can write 64 bits.
    if flags != write_value_flags::DEFAULT {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(Work::WriteValue { at: word_ref(driver, address, width)?, width, value })
}

pub(crate) fn cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    stream_ref.submit(wait(driver, address, WordWidth::Four, value.into(), flags)?)
}

pub(crate) fn cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    stream_ref.submit(wait(driver, address, WordWidth::Eight, value, flags)?)
}

pub(crate) fn cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    stream_ref.submit(write(driver, address, WordWidth::Four, value.into(), flags)?)
}

pub(crate) fn cuStreamWriteValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    stream_ref.submit(write(driver, address, WordWidth::Eight, value, flags)?)
}

pub(crate) fn cuStreamBatchMemOp_v2(
    stream: CUstream,
    count: u32,
    operations: InArray<CUstreamBatchMemOpParams>,
    flags: u32,
) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    if flags != 0 || count > BATCH_COUNT_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    // All operations are checked before the first is submitted: a refused batch does nothing.
    let operations = operations.read(count as usize)?;
    let works = operations.iter().map(|operation| work(driver, operation));
    for work in works.collect::<Result<Vec<_>, _>>()? {
        stream_ref.submit(work)?;
    }
    Ok(())
}

fn work(driver: &DriverState, operation: &CUstreamBatchMemOpParams) -> Result<Work, CUerror> {
    let CUstreamBatchMemOpParams { address, value, flags, .. } = *operation;
    match operation.operation {
        CUstreamBatchMemOpType::WAIT_VALUE_32 => wait(driver, address, WordWidth::Four, value & 0xffff_ffff, flags),
        CUstreamBatchMemOpType::WAIT_VALUE_64 => wait(driver, address, WordWidth::Eight, value, flags),
        CUstreamBatchMemOpType::WRITE_VALUE_32 => write(driver, address, WordWidth::Four, value & 0xffff_ffff, flags),
        CUstreamBatchMemOpType::WRITE_VALUE_64 => write(driver, address, WordWidth::Eight, value, flags),
        CUstreamBatchMemOpType::BARRIER => Ok(Work::Barrier),
        CUstreamBatchMemOpType::FLUSH_REMOTE_WRITES => Err(CUerror::NOT_SUPPORTED),
        _ => Err(CUerror::INVALID_VALUE),
    }
}
