//! Accepts new connections. Each becomes a tenant with its first message.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_passcred, socket_peercred};
use rustix::net::{RecvFlags, SocketFlags, accept_with};

use super::connection::{Connection, NewTenant, TenantConnections};
use super::event_source::EventSource;
use super::listener::{HANDSHAKES_MAX, peer_pidfd, process_of};
use super::server::Daemon;
use crate::os::eventfd;
use crate::os::seqpacket::{self, ReceiveError};
use crate::os::shared_memory::SharedMemory;
use crate::protocol::fd_channel::FdKey;
use crate::protocol::message::{Frame, Reply, Request};
use crate::protocol::request_error::RequestError;
use crate::protocol::ring::RING_BYTES;
use crate::protocol::types::{SEMAPHORES, VERSION};
use crate::state::Peer;

impl Daemon {
    pub(super) fn accept(&mut self) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = match accept_with(&self.fds[&FdKey::Listener], flags) {
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
            semaphores: SharedMemory::create("freehold-semaphores", SEMAPHORES as usize * 8).map_err(none_left)?,
            doorbell: Arc::new(eventfd::create().map_err(none_left)?),
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
}
