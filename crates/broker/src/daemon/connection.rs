//! The connection of a tenant: its socket, its ring and its semaphores, and the order of its requests.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;

use crate::os::seqpacket::{self, Slot};
use crate::os::shared_memory::SharedMemory;
use crate::protocol::fd_channel::{FdKey, FdTable};
use crate::protocol::message::{Frame, Reply, Request, is_notification};
use crate::protocol::module_text::MODULE_BYTES_MAX;
use crate::protocol::request_error::RequestError;
use crate::protocol::ring::{BrokerRing, CorruptRing, RING_BYTES, SLOTS};
use crate::protocol::types::{Fence, Id, PROCESS_ENDED, SEMAPHORES};
use crate::state::Environment;
use crate::state::slot_map::index;

/// The most messages in reply to one request.
const REPLIES_MAX: u32 = 8;

/// A tenant is notified of a given lease only while this many slots of its ring are free: the rest is for replies.
pub(super) const NOTIFY_ROOM_MIN: u32 = 128;

/// How a request and its reply travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Ring,
    Socket,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) tenant: Id,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) ring: BrokerRing,
    semaphores: SharedMemory,
    pub(super) doorbell: Arc<OwnedFd>,
    pub(super) process: Arc<OwnedFd>,
    /// The process that may use the socket: not a child that inherited it.
    pub(super) peer: u32,
    /// Notifications for which the ring has no room yet.
    pending: VecDeque<Slot>,
    /// Whether its oldest request waits for the driver.
    pub(super) is_waiting: bool,
    /// Whether the connection has ended. The process may still run.
    pub(super) is_disconnected: bool,
    /// Whether a previous broker may have executed its oldest request.
    is_retry: bool,
}

/// A request, or the error for a malformed one; and the tenant that sent it.
pub(super) type NextRequest = (Result<Frame<Request>, (u32, RequestError)>, Id);

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

    /// Returns the oldest request of a tenant that sent `Bye`. Room for the reply does not matter: the tenant reads
    /// none.
    pub(super) fn next_while_closing(&mut self) -> Option<NextRequest> {
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

/// The parts of a new tenant.
#[derive(Debug)]
pub(super) struct NewTenant {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) process: Arc<OwnedFd>,
    pub(super) ring: SharedMemory,
    pub(super) semaphores: SharedMemory,
    pub(super) doorbell: Arc<OwnedFd>,
}

/// The state's view of tenants' rings and semaphores.
pub(super) struct TenantConnections<'a>(pub(super) &'a BTreeMap<u32, Connection>);

impl Environment for TenantConnections<'_> {
    fn has_room(&self, tenant: Id) -> Result<(), u32> {
        match self.0.get(&(index(tenant) as u32)).map(Connection::room) {
            Some(room) if room >= NOTIFY_ROOM_MIN => Ok(()),
            Some(room) => Err(SLOTS - room),
            None => Err(0),
        }
    }

    fn is_complete(&self, fence: Fence) -> bool {
        let connection = self.0.get(&(index(fence.tenant) as u32)).filter(|known| known.tenant == fence.tenant);
        connection.is_none_or(|connection| connection.is_complete(fence))
    }
}

/// Checks the descriptor of a module: it must be a sealed memfd, whose content cannot change.
pub(super) fn module_file(mut descriptors: Vec<OwnedFd>, bytes: u64) -> Result<OwnedFd, RequestError> {
    let bad = RequestError::InvalidModule { limit_bytes: MODULE_BYTES_MAX as u64 };
    let (Some(file), true) = (descriptors.pop(), (1..=MODULE_BYTES_MAX as u64).contains(&bytes)) else {
        return Err(bad);
    };
    let wanted = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let is_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(wanted));
    let has_bytes = fstat(&file).is_ok_and(|file| file.st_size as u64 == bytes);
    if is_sealed && has_bytes { Ok(file) } else { Err(bad) }
}
