//! Calls: kernels that a worker of the broker's runs for this process, on memory that it has leased. This process needs no device
//! for that, and no kernel of its own can harm it: only the worker ends with one that faults.
//!
//! What is called is put into a ring that tenant and worker share; that it is done is a word of the worker's clock, which the
//! worker's stream writes. So neither a call nor the wait for it asks the system, or the broker, for anything while both spin.

mod error;
mod modules;
mod named;
mod seat;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freehold::{ForkGuard, Grid};
use sha2::{Digest, Sha256};

pub use self::error::{Blame, CallError, Carried, Code};
pub use self::modules::{Kernel, ListedModule, MODULE_BYTES_MAX, Module};
pub(crate) use self::modules::{digest, text_of};
pub use self::named::Named;
use self::seat::{Seat, Spot};
use super::link::{Link, LinkError, Patience};
use super::tenant::{Broker, Lease};
use crate::calls::STREAMS;
use crate::order::{Argument, Content, Head, Owner, POINTS_MAX, ROOM_WORDS, Task};
use crate::place;
use crate::wire::{Id, Point};

/// What is to be launched.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    pub kernel: &'a Kernel,
    pub grid: Grid,
    pub arguments: &'a [Argument<'a>],
    /// The stream at the worker, from 0 to 15: calls of one stream are carried out one after the other.
    pub stream: u32,
    /// What has to pass before it begins, on the device: work of this process, or of others of its user.
    pub after: &'a [Point],
}

impl<'a> Launch<'a> {
    /// In stream 0, after nothing.
    pub fn new(kernel: &'a Kernel, grid: Grid, arguments: &'a [Argument<'a>]) -> Self {
        Self { kernel, grid, arguments, stream: 0, after: &[] }
    }

    /// Looks at what can be seen to be wrong without a worker: number, kinds and sizes of arguments, and the grid.
    ///
    /// # Errors
    /// Those of [`Caller::call`].
    pub fn check(&self) -> Result<(), CallError> {
        fits(self)
    }
}

/// How the broker is spoken to.
#[derive(Debug)]
enum Way {
    Own(Box<Mutex<Link>>),
    Tenant(Broker),
}

impl Way {
    fn link(&self) -> Result<MutexGuard<'_, Link>, CallError> {
        match self {
            Self::Own(link) => Ok(link.lock().unwrap_or_else(PoisonError::into_inner)),
            Self::Tenant(broker) => broker.connection().map_err(|error| match error {
                super::tenant::Error::Link(error) => error.into(),
                _ => LinkError::ForkedChild.into(),
            }),
        }
    }

    /// What the numbers of its leases are numbers of: all callers of a tenant have the same.
    fn owner(self: &Arc<Self>) -> Owner {
        match &**self {
            Self::Own(_) => Owner::of(self),
            Self::Tenant(broker) => broker.owner(),
        }
    }
}

/// The seat of a tenant, for all of its callers.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedSeat(Arc<Mutex<Option<Arc<Seat>>>>);

impl SharedSeat {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Seat>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who calls kernels: a tenant, and the worker that runs them, which is there from the first call on and replaced when it ended.
#[derive(Debug)]
pub struct Caller {
    way: Arc<Way>,
    /// Zero for a worker of its own.
    label: u64,
    /// A tenant has one seat, whoever calls for it: its calls are counted there.
    seat: SharedSeat,
    patience: Mutex<Patience>,
    family: ForkGuard,
}

impl Caller {
    /// A tenant of its own, without a device, at the broker of a path.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`] where none is running.
    pub fn connect_at(path: &Path) -> Result<Self, CallError> {
        Self::over(Way::Own(Box::new(Mutex::new(Link::connect(path)?))), SharedSeat::default())
    }

    /// As [`connect_at`](Self::connect_at), at this user's broker.
    ///
    /// # Errors
    /// As [`connect_at`](Self::connect_at).
    pub fn connect() -> Result<Self, CallError> {
        Self::connect_at(&place::socket())
    }

    /// For a tenant that there is: its leases can be arguments.
    ///
    /// # Errors
    /// Where the system maps no page.
    pub fn of(broker: &Broker) -> Result<Self, CallError> {
        Self::over(Way::Tenant(broker.clone()), broker.seat())
    }

