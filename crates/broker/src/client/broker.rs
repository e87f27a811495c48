//! The broker for programs with a device: leases that are used like blocks.
//!
//! A fence tracks the use of a lease: a semaphore of this process, and the value that a stream writes there after the
//! work with the lease. The next holder of the memory waits for the fence on the device, if at all. No host waits.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use freehold::{
    Device, ForkGuard, Imported, ImportedSlice, OwnsSlice, Permission, Pod, SharedSemaphores, Source, Stream,
    UnmapStatus, ViewMut,
};

use super::link::{Given, Granted, LIVENESS_INTERVAL, Link, LinkError, SpinPolicy};
use super::session::SharedSession;
use super::unmapper;
use crate::os::socket_path;
use crate::protocol::call_codec::{Argument, Owner};
use crate::protocol::message::{BrokerStats, Reply, Request};
use crate::protocol::name::{Name, NameError};
use crate::protocol::request_error::RequestError;
use crate::protocol::ring::{Sleeper, Waiter};
use crate::protocol::spin::SpinWait;
use crate::protocol::types::PROCESS_ENDED;
use crate::protocol::types::{Access, Fence, Id, Policy};

/// Streams that write semaphores after the work with leases. A long kernel delays only the semaphores of its own
/// stream.
const SIGNAL_STREAMS: usize = 4;

/// Why an operation of [`Broker`] failed.
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant describes it")]
#[derive(thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Device(Box<freehold::Error>),
    #[error("the broker's memory is on another GPU ({}): choose that one with FREEHOLD_DEVICE or --device", uuid(.device))]
    OtherDevice { device: [u8; 16] },
    #[error("timed out after {timeout:?}")]
    TimedOut { timeout: std::time::Duration },
}

/// Same as `Display`, so that `unwrap` and a `main` that returns the error print the message.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// In the format of `nvidia-smi -L`.
fn uuid(device: &[u8; 16]) -> String {
    let digits: String = device.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

impl From<freehold::Error> for Error {
    fn from(error: freehold::Error) -> Self {
        Self::Device(Box::new(error))
    }
}

/// The result of an operation of [`Broker`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a lease was not published, given or returned, with the unchanged lease. `?` drops the lease, which returns it to
/// the broker like any drop.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct LeaseError<T: Pod> {
    /// The lease.
    pub lease: Lease<T>,
    /// Why.
    pub error: Error,
}

/// Same as `Display`, so that `unwrap` and a `main` that returns the error print the message.
impl<T: Pod> fmt::Debug for LeaseError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<T: Pod> From<LeaseError<T>> for Error {
    fn from(failed: LeaseError<T>) -> Self {
        failed.error
    }
}

/// Returns the size of `len` elements in bytes, or `u64::MAX`, which the broker refuses, if it overflows.
fn bytes_of<T>(len: usize) -> u64 {
    (len as u64).saturating_mul(size_of::<T>() as u64)
}

/// A handle to a connection to the broker, for one device. The connection is closed when the last handle and the last
/// lease are dropped.
#[derive(Clone, Debug)]
pub struct Broker {
    pub(super) inner: Arc<BrokerInner>,
}

/// Fields are dropped in order: first the mappings, then the connection, because the broker assumes that a tenant that
/// sent `Bye` has nothing mapped.
#[derive(Debug)]
pub(super) struct BrokerInner {
    mappings: Mutex<Mappings>,
    device: Device,
    link: Mutex<Link>,
    waiter: Arc<Waiter>,
    spin: SpinWait,
    /// Serializes the threads that wait for given leases. Locked before the link.
    receiving: Mutex<()>,
    tenant: Id,
    /// Leases that are arguments of calls, and the fence after the last call.
    last_calls: Mutex<HashMap<Id, Fence>>,
    /// The session at the worker that runs its kernels.
    session: SharedSession,
    /// Checked before any lock is taken: a forked child may have inherited a lock that was held by a thread of its
    /// parent.
    fork_guard: ForkGuard,
}

