//! Shared semaphores: 64-bit numbers in shared memory that streams of several processes write and wait for. What a
//! number means is up to the program.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use freehold_driver::{CallError, StreamMemOps, handle};

use crate::api::device::Device;
use crate::api::stream::Stream;
use crate::device::context::Context;
use crate::device::pinned::{Pinned, sealed_bytes};
use crate::error::{Error, Result};
use crate::ledger::Fence;
use crate::ordering::access_history::note_latest;

const SEMAPHORE_BYTES: usize = size_of::<AtomicU64>();

/// Semaphores: 64-bit numbers in memory that processes share. When the value is dropped, the memory stays mapped until
/// all work with it is complete; nothing waits for that.
///
/// ```
/// use std::os::fd::AsFd;
/// use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
///
/// let device = freehold::open()?;
/// let memory = memfd_create("semaphores", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).expect("host memory");
/// ftruncate(&memory, 8).expect("one semaphore");
/// fcntl_add_seals(&memory, SealFlags::SHRINK).expect("it cannot shrink");
/// let semaphores = device.shared_semaphores(memory.as_fd(), 1)?; // another process does the same with the descriptor
/// let (stream, other) = (device.new_stream()?, device.new_stream()?);
/// other.wait_value(&semaphores, 0, 1)?; // on the device
/// stream.write_value(&semaphores, 0, 1)?; // after the work before it
/// other.synchronize()?;
/// assert_eq!(semaphores.read(0), 1);
/// # Ok::<(), freehold::Error>(())
/// ```
pub struct SharedSemaphores {
    context: Context,
    /// Its length is a whole number of semaphores.
    memory: Pinned,
    /// The device address of the first semaphore.
    address: u64,
    /// The last use in each stream.
    uses: Mutex<Vec<Fence>>,
}

impl fmt::Debug for SharedSemaphores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSemaphores")
            .field("address", &format_args!("{:#x}", self.address))
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Maps the first `count` semaphores of a descriptor for this process and its streams. The descriptor may be closed
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::TooManySemaphores`] if the descriptor has fewer, [`Error::NotSealed`] if it could shrink later: a read
    /// would then kill the process. [`Error::NoSemaphores`] on a device without semaphores.
    pub fn shared_semaphores(&self, descriptor: BorrowedFd<'_>, count: usize) -> Result<SharedSemaphores> {
        let (context, device) = (&self.primary, &self.primary.inner.device);
        device.run_deferred()?;
        let by = device
            .backend
            .host_registration()
            .filter(|_| device.backend.stream_mem_ops().is_some())
            .ok_or(Error::NoSemaphores)?;
        let bytes = count.checked_mul(SEMAPHORE_BYTES).filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or(Error::TooManyElements { elements: count, element_bytes: SEMAPHORE_BYTES })?;
        if bytes == 0 {
            return Err(Error::NothingAsked);
        }
        let had_bytes = sealed_bytes(descriptor)?;
        if had_bytes < bytes as u64 {
            return Err(Error::TooManySemaphores { count, wanted_bytes: bytes as u64, bytes: had_bytes });
        }
        let memory = Pinned::map(descriptor, bytes)?;
        let address = memory.register(by, device, &context.inner.state)?;
        Ok(SharedSemaphores { context: context.clone(), memory, address, uses: Mutex::default() })
    }
}

impl SharedSemaphores {
    /// Returns the number of semaphores.
    pub fn len(&self) -> usize {
        self.memory.bytes() / SEMAPHORE_BYTES
    }

    /// Whether it has no semaphores.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Reads a semaphore. Everything done before it was written is visible afterwards.
    ///
    /// # Panics
    /// If there is no such semaphore.
    pub fn read(&self, index: usize) -> u64 {
        self.as_slice()[index].load(Ordering::Acquire)
    }

    /// Writes a semaphore from the host, at once. A reader that sees the value sees everything done before.
    ///
    /// ```
    /// # use std::os::fd::AsFd;
    /// # use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// # let memory = memfd_create("semaphores", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).expect("host memory");
    /// # ftruncate(&memory, 4096).expect("a page");
    /// # fcntl_add_seals(&memory, SealFlags::SHRINK).expect("it cannot shrink");
    /// let semaphores = device.shared_semaphores(memory.as_fd(), 2)?;
    /// stream.wait_value(&semaphores, 1, 5)?;
    /// semaphores.write(1, 5); // the stream continues
    /// stream.synchronize()?;
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Panics
    /// If there is no such semaphore.
    pub fn write(&self, index: usize, value: u64) {
        self.as_slice()[index].store(value, Ordering::Release);
    }

    fn as_slice(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds that many semaphores from its first byte on, is page-aligned, and its file cannot
        // shrink. It lives as long as `self`, which returns no reference that lasts longer. Any bytes are a valid
        // `AtomicU64`, and all processes write each semaphore atomically.
        unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr().cast::<AtomicU64>(), self.len()) }
    }

    fn address_of(&self, index: usize) -> Result<u64> {
        let count = self.len();
        if index >= count {
            return Err(Error::NoSuchSemaphore { index, count });
        }
        Ok(self.address + (index * SEMAPHORE_BYTES) as u64)
    }
}

