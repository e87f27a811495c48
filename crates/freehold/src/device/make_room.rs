//! The device's slow path of an allocation: allocates from a pool after the other pool has returned memory to the
//! driver, or returns the error that explains the failure.

use std::sync::Arc;

use freehold_driver::CallError;

use crate::device::device_inner::DeviceInner;
use crate::error::shortage::{Remedy, Shortage};
use crate::error::{Error, Result};
use crate::ordering::stream_state::StreamState;
use crate::pool::block_meta::OwnedBy;
use crate::pool::{AllocError, AllocatedBlock, CacheKey, PAGE_BYTES, Pool};

/// Allocates a block from a pool for work in a stream, from any source.
#[cold]
pub(crate) fn alloc_or_make_room(
    device: &DeviceInner,
    pool: &Pool,
    key: CacheKey,
    stream_state: &Arc<StreamState>,
    bytes: u64,
    by: OwnedBy,
) -> std::result::Result<AllocatedBlock, AllocError> {
    match pool.alloc_slow(device, key, stream_state, bytes, by) {
        Err(AllocError::Short) if make_room(device, pool, bytes)? => {
            pool.alloc_slow(device, key, stream_state, bytes, by)
        }
        outcome => outcome,
    }
}

/// Returns a pool's cached memory to the driver, on devices where memory comes with its addresses, so that a request
/// for `bytes` can get them in one piece. Returns whether any was returned. The caller must not hold a destroy lock.
pub(crate) fn make_room_alone(device: &DeviceInner, pool: &Pool, bytes: u64) -> std::result::Result<bool, CallError> {
    if pool.chunks.can_map() || bytes > pool.chunks.most_bytes() {
        return Ok(false);
    }
    let wanted_bytes = bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
    let keep_bytes = pool.chunks.reserved_bytes().saturating_sub(wanted_bytes);
    Ok(pool.release_when_idle(device, keep_bytes)? > 0)
}

/// Returns the other pools' unused memory to the driver, so that a pool can get `bytes`. Returns whether any was
/// returned.
pub(crate) fn make_room(device: &DeviceInner, pool: &Pool, bytes: u64) -> std::result::Result<bool, CallError> {
    if bytes > pool.chunks.most_bytes() {
        return Ok(false);
    }
    // A small block lies in a slab, which is longer.
    let wanted_bytes = bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
    let keep_bytes = pool.chunks.reserved_bytes().saturating_sub(wanted_bytes);
    let mut freed_bytes = 0;
    for other in device.pools().filter(|other| other.index != pool.index) {
        freed_bytes += other.trim(device, keep_bytes)?;
    }
    Ok(freed_bytes > 0)
}

/// Returns the error for a request of `wanted_bytes` that a pool cannot satisfy.
pub(crate) fn out_of_memory(device: &DeviceInner, pool: &Pool, wanted_bytes: u64) -> Error {
    match shortage(device, pool, wanted_bytes) {
        Ok(shortage) => Error::OutOfMemory(Box::new(shortage)),
        Err(error) => error,
    }
}

/// Describes the state of a pool's memory for a request of `wanted_bytes`.
pub(crate) fn shortage(device: &DeviceInner, pool: &Pool, wanted_bytes: u64) -> Result<Shortage> {
    let room = device.backend.memory_info().map_err(|error| device.failed(error))?;
    let stats = device.stats();
    let longest_bytes = pool.longest_bytes();
    // The other pool's memory goes back to the driver first.
    let movable_bytes: u64 = device.pools().map(|pool| pool.movable_bytes(device)).sum();
    let budget_bytes = pool.chunks.budget_bytes();
    let (device_free_bytes, device_total_bytes) = (room.free_bytes, room.total_bytes);
    let new_bytes = device_free_bytes.min(budget_bytes.saturating_sub(stats.reserved_bytes));
    let mut shortage = Shortage {
        wanted_bytes,
        stats,
        live_by_tag: device.tags.live(),
        largest_bytes: longest_bytes.max(movable_bytes + new_bytes),
        budget_bytes,
        device_free_bytes,
        device_total_bytes,
        others_bytes: device_total_bytes.saturating_sub(device_free_bytes + stats.reserved_bytes),
        remedy: Remedy::Release,
    };
    shortage.remedy = shortage.cheapest();
    Ok(shortage)
}
