//! Tenants as the broker's process knows them: sockets, rings, and how one comes about.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Gid, Mode, chmod, chown};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_passcred, socket_peercred};
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    listen as start_listening, shutdown, socket_with,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::effects::{Route, Tenants};
use super::source::Source;
use super::workers::module_file;
use super::{Daemon, REPLIES_MAX};
use crate::calls::ENDED;
use crate::post::{Held, Kept};
use crate::ring::{Nonsense, RING_BYTES, SLOTS, Served, Slot};
use crate::shared::Shared;
use crate::socket::{self, NotReceived};
use crate::state::{CLOCK_WORDS, Peer};
use crate::wire::{Framed, Id, Point, Refusal, Reply, Request, VERSION, is_unasked};

/// How many names are told that are like one that is not there.
const NEAREST: usize = 3;

/// How many may have connected without a word. The oldest goes first.
const GREETINGS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) tenant: Id,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) ring: Served,
    clock: Shared,
    pub(super) bell: Arc<OwnedFd>,
    pub(super) process: Arc<OwnedFd>,
    /// Who may speak over the socket: not a child that inherited it.
    peer: u32,
    /// What it is to be told when there is room.
    pending: VecDeque<Slot>,
    /// Whether its oldest request waits for the driver.
    pub(super) is_waiting: bool,
    /// Whether its connection is over. Its process may not be.
    is_parted: bool,
    /// Whether its oldest request may have been carried out by a broker that is gone.
    is_again: bool,
}

/// A request, or what to answer to what is none; and whose it is.
type Asked = (Result<Framed<Request>, (u32, Refusal)>, Id);

impl Connection {
    pub(super) fn new(tenant: Id, newcomer: Newcomer, process: u32) -> Self {
        let Newcomer { socket, process: descriptor, ring, clock, bell } = newcomer;
        Self {
            tenant,
            socket,
            ring: Served::new(ring),
            clock,
            bell,
            process: descriptor,
            peer: process,
            pending: VecDeque::new(),
            is_waiting: false,
            is_parted: false,
            is_again: false,
        }
    }

    /// A tenant that a broker before this one had: with its descriptors as they are held, so that none more are needed.
    /// [`Errno::NOENT`] where some are not there.
    pub(super) fn resume(tenant: Id, process: u32, held: &Held) -> Result<Self, Errno> {
        let get = |what: Kept| held.get(&what).cloned().ok_or(Errno::NOENT);
        let mut connection = Self {
            tenant,
            socket: get(Kept::Connection(tenant))?,
            ring: Served::resume(Shared::open(get(Kept::Ring(tenant))?, RING_BYTES)?),
            clock: Shared::open(get(Kept::Clock(tenant))?, CLOCK_WORDS as usize * 8)?,
            bell: get(Kept::Bell(tenant))?,
            process: get(Kept::Process(tenant))?,
            peer: process,
            pending: VecDeque::new(),
            is_waiting: false,
            is_parted: false,
            is_again: false,
        };
        connection.skip_answered();
        connection.is_again = connection.ring.peek().is_some();
        // Who waits for a reply asks again.
        let slot = Framed { number: 0, is_again: false, message: Reply::Resumed }.encode();
        let _ = socket::send(&connection.socket, &slot, &[], &[]);
        Ok(connection)
    }

    /// Takes a request out whose reply was the last thing that a broker before this one did.
    fn skip_answered(&self) {
        if let (Some((number, _)), Some(last)) = (self.ring.peek(), self.ring.last_reply())
            && (last[0] >> 32) as u32 == number
            && !is_unasked(last[0])
        {
            self.ring.take();
        }
    }

    /// The oldest request that can be served now.
    pub(super) fn next(&mut self) -> Result<Option<Asked>, Nonsense> {
        if self.is_parted {
            return Ok(None);
        }
        self.flush()?;
        if self.is_waiting || self.ring.room()? < REPLIES_MAX {
            return Ok(None);
        }
        Ok(self.oldest())
    }

    /// The oldest request of a tenant that says goodbye. Whether there is room for the reply does not matter: it reads none.
    fn next_of_goer(&mut self) -> Option<Asked> {
        if self.is_parted || self.is_waiting { None } else { self.oldest() }
    }

    fn oldest(&mut self) -> Option<Asked> {
        let (number, slot) = self.ring.peek()?;
        let asked = Framed::<Request>::decode(&slot, &[]).and_then(|mut asked| {
            asked.is_again = std::mem::take(&mut self.is_again);
            asked.number = number;
            // What is answered with text or a descriptor comes over the socket.
            match asked.message {
                Request::Reserve { .. }
                | Request::Lease { .. }
                | Request::Return { .. }
                | Request::Give { .. }
                | Request::Borrow { .. }
                | Request::Detach { .. } => Ok(asked),
                _ => Err((number, Refusal::Malformed)),
            }
        });
        self.is_again = false;
        Some((asked.map_err(|(_, refusal)| (number, refusal)), self.tenant))
    }

