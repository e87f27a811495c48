//! The pool: chooses a block for each request, and decides when a freed block may be reused.
//!
//! A thread keeps magazines of free blocks for each stream (`thread_caches`, `thread_cache`). Below them each stream has a heap:
//! reserved addresses, the memory mapped there, and the parts of it that are free in the order of the stream
//! (`stream_heap`, `extent_map`, `slab`). A block's metadata is found from its address without a lock (`block_table`,
//! `page_map`, `block_meta`). Memory comes from the driver in chunks of whole 2 MiB pages (`chunk_source`).
//!
//! A request takes memory from the first of these sources that has it (`alloc_slow`, from step 2 on): cheapest first,
//! except that new memory comes before a wait on the device. A mapping costs the host a little, once; a wait delays one
//! stream until another is done, every time. No step waits on the host.
//!
//! 1. The thread's magazines for the stream, refilled from the stream's heap.
//! 2. The heap itself, after reclaiming blocks whose fences are complete; for a large block also after taking back the
//!    blocks that other threads cache for it.
//! 3. A block of another heap of the same context whose stream has completed all work on it (`borrow`).
//! 4. Chunks of streams that have not allocated lately, if much is free there: unmapped there and mapped here. A busy
//!    stream would need them back at once.
//! 5. A spare chunk, then new memory from the driver (`chunk_source`); if that fails, free chunks of any heap
//!    (`map_chunks`), and memory that vectors gave back.
//! 6. A block that other streams still use: the device waits for them before the stream's next work.
//! 7. All of this again, after the device's other pool has returned memory to the driver (`device::make_room`).
//!
//! A pool whose blocks sleep together gives all of its memory back, and gets other memory for the same addresses (`sleep`).
//!
//! Invariants:
//!
//! - What is free in a heap is free in the order of the heap's stream. Another stream gets it only if the heap's stream
//!   has completed the work on it, or the device waits for that.
//! - A thread cache is accessed only by its thread, or by a thread that has revoked it (`biased_lock`). An ending
//!   thread gives its blocks to the heaps.
//! - A block's metadata is written by the thread that has the block, and read as a seqlock. A release is one
//!   compare-exchange of the state, so that of two releases of one block the second fails.
//! - A chunk is unmapped only when all of it is free and all work on it is complete: unmapping does not wait for the
//!   device.
//! - The pool never grows beyond its budget.
//! - No fence is recorded in a stream that is being captured: memory freed there stays with the stream until the
//!   capture ends.

#[forbid(unsafe_code)]
mod alloc_slow;
#[forbid(unsafe_code)]
mod attached_caches;
mod biased_lock;
#[forbid(unsafe_code)]
mod bins;
pub(crate) mod block_meta;
#[forbid(unsafe_code)]
mod block_table;
#[forbid(unsafe_code)]
mod borrow;
mod chunk_source;
#[forbid(unsafe_code)]
mod device_pool;
#[forbid(unsafe_code)]
mod device_work;
#[forbid(unsafe_code)]
mod extent_map;
#[forbid(unsafe_code)]
mod heaps;
mod imports;
#[forbid(unsafe_code)]
mod map_chunks;
#[forbid(unsafe_code)]
mod page_map;
#[forbid(unsafe_code)]
mod size_class;
mod slab;
#[forbid(unsafe_code)]
mod sleep;
mod stable_array;
#[forbid(unsafe_code)]
mod stats;
#[forbid(unsafe_code)]
mod stream_heap;
mod sync;
mod thread_cache;
mod thread_caches;
mod tls;
#[forbid(unsafe_code)]
mod trim;

#[cfg(test)]
mod tests;

pub(crate) use self::chunk_source::{MapOutcome, NewPoolError};
pub(crate) use self::device_pool::{AllocError, AllocatedBlock, Pool, PoolIndex};
pub(crate) use self::device_work::DeviceWork;
pub(crate) use self::extent_map::{Chunk, MapRequest, PAGE_BYTES};
pub(crate) use self::sleep::WakeOutcome;
pub(crate) use self::stable_array::ITEMS_MAX as BLOCKS_MAX;
pub(crate) use self::thread_caches::CacheKey;
