//! The broker's process: it waits for whatever comes, tells the state, writes the journal, and carries out what the state wants.
//!
//! One thread does all of that, and nothing that takes long: the driver is the maker's (`maker`), zeros are the cleaner's.

mod connection;
mod helper;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::Timespec;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::RecvFlags;

use self::connection::{Connection, Greetings};
use self::helper::{Helper, Stain};
use crate::journal::Journal;
use crate::maker::Maker;
use crate::part::{Config, Part};
use crate::post::{self, Kept, Letter};
use crate::ring::Spin;
use crate::shared::Shared;
use crate::signals;
use crate::socket::NotReceived;
use crate::state::shelf::index;
use crate::state::{CLOCK_WORDS, Effect, Limits, State, Thing, World};
use crate::wire::{Framed, Id, Point, Refusal, Reply, Request};

/// How many requests of one tenant are served before the next one's turn.
const TURN: usize = 32;

/// A request takes as long as so many turns of looking into rings without one.
const TURNS_SERVED: u32 = 8;

/// A tenant is told of a lease that it was given while so much of its ring is free: the rest is for its replies.
const ROOM_FOR_GIVEN: u32 = 128;

/// While leases wait for work to pass, clocks are looked at so often.
const LOOK_NS: i64 = 1_000_000;

/// The most messages that one request is answered with.
const REPLIES_MAX: u32 = 8;

/// What an event of the system is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Listener,
    Keeper,
    Maker,
    Helper,
    Greeting(u32),
    Connection(u32),
    Bell(u32),
    Process(u32),
}

impl Source {
    fn data(self) -> epoll::EventData {
        let (kind, index) = match self {
            Self::Listener => (0, 0),
            Self::Keeper => (1, 0),
            Self::Maker => (2, 0),
            Self::Helper => (3, 0),
            Self::Greeting(index) => (4, index),
            Self::Connection(index) => (5, index),
            Self::Bell(index) => (6, index),
            Self::Process(index) => (7, index),
        };
        epoll::EventData::new_u64(kind << 32 | u64::from(index))
    }

    fn of(data: u64) -> Self {
        let index = data as u32;
        match data >> 32 {
            0 => Self::Listener,
            1 => Self::Keeper,
            2 => Self::Maker,
            3 => Self::Helper,
            4 => Self::Greeting(index),
            5 => Self::Connection(index),
            6 => Self::Bell(index),
            7 => Self::Process(index),
            _ => unreachable!("only these are ever added"),
        }
    }
}

/// How a request came, and its reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Ring,
    Socket,
}

pub(crate) struct Daemon {
    config: Config,
    state: State,
    journal: Journal,
    epoll: OwnedFd,
    keeper: OwnedFd,
    /// Everything that the keeper holds too.
    held: BTreeMap<Kept, OwnedFd>,
    connections: BTreeMap<u32, Connection>,
    greetings: Greetings,
    maker: Maker,
    maker_bell: Arc<OwnedFd>,
    helper: Helper,
    /// Room for effects.
    spare: Vec<Effect>,
    is_stopping: bool,
}

/// Serves until it is stopped. `post` is the socket to the keeper, which sends what a broker before this one has left.
///
/// # Errors
/// What the system refused, in a way that no broker can go on after.
pub(crate) fn run(config: Config, post: OwnedFd) -> io::Result<()> {
    signals::forget_children();
    signals::raise_descriptors()?;
    let mut held = BTreeMap::new();
    loop {
        match post::receive(&post, RecvFlags::empty()) {
            Ok(Letter::Hold(what, descriptor)) => {
                held.insert(what, descriptor);
            }
            Ok(Letter::All) => break,
            Ok(Letter::Stop) | Err(NotReceived::Closed) => return Ok(()),
            Ok(Letter::Drop(_)) | Err(NotReceived::Nothing) => {}
            // Who begins without something would end what lives.
            Err(NotReceived::Malformed) => return Err(Errno::MFILE.into()),
            Err(NotReceived::Failed(error)) => return Err(error.into()),
        }
    }
    let mut daemon = Daemon::new(config, post, held)?;
    daemon.serve()
}

