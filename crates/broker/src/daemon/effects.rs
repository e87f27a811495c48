//! Executes the effects that the state returns: sends replies and descriptors, and creates, scrubs and closes memory.
//! The journal is written first.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use super::connection::{Route, TenantConnections};
use super::fd_set::fd_key;
use super::scrub_queue::ScrubJob;
use super::server::{Daemon, UnstoredReply};
use crate::os::seqpacket::{self, Slot};
use crate::os::shared_memory::SharedMemory;
use crate::protocol::fd_channel::FdKey;
use crate::protocol::message::{Frame, Reply, Request};
use crate::protocol::request_error::RequestError;
use crate::protocol::types::{Id, SEMAPHORES};
use crate::state::slot_map::index;
use crate::state::{Effect, Resource};

impl Daemon {
    pub(super) fn serve_request(&mut self, from: Id, asked: Frame<Request>, route: Route) -> io::Result<()> {
        self.state.request(from, asked, &TenantConnections(&self.connections));
        self.apply_effects(Some((from, route)))
    }

    pub(super) fn reply_error(&mut self, to: Id, number: u32, error: RequestError, route: Route) -> io::Result<()> {
        self.reply(to, number, Reply::Error(error), route)
    }

    fn reply(&mut self, to: Id, number: u32, reply: Reply, route: Route) -> io::Result<()> {
        let at = index(to) as u32;
        let Some(connection) = self.connections.get_mut(&at) else { return Ok(()) };
        let slot = Frame { number, is_retry: false, message: reply }.encode();
        match route {
            Route::Ring => {
                connection.ring.push_reply(&slot);
                connection.ring.pop();
                connection.is_waiting = false;
                Ok(())
            }
            Route::Socket => self.send(at, &slot, &[], None),
        }
    }

    /// Continues operations that waited until the fdstore has a descriptor: leases of new segments, and replies.
    pub(super) fn resume_stored(&mut self) -> io::Result<()> {
        let is_stored = |segment: &mut Id| self.fds.is_stored(&FdKey::Segment(*segment));
        let stored: Vec<Id> = self.unstored_segments.extract_if(.., is_stored).collect();
        for segment in stored {
            self.state.segment_created(segment, Ok(()));
            self.apply_effects(None)?;
        }
        if self.fds.is_flushed() {
            for UnstoredReply { to, number, reply, beside } in std::mem::take(&mut self.unstored_replies) {
                if self.connection(to).is_none() {
                    continue;
                }
                let is_dropped = beside.is_some_and(|what| !self.fds.contains_key(&what));
                let message = if is_dropped { Reply::Error(RequestError::NoName) } else { reply };
                let slot = Frame { number, is_retry: false, message }.encode();
                self.send(index(to) as u32, &slot, &[], beside)?;
            }
        }
        Ok(())
    }

    /// Sends over a tenant's socket. A tenant that does not read is disconnected.
    pub(super) fn send(&mut self, at: u32, slot: &Slot, tail: &[u8], beside: Option<FdKey>) -> io::Result<()> {
        let Some(connection) = self.connections.get(&at) else { return Ok(()) };
        let descriptor = beside.and_then(|what| self.fds.get(&what));
        let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
        match seqpacket::send(&connection.socket, slot, tail, &descriptors) {
            Ok(()) => Ok(()),
            Err(_) => self.disconnect(at),
        }
    }

