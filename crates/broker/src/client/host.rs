//! Memory of the host under a name: in every process that opens it mapped, pinned and registered with the device, so that the
//! kernels of all of them use the same bytes without a copy. With a lock and a condition that outlive whoever holds them.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use freehold::{ForkGuard, HostMemory, ImportedSlice, Pod, Stream};

use super::broker::{Broker, Error, Result};
use super::link::LinkError;
use super::robust_lock::{HEADER_BYTES, LockTicket, RobustLock, TimedOut};
use crate::name::Name;
use crate::wire::{Request, RequestError};

/// Named memory of the host. A handle: it is mapped here until the last one, and the last part, is gone. It needs no broker any
/// more once it is open.
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
    /// Memory of the host under a name: made, all zeros, if there is none; else what is there, of as many bytes. It stays when
    /// this process ends.
    ///
    /// # Errors
    /// [`RequestError::SizeMismatch`] where what is there is longer or shorter.
    pub fn host(&self, name: &str, bytes: u64) -> Result<Host> {
        let Some(whole_bytes) = bytes.checked_add(HEADER_BYTES).filter(|_| bytes > 0) else {
            return Err(LinkError::from(RequestError::ZeroBytes).into());
        };
        self.request_host(name, whole_bytes)
    }

    /// Memory of the host that somebody made.
    ///
    /// # Errors
    /// [`RequestError::NoName`] where there is none of that name.
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

/// The header is nothing that a caller asked for.
fn without_header(error: LinkError) -> LinkError {
    match error {
        LinkError::Request { error: RequestError::SizeMismatch { bytes }, detail } => LinkError::Request {
            error: RequestError::SizeMismatch { bytes: bytes.saturating_sub(HEADER_BYTES) },
            detail,
        },
        error => error,
    }
}

impl Host {
    /// What the broker counts beyond what was asked for: the lock and the condition lie there.
    pub const HEADER_BYTES: u64 = HEADER_BYTES;

    pub fn bytes(&self) -> u64 {
        self.inner.memory.bytes() - HEADER_BYTES
    }

    /// `len` elements from `offset_bytes` on, as an argument of kernels and an end of copies. Work with it is ordered in this
    /// process alone: who shares it with others holds the lock until the work has passed ([`Stream::synchronize`]).
    ///
    /// # Errors
    /// [`freehold::Error::OutsideOfImport`], [`freehold::Error::Misaligned`].
    pub fn slice<T: Pod>(&self, stream: &Stream, offset_bytes: u64, len: usize) -> Result<ImportedSlice<T>> {
        let at = self.offset_behind_header(offset_bytes, len.saturating_mul(size_of::<T>()))?;
        Ok(self.inner.memory.part(stream, at, len)?)
    }

    /// The whole words, which all processes and their kernels write, with the lock or without.
    pub fn atomic_u32s(&self) -> &[AtomicU32] {
        &self.inner.memory.words()[HEADER_BYTES as usize / 4..]
    }

    /// Takes the lock, of all processes and threads that have the memory. A holder that dies loses it: a few milliseconds later
    /// the next one has it, and is told so.
    ///
    /// # Errors
    /// [`Error::TimedOut`], also where the holder is this thread, or another process has spoiled the lock;
    /// [`LinkError::ForkedChild`].
    pub fn lock(&self, timeout: Duration) -> Result<HostGuard<'_>> {
        self.acquire(timeout, deadline(timeout))
    }

    /// Lets all processes go on that wait with [`HostGuard::wait`]. With the lock or without.
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

    /// Where bytes lie behind the header.
    fn offset_behind_header(&self, offset_bytes: u64, bytes: usize) -> Result<u64> {
        let is_within = offset_bytes.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes());
        if !is_within {
            let (part_bytes, bytes) = (bytes as u64, self.bytes());
            return Err(freehold::Error::OutsideOfImport { offset_bytes, part_bytes, bytes }.into());
        }
        Ok(HEADER_BYTES + offset_bytes)
    }
}

/// The lock of named memory. Dropped, it is given up.
#[derive(Debug)]
pub struct HostGuard<'a> {
    host: &'a Host,
    was_abandoned: bool,
}

impl<'a> HostGuard<'a> {
    /// Whether the lock was taken from a process that died with it: what that one was writing may be half written.
    pub fn was_abandoned(&self) -> bool {
        self.was_abandoned
    }

    /// Copies elements out.
    ///
    /// # Errors
    /// [`freehold::Error::OutsideOfImport`], [`freehold::Error::Misaligned`].
    pub fn read<T: Pod>(&self, offset_bytes: u64, to: &mut [T]) -> Result<()> {
        Ok(self.host.inner.memory.read(self.host.offset_behind_header(offset_bytes, size_of_val(to))?, to)?)
    }

    /// Copies elements in.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write<T: Pod>(&mut self, offset_bytes: u64, from: &[T]) -> Result<()> {
        Ok(self.host.inner.memory.write(self.host.offset_behind_header(offset_bytes, size_of_val(from))?, from)?)
    }

    /// Gives the lock up, waits until somebody [notifies](Host::notify), and takes it again. It may return without: look again
    /// whether it is so.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: the lock is not held any more then.
    pub fn wait(self, timeout: Duration) -> Result<Self> {
        self.wait_deadline(timeout, deadline(timeout))
    }

    /// [Waits](Self::wait) until something is so. What fails in between ends the wait.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: the lock is not held any more then.
    pub fn wait_until(self, timeout: Duration, mut is_so: impl FnMut(&mut Self) -> Result<bool>) -> Result<Self> {
        let (mut guard, deadline, mut was_abandoned) = (self, deadline(timeout), false);
        loop {
            // Whoever died while this one waited is told of.
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
        // The lock is the parent's.
        if !self.host.inner.fork_guard.is_child() {
            self.host.robust_lock().release();
        }
    }
}

/// The end of a wait; of one that is longer than time, never.
fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + Duration::from_secs(1 << 32))
}