impl Daemon {
    fn new(config: Config, keeper: OwnedFd, mut held: BTreeMap<Kept, OwnedFd>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let maker_bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let maker = Maker::start(config.device.clone(), maker_bell.clone());
        let own_user = rustix::process::getuid().as_raw();
        let (journal, state) = match held.get(&Kept::Journal) {
            Some(journal) => {
                let journal = Journal::open(fcntl_dupfd_cloexec(journal, 0)?)?;
                let has = |thing| held.contains_key(&kept(thing));
                let state = State::recover(journal.limits(), own_user, |kind| journal.records(kind), has);
                (journal, state)
            }
            None => {
                let mut limits = Limits::new(config.memory_bytes);
                limits.user_bytes = config.terms.user_bytes.unwrap_or(limits.user_bytes);
                limits.tenant_bytes = config.terms.tenant_bytes.unwrap_or(limits.tenant_bytes);
                let journal = Journal::create(limits)?;
                held.insert(Kept::Journal, journal.shared().another_file()?);
                post::hold(&keeper, Kept::Journal, &held[&Kept::Journal])?;
                (journal, State::new(limits, own_user))
            }
        };
        let helper = Helper::start(&config)?;
        let mut daemon = Self {
            config,
            state,
            journal,
            epoll,
            keeper,
            held,
            connections: BTreeMap::new(),
            greetings: Greetings::default(),
            maker,
            maker_bell,
            helper,
            spare: Vec::new(),
            is_stopping: false,
        };
        daemon.listen()?;
        daemon.watch(&daemon.maker_bell, Source::Maker)?;
        daemon.watch(&daemon.keeper, Source::Keeper)?;
        daemon.watch(daemon.helper.socket(), Source::Helper)?;
        daemon.resume()?;
        match post::serves(&daemon.keeper) {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(daemon),
            Err(error) => Err(error.into()),
        }
    }

    fn watch(&self, what: impl AsFd, source: Source) -> Result<(), Errno> {
        epoll::add(&self.epoll, what, source.data(), epoll::EventFlags::IN | epoll::EventFlags::RDHUP)
    }

    /// Hears of a descriptor no more. It is open elsewhere, so that closing it here is not enough.
    fn unwatch(&self, what: impl AsFd) {
        // One that was parted from is deleted already.
        let _ = epoll::delete(&self.epoll, what);
    }

    /// Opens the socket, unless a broker before this one has.
    fn listen(&mut self) -> io::Result<()> {
        if !self.held.contains_key(&Kept::Listener) {
            let listener = connection::listen(&self.config.socket, self.config.terms.group)?;
            self.hold(Kept::Listener, listener)?;
        }
        self.watch(&self.held[&Kept::Listener], Source::Listener)?;
        Ok(())
    }

    /// Keeps a descriptor here and at the keeper.
    fn hold(&mut self, what: Kept, descriptor: OwnedFd) -> io::Result<()> {
        match post::hold(&self.keeper, what, &descriptor) {
            // The next keeper is sent everything.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
        }
        self.held.insert(what, descriptor);
        Ok(())
    }