#[derive(Debug)]
struct Mappings {
    /// Mapped segments, read-only or read-write.
    segments: HashMap<(Id, bool), Imported>,
    /// Segments that are being unmapped, and their mappings until the work with them is complete.
    unmapping: Vec<(Id, Vec<UnmapStatus>)>,
    /// Semaphores of other tenants.
    semaphores: HashMap<Id, Arc<SharedSemaphores>>,
    own_semaphores: Arc<SharedSemaphores>,
    signal_streams: Vec<SignalStream>,
    next_stream: usize,
}

/// A stream, and the semaphore that it writes.
#[derive(Debug)]
struct SignalStream {
    stream: Stream,
    last_value: u64,
    /// The last value that published memory waits for.
    published_value: u64,
}

impl Drop for BrokerInner {
    /// Waits for the work with published memory: a publication that is unfinished when the broker receives `Bye`, or
    /// when the process ends, is lost.
    fn drop(&mut self) {
        if self.fork_guard.is_child() {
            return;
        }
        let mappings = self.mappings.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (word, signal_stream) in mappings.signal_streams.iter().enumerate() {
            if mappings.own_semaphores.read(word) >= signal_stream.published_value {
                continue;
            }
            if let Err(error) = signal_stream.stream.synchronize() {
                tracing::warn!(target: "freehold", %error, "published memory was not completed");
            }
        }
    }
}

impl Broker {
    /// Connects to this user's broker.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`] if none is running.
    pub fn connect(device: &Device) -> Result<Self> {
        Self::connect_at(device, &socket_path::resolve())
    }

