//! Requests over a tenant's socket, and the end of a connection.

use std::io;

use rustix::net::{RecvFlags, Shutdown, shutdown};

use super::connection::{Connection, Route, module_file};
use super::server::Daemon;
use crate::os::seqpacket::{self, ReceiveError};
use crate::protocol::message::{Frame, Reply, Request};
use crate::protocol::request_error::RequestError;
use crate::protocol::ring::SLOTS;

/// How many similar names the reply to an unknown name lists.
const NEAREST_NAMES_MAX: usize = 3;

impl Daemon {
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
    /// for the driver is withdrawn, so that those after it are served.
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

    /// Ends a connection. The tenant's leases end later, after its process has ended; if it is a worker, it is killed.
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
