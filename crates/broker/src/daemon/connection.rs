//! Connections of tenants in the broker: handshake, socket, ring, and the end of a connection.

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

use super::effects::{Route, TenantConnections};
use super::event_source::EventSource;
use super::workers::module_file;
use super::{Daemon, REPLIES_MAX};
use crate::os::seqpacket::Slot;
use crate::os::seqpacket::{self, ReceiveError};
use crate::os::shared_memory::SharedMemory;
use crate::protocol::fd_channel::{FdKey, FdTable};
use crate::protocol::message::{Frame, Reply, Request, is_notification};
use crate::protocol::request_error::RequestError;
use crate::protocol::ring::{BrokerRing, CorruptRing, RING_BYTES, SLOTS};
use crate::protocol::types::PROCESS_ENDED;
use crate::protocol::types::SEMAPHORES;
use crate::protocol::types::{Fence, Id, VERSION};
use crate::state::Peer;

/// How many similar names the reply to an unknown name lists.
const NEAREST_NAMES_MAX: usize = 3;

/// The most connections that have sent nothing yet. The oldest is closed first.
const HANDSHAKES_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) tenant: Id,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) ring: BrokerRing,
    semaphores: SharedMemory,
    pub(super) doorbell: Arc<OwnedFd>,
    pub(super) process: Arc<OwnedFd>,
    /// The process that may use the socket: not a child that inherited it.
    peer: u32,
    /// Notifications for which the ring has no room yet.
    pending: VecDeque<Slot>,
    /// Whether its oldest request waits for the driver.
    pub(super) is_waiting: bool,
    /// Whether the connection has ended. The process may still run.
    is_disconnected: bool,
    /// Whether a previous broker may have executed its oldest request.
    is_retry: bool,
}

/// A request, or the error for a malformed one; and the tenant that sent it.
type NextRequest = (Result<Frame<Request>, (u32, RequestError)>, Id);

impl Connection {
    pub(super) fn new(tenant: Id, new_tenant: NewTenant, process: u32) -> Self {
        let NewTenant { socket, process: descriptor, ring, semaphores, doorbell } = new_tenant;
        Self {
            tenant,
            socket,
            ring: BrokerRing::new(ring),
            semaphores,
            doorbell,
            process: descriptor,
            peer: process,
            pending: VecDeque::new(),
            is_waiting: false,
            is_disconnected: false,
            is_retry: false,
        }
    }

    /// Takes over a tenant of a previous broker, with its descriptors as they are held, so that no more are needed.
    /// [`Errno::NOENT`] if some are missing.
    pub(super) fn resume(tenant: Id, process: u32, fds: &FdTable) -> Result<Self, Errno> {
        let get = |what: FdKey| fds.get(&what).cloned().ok_or(Errno::NOENT);
        let mut connection = Self {
            tenant,
            socket: get(FdKey::Connection(tenant))?,
            ring: BrokerRing::resume(SharedMemory::open(get(FdKey::Ring(tenant))?, RING_BYTES)?),
            semaphores: SharedMemory::open(get(FdKey::Semaphores(tenant))?, SEMAPHORES as usize * 8)?,
            doorbell: get(FdKey::Doorbell(tenant))?,
            process: get(FdKey::Pidfd(tenant))?,
            peer: process,
            pending: VecDeque::new(),
            is_waiting: false,
            is_disconnected: false,
            is_retry: false,
        };
        connection.skip_answered();
        connection.is_retry = connection.ring.peek().is_some();
        // A client that waits for a reply repeats its request.
        let slot = Frame { number: 0, is_retry: false, message: Reply::Resumed }.encode();
        let _ = seqpacket::send(&connection.socket, &slot, &[], &[]);
        Ok(connection)
    }

    /// Takes the oldest request if a previous broker has replied to it and died before it took it.
    fn skip_answered(&self) {
        if let (Some((number, _)), Some(last)) = (self.ring.peek(), self.ring.last_reply())
            && (last[0] >> 32) as u32 == number
            && !is_notification(last[0])
        {
            self.ring.pop();
        }
    }

