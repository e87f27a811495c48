//! The event loop of the broker: waits for rings, sockets and processes, and serves them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::backoff::Backoff;
use super::connection::{Connection, Route, TenantConnections};
use super::driver_thread::DriverThread;
use super::event_source::EventSource;
use super::fd_set::{FdSet, fd_key};
use super::journal::Journal;
use super::listener::{self, Handshakes};
use super::scrub_queue::ScrubQueue;
use super::server::Daemon;
use super::worker_checks::Workers;
use crate::os::eventfd;
use crate::os::seqpacket::ReceiveError;
use crate::os::signals;
use crate::os::time::timespec;
use crate::process::{Config, Role};
use crate::protocol::fd_channel::{self, FdKey, FdMessage, FdTable};
use crate::protocol::ring::CorruptRing;
use crate::protocol::spin::SpinWait;
use crate::protocol::types::Id;
use crate::state::slot_map::index;
use crate::state::{Limits, State};

/// Requests of one tenant that are served before the next tenant.
const REQUESTS_PER_TURN: usize = 32;

/// A request counts as this many empty polls of the rings.
const SPINS_PER_REQUEST: u32 = 8;

/// How often semaphores are polled while leases wait for them, and the fdstore or the scrubber while it does not read.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Serves until it is stopped. `control_socket` is the socket to the fdstore, which first sends the descriptors of a
/// previous broker.
///
/// # Errors
/// System errors after which no broker can continue.
pub(crate) fn run(config: Config, control_socket: OwnedFd) -> io::Result<()> {
    signals::ignore_sigchld();
    signals::raise_fd_limit()?;
    let mut fds = FdTable::new();
    loop {
        match fd_channel::receive(&control_socket, RecvFlags::empty()) {
            Ok(FdMessage::Hold(what, descriptor)) => {
                fds.insert(what, Arc::new(descriptor));
            }
            Ok(FdMessage::Complete) => break,
            Ok(FdMessage::Stop) | Err(ReceiveError::Closed) => return Ok(()),
            Ok(FdMessage::Drop(_)) | Err(ReceiveError::WouldBlock) => {}
            // Starting with a part of the descriptors would end live leases.
            Err(ReceiveError::Malformed) => return Err(Errno::MFILE.into()),
            Err(ReceiveError::System(error)) => return Err(error.into()),
        }
    }
    let mut daemon = Daemon::new(config, control_socket, fds)?;
    daemon.serve()
}

