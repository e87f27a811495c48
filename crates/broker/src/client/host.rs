//! Named host memory: mapped, pinned and registered with the device in every process that opens it, so that the kernels
//! of all of them use the same bytes without a copy. It contains a lock and a condition variable that survive the death
//! of their holder.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use freehold::{ForkGuard, HostMemory, ImportedSlice, Pod, Stream};

use super::broker::{Broker, Error, Result};
use super::link::LinkError;
use super::robust_lock::{HEADER_BYTES, LockTicket, RobustLock, TimedOut};
use crate::protocol::message::Request;
use crate::protocol::name::Name;
use crate::protocol::request_error::RequestError;

/// A handle to named host memory. The memory stays mapped until the last handle and the last slice are dropped. Once
/// opened, it needs no broker.
#[derive(Clone, Debug)]
pub struct Host {
    inner: Arc<HostInner>,
}

#[derive(Debug)]
struct HostInner {
    memory: HostMemory,
    ticket: LockTicket,
    fork_guard: ForkGuard,
}

impl Broker {
    /// Opens named host memory, and creates it zeroed if it does not exist. The memory stays when this process ends.
    ///
    /// # Errors
    /// [`RequestError::SizeMismatch`] if it exists with another size.
    pub fn host(&self, name: &str, bytes: u64) -> Result<Host> {
        let Some(whole_bytes) = bytes.checked_add(HEADER_BYTES).filter(|_| bytes > 0) else {
            return Err(LinkError::from(RequestError::ZeroBytes).into());
        };
        self.request_host(name, whole_bytes)
    }

    /// Opens existing named host memory.
    ///
    /// # Errors
    /// [`RequestError::NoName`] if no host memory has this name.
    pub fn open_host(&self, name: &str) -> Result<Host> {
        self.request_host(name, 0)
    }

    fn request_host(&self, name: &str, whole_bytes: u64) -> Result<Host> {
        let request = Request::Host { bytes: whole_bytes, name: Name::parse(name)? };
        let (descriptor, whole_bytes) = self.connection()?.file(request).map_err(without_header)?;
        if whole_bytes <= HEADER_BYTES {
            return Err(LinkError::Malformed.into());
        }
        let memory = self.device().host_memory(descriptor.as_fd(), whole_bytes)?;
        let ticket = LockTicket::new(memory.words(), descriptor.as_fd()).map_err(LinkError::from)?;
        let fork_guard = ForkGuard::new().map_err(LinkError::from_system)?;
        Ok(Host { inner: Arc::new(HostInner { memory, ticket, fork_guard }) })
    }
}

/// Subtracts the header, which the caller did not request, from the sizes in an error.
fn without_header(error: LinkError) -> LinkError {
    match error {
        LinkError::Request { error: RequestError::SizeMismatch { bytes }, name, detail } => LinkError::Request {
            error: RequestError::SizeMismatch { bytes: bytes.saturating_sub(HEADER_BYTES) },
            name,
            detail,
        },
        error => error,
    }
}

impl Host {
    /// Bytes that the broker counts in addition to the requested ones, for the lock and the condition variable.
    pub const HEADER_BYTES: u64 = HEADER_BYTES;

    /// Returns its length in bytes, as requested.
    pub fn bytes(&self) -> u64 {
        self.inner.memory.bytes() - HEADER_BYTES
    }

    /// Returns `len` elements from `offset_bytes` on, as a kernel argument and an operand of copies. Work with it is
    /// ordered within this process only: to share it with others, hold the lock until the work is complete
    /// ([`Stream::synchronize`]).
    ///
    /// # Errors
    /// [`freehold::Error::OutsideOfImport`], [`freehold::Error::Misaligned`].
    pub fn slice<T: Pod>(&self, stream: &Stream, offset_bytes: u64, len: usize) -> Result<ImportedSlice<T>> {
        let at = self.offset_behind_header(offset_bytes, len.saturating_mul(size_of::<T>()))?;
        Ok(self.inner.memory.slice(stream, at, len)?)
    }

    /// Returns the whole words, which all processes and their kernels may write, with or without the lock.
    pub fn atomic_u32s(&self) -> &[AtomicU32] {
        &self.inner.memory.words()[HEADER_BYTES as usize / 4..]
    }

