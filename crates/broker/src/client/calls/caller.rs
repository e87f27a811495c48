//! `Caller`: opens a session with a worker, pushes calls, and waits for them.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freehold::{ForkGuard, Grid};
use sha2::{Digest, Sha256};

use crate::client::broker::{Broker, Error};
use crate::client::call_error::{CallError, Executed};
use crate::client::kernel::Kernel;
use crate::client::link::{Link, LinkError, SpinPolicy};
use crate::client::session::{CallId, CallSession, SharedSession};
use crate::os::socket_path;
use crate::protocol::call_codec::{Argument, BODY_WORDS, CallHeader, CallKind, Content, FENCES_MAX, Owner};
use crate::protocol::types::STREAMS;
use crate::protocol::types::{Fence, Id};

/// The launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Its blocks and threads.
    pub grid: Grid,
    /// Its arguments, in the order of its parameters.
    pub arguments: &'a [Argument<'a>],
    /// The stream at the worker, from 0 to 15. Calls of one stream are executed one after the other.
    pub stream: u32,
    /// Fences that the launch waits for, on the device. They belong to this process or to other processes of its user.
    pub after: &'a [Fence],
}

impl<'a> Launch<'a> {
    /// Returns a launch in stream 0, without fences.
    pub fn new(kernel: &'a Kernel, grid: Grid, arguments: &'a [Argument<'a>]) -> Self {
        Self { kernel, grid, arguments, stream: 0, after: &[] }
    }

    /// Makes the checks that need no worker: number, kinds and sizes of arguments, and the grid.
    ///
    /// # Errors
    /// Those of [`Caller::call`].
    pub fn check(&self) -> Result<(), CallError> {
        check_launch(self)
    }
}

/// The connection to the broker.
#[derive(Debug)]
pub(super) enum Channel {
    Own(Box<Mutex<Link>>),
    Tenant(Broker),
}

impl Channel {
    fn link(&self) -> Result<MutexGuard<'_, Link>, CallError> {
        match self {
            Self::Own(link) => Ok(link.lock().unwrap_or_else(PoisonError::into_inner)),
            Self::Tenant(broker) => broker.connection().map_err(|error| match error {
                Error::Link(error) => error.into(),
                _ => LinkError::ForkedChild.into(),
            }),
        }
    }

    /// The owner of its lease ids, which is the same for all callers of a tenant.
    pub(super) fn owner(self: &Arc<Self>) -> Owner {
        match &**self {
            Self::Own(_) => Owner::of(self),
            Self::Tenant(broker) => broker.owner(),
        }
    }
}

/// Calls kernels in a worker. The worker is started with the first call, and replaced after it has ended.
#[derive(Debug)]
pub struct Caller {
    pub(super) channel: Arc<Channel>,
    /// 0 for a private worker.
    label: u64,
    /// A tenant has one session, which numbers its calls, however many callers it has.
    session: SharedSession,
    spin_policy: Mutex<SpinPolicy>,
    fork_guard: ForkGuard,
}

impl Caller {
    /// Connects to the broker at a path, as a tenant without a device.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`] if none is running.
    pub fn connect_at(path: &Path) -> Result<Self, CallError> {
        Self::from_channel(Channel::Own(Box::new(Mutex::new(Link::connect(path)?))), SharedSession::default())
    }

    /// Like [`connect_at`](Self::connect_at), with this user's broker.
    ///
    /// # Errors
    /// Those of [`connect_at`](Self::connect_at).
    pub fn connect() -> Result<Self, CallError> {
        Self::connect_at(&socket_path::resolve())
    }

    /// Returns a caller for an existing tenant, whose leases can be arguments.
    ///
    /// # Errors
    /// If the system cannot map a page.
    pub fn from_broker(broker: &Broker) -> Result<Self, CallError> {
        Self::from_channel(Channel::Tenant(broker.clone()), broker.session())
    }

    fn from_channel(channel: Channel, session: SharedSession) -> Result<Self, CallError> {
        let fork_guard = ForkGuard::new().map_err(LinkError::from_system)?;
        let spin_policy = Mutex::new(SpinPolicy::For(Duration::from_micros(50)));
        Ok(Self { channel: Arc::new(channel), label: 0, session, spin_policy, fork_guard })
    }

    /// Shares a worker with all processes of this user that use the same label. Sharing avoids the cost of switching
    /// the GPU between processes, but a faulting kernel of one process ends the worker for all. Must be called before
    /// the first call.
    #[must_use]
    pub fn share_worker(mut self, label: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(label).into();
        let (first, _) = hash.split_first_chunk().expect("a hash has eight bytes");
        self.label = u64::from_le_bytes(*first).max(1);
        self
    }

