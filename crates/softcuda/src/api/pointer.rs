//! Pointer attributes and address ranges.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use freehold_driver::cuda::{
    CUcontext, CUdeviceptr, CUerror, CUmemAccess_flags, CUmemoryPool, CUmemorytype, CUpointer_attribute, CUresult,
};

use crate::ffi::args::{InArray, UntypedPtr};
use crate::memory::page_heap::PAGE_BYTES;
use crate::objects::pool::CHUNK_BYTES;
use crate::space::imports::ImportedBlock;
use crate::space::span::{Span, SpanKind};
use crate::state::driver_state::driver;

/// Maximum number of attributes in a call, which is more than there are.
const ATTRIBUTES_MAX: u32 = 64;

pub(crate) fn cuPointerGetAttribute(
    data: UntypedPtr,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> CUresult {
    let span = driver()?.space.find_span(address.0);
    write_attribute(data, attribute, address.0, span.as_deref(), Missing::IsAnError)
}

pub(crate) fn cuPointerGetAttributes(
    count: u32,
    attributes: InArray<CUpointer_attribute>,
    data: InArray<*mut c_void>,
    address: CUdeviceptr,
) -> CUresult {
    if count == 0 || count > ATTRIBUTES_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    let (attributes, data) = (attributes.read(count as usize)?, data.read(count as usize)?);
    let span = driver()?.space.find_span(address.0);
    for (attribute, data) in attributes.into_iter().zip(data) {
        write_attribute(UntypedPtr::new(data), attribute, address.0, span.as_deref(), Missing::IsZero)?;
    }
    Ok(())
}

/// The value of an attribute for an address that the driver does not know.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    IsAnError,
    IsZero,
}

