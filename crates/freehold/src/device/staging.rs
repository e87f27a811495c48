//! Staging buffers of pinned memory for uploads, so that no upload waits for earlier work: the driver waits during a
//! long copy from memory that is not pinned. Uploads fill a buffer one after the other; it is reused from its start
//! when the copies from it are complete.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold_driver::{Backend, CallError};

use crate::ledger::Fence;
use crate::ordering::access_history::note_latest;
use crate::ordering::streams::Streams;

const BUFFER_BYTES_MIN: usize = 64 << 10;

/// The alignment of uploads in a buffer: a cache line.
const ALIGNMENT: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Staging {
    buffers: Mutex<Vec<Buffer>>,
}

/// Pinned memory with one owner: the list, or the upload that fills it.
#[derive(Debug)]
pub(crate) struct Buffer {
    start: NonNull<u8>,
    capacity_bytes: usize,
    /// The bytes from the start that pending copies may read.
    used_bytes: usize,
    /// The last of those copies in each stream.
    reads: Vec<Fence>,
    /// Whether fences are recorded for all of those copies.
    is_marked: bool,
}

// SAFETY: `start` is not `Send` as a pointer; the memory belongs to this value alone.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Copies `bytes` into the buffer, after its contents, and returns the copy.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> &[u8] {
        assert!(bytes.len() <= self.room_bytes(), "a buffer is taken with space for what it is filled with");
        // SAFETY: the buffer has at least that many bytes, as was just checked.
        let start = unsafe { self.start.add(self.used_bytes) };
        // SAFETY: there is space for `bytes` from `start`, which belongs to `self`, is not part of `bytes`, and is read
        // by no copy.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        self.used_bytes = (self.used_bytes + bytes.len()).next_multiple_of(ALIGNMENT);
        // SAFETY: these bytes were just written, and nothing writes them while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes.len()) }
    }

    fn room_bytes(&self) -> usize {
        self.capacity_bytes.saturating_sub(self.used_bytes)
    }

    /// Starts from the beginning again if all copies are complete.
    fn reclaim(&mut self, is_complete: impl Fn(Fence) -> bool) {
        if self.reads.iter().all(|&read| is_complete(read)) {
            self.reads.clear();
            self.used_bytes = 0;
        }
    }
}

impl Staging {
    /// Takes a buffer with space for `bytes`.
    pub(crate) fn take(&self, backend: &dyn Backend, streams: &Streams, bytes: usize) -> Result<Buffer, CallError> {
        self.mark_full(streams, bytes)?;
        {
            let mut buffers = self.buffers();
            let fitting = buffers.iter().enumerate().filter(|(_, buffer)| buffer.room_bytes() >= bytes);
            if let Some((index, _)) = fitting.min_by_key(|(_, buffer)| buffer.capacity_bytes) {
                return Ok(buffers.swap_remove(index));
            }
        }
        let capacity_bytes = bytes.checked_next_power_of_two().unwrap_or(bytes).max(BUFFER_BYTES_MIN);
        let start = backend.alloc_host(capacity_bytes)?;
        Ok(Buffer { start, capacity_bytes, used_bytes: 0, reads: Vec::new(), is_marked: false })
    }

    /// Takes back a buffer, which a copy at this fence reads.
    pub(crate) fn put(&self, mut buffer: Buffer, read: Option<Fence>) {
        if let Some(read) = read {
            note_latest(&mut buffer.reads, read);
            buffer.is_marked = false;
        }
        self.buffers().push(buffer);
    }

    /// Frees the buffers that are no longer read. This waits for all work of the primary context.
    pub(crate) fn free(&self, backend: &dyn Backend, is_complete: impl Fn(Fence) -> bool) -> Result<(), CallError> {
        let is_read = |buffer: &Buffer| !buffer.reads.iter().all(|&read| is_complete(read));
        let mut passed: Vec<_> = self.buffers().extract_if(.., |buffer| !is_read(buffer)).collect();
        while let Some(buffer) = passed.pop() {
            // SAFETY: the buffer came out of the list, so nothing else uses it, and no copy still reads it.
            let freed = unsafe { backend.free_host(buffer.start) };
            if let Err(error) = freed {
                passed.push(buffer);
                self.buffers().append(&mut passed);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Records fences for the buffers without space for `bytes`, so that the host sees when they have space again.
    fn mark_full(&self, streams: &Streams, bytes: usize) -> Result<(), CallError> {
        let mut fences = Vec::new();
        for buffer in self.buffers().iter_mut() {
            buffer.reclaim(|fence| streams.is_complete(fence));
            if buffer.room_bytes() < bytes && !buffer.is_marked {
                fences.extend_from_slice(&buffer.reads);
            }
        }
        if fences.is_empty() {
            return Ok(());
        }
        streams.record_fences(&fences)?;
        for buffer in self.buffers().iter_mut() {
            buffer.is_marked |= buffer.reads.iter().all(|read| fences.contains(read));
        }
        Ok(())
    }

    fn buffers(&self) -> MutexGuard<'_, Vec<Buffer>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