    /// Sets how long a wait polls before it sleeps.
    pub fn set_spin_policy(&self, spin_policy: SpinPolicy) {
        *self.spin_policy.lock().unwrap_or_else(PoisonError::into_inner) = spin_policy;
    }

    /// Returns the connection to the broker.
    ///
    /// # Safety
    /// As for [`Broker::link`]: a caller made by [`from_broker`](Self::from_broker) uses the same connection. No lease
    /// of a live [`NamedLease`](crate::NamedLease) is returned or given away over it.
    ///
    /// # Errors
    /// [`LinkError::ForkedChild`].
    pub unsafe fn link(&self) -> Result<MutexGuard<'_, Link>, CallError> {
        self.connection()
    }

    pub(super) fn connection(&self) -> Result<MutexGuard<'_, Link>, CallError> {
        self.check_fork()?;
        self.channel.link()
    }

    /// Returns a lease of this tenant as an argument, by its id, starting at a byte offset. The worker refuses an id
    /// that is not one of the tenant's leases.
    ///
    /// # Safety
    /// The call does not borrow the lease. All other users of the lease tolerate that kernels which receive it read and
    /// write it.
    pub unsafe fn argument(&self, lease: Id, offset_bytes: u64) -> Argument<'static> {
        Argument::memory(self.channel.owner(), lease, offset_bytes)
    }

    fn spin_policy(&self) -> SpinPolicy {
        *self.spin_policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_fork(&self) -> Result<(), CallError> {
        if self.fork_guard.is_child() { Err(LinkError::ForkedChild.into()) } else { Ok(()) }
    }

    /// Launches a kernel after the earlier calls of its stream. Waits only for room in the ring, which holds 256 calls
    /// that the worker has not taken.
    ///
    /// # Errors
    /// The errors that can be found without the worker: arguments that do not match the kernel's parameters, and an
    /// invalid grid. [`Call::wait`] returns those that the worker finds.
    pub fn call(&self, launch: &Launch<'_>) -> Result<Call, CallError> {
        self.check_fork()?;
        check_launch(launch)?;
        let own = self.channel.owner();
        if let Some(at) = launch.arguments.iter().position(|argument| !argument.is_known_to(own)) {
            return Err(CallError::ForeignLease { kernel: launch.kernel.name().clone(), argument: at + 1 });
        }
        let Launch { kernel, grid, arguments, stream, after } = *launch;
        let head = CallHeader {
            kind: CallKind::Launch,
            stream,
            number: 0,
            module: kernel.module_id(),
            kernel: kernel.index(),
            blocks: grid.blocks,
            threads: grid.threads,
            shared_bytes: grid.shared_bytes,
        };
        self.push(head, after, arguments, kernel)
    }

    pub(super) fn push(
        &self,
        head: CallHeader,
        after: &[Fence],
        arguments: &[Argument<'_>],
        kernel: &Kernel,
    ) -> Result<Call, CallError> {
        loop {
            let session = self.session()?;
            match session.push(head, after, arguments) {
                Some(id) => {
                    if let Channel::Tenant(broker) = &*self.channel {
                        let leases = arguments.iter().filter_map(|argument| match argument.content() {
                            Content::Memory { memory, .. } => Some(memory),
                            Content::Number { .. } | Content::Bytes(_) => None,
                        });
                        leases.for_each(|lease| broker.record_call(lease, session.fence(id)));
                    }
                    let (channel, spin_policy) = (self.channel.clone(), self.spin_policy());
                    return Ok(Call { channel, session, id, kernel: kernel.clone(), spin_policy });
                }
                // The worker has ended, with the calls that were pushed before.
                None => self.remove_session(&session),
            }
        }
    }

    /// Forgets a worker that has ended.
    fn remove_session(&self, gone: &Arc<CallSession>) {
        let mut session = self.session.lock();
        if session.as_ref().is_some_and(|known| Arc::ptr_eq(known, gone)) {
            *session = None;
        }
    }

    /// Returns the session, and opens it if there is none.
    fn session(&self) -> Result<Arc<CallSession>, CallError> {
        let mut session = self.session.lock();
        if let Some(known) = session.as_ref().filter(|known| !known.has_ended()) {
            return Ok(known.clone());
        }
        let hired = Arc::new(CallSession::open(&mut *self.connection()?, self.label, self.fork_guard.clone())?);
        *session = Some(hired.clone());
        Ok(hired)
    }
}

/// A submitted call. Dropping it does not cancel it, nor does the end of the process; but then its failure is not
/// reported.
#[must_use = "a call that is dropped goes on, but its errors are lost"]
#[derive(Debug)]
pub struct Call {
    channel: Arc<Channel>,
    session: Arc<CallSession>,
    id: CallId,
    kernel: Kernel,
    spin_policy: SpinPolicy,
}

impl Call {
    /// Returns the fence after this call. Other calls can wait for it, and so can streams of this process and of other
    /// processes of its user ([`Broker::wait_fence`]).
    pub fn fence(&self) -> Fence {
        self.session.fence(self.id)
    }

    /// Whether the call is complete.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn is_complete(&self) -> Result<bool, CallError> {
        if !self.session.is_complete(self.id) {
            return Ok(false);
        }
        self.session.outcome(self.id, &self.kernel).map(|()| true)
    }

    /// Waits until the call is complete.
    ///
    /// # Errors
    /// The failure that the worker reported: whose fault it was, and whether the kernel has run.
    pub fn wait(&self) -> Result<(), CallError> {
        self.wait_until(None).map(drop)?;
        self.session.outcome(self.id, &self.kernel)
    }

    /// Like [`wait`](Self::wait), but waits at most `timeout`.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait), and [`CallError::TimedOut`]: the call continues.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), CallError> {
        if !self.wait_until(Some(timeout))? {
            let (kernel, module) = (self.kernel.name().clone(), self.kernel.module().clone());
            return Err(CallError::TimedOut { kernel, module, timeout });
        }
        self.session.outcome(self.id, &self.kernel)
    }

    fn wait_until(&self, timeout: Option<Duration>) -> Result<bool, CallError> {
        // A worker ends with a broker that is gone for good, and then nobody reports it.
        let look = || {
            self.channel.link()?.check_alive().map_err(|_| {
                let (kernel, module) = (self.kernel.name().clone(), self.kernel.module().clone());
                CallError::WorkerGone { kernel, module, executed: Executed::Maybe }
            })
        };
        self.session.wait(self.id, self.spin_policy, timeout, look)
    }
}