    /// Writes the journal, then executes the effects. `asked` is the tenant whose request it was, and its route.
    pub(super) fn apply_effects(&mut self, asked: Option<(Id, Route)>) -> io::Result<()> {
        self.journal.write(&mut self.state);
        let spare = std::mem::take(&mut self.effects_buffer);
        let mut effects = self.state.take_effects(spare);
        let (mut at, mut has_kept) = (0, false);
        while at < effects.len() {
            // Leaves a value that allocates nothing.
            let effect = std::mem::replace(&mut effects[at], Effect::RemoveTenant { tenant: Id::default() });
            at += 1;
            match effect {
                Effect::Reply { to, number, reply } => {
                    let route = asked.filter(|&(from, _)| from == to).map_or(Route::Ring, |(_, route)| route);
                    match has_kept && !self.fds.is_flushed() {
                        true => self.unstored_replies.push(UnstoredReply { to, number, reply, beside: None }),
                        false => self.reply(to, number, reply, route)?,
                    }
                }
                Effect::Notify { to, reply } => {
                    if let Some(connection) = self.connections.get_mut(&(index(to) as u32)) {
                        connection.notify(Frame { number: 0, is_retry: false, message: reply }.encode());
                    }
                }
                Effect::Text { to, number, text } => {
                    let slot = Frame { number, is_retry: false, message: Reply::Text }.encode();
                    self.send(index(to) as u32, &slot, text.as_bytes(), None)?;
                }
                Effect::SendFd { to, number, what, bytes } => self.send_fd(to, number, what, bytes)?,
                Effect::SendFdWith { to, number, what, reply } => {
                    let slot = Frame { number, is_retry: false, message: reply }.encode();
                    self.send(index(to) as u32, &slot, &[], Some(fd_key(what)))?;
                }
                Effect::StoreFd { what } => {
                    self.store_received_fd(what);
                    has_kept = true;
                }
                Effect::StartWorker { worker } => {
                    self.start_worker(worker);
                    self.journal.write(&mut self.state);
                    effects.extend(self.state.take_effects(Vec::new()));
                }
                Effect::OpenSession { to, number, worker, session_index } => {
                    self.open_session(to, number, worker, session_index)?
                }
                Effect::DrainSession { worker, tenant } => self.drain_session(worker, tenant),
                Effect::StopWorker { worker } => self.stop_worker(worker),
                Effect::CompleteFences { tenant } => {
                    if let Some(connection) = self.connections.get(&(index(tenant) as u32)) {
                        connection.complete_fences(SEMAPHORES);
                    }
                }
                Effect::KillWorker { worker } => self.kill_worker(worker),
                Effect::CreateSegment { segment, bytes } => {
                    // The reply follows when the segment is created.
                    if let Some((from, Route::Ring)) = asked
                        && let Some(connection) = self.connections.get_mut(&(index(from) as u32))
                    {
                        connection.is_waiting = true;
                    }
                    self.driver.create_segment(segment, bytes);
                }
                Effect::Scrub { what, segment, offset, bytes } => {
                    let whole_bytes = self.state.segments.get(segment).map_or(0, |segment| segment.bytes);
                    self.scrub_queue.push(what, ScrubJob { segment, whole_bytes, offset, bytes });
                    self.scrub_queue.dispatch(self.fds.table(), Instant::now());
                }
                Effect::CloseFd { what } => self.close_resource(what),
                Effect::Stop => self.stop()?,
                Effect::RemoveTenant { tenant } => {
                    self.state.remove_tenant(tenant, &TenantConnections(&self.connections));
                    self.journal.write(&mut self.state);
                    effects.extend(self.state.take_effects(Vec::new()));
                }
            }
        }
        effects.clear();
        self.effects_buffer = effects;
        Ok(())
    }

    fn send_fd(&mut self, to: Id, number: u32, what: Resource, bytes: u64) -> io::Result<()> {
        if let Resource::Host(id) = what
            && !self.fds.contains_key(&FdKey::Host(id))
        {
            match SharedMemory::create("freehold-host", bytes as usize) {
                Ok(shared) => self.store_fd(FdKey::Host(id), shared.shared_fd()),
                Err(_) => return self.reply_error(to, number, RequestError::NoDescriptors, Route::Socket),
            }
        }
        let (reply, beside) = (Reply::Descriptor { bytes }, Some(fd_key(what)));
        if matches!(what, Resource::Host(_)) && !self.fds.is_stored(&fd_key(what)) {
            self.unstored_replies.push(UnstoredReply { to, number, reply, beside });
            return Ok(());
        }
        let slot = Frame { number, is_retry: false, message: reply }.encode();
        self.send(index(to) as u32, &slot, &[], beside)
    }

    fn close_resource(&mut self, what: Resource) {
        if let Resource::Semaphores(tenant) = what {
            // Fences of a process that is gone are complete.
            if let Some(connection) = self.connections.remove(&(index(tenant) as u32)) {
                connection.complete_fences(SEMAPHORES);
                for gone in [&connection.socket, &connection.doorbell, &connection.process] {
                    self.unwatch(gone);
                }
            }
            for gone in [FdKey::Connection, FdKey::Ring, FdKey::Doorbell, FdKey::Pidfd] {
                self.drop_fd(gone(tenant));
            }
            self.remove_worker(tenant);
        }
        match what {
            Resource::CallRing(tenant) => self.close_call_ring(tenant),
            what => self.drop_fd(fd_key(what)),
        }
    }
}
