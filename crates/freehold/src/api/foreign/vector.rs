//! Memory that grows at a fixed address, for foreign code, which does not say what uses it.

use std::fmt;

use crate::api::memory::Target;
use crate::api::stream::Stream;
use crate::api::vector::DeviceVec;
use crate::error::Result;
use crate::ledger::Fence;
use crate::ordering::access_history::Access;

/// Bytes that grow and shrink at a fixed address: see [`ForeignPool::new_vector`](super::ForeignPool::new_vector).
pub struct ForeignVector {
    pub(super) bytes: DeviceVec<u8>,
}

impl fmt::Debug for ForeignVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(f)
    }
}

/// The vectors of a foreign pool.
#[derive(Debug, Default)]
pub(super) struct Vectors {
    /// The stream that waits for all work before memory is given back.
    pub(super) stream: Option<Stream>,
    /// Vectors that were freed while a stream was being captured.
    pub(super) freed: Vec<ForeignVector>,
}

impl ForeignVector {
    /// Returns the first address, which never changes.
    pub fn address(&self) -> u64 {
        self.bytes.address()
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns how many bytes it has memory for.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Records the work of a stream so far as a use.
    pub(super) fn note_use(&self, stream: &Stream) {
        let fence = Fence { stream: stream.id(), seq: stream.inner.state.count_work() };
        Target::used(&self.bytes, Access::Write).uses.note_unordered(fence, Access::Write);
    }

    pub(super) fn resize(&mut self, stream: &Stream, len: usize) -> Result<()> {
        match len.checked_sub(self.len()) {
            Some(more) => self.bytes.extend_unset(stream, more),
            None => {
                self.bytes.truncate(len);
                Ok(())
            }
        }
    }
}