    /// Connects to the broker at a path.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub fn connect_at(device: &Device, path: &Path) -> Result<Self> {
        Self::from_link(device, Link::connect(path)?)
    }

    /// Wraps a connected tenant.
    pub(crate) fn from_link(device: &Device, link: Link) -> Result<Self> {
        let theirs = link.device().to_le_bytes();
        if theirs != [0; 16] && theirs != device.uuid()? {
            return Err(Error::OtherDevice { device: theirs });
        }
        let own = {
            let (descriptor, words) = link.semaphores();
            Arc::new(device.shared_semaphores(descriptor.as_fd(), words)?)
        };
        let signal_streams = (0..SIGNAL_STREAMS)
            .map(|_| Ok(SignalStream { stream: device.new_stream()?, last_value: 0, published_value: 0 }));
        let signal_streams = signal_streams.collect::<Result<Vec<_>>>()?;
        let (segments, leaving, semaphores) = (HashMap::new(), Vec::new(), HashMap::new());
        let mappings = Mutex::new(Mappings {
            segments,
            unmapping: leaving,
            semaphores,
            own_semaphores: own,
            signal_streams,
            next_stream: 0,
        });
        let fork_guard = ForkGuard::new().map_err(LinkError::from_system)?;
        let (tenant, (waiter, spin)) = (link.tenant(), link.waiter()?);
        let (waiter, device) = (Arc::new(waiter), device.clone());
        let (link, receiving) = (Mutex::new(link), Mutex::new(()));
        let (called, session, shared_waiter) = (Mutex::default(), SharedSession::default(), waiter.clone());
        let inner = BrokerInner {
            device,
            link,
            waiter: shared_waiter,
            spin,
            receiving,
            tenant,
            last_calls: called,
            session,
            fork_guard,
            mappings,
        };
        let inner = Arc::new(inner);
        let tenant = Arc::downgrade(&inner);
        let unmap = move || {
            let broker = Self { inner: tenant.upgrade()? };
            Some(broker.begin_unmaps().and_then(|()| broker.finish_unmaps()))
        };
        unmapper::start(waiter, unmap).map_err(LinkError::from_system)?;
        Ok(Self { inner })
    }

    pub(super) fn session(&self) -> SharedSession {
        self.inner.session.clone()
    }

    /// Returns a handle with which other threads wait for messages of the broker.
    pub(crate) fn waiter(&self) -> Arc<Waiter> {
        self.inner.waiter.clone()
    }

    /// Returns the id of this process at the broker, to which others [`give`](Self::give) leases.
    pub fn tenant(&self) -> Id {
        self.inner.tenant
    }

    /// The owner of its lease ids.
    pub(super) fn owner(&self) -> Owner {
        Owner::of(&self.inner)
    }

    /// The device whose memory the broker leases.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Returns the connection itself, for requests that this type has no method for.
    ///
    /// # Safety
    /// The broker executes requests by id. Nothing that this `Broker` has created may be changed over the connection:
    /// no live [`Lease`] of it is returned or given away, no segment is detached, and [`Link::next_given`] takes
    /// nothing that [`receive`](Self::receive) waits for.
    ///
    /// # Errors
    /// [`LinkError::ForkedChild`].
    pub unsafe fn link(&self) -> Result<MutexGuard<'_, Link>> {
        self.connection()
    }

    /// Sets how long a request polls for its reply before it sleeps.
    ///
    /// # Errors
    /// [`LinkError::ForkedChild`].
    pub fn set_spin_policy(&self, spin_policy: SpinPolicy) -> Result<()> {
        self.connection()?.spin_policy = spin_policy;
        Ok(())
    }

    /// Drops a name. Its memory is freed when the last lease of it ends.
    ///
    /// # Errors
    /// [`RequestError::NoName`]; [`RequestError::ForeignName`] if another user published it.
    pub fn drop_name(&self, name: &str) -> Result<()> {
        self.connection()?.call(Request::Drop { name: Name::parse(name)? })?;
        Ok(())
    }

    pub(crate) fn connection(&self) -> Result<MutexGuard<'_, Link>> {
        self.check_fork()?;
        Ok(self.inner.link.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn check_fork(&self) -> Result<()> {
        if self.inner.fork_guard.is_child() { Err(LinkError::ForkedChild.into()) } else { Ok(()) }
    }

    /// Leases new memory for `len` elements, for use in a stream. It belongs to this process until it is dropped, given
    /// or published, and is freed with the process otherwise.
    pub fn reserve<T: Pod>(&self, stream: &Stream, len: usize) -> Result<Lease<T>> {
        let granted = self.connection()?.reserve(bytes_of::<T>(len))?;
        self.map_lease(stream, granted, Some(len))
    }

    /// Leases several pieces of memory like [`reserve`](Self::reserve): all of them, or none. Faster than one by one,
    /// because the requests are in flight together.
    pub fn reserve_all<T: Pod>(&self, stream: &Stream, lens: &[usize]) -> Result<Vec<Lease<T>>> {
        let bytes: Vec<u64> = lens.iter().map(|&len| bytes_of::<T>(len)).collect();
        let granted = self.connection()?.reserve_all(&bytes)?;
        self.map_leases(stream, granted, lens.iter().copied().map(Some))
    }

    /// Publishes the memory of a lease under a name. The memory stays when this process ends. Other processes that
    /// lease it wait, on the device, for the work that was submitted with it so far. This call waits for worker calls
    /// that use the lease.
    ///
    /// The last handle of this broker waits, on drop, for the work with published memory. A process that is killed or
    /// calls [`std::process::exit`] before that work is complete has not published: the name keeps its previous
    /// version.
    ///
    /// # Errors
    /// If the name is taken or invalid. The error returns the lease.
    #[allow(clippy::result_large_err, reason = "the error returns the lease, by value")]
    pub fn publish<T: Pod>(
        &self,
        name: &str,
        mut lease: Lease<T>,
        policy: Policy,
    ) -> std::result::Result<(), LeaseError<T>> {
        match self.publish_version(name, &mut lease, policy) {
            Ok(_) => Ok(()),
            Err(error) => Err(LeaseError { lease, error }),
        }
    }

    /// Like [`publish`](Self::publish). Returns the version that the name has now: 1 for a new name, else one more than
    /// before. Afterwards the lease is for reading.
    ///
    /// # Errors
    /// Those of [`publish`](Self::publish).
    pub fn publish_version<T: Pod>(&self, name: &str, lease: &mut Lease<T>, policy: Policy) -> Result<u64> {
        let name = Name::parse(name)?;
        self.wait_last_call(lease.id)?;
        let fence = self.fence_after_uses(lease.slice(), lease.id)?;
        lease.fence = fence;
        let reply = self.connection()?.call(Request::Publish { lease: lease.id, policy, fence, name })?.reply;
        let Reply::Number { bytes: version, .. } = reply else { return Err(LinkError::Malformed.into()) };
        (lease.access, lease.version) = (Access::Read, version);
        if fence.tenant == self.inner.tenant && fence.value > 0 {
            self.mappings().signal_streams[fence.semaphore as usize].published_value = fence.value;
        }
        Ok(version)
    }

    /// Copies a block to new memory of the broker, in stream order, and publishes that under a name.
    pub fn publish_copy<T: Pod>(
        &self,
        stream: &Stream,
        name: &str,
        from: &impl Source<T>,
        policy: Policy,
    ) -> Result<()> {
        let mut lease = self.reserve::<T>(stream, from.len())?;
        stream.copy(from, &mut lease)?;
        Ok(self.publish(name, lease, policy)?)
    }

    /// Leases a name for use in a stream, which waits on the device for unfinished writes. A read lease is mapped
    /// read-only: the device refuses a write.
    pub fn lease<T: Pod>(&self, stream: &Stream, name: &str, access: Access) -> Result<Lease<T>> {
        let name = Name::parse(name)?;
        let mut link = self.connection()?;
        let Reply::Number { id, .. } = link.call(Request::Find { name })?.reply else {
            return Err(LinkError::Malformed.into());
        };
        let granted = link.lease(id, access)?;
        drop(link);
        self.map_lease(stream, granted, None)
    }

    /// Leases memory for `len` elements that become the next version of a name when it is
    /// [published](Self::publish_version) under it. Under a policy that writes in place, it is the current version, and
    /// its length does not change.
    ///
    /// # Errors
    /// [`RequestError::Busy`] if another process writes the next version.
    pub fn lease_next<T: Pod>(&self, stream: &Stream, name: &str, len: usize) -> Result<Lease<T>> {
        let name = Name::parse(name)?;
        let mut link = self.connection()?;
        let Reply::Number { id, .. } = link.call(Request::Find { name })?.reply else {
            return Err(LinkError::Malformed.into());
        };
        let granted = link.lease_next(id, bytes_of::<T>(len).max(1))?;
        drop(link);
        self.map_lease(stream, granted, None)
    }

    /// Leases several names like [`lease`](Self::lease): all of them, or none.
    pub fn lease_all<T: Pod>(&self, stream: &Stream, names: &[&str], access: Access) -> Result<Vec<Lease<T>>> {
        let mut link = self.connection()?;
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            let Reply::Number { id, .. } = link.call(Request::Find { name: Name::parse(name)? })?.reply else {
                return Err(LinkError::Malformed.into());
            };
            found.push((id, access));
        }
        let granted = link.lease_all(&found)?;
        drop(link);
        self.map_leases(stream, granted, std::iter::repeat(None))
    }

    /// Gives a lease to another process, which may hold it after this one has exited. This waits for worker calls that
    /// use the lease. Pending work with it continues; if this process ends before it is complete, the receiver is
    /// notified ([`Lease::is_unfinished`]).
    ///
    /// # Errors
    /// If there is no such process, or if it has too many leases to accept. The error returns the lease.
    #[allow(clippy::result_large_err, reason = "the error returns the lease, by value")]
    pub fn give<T: Pod>(&self, mut lease: Lease<T>, to: Id) -> std::result::Result<(), LeaseError<T>> {
        let fence = self.wait_last_call(lease.id).and_then(|()| self.fence_after_uses(lease.slice(), lease.id));
        let given = fence.and_then(|fence| Ok(self.connection()?.give(lease.id, to, fence)?));
        match given {
            Ok(()) => {
                lease.mark_returned();
                Ok(())
            }
            Err(error) => Err(LeaseError { lease, error }),
        }
    }

    /// Waits for a lease that another process gives to this one. It covers all whole elements.
    pub fn receive<T: Pod>(&self, stream: &Stream) -> Result<Lease<T>> {
        let given = self.wait_given()?;
        self.map_lease(stream, given.granted, None)
    }

    /// Waits without holding the connection, so that other threads can use it.
    fn wait_given(&self) -> Result<Given> {
        self.check_fork()?;
        let _turn = self.inner.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        let (ring, spin, spin_policy) = (&self.inner.waiter, self.inner.spin, self.connection()?.spin_policy);
        let mut began = Instant::now();
        loop {
            // Read before the check: a reply that another thread takes afterwards counts too.
            let seen = ring.replied();
            if let Some(given) = self.connection()?.next_given() {
                return Ok(given);
            }
            for turn in 1_u32.. {
                if ring.replied() != seen {
                    break;
                }
                spin.spin_once();
                let is_over = matches!(spin_policy, SpinPolicy::For(longest) if turn.is_multiple_of(spin.spins_max()) && began.elapsed() >= longest);
                if is_over {
                    ring.sleep(Sleeper::Receiver, seen, LIVENESS_INTERVAL);
                }
                if is_over || turn % (1 << 20) == 0 {
                    break;
                }
            }
            // Nothing came for a while: check whether the broker is gone for good.
            if ring.replied() == seen && began.elapsed() > LIVENESS_INTERVAL {
                self.connection()?.check_alive()?;
                began = Instant::now();
            }
        }
    }

    /// Returns the totals of the broker.
    pub fn stats(&self) -> Result<BrokerStats> {
        match self.connection()?.call(Request::Stats)?.reply {
            Reply::Stats(stats) => Ok(stats),
            _ => Err(LinkError::Malformed.into()),
        }
    }

    /// Maps granted leases. If one fails, all are returned.
    fn map_leases<T: Pod>(
        &self,
        stream: &Stream,
        granted: Vec<Granted>,
        lens: impl Iterator<Item = Option<usize>>,
    ) -> Result<Vec<Lease<T>>> {
        let mut left = granted.into_iter().zip(lens);
        let taken = left.by_ref().map(|(granted, len)| self.map_lease(stream, granted, len)).collect();
        for (granted, _) in left {
            self.connection()?.return_lease(granted.lease, Fence::default())?;
        }
        taken
    }

    /// Maps a granted lease. If that fails, it is returned.
    fn map_lease<T: Pod>(&self, stream: &Stream, granted: Granted, len: Option<usize>) -> Result<Lease<T>> {
        let taken = self.map_segment(&granted).and_then(|import| {
            self.wait_fence(stream, granted.fence)?;
            let len = len.unwrap_or(granted.bytes as usize / size_of::<T>().max(1));
            Ok(import.slice::<T>(stream, granted.offset, len)?)
        });
        match taken {
            Ok(slice) => Ok(Lease {
                broker: self.clone(),
                id: granted.lease,
                slice: Box::new(slice),
                access: granted.access,
                version: granted.version,
                fence: Fence::default(),
                is_returned: false,
            }),
            Err(error) => {
                // The first error says more.
                let _ = self.connection().map(|mut link| link.return_lease(granted.lease, Fence::default()));
                Err(error)
            }
        }
    }

    /// Maps the segment of a lease, once.
    fn map_segment(&self, granted: &Granted) -> Result<Imported> {
        self.begin_unmaps()?;
        let is_written = granted.access == Access::Write;
        let key = (granted.segment, is_written);
        if let Some(known) = self.mappings().segments.get(&key) {
            return Ok(known.clone());
        }
        let (descriptor, bytes) = self.connection()?.file(Request::Attach { segment: granted.segment })?;
        let permission = if is_written { Permission::ReadWrite } else { Permission::Read };
        let import = self.inner.device.import(descriptor.as_fd(), bytes, permission)?;
        self.mappings().segments.insert(key, import.clone());
        Ok(import)
    }

    /// Begins to unmap the segments that the broker wants back.
    pub(super) fn begin_unmaps(&self) -> Result<()> {
        let mut has_left = false;
        loop {
            let Some(segment) = self.connection()?.next_unmap() else { break };
            has_left = true;
            let mut mappings = self.mappings();
            let imports = [true, false].map(|is_written| mappings.segments.remove(&(segment, is_written)));
            // The request may be repeated by a broker that took over.
            if !mappings.unmapping.iter().any(|&(known, _)| known == segment) {
                let statuses = imports.iter().flatten().map(Imported::unmap_status).collect();
                mappings.unmapping.push((segment, statuses));
            }
            drop(mappings);
            drop(imports);
        }
        if has_left { self.finish_unmaps().map(drop) } else { Ok(()) }
    }

    /// Reports the segments that are unmapped by now. Returns whether none is left to unmap.
    pub(super) fn finish_unmaps(&self) -> Result<bool> {
        self.check_fork()?;
        let mut outcome = Ok(());
        let mut is_gone = |status: &UnmapStatus| {
            status.is_complete().unwrap_or_else(|error| {
                outcome = Err(error);
                false
            })
        };
        let mut mappings = self.mappings();
        mappings.unmapping.iter_mut().for_each(|(_, statuses)| statuses.retain(|status| !is_gone(status)));
        let gone: Vec<_> = mappings.unmapping.extract_if(.., |(_, statuses)| statuses.is_empty()).collect();
        let is_done = mappings.unmapping.is_empty();
        drop(mappings);
        for (segment, _) in gone {
            self.connection()?.detach(segment)?;
        }
        outcome?;
        Ok(is_done)
    }

    /// Borrows a lease of a tenant that this worker serves. Returns it with the fence that must be complete before it
    /// is used.
    pub(crate) fn borrow(&self, stream: &Stream, lease: Id, of: Id) -> Result<(Lease<u8>, Fence)> {
        let granted = self.connection()?.borrow(lease, of)?;
        let ready = granted.fence;
        let lease = self.map_lease(stream, Granted { fence: Fence::default(), ..granted }, None)?;
        Ok((lease, ready))
    }

    /// Makes a stream wait, on the device, for a fence: of a [call](crate::Call::fence), or of another process of this
    /// user. A complete fence is not waited for.
    pub fn wait_fence(&self, stream: &Stream, fence: Fence) -> Result<()> {
        if fence.value == 0 {
            return Ok(());
        }
        let semaphores = match self.semaphores(fence.tenant) {
            // The tenant is gone, so its fences are complete.
            Err(Error::Link(LinkError::Request { error: RequestError::NoTenant, .. })) => return Ok(()),
            semaphores => semaphores?,
        };
        let (word, value) = (fence.semaphore as usize, fence.value);
        if word < semaphores.len() && semaphores.read(word).wrapping_sub(value).cast_signed() < 0 {
            stream.wait_value(&semaphores, word, value)?;
        }
        Ok(())
    }

    pub(crate) fn semaphores(&self, tenant: Id) -> Result<Arc<SharedSemaphores>> {
        let mappings = self.mappings();
        if tenant == self.inner.tenant {
            return Ok(mappings.own_semaphores.clone());
        }
        if let Some(known) = mappings.semaphores.get(&tenant) {
            return Ok(known.clone());
        }
        drop(mappings);
        let (descriptor, bytes) = self.connection()?.file(Request::Semaphores { tenant })?;
        let semaphores = Arc::new(self.inner.device.shared_semaphores(descriptor.as_fd(), bytes as usize / 8)?);
        let mut mappings = self.mappings();
        let ended: Vec<Id> = mappings
            .semaphores
            .iter()
            .filter(|(_, semaphores)| semaphores.read(0) >= PROCESS_ENDED)
            .map(|(&tenant, _)| tenant)
            .collect();
        let gone: Vec<_> = ended.iter().filter_map(|tenant| mappings.semaphores.remove(tenant)).collect();
        mappings.semaphores.insert(tenant, semaphores.clone());
        drop(mappings);
        drop(gone);
        Ok(semaphores)
    }

    /// Returns a fence after all work with a lease so far, and after all calls that use it.
    fn fence_after_uses<T: Pod>(&self, slice: &ImportedSlice<T>, lease: Id) -> Result<Fence> {
        // It stays recorded until the lease ends, so that a failed return is repeated with the same fence.
        let called = self.last_calls().get(&lease).copied();
        if !slice.pending() {
            return Ok(called.unwrap_or_default());
        }
        let semaphores = match called.map(|fence| self.semaphores(fence.tenant)) {
            // The tenant is gone, so its fences are complete.
            None | Some(Err(Error::Link(LinkError::Request { error: RequestError::NoTenant, .. }))) => None,
            Some(semaphores) => Some(semaphores?),
        };
        self.signal_after(|signal_stream| {
            if let Some((semaphores, fence)) = semaphores.zip(called) {
                signal_stream.wait_value(&semaphores, fence.semaphore as usize, fence.value)?;
            }
            slice.gather(signal_stream)
        })
    }

    fn last_calls(&self) -> MutexGuard<'_, HashMap<Id, Fence>> {
        self.inner.last_calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for calls that use a lease: once the lease has ended, a worker that has not borrowed it yet can no longer
    /// do so.
    fn wait_last_call(&self, lease: Id) -> Result<()> {
        let Some(fence) = self.last_calls().get(&lease).copied() else { return Ok(()) };
        let semaphores = match self.semaphores(fence.tenant) {
            // The tenant is gone, so its fences are complete.
            Err(Error::Link(LinkError::Request { error: RequestError::NoTenant, .. })) => {
                self.remove_last_call(lease, fence);
                return Ok(());
            }
            semaphores => semaphores?,
        };
        for turn in 1_u32.. {
            if semaphores.read(fence.semaphore as usize) >= fence.value {
                break;
            }
            self.inner.spin.spin_once();
            if turn % (1 << 20) == 0 {
                self.connection()?.check_alive()?;
            }
        }
        self.remove_last_call(lease, fence);
        Ok(())
    }

    /// Forgets a completed call, unless the lease is an argument of another one by now.
    fn remove_last_call(&self, lease: Id, fence: Fence) {
        let mut called = self.last_calls();
        if called.get(&lease) == Some(&fence) {
            called.remove(&lease);
        }
    }

    /// Records that a call uses a lease, which is returned after it.
    pub(super) fn record_call(&self, lease: Id, fence: Fence) {
        self.last_calls().insert(lease, fence);
    }

    /// Returns a fence after all work of a stream so far. Calls, and streams of other processes of this user, can wait
    /// for it.
    pub fn fence(&self, stream: &Stream) -> Result<Fence> {
        self.check_fork()?;
        let event = stream.event()?;
        self.signal_after(|signal_stream| signal_stream.wait(&event))
    }

    /// Returns a fence after everything that `gather` makes a stream of this process wait for.
    fn signal_after(&self, gather: impl FnOnce(&Stream) -> freehold::Result<()>) -> Result<Fence> {
        let mut mappings = self.mappings();
        let own = mappings.own_semaphores.clone();
        let is_free = |(word, signal_stream): (usize, &SignalStream)| {
            (own.read(word) >= signal_stream.last_value).then_some(word)
        };
        let next = mappings.next_stream;
        let word = mappings.signal_streams.iter().enumerate().find_map(is_free).unwrap_or(next);
        mappings.next_stream = (next + 1) % SIGNAL_STREAMS;
        let signal_stream = &mut mappings.signal_streams[word];
        gather(&signal_stream.stream)?;
        signal_stream.stream.write_value(&own, word, signal_stream.last_value + 1)?;
        signal_stream.last_value += 1;
        Ok(Fence { tenant: self.inner.tenant, semaphore: word as u32, value: signal_stream.last_value })
    }

    fn mappings(&self) -> MutexGuard<'_, Mappings> {
        self.inner.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of the broker, used like a block: `&lease` and `&mut lease` are kernel arguments and operands of copies. On