    /// Returns the oldest request if it can be served now.
    pub(super) fn next(&mut self) -> Result<Option<NextRequest>, CorruptRing> {
        if self.is_disconnected {
            return Ok(None);
        }
        self.flush()?;
        if self.is_waiting || self.ring.room()? < REPLIES_MAX {
            return Ok(None);
        }
        Ok(self.peek_request())
    }

    /// Returns the oldest request of a tenant that said `Bye`. Room for the reply does not matter: the tenant reads
    /// none.
    fn next_while_closing(&mut self) -> Option<NextRequest> {
        if self.is_disconnected || self.is_waiting { None } else { self.peek_request() }
    }

    fn peek_request(&mut self) -> Option<NextRequest> {
        let (number, slot) = self.ring.peek()?;
        let asked = Frame::<Request>::decode(&slot, &[]).and_then(|mut asked| {
            asked.is_retry = std::mem::take(&mut self.is_retry);
            asked.number = number;
            // Requests whose reply has text or a descriptor come over the socket.
            match asked.message {
                Request::Reserve { .. }
                | Request::Lease { .. }
                | Request::Return { .. }
                | Request::Give { .. }
                | Request::Borrow { .. }
                | Request::Detach { .. } => Ok(asked),
                _ => Err((number, RequestError::Malformed)),
            }
        });
        self.is_retry = false;
        Some((asked.map_err(|(_, error)| (number, error)), self.tenant))
    }

    /// How many notifications fit.
    pub(super) fn room(&self) -> u32 {
        self.ring.room().unwrap_or(0).saturating_sub(self.pending.len() as u32)
    }

    /// Queues a notification, and sends it when there is room.
    pub(super) fn notify(&mut self, slot: Slot) {
        self.pending.push_back(slot);
        // A corrupt ring is noticed where requests are read.
        let _ = self.flush();
    }

    fn flush(&mut self) -> Result<(), CorruptRing> {
        while !self.pending.is_empty() && self.ring.room()? > REPLIES_MAX {
            let slot = self.pending.pop_front().expect("the queue is not empty");
            self.ring.push_reply(&slot);
        }
        Ok(())
    }

    /// Sets whether the broker sleeps. Returns whether a request is there that could be served.
    pub(super) fn set_asleep(&self, is_asleep: bool) -> bool {
        let has_request = self.ring.set_asleep(is_asleep);
        let has_room = self.ring.room().map_or(true, |room| room >= REPLIES_MAX);
        has_request && has_room && !self.is_waiting && !self.is_disconnected
    }

    /// Whether the tenant's work has reached a fence.
    pub(super) fn is_complete(&self, fence: Fence) -> bool {
        let written = self.semaphores.u64_at(8 * (fence.semaphore % SEMAPHORES) as usize).load(Ordering::Acquire);
        written.wrapping_sub(fence.value).cast_signed() >= 0
    }

    /// Completes every fence of the tenant's semaphores. The bit is above every value, and low enough for the signed
    /// comparison of `is_complete`.
    pub(super) fn complete_fences(&self, words: u32) {
        for word in 0..words as usize {
            // The low bits keep the last value.
            self.semaphores.u64_at(8 * word).fetch_or(PROCESS_ENDED, Ordering::AcqRel);
        }
    }
}

fn process_of(peer: rustix::net::UCred) -> u32 {
    peer.pid.as_raw_nonzero().get().cast_unsigned()
}

/// The parts of a new tenant.
#[derive(Debug)]
pub(super) struct NewTenant {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) process: Arc<OwnedFd>,
    pub(super) ring: SharedMemory,
    pub(super) semaphores: SharedMemory,
    pub(super) doorbell: Arc<OwnedFd>,
}

