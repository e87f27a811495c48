//! Pinned memory that uploads go through, so that no upload waits for the work before it: the driver would, for a long copy
//! from memory that is not pinned. A buffer is used again when the copy from it has passed.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold_driver::cuda::{Api, CUcontext, CallError, host, host_alloc_flags};

use crate::current::within;
use crate::ledger::Mark;

const BUFFER_BYTES_MIN: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Staging {
    buffers: Mutex<Vec<Buffer>>,
}

/// Pinned memory of one owner: the list above, or the upload that filled it.
#[derive(Debug)]
pub(crate) struct Buffer {
    start: NonNull<u8>,
    capacity_bytes: usize,
    /// The copy that reads it last.
    read: Option<Mark>,
}

// SAFETY: `start` is not `Send` as a pointer; the memory belongs to this value alone.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Copies `bytes` into the buffer, and returns them there.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> &[u8] {
        assert!(bytes.len() <= self.capacity_bytes, "a buffer is taken for as many bytes as it is filled with");
        // SAFETY: the buffer has room for `bytes`, belongs to `self`, and is not part of `bytes`; the copy that read it
        // last has passed.
        unsafe { self.start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        // SAFETY: these bytes were just written, and nothing writes them while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), bytes.len()) }
    }
}

impl Staging {
    /// A buffer for `bytes` that nothing reads any more.
    pub(crate) fn take(
        &self,
        api: &Api,
        primary: CUcontext,
        bytes: usize,
        has_passed: impl Fn(Mark) -> bool,
    ) -> Result<Buffer, CallError> {
        {
            let mut buffers = self.buffers();
            let fits = |buffer: &Buffer| buffer.capacity_bytes >= bytes && buffer.read.is_none_or(&has_passed);
            let smallest = buffers.iter().enumerate().filter(|(_, buffer)| fits(buffer));
            if let Some((index, _)) = smallest.min_by_key(|(_, buffer)| buffer.capacity_bytes) {
                return Ok(buffers.swap_remove(index));
            }
        }
        let capacity_bytes = bytes.checked_next_power_of_two().unwrap_or(bytes).max(BUFFER_BYTES_MIN);
        let start = within(api, primary, || host::alloc_with_flags(api, capacity_bytes, host_alloc_flags::PORTABLE))?;
        let start = NonNull::new(start.cast()).expect("the driver allocates nothing at null");
        Ok(Buffer { start, capacity_bytes, read: None })
    }

    /// Takes a buffer back, which a copy at this mark reads last.
    pub(crate) fn put(&self, buffer: Buffer, read: Option<Mark>) {
        self.buffers().push(Buffer { read, ..buffer });
    }

    /// Frees the buffers that nothing reads any more. This waits for all work of the primary context (fact 2.1).
    pub(crate) fn free(&self, api: &Api, has_passed: impl Fn(Mark) -> bool) -> Result<(), CallError> {
        let mut passed: Vec<_> = self.buffers().extract_if(.., |buffer| buffer.read.is_none_or(&has_passed)).collect();
        while let Some(buffer) = passed.pop() {
            // SAFETY: the buffer came out of the list, so that nobody else knows of it, and no copy reads it any more.
            let freed = unsafe { host::free(api, buffer.start.as_ptr().cast()) };
            if let Err(error) = freed {
                passed.push(buffer);
                self.buffers().append(&mut passed);
                return Err(error);
            }
        }
        Ok(())
    }

    fn buffers(&self) -> MutexGuard<'_, Vec<Buffer>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
