//! One allocation and its release, repeated in one thread: from a warm allocator, and allocations that fail.

use std::hint::black_box;

use freehold_driver::cuda::CUstream;

use super::super::stats::timed;
use crate::allocators::{Allocator, Failure};
use crate::bench::error::Result;

/// More than any device has.
const IMPOSSIBLE_BYTES: u64 = 1 << 50;

/// Returns the time of one pair, of `count` timed together.
pub(super) fn time_pairs<A: Allocator>(allocator: &A, bytes: u64, stream: CUstream, count: usize) -> Result<f64> {
    let (done, time) = timed(|| {
        (0..count).try_for_each(|_| {
            let start = allocator.alloc(black_box(bytes), stream)?;
            allocator.free(black_box(start), bytes, stream)
        })
    });
    done.map_err(Into::<Failure>::into)?;
    Ok(time / count as f64)
}

/// Runs [`time_pairs`] in batches, after one that does not count.
pub(super) fn sample_pairs<A: Allocator>(
    allocator: &A,
    bytes: u64,
    stream: CUstream,
    (batches, count): (usize, usize),
) -> Result<Vec<f64>> {
    time_pairs(allocator, bytes, stream, count)?;
    (0..batches).map(|_| time_pairs(allocator, bytes, stream, count)).collect()
}

/// Returns the time of one mimalloc pair, of `count` timed together.
pub(super) fn time_mimalloc_pairs(bytes: usize, count: usize) -> f64 {
    let ((), time) = timed(|| {
        for _ in 0..count {
            // SAFETY: the call accepts any size.
            let address = unsafe { libmimalloc_sys::mi_malloc(black_box(bytes)) };
            // SAFETY: `address` is null or was just allocated by mimalloc, and is freed once.
            unsafe { libmimalloc_sys::mi_free(black_box(address)) };
        }
    });
    time / count as f64
}

/// Returns the time of one failing allocation, in batches after one that does not count.
///
/// # Panics
/// If the allocation succeeds.
pub(super) fn time_failures<A: Allocator>(allocator: &A, stream: CUstream, batches: (usize, usize)) -> Vec<f64> {
    sample_failures(batches, || allocator.alloc(black_box(IMPOSSIBLE_BYTES), stream).is_err())
}

/// As [`time_failures`], formatting the reason each time.
pub(super) fn time_explained_failures<A: Allocator>(
    allocator: &A,
    stream: CUstream,
    batches: (usize, usize),
) -> Vec<f64> {
    sample_failures(batches, || {
        let refused = allocator.alloc(black_box(IMPOSSIBLE_BYTES), stream).map_err(Into::<Failure>::into);
        black_box(refused).is_err()
    })
}

fn sample_failures((batches, count): (usize, usize), is_refused: impl Fn() -> bool) -> Vec<f64> {
    let refusal = || {
        let (refused, time) = timed(|| (0..count).filter(|_| is_refused()).count());
        assert_eq!(refused, count, "no device has {IMPOSSIBLE_BYTES} bytes");
        time / count as f64
    };
    refusal();
    (0..batches).map(|_| refusal()).collect()
}
