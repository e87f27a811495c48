//! Blocks that other processes can have: the pool that they are of, beside the device's own, and descriptors of their memory.
//!
//! The pool is made when the first such block is asked for. Both have one budget, and each makes room for the other.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use freehold_driver::CallError;

use crate::device::device_inner::DeviceInner;
use crate::error::{Error, Result};
use crate::ordering::stream_state::StreamState;
use crate::pool::{AllocError, Allocated, CacheKey, PAGE_BYTES, Pool, Visibility};

/// What another process needs to have a block: it imports the descriptor with all of the chunk's bytes
/// ([`Device::import`](crate::Device::import), or the driver's own calls), and finds the block at its offset.
///
/// ```
/// use std::os::fd::AsFd;
///
/// let device = freehold::open()?;
/// let stream = device.stream()?;
/// let mut block = stream.alloc_shareable::<u8>(3)?;
/// stream.write(&mut block, &[1, 2, 3])?;
/// stream.synchronize()?; // another process does not know this one's streams
/// let exported = block.export()?;
/// // There, when the descriptor has come over a socket:
/// let memory = device.import(exported.descriptor.as_fd(), exported.chunk_bytes, freehold::Permission::Read)?;
/// let part = memory.part::<u8>(&stream, exported.offset_bytes, 3)?;
/// assert_eq!(stream.download(&part)?, [1, 2, 3]);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Debug)]
pub struct Exported {
    /// Of the chunk that the block lies in. Other blocks that were asked for with
    /// [`Stream::alloc_shareable`](crate::Stream::alloc_shareable) may lie there too, and whoever imports it can visibility them; no
    /// others do. The chunk's memory lives as long as this does, or a mapping of it, whatever becomes of the block.
    pub descriptor: OwnedFd,
    /// How long the chunk is.
    pub chunk_bytes: u64,
    /// Where the block begins in the chunk.
    pub offset_bytes: u64,
    /// How long the block is.
    pub bytes: u64,
}

impl DeviceInner {
    /// The pools that there are.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Pool> {
        std::iter::once(&self.pool).chain(self.shareable.get())
    }

    /// The pool of blocks that were handed out.
    #[inline]
    pub(crate) fn pool_of(&self, visibility: Visibility) -> &Pool {
        match visibility {
            Visibility::Process => &self.pool,
            Visibility::Shareable => self.shareable.get().expect("a pool that has handed out blocks was made"),
        }
    }

    /// As [`pool_of`](Self::pool_of), made if there is none yet.
    pub(crate) fn pool_for(&self, visibility: Visibility) -> Result<&Pool> {
        match visibility {
            Visibility::Process => Ok(&self.pool),
            Visibility::Shareable => self.shareable(),
        }
    }

    #[cold]
    fn shareable(&self) -> Result<&Pool> {
        if let Some(pool) = self.shareable.get() {
            return Ok(pool);
        }
        if !self.pool.chunks.can_map() || self.backend.sharing().is_none() {
            return Err(Error::CannotShare);
        }
        let made = self.pool.shareable().map_err(|error| match error {
            Error::Call(error) => self.failed(error),
            error => error,
        })?;
        if let Err(made) = self.shareable.set(made) {
            // Another thread was faster.
            made.chunks.free_addresses().map_err(|error| self.failed(error))?;
        }
        Ok(self.pool_of(Visibility::Shareable))
    }

    /// A block of a pool for work in a stream, from wherever one can be had.
    #[cold]
    pub(crate) fn take(
        &self,
        pool: &Pool,
        key: CacheKey,
        stream_state: &Arc<StreamState>,
        bytes: u64,
    ) -> std::result::Result<Allocated, AllocError> {
        match pool.alloc_slow(self, key, stream_state, bytes) {
            Err(AllocError::Short) if self.make_room(pool, bytes)? => pool.alloc_slow(self, key, stream_state, bytes),
            outcome => outcome,
        }
    }

    /// Gives what a pool keeps back to the driver, where memory comes with its addresses, so that a request for so much can have
    /// some in one piece. Whether any went. The caller is in no gate.
    pub(crate) fn make_room_alone(&self, pool: &Pool, bytes: u64) -> std::result::Result<bool, CallError> {
        if pool.chunks.can_map() || bytes > pool.chunks.most_bytes() {
            return Ok(false);
        }
        let wanted_bytes = bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
        let keep_bytes = pool.chunks.reserved_bytes().saturating_sub(wanted_bytes);
        Ok(pool.release_when_idle(&self.streams, keep_bytes)? > 0)
    }

    /// Gives what the other pool has and nobody uses back to the driver, so that a pool can have so much. Whether any went.
    pub(crate) fn make_room(&self, pool: &Pool, bytes: u64) -> std::result::Result<bool, CallError> {
        if bytes > pool.chunks.most_bytes() {
            return Ok(false);
        }
        // A small block lies in a slab, which is longer.
        let wanted_bytes = bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
        let keep_bytes = pool.chunks.reserved_bytes().saturating_sub(wanted_bytes);
        let mut freed_bytes = 0;
        for other in self.pools().filter(|other| other.chunks.visibility != pool.chunks.visibility) {
            freed_bytes += other.trim(&self.streams, keep_bytes)?;
        }
        Ok(freed_bytes > 0)
    }
}
