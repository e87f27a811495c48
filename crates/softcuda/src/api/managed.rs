//! Advice and prefetches for managed memory. They are recorded and reported, but have no effect: host and device can
//! always access the memory.

use std::ops::Range;
use std::sync::Arc;

use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUerror, CUmem_advise, CUmem_range_attribute, CUmemLocation, CUmemLocationType, CUresult,
    CUstream, attach_flags,
};

use crate::engine::work::Work;
use crate::ffi::args::{HostAddress, InArray, WordArray};
use crate::memory::advice::{Advice, AdviceMap};
use crate::memory::mem_ref::MemRef;
use crate::objects::context::current;
use crate::space::span::SpanKind;
use crate::state::driver_state::{DriverState, driver};

/// Maximum number of attributes in a call, which is more than there are.
const ATTRIBUTES_MAX: usize = 64;

/// A part of a block of managed memory: the block's advice, and the range of bytes.
struct ManagedRange {
    advices: Arc<AdviceMap>,
    bytes: Range<u64>,
}

fn managed_range(driver: &DriverState, start: CUdeviceptr, bytes: usize) -> Result<ManagedRange, CUerror> {
    let end = start.0.checked_add(bytes as u64).ok_or(CUerror::INVALID_VALUE)?;
    let span =
        driver.space.find_span(start.0).filter(|span| bytes > 0 && end <= span.end()).ok_or(CUerror::INVALID_VALUE)?;
    let SpanKind::Managed { advice: advices, .. } = &span.kind else { return Err(CUerror::INVALID_VALUE) };
    Ok(ManagedRange { advices: Arc::clone(advices), bytes: start.0 - span.base..end - span.base })
}

/// Returns the location of a device, or of the host.
fn location_of(device: CUdevice) -> CUmemLocation {
    let kind = if device == CUdevice::CPU { CUmemLocationType::HOST } else { CUmemLocationType::DEVICE };
    CUmemLocation { kind, id: device.0 }
}

/// Checks that a location exists: a device of this process, the host, or its first NUMA node.
fn check_location(driver: &DriverState, location: CUmemLocation) -> Result<CUmemLocation, CUerror> {
    match location.kind {
        CUmemLocationType::DEVICE => {
            driver.space.device(CUdevice(location.id))?;
            Ok(location)
        }
        CUmemLocationType::HOST => Ok(CUmemLocation { kind: location.kind, id: CUdevice::CPU.0 }),
        CUmemLocationType::HOST_NUMA if location.id == 0 => Ok(location),
        CUmemLocationType::HOST_NUMA_CURRENT => Ok(CUmemLocation { kind: CUmemLocationType::HOST_NUMA, id: 0 }),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

pub(crate) fn cuStreamAttachMemAsync(stream: CUstream, start: CUdeviceptr, bytes: usize, flags: u32) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    let is_single = flags == attach_flags::SINGLE;
    if !is_single && !matches!(flags, attach_flags::GLOBAL | attach_flags::HOST) || is_single && stream_ref.is_legacy()
    {
        return Err(CUerror::INVALID_VALUE);
    }
    // A stream can be attached to whole allocations only.
    let span = driver
        .space
        .find_span(start.0)
        .filter(|span| span.base == start.0 && (bytes == 0 || bytes as u64 == span.bytes));
    if !span.is_some_and(|span| matches!(span.kind, SpanKind::Managed { .. })) {
        return Err(CUerror::INVALID_VALUE);
    }
    stream_ref.submit_uncaptured(Vec::new(), Work::Barrier)?;
    Ok(())
}

pub(crate) fn cuMemPrefetchAsync(start: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) -> CUresult {
    cuMemPrefetchAsync_v2(start, bytes, location_of(device), 0, stream)
}

pub(crate) fn cuMemPrefetchAsync_v2(
    start: CUdeviceptr,
    bytes: usize,
    location: CUmemLocation,
    flags: u32,
    stream: CUstream,
) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    let range = managed_range(driver, start, bytes)?;
    let location = check_location(driver, location)?;
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    stream_ref.submit_uncaptured(Vec::new(), Work::Barrier)?;
    range.advices.update(&range.bytes, |advice| advice.prefetched = Some(location));
    Ok(())
}

pub(crate) fn cuMemAdvise(start: CUdeviceptr, bytes: usize, advice: CUmem_advise, device: CUdevice) -> CUresult {
    cuMemAdvise_v2(start, bytes, advice, location_of(device))
}