impl Stream {
    /// Writes a semaphore once all work submitted so far is complete.
    ///
    /// # Errors
    /// [`Error::NoSuchSemaphore`], and [`Error::StreamCaptured`] while foreign code captures the stream.
    pub fn write_value(&self, semaphores: &SharedSemaphores, index: usize, value: u64) -> Result<()> {
        let address = semaphores.address_of(index)?;
        self.put_at(semaphores, "write value", |mem_ops, raw| {
            // SAFETY: the semaphores stay mapped until all work with them is complete, and the host accesses them as
            // atomics only.
            unsafe { mem_ops.write_value(raw, address, value) }
        })
    }

    /// Makes work submitted from now on wait, on the device, until a semaphore has reached `value`. Values wrap around:
    /// those up to 2^63 below `value` are before it. If nothing writes the semaphore, the stream waits forever, and so
    /// does everything that waits until nothing is pending; [`SharedSemaphores::write`] ends the wait.
    ///
    /// # Errors
    /// [`Error::NoSuchSemaphore`], and [`Error::StreamCaptured`] while foreign code captures the stream.
    pub fn wait_value(&self, semaphores: &SharedSemaphores, index: usize, value: u64) -> Result<()> {
        let address = semaphores.address_of(index)?;
        let mut waits = self.inner.state.waits();
        self.put_at(semaphores, "wait for value", |mem_ops, raw| {
            // SAFETY: as for `write_value`.
            unsafe { mem_ops.wait_value(raw, address, value) }
        })?;
        *waits += 1;
        Ok(())
    }

    /// Submits an operation on semaphores, without ordering against other streams.
    fn put_at(
        &self,
        semaphores: &SharedSemaphores,
        name: &str,
        work: impl FnOnce(&dyn StreamMemOps, handle::Stream) -> std::result::Result<(), CallError>,
    ) -> Result<()> {
        self.inner.context.inner.check()?;
        if !Arc::ptr_eq(&self.inner.context.inner.device, &semaphores.context.inner.device) {
            return Err(Error::OtherDevice { what: "a semaphore" });
        }
        self.check_uncaptured()?;
        let fence = self.put_ordered(name, &[], |backend, raw| {
            work(backend.stream_mem_ops().expect("semaphores exist only on devices whose streams write values"), raw)
        })?;
        note_latest(&mut semaphores.uses.lock().unwrap_or_else(PoisonError::into_inner), fence);
        Ok(())
    }
}

impl Drop for SharedSemaphores {
    fn drop(&mut self) {
        let device = &self.context.inner.device;
        if device.is_child() {
            return;
        }
        let fences = std::mem::take(self.uses.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.memory.stop(&self.context, fences);
    }
}