impl Daemon {
    fn new(config: Config, fdstore: OwnedFd, fds: FdTable) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let driver_eventfd = Arc::new(eventfd::create()?);
        let driver = DriverThread::start(config.device.clone(), driver_eventfd.clone());
        let own_user = rustix::process::getuid().as_raw();
        let (journal, state) = match fds.get(&FdKey::Journal) {
            Some(journal) => {
                let journal = Journal::open(journal.clone())?;
                let has = |resource| fds.contains_key(&fd_key(resource));
                let state = State::recover(journal.limits(), own_user, |kind| journal.records(kind), has);
                (journal, state)
            }
            None => {
                let mut limits = Limits::new(config.memory_bytes);
                limits.user_bytes = config.limits.user_bytes.unwrap_or(limits.user_bytes);
                limits.tenant_bytes = config.limits.tenant_bytes.unwrap_or(limits.tenant_bytes);
                (Journal::create(limits)?, State::new(limits, own_user))
            }
        };
        let scrub_queue = ScrubQueue::new(fds.get(&FdKey::Scrubber).cloned());
        let mut daemon = Self {
            config,
            state,
            journal,
            epoll,
            fds: FdSet::new(fdstore, fds),
            connections: BTreeMap::new(),
            handshakes: Handshakes::default(),
            driver,
            driver_eventfd,
            scrub_queue,
            spare_fd: None,
            listen_backoff: Backoff::NONE,
            effects_buffer: Vec::new(),
            workers: Workers::default(),
            received_fd: None,
            unstored_replies: Vec::new(),
            unstored_segments: Vec::new(),
            is_stopping: false,
        };
        if !daemon.fds.contains_key(&FdKey::Journal) {
            daemon.store_fd(FdKey::Journal, daemon.journal.shared().shared_fd());
        }
        daemon.listen()?;
        daemon.watch(&daemon.driver_eventfd, EventSource::DriverThread)?;
        if let Some(fdstore) = daemon.fds.fdstore() {
            daemon.watch(fdstore, EventSource::FdStore)?;
        }
        daemon.resume()?;
        daemon.fds.complete();
        daemon.tick()?;
        Ok(daemon)
    }

    /// Opens the socket, unless a previous broker has.
    fn listen(&mut self) -> io::Result<()> {
        if !self.fds.contains_key(&FdKey::Listener) {
            let listener = listener::listen(&self.config.socket, self.config.limits.group)?;
            self.store_fd(FdKey::Listener, Arc::new(listener));
        }
        self.watch(&self.fds[&FdKey::Listener], EventSource::Listener)?;
        Ok(())
    }

    /// Takes over the tenants of a previous broker.
    fn resume(&mut self) -> io::Result<()> {
        let tenants: Vec<Id> = self.state.tenants.iter().map(|(id, _)| id).collect();
        for tenant in tenants {
            let known = self.state.tenants.get(tenant).expect("it was listed above");
            let (process, is_worker) = (known.peer.process, known.worker_state.is_some());
            match Connection::resume(tenant, process, self.fds.table()) {
                Ok(connection) => {
                    self.add(connection)?;
                    if is_worker {
                        self.watch_heartbeat(tenant);
                    }
                }
                // Its `Welcome` was never sent.
                Err(Errno::NOENT) => self.state.remove_tenant(tenant, &TenantConnections(&self.connections)),
                // The tenant is alive. The next broker may succeed.
                Err(error) => return Err(error.into()),
            }
        }
        let known = |what: &FdKey| match *what {
            FdKey::Lock | FdKey::Listener | FdKey::Journal | FdKey::Scrubber => true,
            FdKey::Connection(id)
            | FdKey::Ring(id)
            | FdKey::Doorbell(id)
            | FdKey::Pidfd(id)
            | FdKey::Semaphores(id) => self.state.tenants.get(id).is_some(),
            FdKey::WorkerSocket(id) | FdKey::WorkerDoorbell(id) => self.state.tenants.get(id).is_some(),
            FdKey::CallRing(id) => self.state.tenants.get(id).is_some_and(|tenant| tenant.session.is_some()),
            FdKey::Module(id) => self.state.modules.get(id).is_some(),
            FdKey::Segment(id) => self.state.segments.get(id).is_some(),
            FdKey::Host(id) => self.state.hosts.get(id).is_some(),
        };
        let unknown: Vec<FdKey> = self.fds.table().keys().copied().filter(|what| !known(what)).collect();
        unknown.into_iter().for_each(|what| self.drop_fd(what));
        self.apply_effects(None)
    }

    /// Periodic work: sends the messages that the fdstore and the scrubber have not taken, starts them if they are
    /// missing, checks workers, and accepts connections again.
    fn tick(&mut self) -> io::Result<()> {
        let now = Instant::now();
        self.fds.flush();
        if self.fds.needs_fdstore(now) {
            self.start_fdstore(now);
        }
        if self.scrub_queue.start(&self.config, now) {
            if let Some(process) = self.scrub_queue.process().cloned() {
                self.store_fd(FdKey::Scrubber, process);
            }
            if let Some(socket) = self.scrub_queue.socket() {
                self.watch(socket, EventSource::Scrubber)?;
            }
        }
        self.scrub_queue.kill_unresponsive(now);
        self.scrub_queue.dispatch(self.fds.table(), now);
        self.check_workers(now);
        self.resume_stored()?;
        self.spare_fd = self.spare_fd.take().or_else(|| eventfd::create().ok());
        if self.listen_backoff.remaining(now).is_none() && self.spare_fd.is_some() && !self.handshakes.is_listening {
            self.handshakes.is_listening = true;
            self.watch(&self.fds[&FdKey::Listener], EventSource::Listener)?;
        }
        Ok(())
    }

    /// The longest time to sleep without an event. `None`: no limit.
    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let is_behind = self.state.has_fence_waiters() || !self.fds.is_flushed() || self.scrub_queue.has_backlog();
        let listener = if self.handshakes.is_listening {
            None
        } else {
            self.listen_backoff.remaining(now).or(Some(POLL_INTERVAL))
        };
        let waits = [
            is_behind.then_some(POLL_INTERVAL),
            self.scrub_queue.timeout(now),
            self.fds.timeout(now),
            listener,
            self.workers.timeout(now),
        ];
        waits.into_iter().flatten().min()
    }

    fn serve(&mut self) -> io::Result<()> {
        let spin = Duration::from_micros(self.config.spin_us);
        let mut events = Vec::with_capacity(256);
        let mut last_work = Instant::now();
        let (mut turns, mut has_worked, mut is_awake) = (0, false, true);
        let moment = SpinWait::new();
        while !self.is_stopping {
            let served = self.serve_rings()?;
            has_worked |= served != 0;
            is_awake |= has_worked;
            turns += 1 + served * SPINS_PER_REQUEST;
            // While spinning, the clock and the kernel are not asked in every turn.
            if is_awake && turns < moment.spins_max() {
                if served == 0 {
                    moment.spin_once();
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

    /// Serves the requests in the rings. Returns their number.
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
        for _ in 0..REQUESTS_PER_TURN {
            let Some(connection) = self.connections.get_mut(&at) else { break };
            match connection.next() {
                Ok(Some((asked, tenant))) => {
                    served += 1;
                    match asked {
                        Ok(asked) => self.serve_request(tenant, asked, Route::Ring)?,
                        Err((number, error)) => self.reply_error(tenant, number, error, Route::Ring)?,
                    }
                }
                Ok(None) => break,
                Err(CorruptRing) => {
                    self.disconnect(at)?;
                    break;
                }
            }
        }
        if let Some(connection) = self.connections.get(&at) {
            connection.ring.wake_if_asleep();
        }
        Ok(served)
    }

    /// Waits for events, unless there is work, and serves them. Returns whether there were any.
    fn serve_events(&mut self, events: &mut Vec<epoll::Event>, is_awake: bool) -> io::Result<bool> {
        let has_request = !is_awake && self.connections.values().any(|one| one.set_asleep(true));
        let wait = if is_awake || has_request { Some(Duration::ZERO) } else { self.timeout() };
        let timeout = wait.map(timespec);
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
        if self.state.has_fence_waiters() {
            self.state.poll_fences(&TenantConnections(&self.connections));
            self.apply_effects(None)?;
        }
        for event in events.iter() {
            self.serve_event(EventSource::from_data(event.data.u64()))?;
            // Requests over sockets may take longer than those over rings, which must not wait for them.
            self.serve_rings()?;
        }
        self.tick()?;
        self.connections.values().for_each(|one| one.ring.wake_if_asleep());
        Ok(has_request || !events.is_empty())
    }

    fn serve_event(&mut self, source: EventSource) -> io::Result<()> {
        match source {
            EventSource::Listener => self.accept(),
            EventSource::Handshake(at) => self.handshake(at),
            EventSource::FdStore => self.receive_fdstore(),
            EventSource::DriverThread => {
                eventfd::drain(&self.driver_eventfd);
                let made: Vec<_> = self.driver.created().collect();
                for (segment, outcome) in made {
                    match outcome {
                        Ok(descriptor) => {
                            self.store_fd(FdKey::Segment(segment), Arc::new(descriptor));
                            self.unstored_segments.push(segment);
                        }
                        Err(code) => {
                            self.state.segment_created(segment, Err(code));
                            self.apply_effects(None)?;
                        }
                    }
                }
                self.resume_stored()
            }
            EventSource::Scrubber => self.receive_scrubber(),
            // The rings are polled after every event.
            EventSource::Doorbell(_) => Ok(()),
            EventSource::Connection(tenant) => match self.connection(tenant) {
                Some(_) => self.receive(index(tenant) as u32),
                None => Ok(()),
            },
            EventSource::Process(tenant) => match self.connection(tenant) {
                Some(connection) => {
                    // The process has ended; its tenant may still be draining.
                    self.unwatch(&connection.process);
                    self.state.process_exited(tenant, &TenantConnections(&self.connections));
                    self.apply_effects(None)
                }
                None => Ok(()),
            },
        }
    }

    /// The fdstore has exited, or asks the broker to stop.
    fn receive_fdstore(&mut self) -> io::Result<()> {
        let Some(fdstore) = self.fds.fdstore() else { return Ok(()) };
        match fd_channel::receive(fdstore, RecvFlags::DONTWAIT) {
            Ok(FdMessage::Stop) => self.stop(),
            Err(ReceiveError::Closed) => {
                self.unwatch(fdstore);
                self.fds.fdstore_lost(Instant::now());
                self.tick()
            }
            _ => Ok(()),
        }
    }

    /// Stops the broker and the fdstore.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        listener::unlink(&self.config.socket);
        self.is_stopping = true;
        self.fds.stop_fdstore()
    }

    /// Starts another fdstore and sends it everything. If that fails it is retried: tenants do not need one.
    fn start_fdstore(&mut self, now: Instant) {
        let started = self.config.spawn(Role::FdStore).and_then(|(_child, fdstore)| {
            self.watch(&fdstore, EventSource::FdStore)?;
            Ok(fdstore)
        });
        match started {
            Ok(fdstore) => {
                self.fds.fdstore_started(fdstore, now);
            }
            Err(error) => {
                self.fds.start_failed(now);
                tracing::error!(target: "freehold", %error, "could not start an fdstore, will retry");
            }
        }
    }

    fn receive_scrubber(&mut self) -> io::Result<()> {
        let now = Instant::now();
        match self.scrub_queue.receive(now) {
            Ok(Some((what, is_zeroed))) => {
                self.state.scrubbed(what, is_zeroed);
                self.scrub_queue.dispatch(self.fds.table(), now);
            }
            Ok(None) => {}
            Err(_) => {
                if let Some(socket) = self.scrub_queue.socket() {
                    self.unwatch(socket);
                }
                let lost = self.scrub_queue.process_lost(now);
                lost.into_iter().for_each(|what| self.state.scrubbed(what, false));
            }
        }
        self.apply_effects(None)
    }
}