/// Writes an attribute. Booleans are 32 bits wide, as the real driver writes them.
fn write_attribute(
    data: UntypedPtr,
    attribute: CUpointer_attribute,
    address: u64,
    span: Option<&Span>,
    missing: Missing,
) -> CUresult {
    let Some(span) = span else {
        return match missing {
            Missing::IsAnError => Err(CUerror::INVALID_VALUE),
            Missing::IsZero => write_unknown(data, attribute),
        };
    };
    let on_device = !span.is_on_host() && !matches!(span.kind, SpanKind::Managed { .. });
    let pool = match &span.kind {
        SpanKind::Pool(pool) | SpanKind::Imported(ImportedBlock { pool: Some(pool), .. }) => Some(pool),
        _ => None,
    };
    let (start, bytes) = enclosing_range(span)?;
    match attribute {
        CUpointer_attribute::CONTEXT => {
            data.set(span.context.as_ref().map_or(CUcontext::NULL, |context| context.handle))
        }
        CUpointer_attribute::MEMORY_TYPE => {
            data.set(if span.is_on_host() { CUmemorytype::HOST } else { CUmemorytype::DEVICE })
        }
        CUpointer_attribute::DEVICE_POINTER if span.is_inaccessible() => Err(CUerror::INVALID_VALUE),
        CUpointer_attribute::DEVICE_POINTER => data.set(address),
        CUpointer_attribute::HOST_POINTER if on_device && !is_host_visible(span)? => Err(CUerror::INVALID_VALUE),
        CUpointer_attribute::HOST_POINTER => data.set(address),
        CUpointer_attribute::SYNC_MEMOPS => data.set(i32::from(span.sync_memops.load(Ordering::Relaxed))),
        CUpointer_attribute::BUFFER_ID => data.set(span.id),
        CUpointer_attribute::IS_MANAGED => data.set(u32::from(matches!(span.kind, SpanKind::Managed { .. }))),
        CUpointer_attribute::DEVICE_ORDINAL => data.set(span.device as i32),
        CUpointer_attribute::IS_LEGACY_CUDA_IPC_CAPABLE => data.set(u32::from(matches!(span.kind, SpanKind::Device))),
        CUpointer_attribute::RANGE_START_ADDR => data.set(start),
        CUpointer_attribute::RANGE_SIZE => data.set(bytes as usize),
        CUpointer_attribute::MAPPED => data.set(1u32),
        CUpointer_attribute::ALLOWED_HANDLE_TYPES => data.set(handle_types(span)),
        CUpointer_attribute::IS_GPU_DIRECT_RDMA_CAPABLE => data.set(0u32),
        CUpointer_attribute::ACCESS_FLAGS => data.set(access(span)),
        CUpointer_attribute::MEMPOOL_HANDLE => data.set(pool.map_or(CUmemoryPool::NULL, |pool| pool.handle)),
        CUpointer_attribute::MAPPING_SIZE => data.set(mapping_bytes(span) as usize),
        CUpointer_attribute::MAPPING_BASE_ADDR => data.set(span.base),
        CUpointer_attribute::MEMORY_BLOCK_ID => data.set(block_id(span)),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Returns whether the host can access device memory at its device address.
fn is_host_visible(span: &Span) -> Result<bool, CUerror> {
    Ok(driver()?.space.reservations.arena().is_coherent() && !span.is_inaccessible())
}

/// Returns the start and length of the range that contains a block: for a mapping, the reservation.
fn enclosing_range(span: &Span) -> Result<(u64, u64), CUerror> {
    match span.kind {
        SpanKind::Mapped(_) => driver()?.space.reservations.containing(span.base).ok_or(CUerror::INVALID_VALUE),
        _ => Ok((span.base, span.bytes)),
    }
}

fn handle_types(span: &Span) -> u64 {
    match &span.kind {
        SpanKind::Mapped(mapping) => mapping.allocation.prop.requestedHandleTypes.0.into(),
        _ => 0,
    }
}

fn access(span: &Span) -> u32 {
    match &span.kind {
        SpanKind::Mapped(mapping) => mapping.access(span.device).0,
        _ => CUmemAccess_flags::PROT_READWRITE.0,
    }
}

/// Returns how many bytes of the reservation around a block are mapped with it.
fn mapping_bytes(span: &Span) -> u64 {
    match span.kind {
        SpanKind::Imported(ImportedBlock { pool: Some(_), .. }) => span.bytes.next_multiple_of(CHUNK_BYTES),
        _ => span.bytes.next_multiple_of(PAGE_BYTES),
    }
}

/// Returns an id that all addresses of one memory share.
fn block_id(span: &Span) -> u64 {
    match &span.kind {
        SpanKind::Mapped(mapping) => mapping.allocation.memory.inode(),
        _ => span.id,
    }
}

/// Writes zero in the type of the attribute.
fn write_unknown(data: UntypedPtr, attribute: CUpointer_attribute) -> CUresult {
    match attribute {
        CUpointer_attribute::CONTEXT => data.set(CUcontext::NULL),
        CUpointer_attribute::MEMORY_TYPE => data.set(CUmemorytype(0)),
        CUpointer_attribute::DEVICE_ORDINAL => data.set(-2i32),
        CUpointer_attribute::SYNC_MEMOPS
        | CUpointer_attribute::ACCESS_FLAGS
        | CUpointer_attribute::IS_MANAGED
        | CUpointer_attribute::IS_LEGACY_CUDA_IPC_CAPABLE
        | CUpointer_attribute::MAPPED
        | CUpointer_attribute::IS_GPU_DIRECT_RDMA_CAPABLE => data.set(0u32),
        _ if (1..=20).contains(&attribute.0) => data.set(0u64),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

pub(crate) fn cuPointerSetAttribute(
    value: UntypedPtr,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> CUresult {
    let span = driver()?.space.find_span(address.0).ok_or(CUerror::INVALID_VALUE)?;
    match attribute {
        CUpointer_attribute::SYNC_MEMOPS => {
            span.sync_memops.store(value.read::<u32>()? != 0, Ordering::Relaxed);
            Ok(())
        }
        _ => Err(CUerror::INVALID_VALUE),
    }
}