/// Makes the checks that need no worker.
fn check_launch(launch: &Launch<'_>) -> Result<(), CallError> {
    let Launch { kernel, grid, arguments, stream, after } = launch;
    let (name, parameters) = (kernel.name(), kernel.parameters());
    if parameters.len() != arguments.len() {
        let (wanted, given) = (parameters.len(), arguments.len());
        return Err(CallError::ArgumentCount { kernel: name.clone(), wanted, given });
    }
    for (argument, (wanted, given)) in (1..).zip(parameters.iter().zip(arguments.iter())) {
        let given = match given.content() {
            Content::Memory { .. } if wanted.takes_address() => continue,
            Content::Memory { .. } => {
                return Err(CallError::NotMemory { kernel: name.clone(), argument, wanted: *wanted });
            }
            Content::Number { parameter, .. } => parameter,
            Content::Bytes(bytes) => {
                freehold::signature::Parameter { kind: freehold::signature::Kind::Bytes, bytes: bytes.len() as u32 }
            }
        };
        if !wanted.takes(&given) {
            return Err(CallError::ArgumentKind { kernel: name.clone(), argument, wanted: *wanted, given });
        }
    }
    let words = 2 * after.len() + arguments.iter().map(|argument| argument.content().words()).sum::<usize>();
    if after.len() > FENCES_MAX {
        return Err(CallError::TooManyFences { most: FENCES_MAX, given: after.len() });
    }
    if words > BODY_WORDS {
        return Err(CallError::ArgumentsTooLarge { kernel: name.clone(), words });
    }
    if *stream >= STREAMS {
        return Err(CallError::NoStream { stream: *stream, streams: STREAMS });
    }
    if !is_valid_grid(grid) {
        return Err(CallError::InvalidGrid { blocks: grid.blocks, threads: grid.threads });
    }
    Ok(())
}

/// Whether any device could launch such a grid.
fn is_valid_grid(grid: &Grid) -> bool {
    let [x, y, z] = grid.blocks;
    let [tx, ty, tz] = grid.threads.map(u64::from);
    let threads = tx.saturating_mul(ty).saturating_mul(tz);
    let is_within = |count: u32, most: u32| (1..=most).contains(&count);
    is_within(x, i32::MAX as u32)
        && is_within(y, 65535)
        && is_within(z, 65535)
        && (1..=1024).contains(&threads)
        && tz <= 64
}