/// Connections that have sent nothing yet.
#[derive(Debug)]
pub(super) struct Handshakes {
    last: u32,
    waiting: BTreeMap<u32, OwnedFd>,
    /// Whether the listening socket is polled.
    pub(super) is_listening: bool,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self { last: 0, waiting: BTreeMap::new(), is_listening: true }
    }
}

/// Opens the socket that tenants connect to, for this user alone or also for the users of a group. A previous broker at
/// this path is gone: the fdstore has the lock.
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

/// Removes a socket, but nothing else that may be there by now.
pub(super) fn unlink(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        // It may be gone already.
        let _ = std::fs::remove_file(path);
    }
}

impl Daemon {
    pub(super) fn accept(&mut self) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = match accept_with(&*self.fds[&FdKey::Listener], flags) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
            // Out of descriptors. The spare one is used to tell the client; then clients wait until descriptors are
            // free.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                if self.spare_fd.take().is_some() {
                    return self.accept();
                }
                self.unwatch(&self.fds[&FdKey::Listener]);
                self.handshakes.is_listening = false;
                self.listen_backoff.start(Instant::now());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.listen_backoff.reset();
        if self.handshakes.waiting.len() >= HANDSHAKES_MAX {
            self.handshakes.waiting.pop_first();
        }
        self.handshakes.last = self.handshakes.last.wrapping_add(1);
        let at = self.handshakes.last;
        // Every message carries the id of its sender. A socket that cannot be polled is closed.
        let heard =
            set_socket_passcred(&accepted, true).and_then(|()| self.watch(&accepted, EventSource::Handshake(at)));
        if heard.is_ok() {
            self.handshakes.waiting.insert(at, accepted);
        }
        Ok(())
    }

    /// Receives the first message of a process, which then becomes a tenant.
    pub(super) fn handshake(&mut self, at: u32) -> io::Result<()> {
        let Some(socket) = self.handshakes.waiting.get(&at) else { return Ok(()) };
        let received = match seqpacket::receive(socket, RecvFlags::DONTWAIT) {
            Err(ReceiveError::WouldBlock) => return Ok(()),
            received => received,
        };
        let socket = self.handshakes.waiting.remove(&at).expect("it was found above");
        self.unwatch(&socket);
        let Ok(received) = received else { return Ok(()) };
        let (number, outcome) = match Frame::<Request>::decode(&received.slot, &received.tail) {
            Ok(Frame { number, message: Request::Hello { version: VERSION }, .. }) => (number, Ok(())),
            Ok(Frame { number, message: Request::Hello { .. }, .. }) => {
                (number, Err(RequestError::Version { theirs: VERSION }))
            }
            Ok(Frame { number, .. }) | Err((number, _)) => (number, Err(RequestError::Malformed)),
        };
        let socket = Arc::new(socket);
        match outcome.and_then(|()| self.new_tenant(&socket)) {
            Ok((peer, new_tenant)) => self.welcome(number, peer, new_tenant),
            Err(error) => {
                let slot = Frame { number, is_retry: false, message: Reply::Error(error) }.encode();
                // A client that misses it sees the connection end.
                let _ = seqpacket::send(&socket, &slot, &[], &[]);
                Ok(())
            }
        }
    }

    /// Creates everything that a tenant needs, before it is registered.
    fn new_tenant(&self, socket: &Arc<OwnedFd>) -> Result<(Peer, NewTenant), RequestError> {
        let none_left = |_| RequestError::NoDescriptors;
        let peer = socket_peercred(socket).map_err(none_left)?;
        let (user, own) = (peer.uid.as_raw(), rustix::process::getuid().as_raw());
        // If a group is served, the mode of the socket restricts who can connect.
        if user != own && user != 0 && self.config.limits.group.is_none() {
            return Err(RequestError::NotAllowed { user: own });
        }
        let new_tenant = NewTenant {
            socket: socket.clone(),
            process: Arc::new(peer_pidfd(socket, peer.pid).map_err(|_| RequestError::NoDescriptors)?),
            ring: SharedMemory::create("freehold-ring", RING_BYTES).map_err(none_left)?,
            semaphores: SharedMemory::create("freehold-clock", SEMAPHORES as usize * 8).map_err(none_left)?,
            doorbell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(none_left)?),
        };
        Ok((Peer { user, process: process_of(peer) }, new_tenant))
    }

    fn welcome(&mut self, number: u32, peer: Peer, new_tenant: NewTenant) -> io::Result<()> {
        let (socket, doorbell) = (new_tenant.socket.clone(), new_tenant.doorbell.clone());
        let connected = self.state.connect(peer);
        let message = match &connected {
            Ok(tenant) => Reply::Welcome { tenant: *tenant, device: self.config.device_uuid },
            Err(error) => Reply::Error(*error),
        };
        let slot = Frame { number, is_retry: false, message }.encode();
        let Ok(tenant) = connected else {
            // A client that misses it sees the connection end.
            let _ = seqpacket::send(&socket, &slot, &[], &[]);
            return Ok(());
        };
        self.store_tenant_fds(tenant, &new_tenant);
        self.apply_effects(None)?;
        let files = [new_tenant.ring.shared_fd(), new_tenant.semaphores.shared_fd()];
        let descriptors = [files[0].as_fd(), files[1].as_fd(), doorbell.as_fd()];
        let added = self.add(Connection::new(tenant, new_tenant, peer.process));
        if added.is_err() {
            // The system cannot poll another descriptor. The client sees the connection end.
            self.state.remove_tenant(tenant, &TenantConnections(&self.connections));
            return self.apply_effects(None);
        }
        // If this fails the client is gone, and the next event says so.
        let _ = seqpacket::send(&socket, &slot, &[], &descriptors);
        Ok(())
    }

    /// Stores the descriptors of a tenant.
    pub(super) fn store_tenant_fds(&mut self, tenant: Id, new_tenant: &NewTenant) {
        let NewTenant { socket, process, ring, semaphores, doorbell } = new_tenant;
        self.store_fd(FdKey::Connection(tenant), socket.clone());
        self.store_fd(FdKey::Ring(tenant), ring.shared_fd());
        self.store_fd(FdKey::Semaphores(tenant), semaphores.shared_fd());
        self.store_fd(FdKey::Doorbell(tenant), doorbell.clone());
        self.store_fd(FdKey::Pidfd(tenant), process.clone());
    }

    /// Receives a message from a tenant's socket.
    pub(super) fn receive(&mut self, at: u32) -> io::Result<()> {
        let Some(connection) = self.connections.get(&at) else { return Ok(()) };
        let tenant = connection.tenant;
        let received = match seqpacket::receive(&connection.socket, RecvFlags::DONTWAIT) {
            Ok(received) => received,
            Err(ReceiveError::WouldBlock) => return Ok(()),
            Err(_) => return self.disconnect(at),
        };
        if received.sender.is_some_and(|sender| sender != connection.peer) {
            tracing::warn!(target: "freehold", "ignored a message from a process that inherited a tenant's socket");
            return Ok(());
        }
        match Frame::<Request>::decode(&received.slot, &received.tail) {
            Ok(asked) => match &asked.message {
                // These come over the ring, which keeps their order.
                Request::Reserve { .. }
                | Request::Lease { .. }
                | Request::Give { .. }
                | Request::Borrow { .. }
                | Request::Hello { .. } => {
                    self.reply_error(tenant, asked.number, RequestError::Malformed, Route::Socket)
                }
                Request::Find { name } | Request::Drop { name } | Request::Host { bytes: 0, name }
                    if self.state.is_unknown_name(name) && !asked.is_retry =>
                {
                    let nearest =
                        self.state.nearest(name, NEAREST_NAMES_MAX).into_iter().map(ToString::to_string).collect();
                    self.reply_nearest(at, asked.number, RequestError::NoName, nearest)
                }
                Request::Module { name: Some(name), .. } | Request::DropModule { name }
                    if self.state.is_unknown_module(name) && !asked.is_retry =>
                {
                    let nearest = self.state.nearest_modules(name, NEAREST_NAMES_MAX);
                    let nearest = nearest.into_iter().map(ToString::to_string).collect();
                    self.reply_nearest(at, asked.number, RequestError::NoModule, nearest)
                }
                &Request::PutModule { bytes, .. } => match module_file(received.descriptors, bytes) {
                    Ok(file) => {
                        self.received_fd = Some(file);
                        let asked = self.serve_request(tenant, asked, Route::Socket);
                        self.received_fd = None;
                        asked
                    }
                    Err(error) => self.reply_error(tenant, asked.number, error, Route::Socket),
                },
                Request::Bye => {
                    self.drain_ring(at)?;
                    self.serve_request(tenant, asked, Route::Socket)
                }
                _ => self.serve_request(tenant, asked, Route::Socket),
            },
            Err((number, error)) => self.reply_error(tenant, number, error, Route::Socket),
        }
    }

    /// Serves the requests that a tenant put into its ring before it sent `Bye` over its socket. A request that waits
    /// for the driver is withdrawn, so that those behind it are served.
    fn drain_ring(&mut self, at: u32) -> io::Result<()> {
        for _ in 0..SLOTS {
            self.withdraw(at)?;
            let next = self.connections.get_mut(&at).and_then(Connection::next_while_closing);
            match next {
                Some((Ok(asked), tenant)) => self.serve_request(tenant, asked, Route::Ring)?,
                Some((Err((number, error)), tenant)) => self.reply_error(tenant, number, error, Route::Ring)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Refuses a tenant's oldest request if it waits for the driver, because the tenant is closing.
    fn withdraw(&mut self, at: u32) -> io::Result<()> {
        let Some(connection) = self.connections.get(&at).filter(|connection| connection.is_waiting) else {
            return Ok(());
        };
        let (tenant, oldest) = (connection.tenant, connection.ring.peek());
        self.state.withdraw(tenant);
        match oldest {
            Some((number, _)) => self.reply_error(tenant, number, RequestError::NoTenant, Route::Ring),
            // The tenant has overwritten its own request.
            None => Ok(()),
        }
    }

    /// Replies that a name is unknown, with similar names.
    fn reply_nearest(&mut self, at: u32, number: u32, error: RequestError, nearest: Vec<String>) -> io::Result<()> {
        let slot = Frame { number, is_retry: false, message: Reply::Error(error) }.encode();
        self.send(at, &slot, nearest.join("\n").as_bytes(), None)
    }

    /// Ends a connection: all leases of the tenant end, and its memory is not reused until its process has ended.
    pub(super) fn disconnect(&mut self, at: u32) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&at) else { return Ok(()) };
        let tenant = connection.tenant;
        connection.is_disconnected = true;
        let connection = &self.connections[&at];
        // Other processes hold the socket too, so only a shutdown reaches the tenant. It may be gone already.
        let _ = shutdown(&connection.socket, Shutdown::Both);
        self.unwatch(&connection.socket);
        self.unwatch(&connection.doorbell);
        if self.state.tenants.get(tenant).is_some_and(|tenant| tenant.worker_state.is_some()) {
            self.kill_worker(tenant);
        }
        self.state.disconnect(tenant);
        self.apply_effects(None)
    }
}

/// Returns a pidfd of the peer, which refers to that process even if its id is reused.
fn peer_pidfd(socket: &OwnedFd, process: Pid) -> io::Result<OwnedFd> {
    let mut descriptor: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    const SO_PEERPIDFD: libc::c_int = 77;
    // SAFETY: `descriptor` has room for the descriptor that the call writes, and `bytes` is its size.
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
        // SAFETY: the kernel created the descriptor for this call.
        return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    // Older kernels: the id may be reused by another process, if this one is gone.
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}
