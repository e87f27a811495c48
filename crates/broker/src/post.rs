//! Descriptors between keeper and broker: each with what it is of. The same messages go both ways, so that whichever of the two
//! is left gives everything to the other's successor.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::ring::Slot;
use crate::socket::{self, NotReceived};
use crate::wire::Id;

/// What a descriptor is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kept {
    /// Held by whoever serves a path, so that nobody else does.
    Lock,
    Listener,
    Journal,
    Connection(Id),
    Ring(Id),
    Bell(Id),
    Process(Id),
    Clock(Id),
    Segment(Id),
    Host(Id),
}

impl Kept {
    fn words(self) -> [u64; 2] {
        match self {
            Self::Lock => [1, 0],
            Self::Listener => [2, 0],
            Self::Journal => [3, 0],
            Self::Connection(id) => [4, id.0],
            Self::Ring(id) => [5, id.0],
            Self::Bell(id) => [6, id.0],
            Self::Process(id) => [7, id.0],
            Self::Clock(id) => [8, id.0],
            Self::Segment(id) => [9, id.0],
            Self::Host(id) => [10, id.0],
        }
    }

    fn of(words: [u64; 2]) -> Option<Self> {
        let id = Id(words[1]);
        Some(match words[0] {
            1 => Self::Lock,
            2 => Self::Listener,
            3 => Self::Journal,
            4 => Self::Connection(id),
            5 => Self::Ring(id),
            6 => Self::Bell(id),
            7 => Self::Process(id),
            8 => Self::Clock(id),
            9 => Self::Segment(id),
            10 => Self::Host(id),
            _ => return None,
        })
    }
}

/// What one of the two tells the other.
#[derive(Debug)]
pub(crate) enum Letter {
    Hold(Kept, OwnedFd),
    Drop(Kept),
    /// That was everything.
    All,
    /// The broker has ended itself: it is not started again.
    Stop,
}

const HOLD: u64 = 1;
const DROP: u64 = 2;
const ALL: u64 = 3;
const STOP: u64 = 4;

fn send(socket: impl AsFd, words: &[u64], descriptor: Option<&OwnedFd>) -> Result<(), Errno> {
    let mut slot = Slot::default();
    slot[..words.len()].copy_from_slice(words);
    let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
    loop {
        match socket::send(&socket, &slot, &[], &descriptors) {
            // The other side is tiny, and reads.
            Err(Errno::AGAIN) => wait_for_room(&socket)?,
            outcome => return outcome,
        }
    }
}

fn wait_for_room(socket: impl AsFd) -> Result<(), Errno> {
    use rustix::event::{PollFd, PollFlags, poll};
    match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(crate) fn hold(socket: impl AsFd, what: Kept, descriptor: &OwnedFd) -> Result<(), Errno> {
    let [kind, id] = what.words();
    send(socket, &[HOLD, kind, id], Some(descriptor))
}

pub(crate) fn drop(socket: impl AsFd, what: Kept) -> Result<(), Errno> {
    let [kind, id] = what.words();
    send(socket, &[DROP, kind, id], None)
}

pub(crate) fn stop(socket: impl AsFd) -> Result<(), Errno> {
    send(socket, &[STOP], None)
}

/// The broker has taken over everything, and serves.
pub(crate) fn serves(socket: impl AsFd) -> Result<(), Errno> {
    send(socket, &[ALL], None)
}

/// Everything, and the word that it was that.
pub(crate) fn hold_all(socket: impl AsFd, all: &BTreeMap<Kept, OwnedFd>) -> Result<(), Errno> {
    all.iter().try_for_each(|(&what, descriptor)| hold(&socket, what, descriptor))?;
    send(socket, &[ALL], None)
}

/// The next letter. What is none is a bug of ours: both sides are one program.
pub(crate) fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<Letter, NotReceived> {
    let mut received = socket::receive(socket, flags)?;
    let slot = received.slot;
    let what = || Kept::of([slot[1], slot[2]]).ok_or(NotReceived::Malformed);
    match slot[0] {
        HOLD => Ok(Letter::Hold(what()?, received.descriptors.pop().ok_or(NotReceived::Malformed)?)),
        DROP => Ok(Letter::Drop(what()?)),
        ALL => Ok(Letter::All),
        STOP => Ok(Letter::Stop),
        _ => Err(NotReceived::Malformed),
    }
}