    fn over(way: Way, seat: SharedSeat) -> Result<Self, CallError> {
        let family = ForkGuard::new().map_err(LinkError::from_system)?;
        let patience = Mutex::new(Patience::For(Duration::from_micros(50)));
        Ok(Self { way: Arc::new(way), label: 0, seat, patience, family })
    }

    /// Agrees to share a worker with all processes of this user that say the same label: processes that take turns on a GPU pay
    /// for each turn, and a kernel of any of them that faults ends the worker of all. Before the first call.
    #[must_use]
    pub fn sharing(mut self, label: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(label).into();
        let (first, _) = hash.split_first_chunk().expect("a hash has eight bytes");
        self.label = u64::from_le_bytes(*first).max(1);
        self
    }

    /// How long a wait looks before it sleeps.
    pub fn set_patience(&self, patience: Patience) {
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner) = patience;
    }

    /// The connection to the broker.
    ///
    /// # Safety
    /// As for [`Broker::link`], whose connection it is for a caller [`of`](Self::of) a broker. No lease of a live [`Named`] is returned or
    /// given away over it.
    ///
    /// # Errors
    /// [`LinkError::ForkedChild`].
    pub unsafe fn link(&self) -> Result<MutexGuard<'_, Link>, CallError> {
        self.connection()
    }

    fn connection(&self) -> Result<MutexGuard<'_, Link>, CallError> {
        self.check()?;
        self.way.link()
    }

    /// A lease of this tenant as an argument, by its number, from a byte on. The worker refuses a number that is not one of its leases.
    ///
    /// # Safety
    /// Nothing is borrowed. Whatever else uses the lease tolerates that the kernels which are given it read and write it.
    pub unsafe fn argument(&self, lease: Id, offset_bytes: u64) -> Argument<'static> {
        Argument::memory(self.way.owner(), lease, offset_bytes)
    }

    fn patience(&self) -> Patience {
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<(), CallError> {
        if self.family.is_child() { Err(LinkError::ForkedChild.into()) } else { Ok(()) }
    }

    /// Has a kernel launched, behind the calls of its stream. Nothing is waited for, but room where 256 calls have not been
    /// taken.
    ///
    /// # Errors
    /// Those of the caller that can be seen here: of arguments that are not the kernel's parameters, and of a grid that is none.
    /// What the worker sees is told by [`Call::wait`].
    pub fn call(&self, launch: &Launch<'_>) -> Result<Call, CallError> {
        self.check()?;
        fits(launch)?;
        let own = self.way.owner();
        if let Some(at) = launch.arguments.iter().position(|argument| !argument.is_known_to(own)) {
            return Err(CallError::ForeignLease { kernel: launch.kernel.name().clone(), argument: at + 1 });
        }
        let Launch { kernel, grid, arguments, stream, after } = *launch;
        let head = Head {
            task: Task::Launch,
            stream,
            number: 0,
            module: kernel.module_id(),
            kernel: kernel.index(),
            blocks: grid.blocks,
            threads: grid.threads,
            shared_bytes: grid.shared_bytes,
        };
        self.put(head, after, arguments, kernel)
    }

    fn put(&self, head: Head, after: &[Point], arguments: &[Argument<'_>], kernel: &Kernel) -> Result<Call, CallError> {
        loop {
            let seat = self.seat()?;
            match seat.put(head, after, arguments) {
                Some(spot) => {
                    if let Way::Tenant(broker) = &*self.way {
                        let leases = arguments.iter().filter_map(|argument| match argument.content() {
                            Content::Memory { memory, .. } => Some(memory),
                            Content::Number { .. } | Content::Bytes(_) => None,
                        });
                        leases.for_each(|lease| broker.note_call(lease, seat.point(spot)));
                    }
                    let (way, patience) = (self.way.clone(), self.patience());
                    return Ok(Call { way, seat, spot, kernel: kernel.clone(), patience });
                }
                // It has ended, with what was put in before.
                None => self.leave(&seat),
            }
        }
    }

    /// Forgets a worker that has ended.
    fn leave(&self, gone: &Arc<Seat>) {
        let mut seat = self.seat.lock();
        if seat.as_ref().is_some_and(|known| Arc::ptr_eq(known, gone)) {
            *seat = None;
        }
    }

    /// The worker, hired where there is none.
    fn seat(&self) -> Result<Arc<Seat>, CallError> {
        let mut seat = self.seat.lock();
        if let Some(known) = seat.as_ref().filter(|known| !known.has_ended()) {
            return Ok(known.clone());
        }
        let hired = Arc::new(Seat::hire(&mut *self.connection()?, self.label, self.family.clone())?);
        *seat = Some(hired.clone());
        Ok(hired)
    }
}

/// A call that was put in. Dropped, it goes on, also when its process ends: but nobody hears then what goes wrong with it.
#[derive(Debug)]
pub struct Call {
    way: Arc<Way>,
    seat: Arc<Seat>,
    spot: Spot,
    kernel: Kernel,
    patience: Patience,
}

impl Call {
    /// The point behind it: streams of this process, and of others of its user, can wait for it
    /// ([`Broker::await_point`]), and so can other calls.
    pub fn point(&self) -> Point {
        self.seat.point(self.spot)
    }

    /// Whether it is over.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn is_done(&self) -> Result<bool, CallError> {
        if !self.seat.is_over(self.spot) {
            return Ok(false);
        }
        self.seat.outcome(self.spot, &self.kernel).map(|()| true)
    }

    /// Waits until it is over.
    ///
    /// # Errors
    /// What the worker says went wrong: the caller's fault, the kernel's, the device's or the connection's, and whether the
    /// kernel has run.
    pub fn wait(&self) -> Result<(), CallError> {
        self.wait_until(None).map(drop)?;
        self.seat.outcome(self.spot, &self.kernel)
    }

    /// As [`wait`](Self::wait), for so long at the most.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), and [`CallError::TimedOut`]: the call goes on.
    pub fn wait_for(&self, timeout: Duration) -> Result<(), CallError> {
        if !self.wait_until(Some(timeout))? {
            let (kernel, module) = (self.kernel.name().clone(), self.kernel.module().clone());
            return Err(CallError::TimedOut { kernel, module, timeout });
        }
        self.seat.outcome(self.spot, &self.kernel)
    }

    fn wait_until(&self, timeout: Option<Duration>) -> Result<bool, CallError> {
        // A worker ends with a broker that is gone for good, and nobody is left to say so.
        let look = || {
            self.way.link()?.look().map_err(|_| {
                let (kernel, module) = (self.kernel.name().clone(), self.kernel.module().clone());
                CallError::WorkerGone { kernel, module, carried: Carried::Perhaps }
            })
        };
        self.seat.wait(self.spot, self.patience, timeout, look)
    }
}

