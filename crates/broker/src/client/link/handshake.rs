//! The handshake of a connection: checks which user's process listens at the path, and exchanges the first messages.

use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use freehold::ForkGuard;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::connection::{Link, SpinPolicy};
use super::error::LinkError;
use crate::os::seqpacket;
use crate::os::shared_memory::SharedMemory;
use crate::os::socket_path;
use crate::protocol::message::{Frame, Reply, Request};
use crate::protocol::ring::{RING_BYTES, TenantRing};
use crate::protocol::spin::SpinWait;
use crate::protocol::types::SEMAPHORES;
use crate::protocol::types::{Id, VERSION};

/// How many brokers in a row may die during the handshake.
const HANDSHAKES_MAX: u32 = 8;

impl Link {
    /// Connects to the broker at a path.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`] if no process listens at the path, [`LinkError::PathTooLong`] if none can,
    /// [`LinkError::Request`] if the broker accepts no more tenants.
    pub fn connect(path: &Path) -> Result<Self, LinkError> {
        Self::try_connect(path, None)
    }

    /// Like [`connect`](Self::connect), but waits at most `longest` for every answer over the socket, including that of
    /// the handshake. For a broker that may hang.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect), and [`LinkError::TimedOut`].
    pub fn connect_timeout(path: &Path, longest: Duration) -> Result<Self, LinkError> {
        Self::try_connect(path, Some(longest))
    }

    fn try_connect(path: &Path, longest: Option<Duration>) -> Result<Self, LinkError> {
        // A broker that dies during it loses only the connection: the handshake is repeated with the next one.
        for _ in 1..HANDSHAKES_MAX {
            match Self::handshake(path, longest) {
                Err(LinkError::Closed) => {}
                outcome => return outcome,
            }
        }
        Self::handshake(path, longest)
    }

    fn handshake(path: &Path, longest: Option<Duration>) -> Result<Self, LinkError> {
        socket_path::check_len(path)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Recv, longest)?;
        set_socket_timeout(&socket, Timeout::Send, longest)?;
        let no_broker = || LinkError::NoBroker { path: path.to_owned() };
        let address = SocketAddrUnix::new(path)?;
        connect(&socket, &address).map_err(|error| match error {
            Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR => no_broker(),
            Errno::ACCESS | Errno::PERM => LinkError::NotAllowed { path: path.to_owned() },
            // The backlog of its socket is full.
            Errno::AGAIN => LinkError::TimedOut,
            error => LinkError::System(error),
        })?;
        let (theirs, own) = (socket_peercred(&socket)?.uid.as_raw(), rustix::process::getuid().as_raw());
        if !socket_path::is_trusted(path, theirs, own) {
            return Err(LinkError::NotAllowed { path: path.to_owned() });
        }
        let (slot, _) = Frame { number: 0, is_retry: false, message: Request::Hello { version: VERSION } }.encode();
        seqpacket::send(&socket, &slot, &[], &[])?;
        let received = seqpacket::receive(&socket, RecvFlags::empty())?;
        let reply = Frame::<Reply>::decode(&received.slot).map_err(|_| LinkError::Malformed)?;
        let (tenant, device) = match reply.message {
            Reply::Welcome { tenant, device } => (tenant, device),
            Reply::Error(error) => return Err(error.into()),
            // The previous broker died just before it sent `Welcome`.
            Reply::Resumed => {
                let (slot, _) = Frame { number: 0, is_retry: false, message: Request::Bye }.encode();
                seqpacket::send(&socket, &slot, &[], &[])?;
                return Err(LinkError::Closed);
            }
            _ => return Err(LinkError::Malformed),
        };
        let descriptors = <[OwnedFd; 3]>::try_from(received.descriptors).map_err(|_| LinkError::Malformed)?;
        Self::from_parts(socket, tenant, device, descriptors)
    }

    /// The connection of a known tenant, from its socket, ring, semaphores and doorbell.
    pub(super) fn from_parts(
        socket: OwnedFd,
        tenant: Id,
        device: u128,
        descriptors: [OwnedFd; 3],
    ) -> Result<Self, LinkError> {
        let fork_guard = ForkGuard::new().map_err(LinkError::from_system)?;
        let [ring, semaphores, doorbell] = descriptors;
        Ok(Self {
            socket,
            ring: TenantRing::new(SharedMemory::open(ring, RING_BYTES)?),
            doorbell,
            semaphores: SharedMemory::open(semaphores, SEMAPHORES as usize * 8)?,
            tenant,
            device,
            number: 0,
            spin: SpinWait::new(),
            spin_policy: SpinPolicy::For(Duration::from_micros(50)),
            fork_guard,
            given: VecDeque::new(),
            received: HashSet::default(),
            unfinished: HashSet::default(),
            returned: VecDeque::new(),
            unmaps: VecDeque::new(),
            recalled: VecDeque::new(),
            dropped_modules: VecDeque::new(),
            errors: VecDeque::new(),
            unanswered: 0,
            is_closed: false,
        })
    }
}
