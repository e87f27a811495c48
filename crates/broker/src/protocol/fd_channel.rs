//! File descriptors between fdstore and broker, each with a key. The same messages go in both directions: whichever
//! process survives sends everything to the successor of the other.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::os::seqpacket::Slot;
use crate::os::seqpacket::{self, ReceiveError};
use crate::protocol::types::Id;

/// What a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FdKey {
    /// The lock of a socket path, held by its broker.
    Lock,
    Listener,
    Journal,
    Connection(Id),
    Ring(Id),
    Doorbell(Id),
    Pidfd(Id),
    Semaphores(Id),
    Segment(Id),
    Host(Id),
    /// The pidfd of the scrubber.
    Scrubber,
    /// The socket on which a worker gets its orders.
    WorkerSocket(Id),
    /// The doorbell of a worker, for its tenants.
    WorkerDoorbell(Id),
    /// The call ring of a tenant.
    CallRing(Id),
    Module(Id),
}

impl FdKey {
    fn to_words(self) -> [u64; 2] {
        match self {
            Self::Lock => [1, 0],
            Self::Listener => [2, 0],
            Self::Journal => [3, 0],
            Self::Connection(id) => [4, id.0],
            Self::Ring(id) => [5, id.0],
            Self::Doorbell(id) => [6, id.0],
            Self::Pidfd(id) => [7, id.0],
            Self::Semaphores(id) => [8, id.0],
            Self::Segment(id) => [9, id.0],
            Self::Host(id) => [10, id.0],
            Self::Scrubber => [11, 0],
            Self::WorkerSocket(id) => [12, id.0],
            Self::WorkerDoorbell(id) => [13, id.0],
            Self::CallRing(id) => [14, id.0],
            Self::Module(id) => [15, id.0],
        }
    }

    fn from_words(words: [u64; 2]) -> Option<Self> {
        let id = Id(words[1]);
        Some(match words[0] {
            1 => Self::Lock,
            2 => Self::Listener,
            3 => Self::Journal,
            4 => Self::Connection(id),
            5 => Self::Ring(id),
            6 => Self::Doorbell(id),
            7 => Self::Pidfd(id),
            8 => Self::Semaphores(id),
            9 => Self::Segment(id),
            10 => Self::Host(id),
            11 => Self::Scrubber,
            12 => Self::WorkerSocket(id),
            13 => Self::WorkerDoorbell(id),
            14 => Self::CallRing(id),
            15 => Self::Module(id),
            _ => return None,
        })
    }
}

/// Descriptors by key.
pub(crate) type FdTable = BTreeMap<FdKey, Arc<OwnedFd>>;

/// A message between fdstore and broker.
#[derive(Debug)]
pub(crate) enum FdMessage {
    Hold(FdKey, OwnedFd),
    Drop(FdKey),
    /// Everything has been sent.
    Complete,
    /// The broker has stopped itself and must not be restarted.
    Stop,
}

const HOLD: u64 = 1;
const DROP: u64 = 2;
const COMPLETE: u64 = 3;
const STOP: u64 = 4;

fn try_send(socket: impl AsFd, words: &[u64], descriptor: Option<&Arc<OwnedFd>>) -> Result<(), Errno> {
    let mut slot = Slot::default();
    slot[..words.len()].copy_from_slice(words);
    let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
    seqpacket::send(socket, &slot, &[], &descriptors)
}