    fn drop_held(&mut self, what: Kept) -> io::Result<()> {
        let Some(descriptor) = self.held.remove(&what) else { return Ok(()) };
        match what {
            // The driver may take long to free what nobody has any more.
            Kept::Segment(_) => self.maker.close(descriptor),
            _ => drop(descriptor),
        }
        match post::drop(&self.keeper, what) {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes over the tenants of a broker that is gone.
    fn resume(&mut self) -> io::Result<()> {
        let tenants: Vec<Id> = self.state.tenants.iter().map(|(id, _)| id).collect();
        for tenant in tenants {
            match Connection::resume(tenant, &self.held) {
                Ok(connection) => self.add(connection)?,
                // It was not yet told that it is one.
                Err(_) => self.state.end(tenant, &Tenants(&self.connections)),
            }
        }
        let known = |what: &Kept| match *what {
            Kept::Lock | Kept::Listener | Kept::Journal => true,
            Kept::Connection(id) | Kept::Ring(id) | Kept::Bell(id) | Kept::Process(id) | Kept::Clock(id) => {
                self.state.tenants.get(id).is_some()
            }
            Kept::Segment(id) => self.state.segments.get(id).is_some(),
            Kept::Host(id) => self.state.hosts.get(id).is_some(),
        };
        let unknown: Vec<Kept> = self.held.keys().copied().filter(|what| !known(what)).collect();
        for what in unknown {
            self.drop_held(what)?;
        }
        self.carry_out(None)
    }

    fn add(&mut self, connection: Connection) -> io::Result<()> {
        let at = index(connection.tenant) as u32;
        self.watch(&connection.socket, Source::Connection(at))?;
        self.watch(&connection.bell, Source::Bell(at))?;
        self.watch(&connection.process, Source::Process(at))?;
        self.connections.insert(at, connection);
        Ok(())
    }

    fn serve(&mut self) -> io::Result<()> {
        let spin = Duration::from_micros(self.config.spin_us);
        let mut events = Vec::with_capacity(256);
        let mut last_work = Instant::now();
        let (mut turns, mut has_worked, mut is_awake) = (0, false, true);
        let moment = Spin::new();
        while !self.is_stopping {
            let served = self.serve_rings()?;
            has_worked |= served != 0;
            is_awake |= has_worked;
            turns += 1 + served * TURNS_SERVED;
            // While this spins, neither the clock nor the system is asked in every turn.
            if is_awake && turns < moment.moments() {
                if served == 0 {
                    moment.moment();
                }
                continue;
            }
            turns = 0;
            is_awake = has_worked || last_work.elapsed() < spin;
            has_worked |= self.serve_events(&mut events, is_awake)?;
            if std::mem::take(&mut has_worked) {
                last_work = Instant::now();
                is_awake = true;
            }
        }
        Ok(())
    }

    /// Serves what is in the rings: how many requests.
    fn serve_rings(&mut self) -> io::Result<u32> {
        let mut served = 0;
        let mut next = 0;
        while let Some((&at, _)) = self.connections.range(next..).next() {
            served += self.serve_ring(at)?;
            next = at + 1;
        }
        Ok(served)
    }

    fn serve_ring(&mut self, at: u32) -> io::Result<u32> {
        let mut served = 0;
        for _ in 0..TURN {
            let Some(connection) = self.connections.get_mut(&at) else { break };
            match connection.next() {
                Ok(Some((asked, tenant))) => {
                    served += 1;
                    match asked {
                        Ok(asked) => self.ask(tenant, asked, Route::Ring)?,
                        Err((number, refusal)) => self.refuse(tenant, number, refusal, Route::Ring)?,
                    }
                }
                Ok(None) => break,
                Err(crate::ring::Nonsense) => {
                    self.part(at)?;
                    break;
                }
            }
        }
        if let Some(connection) = self.connections.get(&at) {
            connection.ring.rouse();
        }
        Ok(served)
    }

    /// Waits for events, unless there is work, and serves them. Whether something came.
    fn serve_events(&mut self, events: &mut Vec<epoll::Event>, is_awake: bool) -> io::Result<bool> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let soon = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        let has_request = !is_awake && self.connections.values().any(|one| one.set_asleep(true));
        let timeout = match (is_awake || has_request, self.state.is_ending()) {
            (true, _) => Some(&now),
            (false, true) => Some(&soon),
            (false, false) => None,
        };
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !is_awake {
            self.connections.values().for_each(|one| {
                one.set_asleep(false);
            });
        }
        self.state.now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.state.is_ending() {
            self.state.pass(&Tenants(&self.connections));
            self.carry_out(None)?;
        }
        for event in events.iter() {
            self.serve_event(Source::of(event.data.u64()))?;
        }
        self.connections.values().for_each(|one| one.ring.rouse());
        Ok(has_request || !events.is_empty())
    }

    fn serve_event(&mut self, source: Source) -> io::Result<()> {
        match source {
            Source::Listener => self.accept(),
            Source::Greeting(at) => self.greet(at),
            Source::Keeper => self.hear_keeper(),
            Source::Maker => {
                drain(&self.maker_bell);
                let made: Vec<_> = self.maker.made().collect();
                for (segment, outcome) in made {
                    let outcome = match outcome {
                        Ok(descriptor) => {
                            self.hold(Kept::Segment(segment), descriptor)?;
                            Ok(())
                        }
                        Err(code) => Err(code),
                    };
                    self.state.made(segment, outcome);
                    self.carry_out(None)?;
                }
                Ok(())
            }
            Source::Helper => self.hear_helper(),
            Source::Bell(at) => {
                if let Some(connection) = self.connections.get(&at) {
                    drain(&connection.bell);
                }
                Ok(())
            }
            Source::Connection(at) => self.hear(at),
            Source::Process(at) => match self.connections.get(&at).map(|connection| connection.tenant) {
                Some(tenant) => {
                    self.state.end(tenant, &Tenants(&self.connections));
                    self.carry_out(None)
                }
                None => Ok(()),
            },
        }
    }

    /// The keeper is gone, or wants everything to end.
    fn hear_keeper(&mut self) -> io::Result<()> {
        match post::receive(&self.keeper, RecvFlags::DONTWAIT) {
            Ok(Letter::Stop) => {
                connection::unlink(&self.config.socket);
                self.is_stopping = true;
                match post::stop(&self.keeper) {
                    Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
            Err(NotReceived::Closed) => {
                let (_child, keeper) = self.config.start(Part::Keeper)?;
                match post::hold_all(&keeper, &self.held) {
                    // One that is dead already is noticed here again.
                    Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
                    Err(error) => return Err(error.into()),
                }
                self.unwatch(&self.keeper);
                self.keeper = keeper;
                self.watch(&self.keeper, Source::Keeper)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn hear_helper(&mut self) -> io::Result<()> {
        match self.helper.hear() {
            Ok(Some((what, is_clean))) => self.state.cleaned(what, is_clean),
            Ok(None) => {}
            Err(_) => {
                self.unwatch(self.helper.socket());
                let lost = self.helper.restart(&self.config, &self.held)?;
                lost.into_iter().for_each(|what| self.state.cleaned(what, false));
                self.watch(self.helper.socket(), Source::Helper)?;
            }
        }
        self.carry_out(None)
    }

    fn ask(&mut self, from: Id, asked: Framed<Request>, route: Route) -> io::Result<()> {
        self.state.request(from, asked, &Tenants(&self.connections));
        self.carry_out(Some((from, route)))
    }

    fn refuse(&mut self, to: Id, number: u32, refusal: Refusal, route: Route) -> io::Result<()> {
        self.reply(to, number, Reply::Refused(refusal), route)
    }

    fn reply(&mut self, to: Id, number: u32, reply: Reply, route: Route) -> io::Result<()> {
        let at = index(to) as u32;
        let Some(connection) = self.connections.get_mut(&at) else { return Ok(()) };
        let slot = Framed { number, is_again: false, message: reply }.encode();
        match route {
            Route::Ring => {
                connection.ring.reply(&slot);
                connection.ring.take();
                connection.is_waiting = false;
                Ok(())
            }
            Route::Socket => self.send(at, &slot, &[], None),
        }
    }

    /// Sends over a tenant's socket. Who does not read is parted from.
    fn send(&mut self, at: u32, slot: &crate::ring::Slot, tail: &[u8], beside: Option<Kept>) -> io::Result<()> {
        let Some(connection) = self.connections.get(&at) else { return Ok(()) };
        let descriptor = beside.and_then(|what| self.held.get(&what));
        let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
        match crate::socket::send(&connection.socket, slot, tail, &descriptors) {
            Ok(()) => Ok(()),
            Err(_) => self.part(at),
        }
    }

    /// Writes the journal, and does what the state wants. `asked` is whose request it was, and how it came.
    fn carry_out(&mut self, asked: Option<(Id, Route)>) -> io::Result<()> {
        self.journal.write(&mut self.state);
        let spare = std::mem::take(&mut self.spare);
        let mut effects = self.state.take_effects(spare);
        let mut at = 0;
        while at < effects.len() {
            // What is done leaves something in its place that costs nothing.
            let effect = std::mem::replace(&mut effects[at], Effect::Part { tenant: Id::default() });
            at += 1;
            match effect {
                Effect::Reply { to, number, reply } => {
                    let route = asked.filter(|&(from, _)| from == to).map_or(Route::Ring, |(_, route)| route);
                    self.reply(to, number, reply, route)?;
                }
                Effect::Tell { to, reply } => {
                    if let Some(connection) = self.connections.get_mut(&(index(to) as u32)) {
                        connection.tell(Framed { number: 0, is_again: false, message: reply }.encode());
                    }
                }
                Effect::Text { to, number, text } => {
                    let slot = Framed { number, is_again: false, message: Reply::Told }.encode();
                    self.send(index(to) as u32, &slot, text.as_bytes(), None)?;
                }
                Effect::Hand { to, number, what, bytes } => self.hand(to, number, what, bytes)?,
                Effect::Make { segment, bytes } => {
                    // The reply comes when it is made.
                    if let Some((from, Route::Ring)) = asked
                        && let Some(connection) = self.connections.get_mut(&(index(from) as u32))
                    {
                        connection.is_waiting = true;
                    }
                    self.maker.make(segment, bytes);
                }
                Effect::Clean { what, segment, offset, bytes } => {
                    let whole_bytes = self.state.segments.get(segment).map_or(0, |segment| segment.bytes);
                    if let Some(descriptor) = self.held.get(&Kept::Segment(segment)) {
                        self.helper.clean(what, Stain { segment, whole_bytes, offset, bytes }, descriptor);
                    }
                }
                Effect::Close { what } => self.close(what)?,
                Effect::Part { tenant } => {
                    self.state.end(tenant, &Tenants(&self.connections));
                    self.journal.write(&mut self.state);
                    effects.extend(self.state.take_effects(Vec::new()));
                }
            }
        }
        effects.clear();
        self.spare = effects;
        Ok(())
    }

    fn hand(&mut self, to: Id, number: u32, what: Thing, bytes: u64) -> io::Result<()> {
        if let Thing::Host(id) = what
            && !self.held.contains_key(&Kept::Host(id))
        {
            match Shared::create("freehold-host", bytes as usize).and_then(|shared| shared.another_file()) {
                Ok(file) => self.hold(Kept::Host(id), file)?,
                Err(_) => return self.refuse(to, number, Refusal::TooMany { limit: 0 }, Route::Socket),
            }
        }
        let slot = Framed { number, is_again: false, message: Reply::Descriptor { bytes } }.encode();
        self.send(index(to) as u32, &slot, &[], Some(kept(what)))
    }

    fn close(&mut self, what: Thing) -> io::Result<()> {
        if let Thing::Clock(tenant) = what {
            // Who waits for work of a process that is gone has waited long enough.
            if let Some(connection) = self.connections.remove(&(index(tenant) as u32)) {
                connection.let_pass(CLOCK_WORDS);
                for gone in [&connection.socket, &connection.bell, &connection.process] {
                    self.unwatch(gone);
                }
            }
            for gone in [Kept::Connection, Kept::Ring, Kept::Bell, Kept::Process] {
                self.drop_held(gone(tenant))?;
            }
        }
        self.drop_held(kept(what))
    }
}

/// What the state asks of tenants' rings and clocks.
struct Tenants<'a>(&'a BTreeMap<u32, Connection>);

impl World for Tenants<'_> {
    fn has_room(&self, tenant: Id) -> Result<(), u32> {
        match self.0.get(&(index(tenant) as u32)).map(Connection::room) {
            Some(room) if room >= ROOM_FOR_GIVEN => Ok(()),
            Some(room) => Err(crate::ring::SLOTS - room),
            None => Err(0),
        }
    }

    fn has_passed(&self, point: Point) -> bool {
        let connection = self.0.get(&(index(point.tenant) as u32)).filter(|known| known.tenant == point.tenant);
        connection.is_none_or(|connection| connection.has_passed(point))
    }
}

fn kept(thing: Thing) -> Kept {
    match thing {
        Thing::Segment(id) => Kept::Segment(id),
        Thing::Clock(id) => Kept::Clock(id),
        Thing::Host(id) => Kept::Host(id),
    }
}

/// Takes what a bell has counted.
fn drain(bell: impl AsFd) {
    let mut count = [0; 8];
    // Nothing was counted where this fails.
    let _ = rustix::io::read(bell, &mut count);
}
