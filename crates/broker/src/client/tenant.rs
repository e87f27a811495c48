//! The broker for programs that use a device: leases that are used like blocks, and how they come and go.
//!
//! What a lease was used for is told by a point: a word of this process's clock that a stream of the device writes behind that
//! work. Whoever has the memory next waits for it, on the device or not at all. No host waits.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use freehold::{
    Departure, Device, ForkGuard, Imported, ImportedSlice, OwnsSlice, Permission, Pod, SharedSemaphores, Source,
    Stream, ViewMut,
};

use super::calls::SharedSeat;
use super::leaver;
use super::link::{Given, Granted, LOOK, Link, LinkError, Patience};
use crate::calls::ENDED;
use crate::name::{Name, NotAName};
use crate::order::Owner;
use crate::place;
use crate::ring::{Doorstep, Sleeper, Spin};
use crate::wire::{Access, Id, Point, Policy, Refusal, Reply, Request, Sums};

/// Streams that write words behind the work of leases: work that takes long holds up the words of its own stream only.
const MARKERS: usize = 4;

/// Why the broker did not do what it was asked.
#[derive(thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Name(#[from] NotAName),
    #[error(transparent)]
    Device(Box<freehold::Error>),
    #[error("the broker's memory is on another GPU ({}): choose that one with FREEHOLD_DEVICE or --device", uuid(.device))]
    OtherDevice { device: [u8; 16] },
    #[error("it was not so within {timeout:?}")]
    TimedOut { timeout: std::time::Duration },
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As `nvidia-smi -L` prints it.
fn uuid(device: &[u8; 16]) -> String {
    let digits: String = device.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

impl From<freehold::Error> for Error {
    fn from(error: freehold::Error) -> Self {
        Self::Device(Box::new(error))
    }
}

pub type Result<T> = std::result::Result<T, Error>;

/// More than there is of anything, where a length is beyond all numbers: the broker refuses that.
fn bytes_of<T>(len: usize) -> u64 {
    (len as u64).saturating_mul(size_of::<T>() as u64)
}

/// A connection to the broker, for a device. A handle: it is hung up with the last one, and the last lease.
#[derive(Clone, Debug)]
pub struct Broker {
    pub(super) inner: Arc<Inner>,
}

/// What is mapped goes first, and then the connection: the broker takes who says goodbye for one that has nothing mapped.
#[derive(Debug)]
pub(super) struct Inner {
    books: Mutex<Books>,
    device: Device,
    link: Mutex<Link>,
    doorstep: Arc<Doorstep>,
    spin: Spin,
    /// Who waits for what is given, one after the other. Taken before the link.
    receiving: Mutex<()>,
    tenant: Id,
    /// Leases that are arguments of calls, and the point behind the last.
    called: Mutex<HashMap<Id, Point>>,
    /// Where its kernels run.
    seat: SharedSeat,
    /// Asked before any lock is taken: a child may have inherited it locked, by a thread that it does not have.
    family: ForkGuard,
}

#[derive(Debug)]
struct Books {
    /// Segments that are mapped here, for reading or for both.
    segments: HashMap<(Id, bool), Imported>,
    /// Segments that are to be left, and what of them is mapped until its work has passed.
    leaving: Vec<(Id, Vec<Departure>)>,
    /// The clocks of others.
    clocks: HashMap<Id, Arc<SharedSemaphores>>,
    own: Arc<SharedSemaphores>,
    markers: Vec<Marker>,
    next: usize,
}

/// A stream, and the word that it writes.
#[derive(Debug)]
struct Marker {
    stream: Stream,
    written: u64,
}

impl Broker {
    /// Connects to this user's broker.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`] where none is running.
    pub fn connect(device: &Device) -> Result<Self> {
        Self::connect_at(device, &place::socket())
    }

    /// Connects to the broker at a path.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_at(device: &Device, path: &Path) -> Result<Self> {
        Self::over(device, Link::connect(path)?)
    }

    /// A tenant that is connected.
    pub(crate) fn over(device: &Device, link: Link) -> Result<Self> {
        let theirs = link.device().to_le_bytes();
        if theirs != [0; 16] && theirs != device.uuid()? {
            return Err(Error::OtherDevice { device: theirs });
        }
        let own = {
            let (descriptor, words) = link.clock();
            Arc::new(device.clock(descriptor.as_fd(), words)?)
        };
        let markers = (0..MARKERS).map(|_| Ok(Marker { stream: device.stream()?, written: 0 }));
        let markers = markers.collect::<Result<Vec<_>>>()?;
        let (segments, leaving, clocks) = (HashMap::new(), Vec::new(), HashMap::new());
        let books = Mutex::new(Books { segments, leaving, clocks, own, markers, next: 0 });
        let family = ForkGuard::new().map_err(LinkError::from_system)?;
        let (tenant, (doorstep, spin)) = (link.tenant(), link.doorstep()?);
        let (doorstep, device) = (Arc::new(doorstep), device.clone());
        let (link, receiving) = (Mutex::new(link), Mutex::new(()));
        let (called, seat, doors) = (Mutex::default(), SharedSeat::default(), doorstep.clone());
        let inner = Inner { device, link, doorstep: doors, spin, receiving, tenant, called, seat, family, books };
        let inner = Arc::new(inner);
        leaver::start(&inner, doorstep).map_err(LinkError::from_system)?;
        Ok(Self { inner })
    }

    pub(super) fn seat(&self) -> SharedSeat {
        self.inner.seat.clone()
    }

    /// Where others of this process wait for what the broker says.
    pub(crate) fn doorstep(&self) -> Arc<Doorstep> {
        self.inner.doorstep.clone()
    }

    /// Who this process is at the broker: what others [`give`](Self::give) leases to.
    pub fn tenant(&self) -> Id {
        self.inner.tenant
    }

    /// What the numbers of its leases are numbers of.
    pub(super) fn owner(&self) -> Owner {
        Owner::of(&self.inner)
    }

    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The connection itself, for requests that this type has no method for.
    ///
    /// # Safety
    /// The broker takes a number for what it names. What this `Broker` has made is not changed over the connection: no live [`Lease`] of
    /// it is returned or given away, no segment detached, and [`Link::given`] takes nothing that [`receive`](Self::receive) waits for.
    ///
    /// # Errors
    /// [`LinkError::ForkedChild`].
    pub unsafe fn link(&self) -> Result<MutexGuard<'_, Link>> {
        self.connection()
    }

    /// How long a request looks for its reply before it sleeps.
    ///
    /// # Errors
    /// [`LinkError::ForkedChild`].
    pub fn set_patience(&self, patience: Patience) -> Result<()> {
        self.connection()?.patience = patience;
        Ok(())
    }

    /// Takes a name away. Its memory stays until the leases of it are over.
    ///
    /// # Errors
    /// [`Refusal::NoName`], [`Refusal::ForeignName`] where another user published it.
    pub fn drop_name(&self, name: &str) -> Result<()> {
        self.connection()?.call(Request::Drop { name: Name::parse(name)? })?;
        Ok(())
    }

    pub(crate) fn connection(&self) -> Result<MutexGuard<'_, Link>> {
        self.check()?;
        Ok(self.inner.link.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn check(&self) -> Result<()> {
        if self.inner.family.is_child() { Err(LinkError::ForkedChild.into()) } else { Ok(()) }
    }

    /// Memory of the broker's for `len` elements, for work in a stream. It is this process's until it is dropped, given, or
    /// published, and dies with it unless it was.
    pub fn reserve<T: Pod>(&self, stream: &Stream, len: usize) -> Result<Lease<T>> {
        let granted = self.connection()?.reserve(bytes_of::<T>(len))?;
        self.take(stream, granted, Some(len))
    }

    /// As [`reserve`](Self::reserve), as often as there are lengths: all of it, or none. Quicker than one by one: requests are on
    /// their way side by side.
    pub fn reserve_all<T: Pod>(&self, stream: &Stream, lens: &[usize]) -> Result<Vec<Lease<T>>> {
        let bytes: Vec<u64> = lens.iter().map(|&len| bytes_of::<T>(len)).collect();
        let granted = self.connection()?.reserve_all(&bytes)?;
        self.take_all(stream, granted, lens.iter().copied().map(Some))
    }

    /// Gives a lease's memory a name. It stays when this process ends. Others that lease it wait, on the device, for the work
    /// that was put into streams with it so far. This waits for calls that it is an argument of.
    ///
    /// # Errors
    /// The lease, and why: the name is taken, or none.
    pub fn publish<T: Pod>(
        &self,
        name: &str,
        mut lease: Lease<T>,
        policy: Policy,
    ) -> std::result::Result<(), (Lease<T>, Error)> {
        match self.try_publish(name, &mut lease, policy) {
            Ok(()) => Ok(()),
            Err(error) => Err((lease, error)),
        }
    }

    fn try_publish<T: Pod>(&self, name: &str, lease: &mut Lease<T>, policy: Policy) -> Result<()> {
        let name = Name::parse(name)?;
        self.wait_called(lease.id)?;
        let point = self.point_behind(lease.part(), lease.id)?;
        lease.point = point;
        self.connection()?.call(Request::Publish { lease: lease.id, policy, point, name })?;
        Ok(())
    }

    /// Copies a block into memory of the broker's, in the order of a stream, and gives that a name.
    pub fn publish_copy<T: Pod>(
        &self,
        stream: &Stream,
        name: &str,
        from: &impl Source<T>,
        policy: Policy,
    ) -> Result<()> {
        let mut lease = self.reserve::<T>(stream, from.len())?;
        stream.copy(from, &mut lease)?;
        self.publish(name, lease, policy).map_err(|(_, error)| error)
    }

    /// A lease of what has a name, for work in a stream, which waits on the device for what is still written. For reading it is
    /// mapped so that the device refuses a write.
    pub fn lease<T: Pod>(&self, stream: &Stream, name: &str, access: Access) -> Result<Lease<T>> {
        let name = Name::parse(name)?;
        let mut link = self.connection()?;
        let Reply::Number { id, .. } = link.call(Request::Find { name })?.reply else {
            return Err(LinkError::Malformed.into());
        };
        let granted = link.lease(id, access)?;
        drop(link);
        self.take(stream, granted, None)
    }

    /// As [`lease`](Self::lease), of many names: all of them, or none.
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
        self.take_all(stream, granted, std::iter::repeat(None))
    }

    /// Makes a lease another process's, which may end it when this one has long gone. This waits for calls that it is an argument
    /// of. Work with it that is pending goes on; where this process ends before it has passed, the other one is told
    /// ([`Lease::is_unfinished`]).
    ///
    /// # Errors
    /// The lease, and why.
    pub fn give<T: Pod>(&self, mut lease: Lease<T>, to: Id) -> std::result::Result<(), (Lease<T>, Error)> {
        let point = self.wait_called(lease.id).and_then(|()| self.point_behind(lease.part(), lease.id));
        let given = point.and_then(|point| Ok(self.connection()?.give(lease.id, to, point)?));
        match given {
            Ok(()) => {
                lease.end();
                Ok(())
            }
            Err(error) => Err((lease, error)),
        }
    }

    /// Waits for a lease that another process gives to this one: of all its whole elements.
    pub fn receive<T: Pod>(&self, stream: &Stream) -> Result<Lease<T>> {
        let given = self.wait_given()?;
        self.take(stream, given.granted, None)
    }

    /// Waits without the connection, which others use meanwhile.
    fn wait_given(&self) -> Result<Given> {
        self.check()?;
        let _turn = self.inner.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        let (ring, spin, patience) = (&self.inner.doorstep, self.inner.spin, self.connection()?.patience);
        let mut began = Instant::now();
        loop {
            // Counted before it is looked for: whoever takes it out of the ring since then counts too.
            let seen = ring.replied();
            if let Some(given) = self.connection()?.given() {
                return Ok(given);
            }
            for turn in 1_u32.. {
                if ring.replied() != seen {
                    break;
                }
                spin.moment();
                let is_over = matches!(patience, Patience::For(longest) if turn.is_multiple_of(spin.moments()) && began.elapsed() >= longest);
                if is_over {
                    ring.sleep(Sleeper::Receiver, seen, LOOK);
                }
                if is_over || turn % (1 << 20) == 0 {
                    break;
                }
            }
            // Nothing came for long: a broker that is gone for good gives nothing any more.
            if ring.replied() == seen && began.elapsed() > LOOK {
                self.connection()?.look()?;
                began = Instant::now();
            }
        }
    }

    /// Sums of everything at the broker.
    pub fn sums(&self) -> Result<Sums> {
        match self.connection()?.call(Request::Totals)?.reply {
            Reply::Sums(sums) => Ok(sums),
            _ => Err(LinkError::Malformed.into()),
        }
    }

    /// The leases of what the broker granted. Where one fails, all go back.
    fn take_all<T: Pod>(
        &self,
        stream: &Stream,
        granted: Vec<Granted>,
        lens: impl Iterator<Item = Option<usize>>,
    ) -> Result<Vec<Lease<T>>> {
        let mut left = granted.into_iter().zip(lens);
        let taken = left.by_ref().map(|(granted, len)| self.take(stream, granted, len)).collect();
        for (granted, _) in left {
            self.connection()?.give_back(granted.lease, Point::default())?;
        }
        taken
    }

    /// The lease of what the broker granted. What fails gives it back.
    fn take<T: Pod>(&self, stream: &Stream, granted: Granted, len: Option<usize>) -> Result<Lease<T>> {
        let taken = self.map(&granted).and_then(|import| {
            self.await_point(stream, granted.point)?;
            let len = len.unwrap_or(granted.bytes as usize / size_of::<T>().max(1));
            Ok(import.part::<T>(stream, granted.offset, len)?)
        });
        match taken {
            Ok(part) => Ok(Lease {
                broker: self.clone(),
                id: granted.lease,
                part: Box::new(part),
                access: granted.access,
                point: Point::default(),
                is_over: false,
            }),
            Err(error) => {
                // The first error says more.
                let _ = self.connection().map(|mut link| link.give_back(granted.lease, Point::default()));
                Err(error)
            }
        }
    }

    /// The segment of a lease, mapped here.
    fn map(&self, granted: &Granted) -> Result<Imported> {
        self.leave()?;
        let is_written = granted.access == Access::Write;
        let key = (granted.segment, is_written);
        if let Some(known) = self.books().segments.get(&key) {
            return Ok(known.clone());
        }
        let (descriptor, bytes) = self.connection()?.file(Request::Attach { segment: granted.segment })?;
        let permission = if is_written { Permission::ReadWrite } else { Permission::Read };
        let import = self.inner.device.import(descriptor.as_fd(), bytes, permission)?;
        self.books().segments.insert(key, import.clone());
        Ok(import)
    }

    /// Gives up what nobody has anything in any more, and says so where it is unmapped.
    pub(super) fn leave(&self) -> Result<()> {
        let mut has_left = false;
        loop {
            let Some(segment) = self.connection()?.to_leave() else { break };
            has_left = true;
            let mut books = self.books();
            let imports = [true, false].map(|is_written| books.segments.remove(&(segment, is_written)));
            // A broker that took over may say it again.
            if !books.leaving.iter().any(|&(known, _)| known == segment) {
                let departures = imports.iter().flatten().map(Imported::departure).collect();
                books.leaving.push((segment, departures));
            }
            drop(books);
            drop(imports);
        }
        if has_left { self.detach_left().map(drop) } else { Ok(()) }
    }

    /// Says of segments that are unmapped by now that they are. Whether none is left to unmap.
    pub(super) fn detach_left(&self) -> Result<bool> {
        self.check()?;
        let mut outcome = Ok(());
        let mut is_gone = |departure: &Departure| {
            departure.is_over().unwrap_or_else(|error| {
                outcome = Err(error);
                false
            })
        };
        let mut books = self.books();
        books.leaving.iter_mut().for_each(|(_, departures)| departures.retain(|departure| !is_gone(departure)));
        let gone: Vec<_> = books.leaving.extract_if(.., |(_, departures)| departures.is_empty()).collect();
        let is_done = books.leaving.is_empty();
        drop(books);
        for (segment, _) in gone {
            self.connection()?.detach(segment)?;
        }
        outcome?;
        Ok(is_done)
    }

    /// A second lease of what a tenant has leased that this worker serves, and what has to pass before it is used.
    pub(crate) fn borrow(&self, stream: &Stream, lease: Id, of: Id) -> Result<(Lease<u8>, Point)> {
        let granted = self.connection()?.borrow(lease, of)?;
        let ready = granted.point;
        let lease = self.take(stream, Granted { point: Point::default(), ..granted }, None)?;
        Ok((lease, ready))
    }

    /// Lets a stream's next work wait, on the device, for a point: of a [call](crate::Call::point), or of another process of this
    /// user. One that has passed is not waited for.
    pub fn await_point(&self, stream: &Stream, point: Point) -> Result<()> {
        if point.value == 0 {
            return Ok(());
        }
        let clock = match self.clock(point.tenant) {
            // All of its work has passed.
            Err(Error::Link(LinkError::Refused { refusal: Refusal::NoTenant, .. })) => return Ok(()),
            clock => clock?,
        };
        let (word, value) = (point.word as usize, point.value);
        if word < clock.len() && clock.read(word).wrapping_sub(value).cast_signed() < 0 {
            stream.wait_word(&clock, word, value)?;
        }
        Ok(())
    }

    pub(crate) fn clock(&self, tenant: Id) -> Result<Arc<SharedSemaphores>> {
        let books = self.books();
        if tenant == self.inner.tenant {
            return Ok(books.own.clone());
        }
        if let Some(known) = books.clocks.get(&tenant) {
            return Ok(known.clone());
        }
        drop(books);
        let (descriptor, bytes) = self.connection()?.file(Request::Clock { tenant })?;
        let clock = Arc::new(self.inner.device.clock(descriptor.as_fd(), bytes as usize / 8)?);
        let mut books = self.books();
        let of_the_dead: Vec<Id> =
            books.clocks.iter().filter(|(_, clock)| clock.read(0) >= ENDED).map(|(&tenant, _)| tenant).collect();
        let gone: Vec<_> = of_the_dead.iter().filter_map(|tenant| books.clocks.remove(tenant)).collect();
        books.clocks.insert(tenant, clock.clone());
        drop(books);
        drop(gone);
        Ok(clock)
    }

    /// The point behind all work with the part of a lease so far, and behind all calls that it is an argument of.
    fn point_behind<T: Pod>(&self, part: &ImportedSlice<T>, lease: Id) -> Result<Point> {
        // It stays known until the lease is over: what is refused is tried again behind the same point.
        let called = self.called().get(&lease).copied();
        if !part.pending() {
            return Ok(called.unwrap_or_default());
        }
        let clock = match called.map(|point| self.clock(point.tenant)) {
            // All of its work has passed.
            None | Some(Err(Error::Link(LinkError::Refused { refusal: Refusal::NoTenant, .. }))) => None,
            Some(clock) => Some(clock?),
        };
        self.point_where(|marker| {
            if let Some((clock, point)) = clock.zip(called) {
                marker.wait_word(&clock, point.word as usize, point.value)?;
            }
            part.gather(marker)
        })
    }

    fn called(&self) -> MutexGuard<'_, HashMap<Id, Point>> {
        self.inner.called.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for calls that a lease is an argument of: a worker may not have borrowed it yet, and could not any more.
    fn wait_called(&self, lease: Id) -> Result<()> {
        let Some(point) = self.called().get(&lease).copied() else { return Ok(()) };
        let clock = match self.clock(point.tenant) {
            // All of its work has passed.
            Err(Error::Link(LinkError::Refused { refusal: Refusal::NoTenant, .. })) => {
                self.forget_called(lease, point);
                return Ok(());
            }
            clock => clock?,
        };
        for turn in 1_u32.. {
            if clock.read(point.word as usize) >= point.value {
                break;
            }
            self.inner.spin.moment();
            if turn % (1 << 20) == 0 {
                self.connection()?.look()?;
            }
        }
        self.forget_called(lease, point);
        Ok(())
    }

    /// Forgets a call that has passed, unless the lease has become an argument of another meanwhile.
    fn forget_called(&self, lease: Id, point: Point) {
        let mut called = self.called();
        if called.get(&lease) == Some(&point) {
            called.remove(&lease);
        }
    }

    /// Notes that a lease is an argument of a call: it is given back behind that.
    pub(super) fn note_call(&self, lease: Id, point: Point) {
        self.called().insert(lease, point);
    }

    /// The point behind all work of a stream so far: calls, and streams of other processes of this user, can wait for it.
    pub fn point(&self, stream: &Stream) -> Result<Point> {
        self.check()?;
        let event = stream.event()?;
        self.point_where(|marker| marker.wait(&event))
    }

    /// The point behind what `gather` has a stream of this process's wait for.
    fn point_where(&self, gather: impl FnOnce(&Stream) -> freehold::Result<()>) -> Result<Point> {
        let mut books = self.books();
        let own = books.own.clone();
        let is_free = |(word, marker): (usize, &Marker)| (own.read(word) >= marker.written).then_some(word);
        let next = books.next;
        let word = books.markers.iter().enumerate().find_map(is_free).unwrap_or(next);
        books.next = (next + 1) % MARKERS;
        let marker = &mut books.markers[word];
        gather(&marker.stream)?;
        marker.stream.write_word(&own, word, marker.written + 1)?;
        marker.written += 1;
        Ok(Point { tenant: self.inner.tenant, word: word as u32, value: marker.written })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.inner.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of the broker's, used like a block: `&lease` and `&mut lease` are arguments of kernels and ends of copies. Dropped, it is given
/// back behind the work that used it.
#[derive(Debug)]
pub struct Lease<T: Pod> {
    broker: Broker,
    id: Id,
    part: Box<ImportedSlice<T>>,
    access: Access,
    /// Behind the work that was told of when it was published.
    point: Point,
    is_over: bool,
}

impl<T: Pod> Lease<T> {
    pub fn access(&self) -> Access {
        self.access
    }

    pub(super) fn owner(&self) -> Owner {
        self.broker.owner()
    }

    /// Its number at the broker.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Whether another process gave it with work pending, and ended before that work was known to have passed: what is in it may be
    /// half written. Certain once a stream
    /// has come past what it was received in, which waits for that work, or for the end of that process.
    ///
    /// # Errors
    /// [`LinkError::ForkedChild`].
    pub fn is_unfinished(&self) -> Result<bool> {
        Ok(self.broker.connection()?.is_unfinished(self.id))
    }

    /// The elements of a range, to write.
    ///
    /// # Errors
    /// Where the lease has fewer.
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> freehold::Result<ViewMut<'_, T>> {
        self.part.view_mut(range)
    }

    fn part(&self) -> &ImportedSlice<T> {
        &self.part
    }

    /// Gives it back. Nothing waits: it is somebody else's when the work with it has passed.
    ///
    /// # Errors
    /// The lease, and why the device or the broker refused.
    pub fn close(mut self) -> std::result::Result<(), (Self, Error)> {
        match self.give_back() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    fn give_back(&mut self) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        self.broker.check()?;
        let point = self.broker.point_behind(self.part(), self.id)?;
        // What was told before may be later than what is pending now.
        let point = if point.value == 0 { self.point } else { point };
        self.broker.connection()?.give_back(self.id, point)?;
        self.end();
        Ok(())
    }

    /// Notes that the broker has it again, or another process.
    fn end(&mut self) {
        self.is_over = true;
        self.broker.called().remove(&self.id);
    }
}

impl<T: Pod> Deref for Lease<T> {
    type Target = ImportedSlice<T>;

    fn deref(&self) -> &ImportedSlice<T> {
        self.part()
    }
}

// SAFETY: the slice is made with the lease and never replaced, and no other value refers to it: `deref` lends it for as long as the
// lease is borrowed.
unsafe impl<T: Pod> OwnsSlice for Lease<T> {
    type Element = T;

    fn slice(&self) -> &ImportedSlice<T> {
        &self.part
    }
}

impl<T: Pod> Drop for Lease<T> {
    fn drop(&mut self) {
        // It is the parent's.
        if self.broker.inner.family.is_child() {
            return;
        }
        if let Err(error) = self.give_back() {
            tracing::warn!(target: "freehold", %error, "a lease could not be given back: it ends with this process");
        }
    }
}
