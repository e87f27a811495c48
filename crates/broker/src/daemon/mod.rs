//! The broker's process: it waits for whatever comes, tells the state, writes the journal, and carries out what the state wants.
//!
//! One thread does all of that, and nothing that takes long: the driver is the maker's (`maker`), zeros are the cleaner's.

mod connection;
mod effects;
mod helper;
mod pause;
mod source;
mod workers;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use self::connection::{Connection, Greetings};
use self::effects::{Route, Tenants, kept};
use self::helper::Helper;
use self::pause::Pause;
use self::source::Source;
use self::workers::Workers;
use crate::journal::Journal;
use crate::maker::Maker;
use crate::part::{Config, Part};
use crate::post::{self, Held, Kept, Letter, Outbox};
use crate::ring::Spin;
use crate::signals;
use crate::socket::NotReceived;
use crate::state::shelf::index;
use crate::state::{Effect, Limits, State};
use crate::wire::{Id, Reply};

/// How many requests of one tenant are served before the next one's turn.
const TURN: usize = 32;

/// A request takes as long as so many turns of looking into rings without one.
const TURNS_SERVED: u32 = 8;

/// A tenant is told of a lease that it was given while so much of its ring is free: the rest is for its replies.
const ROOM_FOR_GIVEN: u32 = 128;

/// While leases wait for work to pass, clocks are looked at so often; and while a keeper or a cleaner does not read, they are.
const LOOK: Duration = Duration::from_millis(1);

/// A keeper that ends so soon has kept nothing.
const SHORT: Duration = Duration::from_millis(20);

/// The most messages that one request is answered with.
const REPLIES_MAX: u32 = 8;

pub(crate) struct Daemon {
    config: Config,
    state: State,
    journal: Journal,
    epoll: OwnedFd,
    /// None while none could be started.
    keeper: Option<OwnedFd>,
    keeper_since: Instant,
    keeper_pause: Pause,
    outbox: Outbox,
    /// Everything that the keeper holds too.
    held: Held,
    connections: BTreeMap<u32, Connection>,
    greetings: Greetings,
    maker: Maker,
    maker_bell: Arc<OwnedFd>,
    helper: Helper,
    /// Closed to accept one more when there are no descriptors left, so that it hears why it is refused.
    reserve: Option<OwnedFd>,
    /// While it lasts, who connects is not looked at.
    listen_pause: Pause,
    /// Room for effects.
    spare: Vec<Effect>,
    workers: Workers,
    /// The descriptor that came with the request that is answered.
    arrived: Option<OwnedFd>,
    /// Replies to who put something that the keeper has not got yet: a broker that dies before has put nothing.
    unkept: Vec<(Id, u32, Reply)>,
    is_stopping: bool,
}

