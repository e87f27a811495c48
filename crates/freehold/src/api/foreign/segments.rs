//! The memory that a pool has from the driver: where it is mapped, and for which stream.

use freehold_driver::handle::Stream;

use super::ForeignPool;
use super::segment::Segment;
use crate::pool::Chunk;

impl ForeignPool {
    /// Returns all memory that this device's pools have from the driver, sorted by address, with cached memory that is
    /// not mapped first. While other threads allocate, a segment may be missing or be listed for two streams.
    pub fn segments(&self) -> Vec<Segment> {
        if self.device.is_child() {
            return Vec::new();
        }
        let mut segments = Vec::new();
        for pool in self.device.pools().filter(|pool| !pool.is_asleep()) {
            for (stream, chunks) in pool.chunks_by_stream() {
                segments.extend(joined(stream.raw, chunks));
            }
        }
        segments.sort_unstable_by_key(|segment| segment.base);
        let mapped_bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let bytes = self.reserved_bytes().saturating_sub(mapped_bytes);
        if bytes > 0 {
            segments.insert(0, Segment { base: 0, bytes, stream: freehold_driver::cuda::CUstream::NULL.into() });
        }
        segments
    }
}

/// Joins chunks that follow one another.
fn joined(stream: Stream, chunks: Vec<Chunk>) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for chunk in chunks {
        match segments.last_mut() {
            Some(last) if last.base + last.bytes == chunk.base => last.bytes += chunk.bytes,
            _ => segments.push(Segment { base: chunk.base, bytes: chunk.bytes, stream }),
        }
    }
    segments
}
