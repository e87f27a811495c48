//! Device memory from Freehold's pool, with frees that do not wait.
//!
//! NVIDIA's `cudaFree` waits for all work of the context, because any of it may use the block. Here `cudaFree` ends the ownership
//! of the block, adds the block to a batch, and returns. After each batch, an event is recorded that follows all work of the
//! context (`cuCtxRecordEvent`); when it is complete, the blocks of the batch are free. So nothing is tracked when work is
//! submitted, and launches cost nothing extra.
//!
//! Free blocks are cached by size ([`ReadyBlocks`]), because programs request the same sizes again and again; the rest return to
//! the pool, which splits and merges them.
//!
//! The blocks of `cudaMalloc` belong to one stream of the pool, in which nothing runs: a free block of it can be used by any
//! stream at once.
//!
//! The pool is used if `FREEHOLD_CUDAFREE` asks for it (`freehold run` sets it), for the primary contexts of the devices that
//! the process sees, if they can access each other's memory. Everything else comes from the driver.

mod peers;
mod pool;
mod pools;
mod stream_id;
mod stream_order;

pub(crate) use self::pools::{
    at, check_range, check_rows, close, count_captures, current, free, retire, with_spare_memory,
};
pub(crate) use self::stream_order::leave_to_driver;