/// drop it is returned, after the work that used it.
#[derive(Debug)]
pub struct Lease<T: Pod> {
    broker: Broker,
    id: Id,
    slice: Box<ImportedSlice<T>>,
    access: Access,
    version: u64,
    /// The fence that was sent when it was published.
    fence: Fence,
    is_returned: bool,
}

impl<T: Pod> Lease<T> {
    /// Returns the access that the lease permits.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns which version of its name it is. 0 if it is of no name, or of new memory that was not published yet, or
    /// of a version before the last one when it was leased from a broker that took over during the request.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn owner(&self) -> Owner {
        self.broker.owner()
    }

    /// Returns its id at the broker.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Whether another process gave this lease with pending work and ended before that work was known to be complete,
    /// so that the contents may be incomplete. The answer is final once the stream that it was received in has passed
    /// that point, because the stream waits for that work or for the end of that process.
    ///
    /// # Errors
    /// [`LinkError::ForkedChild`].
    pub fn is_unfinished(&self) -> Result<bool> {
        Ok(self.broker.connection()?.is_unfinished(self.id))
    }

    /// Returns a writable view of a range of elements.
    ///
    /// # Errors
    /// If the lease has fewer elements.
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> freehold::Result<ViewMut<'_, T>> {
        self.slice.view_mut(range)
    }

    fn slice(&self) -> &ImportedSlice<T> {
        &self.slice
    }

    /// Returns the lease to the broker. Nothing waits: the memory is reused when the work with it is complete.
    ///
    /// # Errors
    /// Those of the device and of the broker. The error returns the lease.
    #[allow(clippy::result_large_err, reason = "the error returns the lease, by value")]
    pub fn close(mut self) -> std::result::Result<(), LeaseError<T>> {
        match self.return_lease() {
            Ok(()) => Ok(()),
            Err(error) => Err(LeaseError { lease: self, error }),
        }
    }

    fn return_lease(&mut self) -> Result<()> {
        if self.is_returned {
            return Ok(());
        }
        self.broker.check_fork()?;
        let fence = self.broker.fence_after_uses(self.slice(), self.id)?;
        // The fence that was sent before may be later than what is pending now.
        let fence = if fence.value == 0 { self.fence } else { fence };
        self.broker.connection()?.return_lease(self.id, fence)?;
        self.mark_returned();
        Ok(())
    }

    /// Records that the lease belongs to the broker again, or to another process.
    fn mark_returned(&mut self) {
        self.is_returned = true;
        self.broker.last_calls().remove(&self.id);
    }
}