    /// Takes the lock, which all processes and threads with this memory share. If its holder dies, the next one gets it
    /// a few milliseconds later, and [`HostGuard::was_abandoned`] reports that.
    ///
    /// # Errors
    /// [`Error::TimedOut`], also if this thread holds the lock already, or another process has corrupted it;
    /// [`LinkError::ForkedChild`].
    pub fn lock(&self, timeout: Duration) -> Result<HostGuard<'_>> {
        self.acquire(timeout, deadline(timeout))
    }

    /// Wakes all processes that wait in [`HostGuard::wait`]. The caller need not hold the lock.
    ///
    /// # Errors
    /// [`LinkError::ForkedChild`].
    pub fn notify(&self) -> Result<()> {
        self.check_fork()?;
        self.robust_lock().notify();
        Ok(())
    }

    fn acquire(&self, timeout: Duration, deadline: Instant) -> Result<HostGuard<'_>> {
        self.check_fork()?;
        let was_abandoned = self.robust_lock().acquire(deadline).map_err(|TimedOut| Error::TimedOut { timeout })?;
        Ok(HostGuard { host: self, was_abandoned })
    }

    fn robust_lock(&self) -> RobustLock<'_> {
        RobustLock::new(self.inner.memory.words(), &self.inner.ticket)
    }

    fn check_fork(&self) -> Result<()> {
        if self.inner.fork_guard.is_child() { Err(LinkError::ForkedChild.into()) } else { Ok(()) }
    }

    /// The offset of bytes after the header.
    fn offset_behind_header(&self, offset_bytes: u64, bytes: usize) -> Result<u64> {
        let is_within = offset_bytes.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes());
        if !is_within {
            let (slice_bytes, bytes) = (bytes as u64, self.bytes());
            return Err(freehold::Error::OutsideOfImport { offset_bytes, slice_bytes, bytes }.into());
        }
        Ok(HEADER_BYTES + offset_bytes)
    }
}

/// The lock of named host memory. Dropping it releases the lock.
#[must_use = "dropping the guard releases the lock"]
#[derive(Debug)]
pub struct HostGuard<'a> {
    host: &'a Host,
    was_abandoned: bool,
}

impl<'a> HostGuard<'a> {
    /// Whether the previous holder died while it held the lock, so that its last writes may be incomplete.
    pub fn was_abandoned(&self) -> bool {
        self.was_abandoned
    }

    /// Copies elements from the memory.
    ///
    /// # Errors
    /// [`freehold::Error::OutsideOfImport`], [`freehold::Error::Misaligned`].
    pub fn read<T: Pod>(&self, offset_bytes: u64, to: &mut [T]) -> Result<()> {
        Ok(self.host.inner.memory.read(self.host.offset_behind_header(offset_bytes, size_of_val(to))?, to)?)
    }

    /// Copies elements to the memory.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn write<T: Pod>(&mut self, offset_bytes: u64, from: &[T]) -> Result<()> {
        Ok(self.host.inner.memory.write(self.host.offset_behind_header(offset_bytes, size_of_val(from))?, from)?)
    }

    /// Releases the lock, waits for a [notification](Host::notify), and takes the lock again. It may also return
    /// without a notification, so check the condition again.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: the lock is not held any more.
    pub fn wait(self, timeout: Duration) -> Result<Self> {
        self.wait_deadline(timeout, deadline(timeout))
    }

    /// [Waits](Self::wait) until a condition holds. An error of the condition ends the wait.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: the lock is not held any more.
    pub fn wait_until(self, timeout: Duration, mut is_so: impl FnMut(&mut Self) -> Result<bool>) -> Result<Self> {
        let (mut guard, deadline, mut was_abandoned) = (self, deadline(timeout), false);
        loop {
            // A death at any time during the wait is reported.
            was_abandoned |= guard.was_abandoned;
            guard.was_abandoned = was_abandoned;
            if is_so(&mut guard)? {
                return Ok(guard);
            }
            guard = guard.wait_deadline(timeout, deadline)?;
        }
    }

    fn wait_deadline(self, timeout: Duration, deadline: Instant) -> Result<Self> {
        let host = self.host;
        host.check_fork()?;
        let before = host.robust_lock().notified();
        drop(self);
        host.robust_lock().wait(before, deadline).map_err(|TimedOut| Error::TimedOut { timeout })?;
        host.acquire(timeout, deadline)
    }
}

impl Drop for HostGuard<'_> {
    fn drop(&mut self) {
        // The lock belongs to the parent process.
        if !self.host.inner.fork_guard.is_child() {
            self.host.robust_lock().release();
        }
    }
}

/// The end of a wait. A timeout that overflows never ends.
fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + Duration::from_secs(1 << 32))
}
