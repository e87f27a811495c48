//! Reads tensors back from the device and compares them with their hashes, several at a time.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use freehold::Stream;

use super::limits::{PIECE_BYTES, THREADS_MAX};
use super::manifest::{Manifest, NO_HASH, TensorHasher};
use super::tensor::Tensor;
use crate::client::{Broker, Lease, Result};

/// Where a tensor is in the memory.
pub(super) fn range_of(manifest: &Manifest, tensor: &Tensor) -> Range<usize> {
    let start = (manifest.data_start() + tensor.offset) as usize;
    start..start + tensor.bytes as usize
}

/// Returns the first tensor whose bytes do not have its hash. Those without a hash are not read. Waits for the work in
/// `stream`.
pub(super) fn first_damaged<'a>(
    broker: &Broker,
    stream: &Stream,
    lease: &Lease<u8>,
    manifest: &'a Manifest,
) -> Result<Option<&'a Tensor>> {
    stream.synchronize()?;
    let tensors = manifest.tensors();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX).min(tensors.len());
    let next = &AtomicUsize::new(0);
    // A thread ends at its first damaged tensor. All before that were taken by then.
    let search = || -> Result<Option<usize>> {
        let stream = broker.device().new_stream()?;
        let mut piece = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(tensor) = tensors.get(at) else { return Ok(None) };
            let Some(expected) = tensor.hash.filter(|hash| *hash != NO_HASH) else { continue };
            if expected != read(&stream, lease, manifest, tensor, &mut piece)? {
                return Ok(Some(at));
            }
        }
    };
    let found = std::thread::scope(|scope| {
        let searches: Vec<_> = (0..threads).map(|_| scope.spawn(search)).collect();
        let found = searches.into_iter().map(|search| search.join().expect("a search does not panic"));
        found.collect::<Result<Vec<_>>>()
    })?;
    Ok(found.into_iter().flatten().min().map(|at| &tensors[at]))
}

/// Returns the hash of a tensor's bytes on the device.
fn read(
    stream: &Stream,
    lease: &Lease<u8>,
    manifest: &Manifest,
    tensor: &Tensor,
    piece: &mut Vec<u8>,
) -> Result<[u8; 32]> {
    let range = range_of(manifest, tensor);
    let mut hasher = TensorHasher::new();
    for at in range.clone().step_by(PIECE_BYTES) {
        piece.resize(PIECE_BYTES.min(range.end - at), 0);
        stream.read(&lease.view(at..at + piece.len())?, piece)?;
        hasher.update(piece);
    }
    Ok(hasher.finish())
}