impl<T: Pod> Deref for Lease<T> {
    type Target = ImportedSlice<T>;

    fn deref(&self) -> &ImportedSlice<T> {
        self.slice()
    }
}

// SAFETY: the slice is created with the lease and never replaced, and no other value refers to it: `deref` lends it for
// as long as the lease is borrowed.
unsafe impl<T: Pod> OwnsSlice for Lease<T> {
    type Element = T;

    fn slice(&self) -> &ImportedSlice<T> {
        &self.slice
    }
}

impl<T: Pod> Drop for Lease<T> {
    fn drop(&mut self) {
        // The lease belongs to the parent process.
        if self.broker.inner.fork_guard.is_child() {
            return;
        }
        if let Err(error) = self.return_lease() {
            tracing::warn!(target: "freehold", %error, "could not return a lease: it ends with this process");
        }
    }
}

impl<T: Pod> Lease<T> {
    /// Returns the lease as a read-only argument of a call, starting at `element`.
    pub fn argument(&self, element: usize) -> Argument<'_> {
        self.argument_at(element)
    }

    /// Returns the lease as a read-write argument of a call, starting at `element`.
    pub fn argument_mut(&mut self, element: usize) -> Argument<'_> {
        self.argument_at(element)
    }

    fn argument_at(&self, element: usize) -> Argument<'_> {
        Argument::memory(self.owner(), self.id(), (element as u64).saturating_mul(size_of::<T>() as u64))
    }
}
