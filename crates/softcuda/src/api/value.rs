//! Memory words that streams write and wait for.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUresult, CUstream, CUstreamBatchMemOpParams, CUstreamBatchMemOpType, wait_value_flags,
    write_value_flags,
};

use super::graph_block::check_allocated;
use crate::engine::work::{WaitValue, Work};
use crate::ffi::args::InArray;
use crate::memory::mem_ref::{MemRef, WordWidth};
use crate::objects::operation::{MemOpsNode, Operation};
use crate::space::span::{Span, SpanKind};
use crate::state::driver_state::{DriverState, driver};

pub(super) const BATCH_COUNT_MAX: u32 = 256;

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

/// Submits operations to a stream as one batch. All are checked before the first is submitted: a refused batch does nothing.
fn submit(stream: CUstream, operations: Vec<CUstreamBatchMemOpParams>, flags: u32) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    let works = works(driver, &operations)?;
    if stream_ref.is_captured() {
        let context = stream_ref.context.handle;
        return stream_ref.capture(Operation::MemOps(MemOpsNode { context, flags, operations, works }));
    }
    let addresses: Vec<_> = operations.iter().map(|operation| operation.address.0).collect();
    check_allocated(driver, &addresses)?;
    for work in works {
        stream_ref.submit_uncaptured(Vec::new(), work)?;
    }
    Ok(())
}

/// Returns the work of operations, in their order.
pub(super) fn works(driver: &DriverState, operations: &[CUstreamBatchMemOpParams]) -> Result<Vec<Work>, CUerror> {
    operations.iter().map(|operation| work(driver, operation)).collect()
}

fn operation(
    kind: CUstreamBatchMemOpType,
    address: CUdeviceptr,
    value: u64,
    flags: u32,
) -> Vec<CUstreamBatchMemOpParams> {
    vec![CUstreamBatchMemOpParams { operation: kind, address, value, flags, ..CUstreamBatchMemOpParams::default() }]
}

pub(crate) fn cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) -> CUresult {
    submit(stream, operation(CUstreamBatchMemOpType::WAIT_VALUE_32, address, value.into(), flags), 0)
}

pub(crate) fn cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) -> CUresult {
    submit(stream, operation(CUstreamBatchMemOpType::WAIT_VALUE_64, address, value, flags), 0)
}

pub(crate) fn cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) -> CUresult {
    submit(stream, operation(CUstreamBatchMemOpType::WRITE_VALUE_32, address, value.into(), flags), 0)
}

pub(crate) fn cuStreamWriteValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) -> CUresult {
    submit(stream, operation(CUstreamBatchMemOpType::WRITE_VALUE_64, address, value, flags), 0)
}

pub(crate) fn cuStreamBatchMemOp_v2(
    stream: CUstream,
    count: u32,
    operations: InArray<CUstreamBatchMemOpParams>,
    flags: u32,
) -> CUresult {
    driver()?.stream_ref(stream)?;
    if flags != 0 || count > BATCH_COUNT_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    submit(stream, operations.read(count as usize)?, flags)
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
