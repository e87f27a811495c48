//! How a connection comes about: who listens at a path, and the first words of both sides.

use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use freehold::ForkGuard;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::{Link, LinkError, Patience};
use crate::place;
use crate::ring::{RING_BYTES, Spin, Used};
use crate::shared::Shared;
use crate::socket;
use crate::state::CLOCK_WORDS;
use crate::wire::{Framed, Id, Reply, Request, VERSION};

/// How often a broker may die while it is greeted, one after the other.
const GREETINGS_MAX: u32 = 8;

impl Link {
    /// Connects to the broker at a path.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`] where nobody listens, [`LinkError::TooLong`] where nobody can, [`LinkError::Refused`] where the broker wants no more tenants.
    pub fn connect(path: &Path) -> Result<Self, LinkError> {
        Self::connect_for(path, None)
    }

    /// As [`connect`](Self::connect), to a broker that may hang: what is asked over the socket, this first, is waited for so long
    /// at the most.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`LinkError::Silent`].
    pub fn connect_within(path: &Path, longest: Duration) -> Result<Self, LinkError> {
        Self::connect_for(path, Some(longest))
    }

    fn connect_for(path: &Path, longest: Option<Duration>) -> Result<Self, LinkError> {
        // A broker that dies meanwhile takes the connection along and nothing else: the one after it is greeted anew.
        for _ in 1..GREETINGS_MAX {
            match Self::greet(path, longest) {
                Err(LinkError::Gone) => {}
                outcome => return outcome,
            }
        }
        Self::greet(path, longest)
    }

    fn greet(path: &Path, longest: Option<Duration>) -> Result<Self, LinkError> {
        place::check(path)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Recv, longest)?;
        set_socket_timeout(&socket, Timeout::Send, longest)?;
        let no_broker = || LinkError::NoBroker { path: path.to_owned() };
        let address = SocketAddrUnix::new(path)?;
        connect(&socket, &address).map_err(|error| match error {
            Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR => no_broker(),
            Errno::ACCESS | Errno::PERM => LinkError::NotAllowed { path: path.to_owned() },
            // So many wait at its door that none more may.
            Errno::AGAIN => LinkError::Silent,
            error => LinkError::System(error),
        })?;
        let (theirs, own) = (socket_peercred(&socket)?.uid.as_raw(), rustix::process::getuid().as_raw());
        if !place::is_trusted(path, theirs, own) {
            return Err(LinkError::NotAllowed { path: path.to_owned() });
        }
        let (slot, _) = Framed { number: 0, is_again: false, message: Request::Hello { version: VERSION } }.encode();
        socket::send(&socket, &slot, &[], &[])?;
        let received = socket::receive(&socket, RecvFlags::empty())?;
        let reply = Framed::<Reply>::decode(&received.slot).map_err(|_| LinkError::Malformed)?;
        let (tenant, device) = match reply.message {
            Reply::Welcome { tenant, device } => (tenant, device),
            Reply::Refused(refusal) => return Err(refusal.into()),
            // The broker before this one died when it was about to say welcome.
            Reply::Resumed => {
                let (slot, _) = Framed { number: 0, is_again: false, message: Request::Bye }.encode();
                socket::send(&socket, &slot, &[], &[])?;
                return Err(LinkError::Gone);
            }
            _ => return Err(LinkError::Malformed),
        };
        let descriptors = <[OwnedFd; 3]>::try_from(received.descriptors).map_err(|_| LinkError::Malformed)?;
        Self::over(socket, tenant, device, descriptors)
    }

    /// A tenant that is known at the broker: over its socket, with its ring, clock and bell.
    pub(super) fn over(
        socket: OwnedFd,
        tenant: Id,
        device: u128,
        descriptors: [OwnedFd; 3],
    ) -> Result<Self, LinkError> {
        let family = ForkGuard::new().map_err(LinkError::from_system)?;
        let [ring, clock, bell] = descriptors;
        Ok(Self {
            socket,
            ring: Used::new(Shared::open(ring, RING_BYTES)?),
            bell,
            clock: Shared::open(clock, CLOCK_WORDS as usize * 8)?,
            tenant,
            device,
            number: 0,
            spin: Spin::new(),
            patience: Patience::For(Duration::from_micros(50)),
            family,
            given: VecDeque::new(),
            taken: HashSet::default(),
            unfinished: HashSet::default(),
            ended: VecDeque::new(),
            leave: VecDeque::new(),
            recalled: VecDeque::new(),
            dropped: VecDeque::new(),
            refused: VecDeque::new(),
            unanswered: 0,
            is_over: false,
        })
    }
}