pub(crate) fn cuMemAdvise_v2(
    start: CUdeviceptr,
    bytes: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> CUresult {
    let driver = driver()?;
    current()?;
    let range = managed_range(driver, start, bytes)?;
    // Read-mostly advice, and unsetting a preferred location, ignore the location.
    let located = || check_location(driver, location);
    let reader = || match located()?.kind {
        CUmemLocationType::DEVICE => Ok(location.id),
        CUmemLocationType::HOST => Ok(CUdevice::CPU.0),
        _ => Err(CUerror::INVALID_VALUE),
    };
    match advice {
        CUmem_advise::SET_READ_MOSTLY => range.advices.update(&range.bytes, |advice| advice.is_read_mostly = true),
        CUmem_advise::UNSET_READ_MOSTLY => range.advices.update(&range.bytes, |advice| advice.is_read_mostly = false),
        CUmem_advise::SET_PREFERRED_LOCATION => {
            let location = located()?;
            range.advices.update(&range.bytes, |advice| advice.preferred = Some(location));
        }
        CUmem_advise::UNSET_PREFERRED_LOCATION => range.advices.update(&range.bytes, |advice| advice.preferred = None),
        CUmem_advise::SET_ACCESSED_BY => {
            let reader = reader()?;
            range.advices.update(&range.bytes, |advice| {
                advice.accessed_by.insert(reader);
            });
        }
        CUmem_advise::UNSET_ACCESSED_BY => {
            let reader = reader()?;
            range.advices.update(&range.bytes, |advice| {
                advice.accessed_by.remove(&reader);
            });
        }
        _ => return Err(CUerror::INVALID_VALUE),
    }
    Ok(())
}

/// Returns the value that all pages have in common, or `None` if they differ.
fn common<T: PartialEq>(advices: &[Advice], of: impl Fn(&Advice) -> T) -> Option<T> {
    let first = of(advices.first()?);
    advices.iter().all(|advice| of(advice) == first).then_some(first)
}

/// Returns the values of an attribute of a range, at most `count` of them.
fn attribute_values(advices: &[Advice], attribute: CUmem_range_attribute, count: usize) -> Result<Vec<i32>, CUerror> {
    let preferred = || common(advices, |advice| advice.preferred).flatten();
    let prefetched = || common(advices, |advice| advice.prefetched).flatten();
    // The older attribute cannot express a NUMA node of the host.
    let device = |location: Option<CUmemLocation>| match location {
        Some(CUmemLocation { kind: CUmemLocationType::DEVICE | CUmemLocationType::HOST, id }) => id,
        _ => CUdevice::INVALID.0,
    };
    let kind = |location: Option<CUmemLocation>| location.map_or(0, |location| location.kind.0 as i32);
    let id = |location: Option<CUmemLocation>| location.map_or(0, |location| location.id);
    let one = match attribute {
        CUmem_range_attribute::READ_MOSTLY => advices.iter().all(|advice| advice.is_read_mostly).into(),
        CUmem_range_attribute::PREFERRED_LOCATION => device(preferred()),
        CUmem_range_attribute::LAST_PREFETCH_LOCATION => device(prefetched()),
        CUmem_range_attribute::PREFERRED_LOCATION_TYPE => kind(preferred()),
        CUmem_range_attribute::PREFERRED_LOCATION_ID => id(preferred()),
        CUmem_range_attribute::LAST_PREFETCH_LOCATION_TYPE => kind(prefetched()),
        CUmem_range_attribute::LAST_PREFETCH_LOCATION_ID => id(prefetched()),
        CUmem_range_attribute::ACCESSED_BY => {
            let first = advices.first().map(|advice| advice.accessed_by.clone()).unwrap_or_default();
            let by_all = |id: &i32| advices.iter().all(|advice| advice.accessed_by.contains(id));
            let named = first.into_iter().filter(by_all);
            return Ok(named.chain(std::iter::repeat(CUdevice::INVALID.0)).take(count).collect());
        }
        _ => return Err(CUerror::INVALID_VALUE),
    };
    if count == 1 { Ok(vec![one]) } else { Err(CUerror::INVALID_VALUE) }
}

/// Writes one attribute of a range to the program's memory.
fn write_attribute(range: &ManagedRange, attribute: CUmem_range_attribute, data: u64, data_bytes: usize) -> CUresult {
    // A list longer than any number of devices is invalid.
    if data == 0 || data_bytes == 0 || !data_bytes.is_multiple_of(4) || data_bytes / 4 > 1 << 16 {
        return Err(CUerror::INVALID_VALUE);
    }
    let numbers = attribute_values(&range.advices.within(&range.bytes), attribute, data_bytes / 4)?;
    let bytes: Vec<u8> = numbers.into_iter().flat_map(i32::to_le_bytes).collect();
    MemRef::host(data).write(0, &bytes).map_err(|_| CUerror::INVALID_VALUE)
}

pub(crate) fn cuMemRangeGetAttribute(
    data: HostAddress,
    data_bytes: usize,
    attribute: CUmem_range_attribute,
    start: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    write_attribute(&managed_range(driver()?, start, bytes)?, attribute, data.0, data_bytes)
}

pub(crate) fn cuMemRangeGetAttributes(
    data: WordArray,
    data_bytes: InArray<usize>,
    attributes: InArray<CUmem_range_attribute>,
    count: usize,
    start: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    let range = managed_range(driver()?, start, bytes)?;
    if count == 0 || count > ATTRIBUTES_MAX || data.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    let (sizes, attributes) = (data_bytes.read(count)?, attributes.read(count)?);
    for (index, (bytes, attribute)) in sizes.into_iter().zip(attributes).enumerate() {
        write_attribute(&range, attribute, data.read(index)?, bytes)?;
    }
    Ok(())
}