impl<T: freehold::Pod> Lease<T> {
    /// The lease as an argument of a call, from an element on, to be read.
    pub fn argument(&self, element: usize) -> Argument<'_> {
        self.argument_at(element)
    }

    /// The lease as an argument of a call, from an element on, to be read and written.
    pub fn argument_mut(&mut self, element: usize) -> Argument<'_> {
        self.argument_at(element)
    }

    fn argument_at(&self, element: usize) -> Argument<'_> {
        Argument::memory(self.owner(), self.id(), (element as u64).saturating_mul(size_of::<T>() as u64))
    }
}

/// Refuses what can be seen to be wrong without a worker.
fn fits(launch: &Launch<'_>) -> Result<(), CallError> {
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
    if after.len() > POINTS_MAX {
        return Err(CallError::TooManyPoints { most: POINTS_MAX, given: after.len() });
    }
    if words > ROOM_WORDS {
        return Err(CallError::TooMuch { kernel: name.clone(), words });
    }
    if *stream >= STREAMS {
        return Err(CallError::NoStream { stream: *stream, streams: STREAMS });
    }
    if !is_grid(grid) {
        return Err(CallError::Grid { blocks: grid.blocks, threads: grid.threads });
    }
    Ok(())
}

/// Whether any device launches such a grid.
fn is_grid(grid: &Grid) -> bool {
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