    /// How many messages the tenant can be told.
    pub(super) fn room(&self) -> u32 {
        self.ring.room().unwrap_or(0).saturating_sub(self.pending.len() as u32)
    }

    /// Tells the tenant unasked, when there is room.
    pub(super) fn tell(&mut self, slot: Slot) {
        self.pending.push_back(slot);
        // Nonsense is noticed where requests are read.
        let _ = self.flush();
    }

    fn flush(&mut self) -> Result<(), Nonsense> {
        while !self.pending.is_empty() && self.ring.room()? > REPLIES_MAX {
            let slot = self.pending.pop_front().expect("it is not empty");
            self.ring.reply(&slot);
        }
        Ok(())
    }

    /// Says whether the broker sleeps. Whether a request is there that could be served.
    pub(super) fn set_asleep(&self, is_asleep: bool) -> bool {
        let has_request = self.ring.set_asleep(is_asleep);
        let has_room = self.ring.room().map_or(true, |room| room >= REPLIES_MAX);
        has_request && has_room && !self.is_waiting && !self.is_parted
    }

    /// Whether the tenant's work has come to a point.
    pub(super) fn has_passed(&self, point: Point) -> bool {
        let written = self.clock.word(8 * (point.word % CLOCK_WORDS) as usize).load(Ordering::Acquire);
        written.wrapping_sub(point.value).cast_signed() >= 0
    }

    /// Lets everything pass that waits for a word of the tenant's clock. Far enough for all, and not so far as to be before them
    /// again.
    pub(super) fn let_pass(&self, words: u32) {
        for word in 0..words as usize {
            // What it had come to stays to be read below that.
            self.clock.word(8 * word).fetch_or(ENDED, Ordering::AcqRel);
        }
    }
}

fn process_of(peer: rustix::net::UCred) -> u32 {
    peer.pid.as_raw_nonzero().get().cast_unsigned()
}

/// What a process needs to be a tenant.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) process: Arc<OwnedFd>,
    pub(super) ring: Shared,
    pub(super) clock: Shared,
    pub(super) bell: Arc<OwnedFd>,
}

/// Those that have connected and said nothing yet.
#[derive(Debug)]
pub(super) struct Greetings {
    last: u32,
    waiting: BTreeMap<u32, OwnedFd>,
    /// Whether it is heard of who connects.
    pub(super) is_listening: bool,
}

impl Default for Greetings {
    fn default() -> Self {
        Self { last: 0, waiting: BTreeMap::new(), is_listening: true }
    }
}

/// Opens the socket that tenants connect to, for this user alone or a group's users too. Whoever served the path before is gone:
/// the keeper has the lock.
pub(super) fn listen(path: &Path, group: Option<u32>) -> io::Result<OwnedFd> {
    unlink(path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let bound = bind(&listener, &SocketAddrUnix::new(path)?);
    rustix::process::umask(before);
    bound?;
    if let Some(group) = group {
        chown(path, None, Some(Gid::from_raw(group)))?;
        chmod(path, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP)?;
    }
    start_listening(&listener, 128)?;
    Ok(listener)
}

/// Removes a socket, and nothing else that may lie there by now.
pub(super) fn unlink(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        // It may be gone already.
        let _ = std::fs::remove_file(path);
    }
}

