//! Blocks where a thread's own do not serve: of a pool, with room that the other pool makes; or the reason why there is none.

use std::sync::Arc;

use freehold_driver::CallError;

use crate::device::device_inner::DeviceInner;
use crate::error::shortage::{Remedy, Shortage};
use crate::error::{Error, Result};
use crate::ordering::stream_state::StreamState;
use crate::pool::{AllocError, Allocated, CacheKey, PAGE_BYTES, Pool};

/// A block of a pool for work in a stream, from wherever one can be had.
#[cold]
pub(crate) fn alloc(
    device: &DeviceInner,
    pool: &Pool,
    key: CacheKey,
    stream_state: &Arc<StreamState>,
    bytes: u64,
) -> std::result::Result<Allocated, AllocError> {
    match pool.alloc_slow(device, key, stream_state, bytes) {
        Err(AllocError::Short) if make_room(device, pool, bytes)? => pool.alloc_slow(device, key, stream_state, bytes),
        outcome => outcome,
    }
}

/// Gives what a pool keeps back to the driver, where memory comes with its addresses, so that a request for so much can have
/// some in one piece. Whether any went. The caller is in no gate.
pub(crate) fn make_room_alone(device: &DeviceInner, pool: &Pool, bytes: u64) -> std::result::Result<bool, CallError> {
    if pool.chunks.can_map() || bytes > pool.chunks.most_bytes() {
        return Ok(false);
    }
    let wanted_bytes = bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
    let keep_bytes = pool.chunks.reserved_bytes().saturating_sub(wanted_bytes);
    Ok(pool.release_when_idle(&device.streams, keep_bytes)? > 0)
}

/// Gives what the other pool has and nobody uses back to the driver, so that a pool can have so much. Whether any went.
pub(crate) fn make_room(device: &DeviceInner, pool: &Pool, bytes: u64) -> std::result::Result<bool, CallError> {
    if bytes > pool.chunks.most_bytes() {
        return Ok(false);
    }
    // A small block lies in a slab, which is longer.
    let wanted_bytes = bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
    let keep_bytes = pool.chunks.reserved_bytes().saturating_sub(wanted_bytes);
    let mut freed_bytes = 0;
    for other in device.pools().filter(|other| other.chunks.visibility != pool.chunks.visibility) {
        freed_bytes += other.trim(&device.streams, keep_bytes)?;
    }
    Ok(freed_bytes > 0)
}

/// Why so many bytes of a pool cannot be had.
pub(crate) fn out_of_memory(device: &DeviceInner, pool: &Pool, wanted_bytes: u64) -> Error {
    match shortage(device, pool, wanted_bytes) {
        Ok(shortage) => Error::OutOfMemory(Box::new(shortage)),
        Err(error) => error,
    }
}

/// What a request of a pool for so many bytes would meet.
pub(crate) fn shortage(device: &DeviceInner, pool: &Pool, wanted_bytes: u64) -> Result<Shortage> {
    let room = device.backend.memory_info().map_err(|error| device.failed(error))?;
    let stats = device.stats();
    let longest_bytes = pool.longest_bytes();
    // What is another pool's goes back to the driver first.
    let movable_bytes: u64 = device.pools().map(|pool| pool.movable_bytes(&device.streams)).sum();
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