/// Serves until it is stopped. `post` is the socket to the keeper, which sends what a broker before this one has left.
///
/// # Errors
/// What the system refused, in a way that no broker can go on after.
pub(crate) fn run(config: Config, post: OwnedFd) -> io::Result<()> {
    signals::forget_children();
    signals::raise_descriptors()?;
    let mut held = Held::new();
    loop {
        match post::receive(&post, RecvFlags::empty()) {
            Ok(Letter::Hold(what, descriptor)) => {
                held.insert(what, Arc::new(descriptor));
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
    fn new(config: Config, keeper: OwnedFd, held: Held) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let maker_bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let maker = Maker::start(config.device.clone(), maker_bell.clone());
        let own_user = rustix::process::getuid().as_raw();
        let (journal, state) = match held.get(&Kept::Journal) {
            Some(journal) => {
                let journal = Journal::open(journal.clone())?;
                let has = |thing| held.contains_key(&kept(thing));
                let state = State::recover(journal.limits(), own_user, |kind| journal.records(kind), has);
                (journal, state)
            }
            None => {
                let mut limits = Limits::new(config.memory_bytes);
                limits.user_bytes = config.terms.user_bytes.unwrap_or(limits.user_bytes);
                limits.tenant_bytes = config.terms.tenant_bytes.unwrap_or(limits.tenant_bytes);
                (Journal::create(limits)?, State::new(limits, own_user))
            }
        };
        let helper = Helper::new(held.get(&Kept::Cleaner).cloned());
        let mut daemon = Self {
            config,
            state,
            journal,
            epoll,
            keeper: Some(keeper),
            keeper_since: Instant::now(),
            keeper_pause: Pause::NONE,
            outbox: Outbox::default(),
            held,
            connections: BTreeMap::new(),
            greetings: Greetings::default(),
            maker,
            maker_bell,
            helper,
            reserve: None,
            listen_pause: Pause::NONE,
            spare: Vec::new(),
            workers: Workers::default(),
            arrived: None,
            unkept: Vec::new(),
            is_stopping: false,
        };
        if !daemon.held.contains_key(&Kept::Journal) {
            daemon.hold(Kept::Journal, daemon.journal.shared().shared_file());
        }
        daemon.listen()?;
        daemon.watch(&daemon.maker_bell, Source::Maker)?;
        if let Some(keeper) = &daemon.keeper {
            daemon.watch(keeper, Source::Keeper)?;
        }
        daemon.resume()?;
        daemon.outbox.all();
        daemon.look_after()?;
        Ok(daemon)
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
            self.hold(Kept::Listener, Arc::new(listener));
        }
        self.watch(&self.held[&Kept::Listener], Source::Listener)?;
        Ok(())
    }

    /// Keeps a descriptor here and at the keeper, which gets it as soon as it reads.
    fn hold(&mut self, what: Kept, descriptor: Arc<OwnedFd>) {
        self.held.insert(what, descriptor.clone());
        self.outbox.hold(what, descriptor);
        self.flush();
    }

    fn drop_held(&mut self, what: Kept) {
        let Some(descriptor) = self.held.remove(&what) else { return };
        self.outbox.drop(what);
        self.flush();
        match what {
            // The driver may take long to free what nobody has any more.
            Kept::Segment(_) => self.maker.close(descriptor),
            _ => drop(descriptor),
        }
    }

    fn flush(&mut self) {
        if let Some(keeper) = &self.keeper {
            // Of one that is gone is heard, and the next one is sent everything.
            let _ = self.outbox.flush(keeper);
        }
    }

    /// Takes over the tenants of a broker that is gone.
    fn resume(&mut self) -> io::Result<()> {
        let tenants: Vec<Id> = self.state.tenants.iter().map(|(id, _)| id).collect();
        for tenant in tenants {
            let known = self.state.tenants.get(tenant).expect("it was listed");
            let (process, is_worker) = (known.peer.process, known.service.is_some());
            match Connection::resume(tenant, process, &self.held) {
                Ok(connection) => {
                    self.add(connection)?;
                    if is_worker {
                        self.watch_beat(tenant);
                    }
                }
                // It was not yet told that it is one.
                Err(Errno::NOENT) => self.state.end(tenant, &Tenants(&self.connections)),
                // It lives. The next broker may have more luck.
                Err(error) => return Err(error.into()),
            }
        }
        let known = |what: &Kept| match *what {
            Kept::Lock | Kept::Listener | Kept::Journal | Kept::Cleaner => true,
            Kept::Connection(id) | Kept::Ring(id) | Kept::Bell(id) | Kept::Process(id) | Kept::Clock(id) => {
                self.state.tenants.get(id).is_some()
            }
            Kept::Post(id) | Kept::Gong(id) => self.state.tenants.get(id).is_some(),
            Kept::Calls(id) => self.state.tenants.get(id).is_some_and(|tenant| tenant.post.is_some()),
            Kept::Module(id) => self.state.modules.get(id).is_some(),
            Kept::Segment(id) => self.state.segments.get(id).is_some(),
            Kept::Host(id) => self.state.hosts.get(id).is_some(),
        };
        let unknown: Vec<Kept> = self.held.keys().copied().filter(|what| !known(what)).collect();
        unknown.into_iter().for_each(|what| self.drop_held(what));
        self.carry_out(None)
    }

    fn add(&mut self, connection: Connection) -> Result<(), Errno> {
        let tenant = connection.tenant;
        self.watch(&connection.socket, Source::Connection(tenant))?;
        // Its count is never read: a tenant has the same bell, and can have a reader of it wait.
        let rings = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &connection.bell, Source::Bell(tenant).data(), rings)?;
        self.watch(&connection.process, Source::Process(tenant))?;
        self.connections.insert(index(tenant) as u32, connection);
        Ok(())
    }

    /// Does what is to be done from time to time: keeper and cleaner get what they did not take, those that could not be started
    /// are started, and who could not be accepted is.
    fn look_after(&mut self) -> io::Result<()> {
        let now = Instant::now();
        self.flush();
        if self.keeper.is_none() && self.keeper_pause.is_over(now) {
            self.start_keeper(now);
        }
        if self.helper.start(&self.config, now) {
            if let Some(process) = self.helper.process().cloned() {
                self.hold(Kept::Cleaner, process);
            }
            if let Some(socket) = self.helper.socket() {
                self.watch(socket, Source::Cleaner)?;
            }
        }
        self.helper.end_silent(now);
        self.helper.give(&self.held, now);
        self.look_after_workers(now);
        self.reply_kept()?;
        self.reserve = self.reserve.take().or_else(|| eventfd(0, EventfdFlags::CLOEXEC).ok());
        if self.listen_pause.left(now).is_none() && self.reserve.is_some() && !self.greetings.is_listening {
            self.greetings.is_listening = true;
            self.watch(&self.held[&Kept::Listener], Source::Listener)?;
        }
        Ok(())
    }

    /// How long nothing has to be looked at, whatever comes. Nothing where that is for ever.
    fn wait(&self) -> Option<Duration> {
        let now = Instant::now();
        let is_behind = self.state.is_ending() || !self.outbox.is_empty() || self.helper.is_behind();
        let keeper = if self.keeper.is_none() { self.keeper_pause.left(now).or(Some(LOOK)) } else { None };
        let listener = if self.greetings.is_listening { None } else { self.listen_pause.left(now).or(Some(LOOK)) };
        let waits = [is_behind.then_some(LOOK), self.helper.wait(now), keeper, listener, self.workers.wait(now)];
        waits.into_iter().flatten().min()
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
        let has_request = !is_awake && self.connections.values().any(|one| one.set_asleep(true));
        let wait = if is_awake || has_request { Some(Duration::ZERO) } else { self.wait() };
        let timeout =
            wait.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) });
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
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
            // What one asks over its socket may take longer than what others ask over their rings should.
            self.serve_rings()?;
        }
        self.look_after()?;
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
                            self.hold(Kept::Segment(segment), Arc::new(descriptor));
                            Ok(())
                        }
                        Err(code) => Err(code),
                    };
                    self.state.made(segment, outcome);
                    self.carry_out(None)?;
                }
                Ok(())
            }
            Source::Cleaner => self.hear_cleaner(),
            // Requests are looked at anyway.
            Source::Bell(_) => Ok(()),
            Source::Connection(tenant) => match self.connection(tenant) {
                Some(_) => self.hear(index(tenant) as u32),
                None => Ok(()),
            },
            Source::Process(tenant) => match self.connection(tenant) {
                Some(connection) => {
                    // It has ended for ever, and its tenant may stay.
                    self.unwatch(&connection.process);
                    self.state.depart(tenant, &Tenants(&self.connections));
                    self.carry_out(None)
                }
                None => Ok(()),
            },
        }
    }

    /// A tenant that is there: its place may be another's by now.
    fn connection(&self, tenant: Id) -> Option<&Connection> {
        self.connections.get(&(index(tenant) as u32)).filter(|connection| connection.tenant == tenant)
    }

    /// The keeper is gone, or wants everything to end.
    fn hear_keeper(&mut self) -> io::Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        match post::receive(keeper, RecvFlags::DONTWAIT) {
            Ok(Letter::Stop) => self.stop(),
            Err(NotReceived::Closed) => {
                self.unwatch(keeper);
                self.keeper = None;
                let now = Instant::now();
                // One that died at once is not followed at once.
                match now.duration_since(self.keeper_since) < SHORT {
                    true => self.keeper_pause.begin(now),
                    false => self.keeper_pause.forget(),
                }
                self.look_after()
            }
            _ => Ok(()),
        }
    }

    /// Ends this process, and the keeper with it.
    fn stop(&mut self) -> io::Result<()> {
        connection::unlink(&self.config.socket);
        self.is_stopping = true;
        // Whoever hears the end of its connection can serve this place.
        self.held.remove(&Kept::Lock);
        match self.keeper.as_ref().map_or(Ok(()), post::stop) {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts another keeper, which is sent everything. If that fails it is tried again: tenants need none.
    fn start_keeper(&mut self, now: Instant) {
        let started = self.config.start(Part::Keeper).and_then(|(_child, keeper)| {
            self.watch(&keeper, Source::Keeper)?;
            Ok(keeper)
        });
        match started {
            Ok(keeper) => {
                (self.keeper, self.keeper_since) = (Some(keeper), now);
                self.outbox = Outbox::default();
                for (&what, descriptor) in &self.held {
                    self.outbox.hold(what, descriptor.clone());
                }
                self.outbox.all();
                self.flush();
            }
            Err(error) => {
                self.keeper_pause.begin(now);
                tracing::error!(target: "freehold", %error, "no keeper could be started: it is tried again");
            }
        }
    }

    fn hear_cleaner(&mut self) -> io::Result<()> {
        let now = Instant::now();
        match self.helper.hear(now) {
            Ok(Some((what, is_clean))) => {
                self.state.cleaned(what, is_clean);
                self.helper.give(&self.held, now);
            }
            Ok(None) => {}
            Err(_) => {
                if let Some(socket) = self.helper.socket() {
                    self.unwatch(socket);
                }
                let lost = self.helper.lose(now);
                lost.into_iter().for_each(|what| self.state.cleaned(what, false));
            }
        }
        self.carry_out(None)
    }
}

/// Takes what the maker's bell has counted. It is the broker's own.
fn drain(bell: impl AsFd) {
    let mut count = [0; 8];
    // Nothing was counted where this fails.
    let _ = rustix::io::read(bell, &mut count);
}