impl Daemon {
    pub(super) fn accept(&mut self) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = match accept_with(&*self.held[&Kept::Listener], flags) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
            // There are no descriptors left. One is, to say so; then who connects waits until there are some.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                if self.reserve.take().is_some() {
                    return self.accept();
                }
                self.unwatch(&self.held[&Kept::Listener]);
                self.greetings.is_listening = false;
                self.listen_pause.begin(Instant::now());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.listen_pause.forget();
        if self.greetings.waiting.len() >= GREETINGS_MAX {
            self.greetings.waiting.pop_first();
        }
        self.greetings.last = self.greetings.last.wrapping_add(1);
        let at = self.greetings.last;
        // Every message says who sent it. A socket that cannot be heard of is closed.
        let heard = set_socket_passcred(&accepted, true).and_then(|()| self.watch(&accepted, Source::Greeting(at)));
        if heard.is_ok() {
            self.greetings.waiting.insert(at, accepted);
        }
        Ok(())
    }

    /// Hears the first word of a process, which is then a tenant.
    pub(super) fn greet(&mut self, at: u32) -> io::Result<()> {
        let Some(socket) = self.greetings.waiting.get(&at) else { return Ok(()) };
        let received = match socket::receive(socket, RecvFlags::DONTWAIT) {
            Err(NotReceived::Nothing) => return Ok(()),
            received => received,
        };
        let socket = self.greetings.waiting.remove(&at).expect("it was found");
        self.unwatch(&socket);
        let Ok(received) = received else { return Ok(()) };
        let (number, outcome) = match Framed::<Request>::decode(&received.slot, &received.tail) {
            Ok(Framed { number, message: Request::Hello { version: VERSION }, .. }) => (number, Ok(())),
            Ok(Framed { number, message: Request::Hello { .. }, .. }) => {
                (number, Err(Refusal::Version { theirs: VERSION }))
            }
            Ok(Framed { number, .. }) | Err((number, _)) => (number, Err(Refusal::Malformed)),
        };
        let socket = Arc::new(socket);
        match outcome.and_then(|()| self.newcomer(&socket)) {
            Ok((peer, newcomer)) => self.welcome(number, peer, newcomer),
            Err(refusal) => {
                let slot = Framed { number, is_again: false, message: Reply::Refused(refusal) }.encode();
                // Who does not hear it hears that the connection ends.
                let _ = socket::send(&socket, &slot, &[], &[]);
                Ok(())
            }
        }
    }

    /// All that a tenant needs, before it is one.
    fn newcomer(&self, socket: &Arc<OwnedFd>) -> Result<(Peer, Newcomer), Refusal> {
        let none_left = |_| Refusal::NoDescriptors;
        let peer = socket_peercred(socket).map_err(none_left)?;
        let (user, own) = (peer.uid.as_raw(), rustix::process::getuid().as_raw());
        // Where a group is served, the socket's mode says who is in it.
        if user != own && user != 0 && self.config.terms.group.is_none() {
            return Err(Refusal::NotAllowed { user: own });
        }
        let newcomer = Newcomer {
            socket: socket.clone(),
            process: Arc::new(peer_process(socket, peer.pid).map_err(|_| Refusal::NoDescriptors)?),
            ring: Shared::create("freehold-ring", RING_BYTES).map_err(none_left)?,
            clock: Shared::create("freehold-clock", CLOCK_WORDS as usize * 8).map_err(none_left)?,
            bell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(none_left)?),
        };
        Ok((Peer { user, process: process_of(peer) }, newcomer))
    }

    fn welcome(&mut self, number: u32, peer: Peer, newcomer: Newcomer) -> io::Result<()> {
        let (socket, bell) = (newcomer.socket.clone(), newcomer.bell.clone());
        let connected = self.state.connect(peer);
        let message = match &connected {
            Ok(tenant) => Reply::Welcome { tenant: *tenant, device: self.config.device_uuid },
            Err(refusal) => Reply::Refused(*refusal),
        };
        let slot = Framed { number, is_again: false, message }.encode();
        let Ok(tenant) = connected else {
            // Who does not hear it hears that the connection ends.
            let _ = socket::send(&socket, &slot, &[], &[]);
            return Ok(());
        };
        self.hold_newcomer(tenant, &newcomer);
        self.carry_out(None)?;
        let files = [newcomer.ring.shared_file(), newcomer.clock.shared_file()];
        let descriptors = [files[0].as_fd(), files[1].as_fd(), bell.as_fd()];
        let added = self.add(Connection::new(tenant, newcomer, peer.process));
        if added.is_err() {
            // The system has no room to tell of its events. It hears that the connection ends.
            self.state.end(tenant, &Tenants(&self.connections));
            return self.carry_out(None);
        }
        // If it does not hear it, it is gone, and that is heard of.
        let _ = socket::send(&socket, &slot, &[], &descriptors);
        Ok(())
    }

    /// Keeps all that makes a tenant one.
    pub(super) fn hold_newcomer(&mut self, tenant: Id, newcomer: &Newcomer) {
        let Newcomer { socket, process, ring, clock, bell } = newcomer;
        self.hold(Kept::Connection(tenant), socket.clone());
        self.hold(Kept::Ring(tenant), ring.shared_file());
        self.hold(Kept::Clock(tenant), clock.shared_file());
        self.hold(Kept::Bell(tenant), bell.clone());
        self.hold(Kept::Process(tenant), process.clone());
    }

    /// Hears what a tenant says over its socket.
    pub(super) fn hear(&mut self, at: u32) -> io::Result<()> {
        let Some(connection) = self.connections.get(&at) else { return Ok(()) };
        let tenant = connection.tenant;
        let received = match socket::receive(&connection.socket, RecvFlags::DONTWAIT) {
            Ok(received) => received,
            Err(NotReceived::Nothing) => return Ok(()),
            Err(_) => return self.part(at),
        };
        if received.sender.is_some_and(|sender| sender != connection.peer) {
            tracing::warn!(target: "freehold", "a process that inherited a tenant's socket was not answered");
            return Ok(());
        }
        match Framed::<Request>::decode(&received.slot, &received.tail) {
            Ok(asked) => match &asked.message {
                // These come over the ring, where their order is.
                Request::Reserve { .. }
                | Request::Lease { .. }
                | Request::Give { .. }
                | Request::Borrow { .. }
                | Request::Hello { .. } => self.refuse(tenant, asked.number, Refusal::Malformed, Route::Socket),
                Request::Find { name } | Request::Drop { name } | Request::Host { bytes: 0, name }
                    if self.state.is_nameless(name) && !asked.is_again =>
                {
                    let nearest = self.state.nearest(name, NEAREST).into_iter().map(ToString::to_string).collect();
                    self.tell_nearest(at, asked.number, Refusal::NoName, nearest)
                }
                Request::Module { name: Some(name), .. } | Request::DropModule { name }
                    if self.state.is_moduleless(name) && !asked.is_again =>
                {
                    let nearest = self.state.nearest_modules(name, NEAREST);
                    let nearest = nearest.into_iter().map(ToString::to_string).collect();
                    self.tell_nearest(at, asked.number, Refusal::NoModule, nearest)
                }
                &Request::PutModule { bytes, .. } => match module_file(received.descriptors, bytes) {
                    Ok(file) => {
                        self.arrived = Some(file);
                        let asked = self.ask(tenant, asked, Route::Socket);
                        self.arrived = None;
                        asked
                    }
                    Err(refusal) => self.refuse(tenant, asked.number, refusal, Route::Socket),
                },
                Request::Bye => {
                    self.serve_goer(at)?;
                    self.ask(tenant, asked, Route::Socket)
                }
                _ => self.ask(tenant, asked, Route::Socket),
            },
            Err((number, refusal)) => self.refuse(tenant, number, refusal, Route::Socket),
        }
    }

    /// Serves what a tenant put into its ring before it said goodbye over its socket: the goodbye is the younger one. A request that waits
    /// for the driver is withdrawn, so that those behind it are served.
    fn serve_goer(&mut self, at: u32) -> io::Result<()> {
        for _ in 0..SLOTS {
            self.withdraw(at)?;
            let next = self.connections.get_mut(&at).and_then(Connection::next_of_goer);
            match next {
                Some((Ok(asked), tenant)) => self.ask(tenant, asked, Route::Ring)?,
                Some((Err((number, refusal)), tenant)) => self.refuse(tenant, number, refusal, Route::Ring)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Refuses a tenant's oldest request if it waits for the driver: the tenant goes.
    fn withdraw(&mut self, at: u32) -> io::Result<()> {
        let Some(connection) = self.connections.get(&at).filter(|connection| connection.is_waiting) else {
            return Ok(());
        };
        let (tenant, oldest) = (connection.tenant, connection.ring.peek());
        self.state.withdraw(tenant);
        match oldest {
            Some((number, _)) => self.refuse(tenant, number, Refusal::NoTenant, Route::Ring),
            // It wrote over its own request.
            None => Ok(()),
        }
    }

    /// Says that a name is not there, and which are like it.
    fn tell_nearest(&mut self, at: u32, number: u32, refusal: Refusal, nearest: Vec<String>) -> io::Result<()> {
        let slot = Framed { number, is_again: false, message: Reply::Refused(refusal) }.encode();
        self.send(at, &slot, nearest.join("\n").as_bytes(), None)
    }

    /// Ends a connection: all leases of the tenant are over, and its memory is nobody's until its process has ended.
    pub(super) fn part(&mut self, at: u32) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&at) else { return Ok(()) };
        let tenant = connection.tenant;
        connection.is_parted = true;
        let connection = &self.connections[&at];
        // Others hold the socket too: only so does the tenant hear that it is over. It may be gone already.
        let _ = shutdown(&connection.socket, Shutdown::Both);
        self.unwatch(&connection.socket);
        self.unwatch(&connection.bell);
        if self.state.tenants.get(tenant).is_some_and(|tenant| tenant.service.is_some()) {
            self.kill_worker(tenant);
        }
        self.state.fence(tenant);
        self.carry_out(None)
    }
}

/// A descriptor of the process at the other end, which is that process for ever.
fn peer_process(socket: &OwnedFd, process: Pid) -> io::Result<OwnedFd> {
    let mut descriptor: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    const SO_PEERPIDFD: libc::c_int = 77;
    // SAFETY: `descriptor` is room for the descriptor that the call writes, of so many bytes as it is told.
    let outcome = unsafe {
        libc::getsockopt(
            std::os::fd::AsRawFd::as_raw_fd(socket),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut bytes,
        )
    };
    if outcome == 0 {
        // SAFETY: the kernel made the descriptor for this call.
        return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    // An older kernel: the number may be another process's by now, if this one is gone.
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}
