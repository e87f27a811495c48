//! The broker process as a whole: the data that the event loop, the requests and the effects share.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;

use super::backoff::Backoff;
use super::connection::{Connection, NewTenant};
use super::driver_thread::DriverThread;
use super::event_source::EventSource;
use super::fd_set::FdSet;
use super::journal::Journal;
use super::listener::Handshakes;
use super::scrub_queue::ScrubQueue;
use super::worker_checks::Workers;
use crate::process::Config;
use crate::protocol::fd_channel::FdKey;
use crate::protocol::message::Reply;
use crate::protocol::types::Id;
use crate::state::slot_map::index;
use crate::state::{Effect, State};

/// The broker process.
pub(super) struct Daemon {
    pub(super) config: Config,
    pub(super) state: State,
    pub(super) journal: Journal,
    pub(super) epoll: OwnedFd,
    pub(super) fds: FdSet,
    pub(super) connections: BTreeMap<u32, Connection>,
    pub(super) handshakes: Handshakes,
    pub(super) driver: DriverThread,
    pub(super) driver_eventfd: Arc<OwnedFd>,
    pub(super) scrub_queue: ScrubQueue,
    /// Closed to accept a client when no descriptors are left, so that it can be told why it is refused.
    pub(super) spare_fd: Option<OwnedFd>,
    /// New connections are not accepted during this delay.
    pub(super) listen_backoff: Backoff,
    /// A buffer that is reused for effects.
    pub(super) effects_buffer: Vec<Effect>,
    pub(super) workers: Workers,
    /// The descriptor that came with the current request.
    pub(super) received_fd: Option<OwnedFd>,
    pub(super) unstored_replies: Vec<UnstoredReply>,
    /// Segments that the driver has created and the fdstore does not have yet. In the state they are still being
    /// created: if the broker dies before, the next one repeats the requests that wait for them.
    pub(super) unstored_segments: Vec<Id>,
    pub(super) is_stopping: bool,
}

/// A reply that waits until the fdstore has the descriptor of a module or of named host memory: if the broker dies
/// before, nothing was stored.
pub(super) struct UnstoredReply {
    pub(super) to: Id,
    pub(super) number: u32,
    pub(super) reply: Reply,
    /// The descriptor that is sent with the reply.
    pub(super) beside: Option<FdKey>,
}

impl Daemon {
    pub(super) fn watch(&self, what: impl AsFd, source: EventSource) -> Result<(), Errno> {
        epoll::add(&self.epoll, what, source.to_data(), epoll::EventFlags::IN | epoll::EventFlags::RDHUP)
    }

    /// Stops polling a descriptor. It is open elsewhere, so closing it here is not enough.
    pub(super) fn unwatch(&self, what: impl AsFd) {
        // That of a disconnected tenant is removed already.
        let _ = epoll::delete(&self.epoll, what);
    }

    /// Stores a descriptor here and in the fdstore, which gets it as soon as it reads.
    pub(super) fn store_fd(&mut self, what: FdKey, descriptor: Arc<OwnedFd>) {
        self.fds.store(what, descriptor);
    }

    pub(super) fn drop_fd(&mut self, what: FdKey) {
        let Some(descriptor) = self.fds.remove(what) else { return };
        match what {
            // The driver may take long to free a segment.
            FdKey::Segment(_) => self.driver.close(descriptor),
            _ => drop(descriptor),
        }
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

    pub(super) fn add(&mut self, connection: Connection) -> Result<(), Errno> {
        let tenant = connection.tenant;
        self.watch(&connection.socket, EventSource::Connection(tenant))?;
        // Its count is never read: the tenant shares the doorbell and could make a reader block.
        let rings = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &connection.doorbell, EventSource::Doorbell(tenant).to_data(), rings)?;
        self.watch(&connection.process, EventSource::Process(tenant))?;
        self.connections.insert(index(tenant) as u32, connection);
        Ok(())
    }

    /// The connection of a tenant, whose index may have been reused.
    pub(super) fn connection(&self, tenant: Id) -> Option<&Connection> {
        self.connections.get(&(index(tenant) as u32)).filter(|connection| connection.tenant == tenant)
    }
}