/// Sends a message, and waits until there is room. Only for the fdstore, which does nothing else.
fn send(socket: impl AsFd, words: &[u64], descriptor: Option<&Arc<OwnedFd>>) -> Result<(), Errno> {
    loop {
        match try_send(&socket, words, descriptor) {
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

fn send_hold(socket: impl AsFd, what: FdKey, descriptor: &Arc<OwnedFd>) -> Result<(), Errno> {
    let [kind, id] = what.to_words();
    send(socket, &[HOLD, kind, id], Some(descriptor))
}

pub(crate) fn send_stop(socket: impl AsFd) -> Result<(), Errno> {
    send(socket, &[STOP], None)
}

/// Sends every descriptor, then [`FdMessage::Complete`].
pub(crate) fn send_all(socket: impl AsFd, all: &FdTable) -> Result<(), Errno> {
    all.iter().try_for_each(|(&what, descriptor)| send_hold(&socket, what, descriptor))?;
    send(socket, &[COMPLETE], None)
}

/// Receives the next message. Anything malformed is a bug: both sides are the same program.
pub(crate) fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<FdMessage, ReceiveError> {
    let mut received = seqpacket::receive(socket, flags)?;
    let slot = received.slot;
    let what = || FdKey::from_words([slot[1], slot[2]]).ok_or(ReceiveError::Malformed);
    match slot[0] {
        HOLD => Ok(FdMessage::Hold(what()?, received.descriptors.pop().ok_or(ReceiveError::Malformed)?)),
        DROP => Ok(FdMessage::Drop(what()?)),
        COMPLETE => Ok(FdMessage::Complete),
        STOP => Ok(FdMessage::Stop),
        _ => Err(ReceiveError::Malformed),
    }
}

/// Messages from the broker that its fdstore has not taken. The broker never waits for the fdstore: a stopped one gets
/// them when it continues.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// By sequence number.
    messages: BTreeMap<u64, (Vec<u64>, Option<Arc<OwnedFd>>)>,
    /// The sequence number of the message that sends a descriptor, until it is sent.
    holds: BTreeMap<FdKey, u64>,
    next: u64,
}

impl Outbox {
    fn push(&mut self, words: Vec<u64>, descriptor: Option<Arc<OwnedFd>>) -> u64 {
        self.next += 1;
        self.messages.insert(self.next, (words, descriptor));
        self.next
    }

    pub(crate) fn hold(&mut self, what: FdKey, descriptor: Arc<OwnedFd>) {
        let [kind, id] = what.to_words();
        let at = self.push(vec![HOLD, kind, id], Some(descriptor));
        if let Some(before) = self.holds.insert(what, at) {
            self.messages.remove(&before);
        }
    }

    /// Drops a descriptor. If it was not sent yet, its message is removed instead, so there are never more messages
    /// than descriptors on both sides.
    pub(crate) fn drop(&mut self, what: FdKey) {
        match self.holds.remove(&what) {
            Some(at) => drop(self.messages.remove(&at)),
            None => {
                let [kind, id] = what.to_words();
                self.push(vec![DROP, kind, id], None);
            }
        }
    }

    /// Reports the end of a transfer: from the fdstore, that it has sent every descriptor; from the broker, that it
    /// now serves requests.
    pub(crate) fn complete(&mut self) {
        self.push(vec![COMPLETE], None);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether a descriptor has not been sent yet.
    pub(crate) fn contains(&self, what: &FdKey) -> bool {
        self.holds.contains_key(what)
    }

    /// Sends as many messages as fit.
    ///
    /// # Errors
    /// [`Errno::PIPE`] if the peer is gone.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> Result<(), Errno> {
        while let Some((&at, (words, descriptor))) = self.messages.first_key_value() {
            match try_send(&socket, words, descriptor.as_ref()) {
                Ok(()) => {}
                // The socket is full, or too many descriptors are in flight.
                Err(Errno::AGAIN | Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => return Ok(()),
                Err(Errno::CONNRESET) => return Err(Errno::PIPE),
                Err(error) => return Err(error),
            }
            let key = FdKey::from_words([words.get(1).copied().unwrap_or(0), words.get(2).copied().unwrap_or(0)]);
            if let Some(what) = key.filter(|what| self.holds.get(what) == Some(&at)) {
                self.holds.remove(&what);
            }
            self.messages.remove(&at);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Arc<OwnedFd> {
        Arc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap())
    }

    #[test]
    fn a_side_that_does_not_read_gets_everything_later_and_in_order() {
        let (ours, theirs) = crate::os::seqpacket::socket_pair().unwrap();
        let mut outbox = Outbox::default();
        for number in 0..2000 {
            outbox.hold(FdKey::Segment(Id(number)), descriptor());
            outbox.flush(&ours).unwrap();
        }
        assert!(!outbox.is_empty(), "the socket is full");
        let mut next = 0;
        while next < 2000 {
            outbox.flush(&ours).unwrap();
            match receive(&theirs, RecvFlags::DONTWAIT).unwrap() {
                FdMessage::Hold(what, _) => assert_eq!(what, FdKey::Segment(Id(next))),
                other => panic!("{other:?}"),
            }
            next += 1;
        }
        assert!(outbox.is_empty());
    }

    #[test]
    fn what_comes_and_goes_before_it_is_read_is_never_sent() {
        let (ours, theirs) = crate::os::seqpacket::socket_pair().unwrap();
        let mut outbox = Outbox::default();
        outbox.drop(FdKey::Host(Id(3)));
        for number in 0..1000 {
            outbox.hold(FdKey::Segment(Id(number)), descriptor());
            outbox.drop(FdKey::Segment(Id(number)));
        }
        outbox.hold(FdKey::Scrubber, descriptor());
        outbox.hold(FdKey::Scrubber, descriptor());
        assert_eq!(outbox.messages.len(), 2);
        outbox.flush(&ours).unwrap();
        assert!(matches!(receive(&theirs, RecvFlags::DONTWAIT), Ok(FdMessage::Drop(FdKey::Host(Id(3))))));
        assert!(matches!(receive(&theirs, RecvFlags::DONTWAIT), Ok(FdMessage::Hold(FdKey::Scrubber, _))));
        assert!(matches!(receive(&theirs, RecvFlags::DONTWAIT), Err(ReceiveError::WouldBlock)));
    }

    #[test]
    fn a_closed_peer_is_an_error() {
        let (ours, theirs) = crate::os::seqpacket::socket_pair().unwrap();
        drop(theirs);
        let mut outbox = Outbox::default();
        outbox.complete();
        assert_eq!(outbox.flush(&ours), Err(Errno::PIPE));
    }
}
