//! The ids of streams: the driver reuses their handles.

use freehold_driver::cuda::{Api, CUstream, CUstreamCaptureStatus};

/// Stands for the legacy default stream, whose id is not asked for. The driver counts ids from small numbers.
pub(super) const LEGACY_ID: u64 = u64::MAX;

/// Returns the id of a stream. Returns `None` for one that is captured, and for an invalid handle.
#[inline]
pub(super) fn stream_id(api: &Api, stream: CUstream) -> Option<u64> {
    if stream == CUstream::NULL || stream == CUstream::LEGACY {
        return Some(LEGACY_ID);
    }
    let (mut status, mut id) = (CUstreamCaptureStatus::NONE, 0);
    // Asked first: the other question invalidates a capture.
    // SAFETY: `status` is a valid place for the answer, and the C caller guarantees that the stream is valid.
    unsafe { (api.cuStreamIsCapturing)(stream, &raw mut status) }.ok()?;
    if status != CUstreamCaptureStatus::NONE {
        return None;
    }
    // SAFETY: as above, for `id`.
    unsafe { (api.cuStreamGetId)(stream, &raw mut id) }.ok()?;
    Some(id)
}
