//! Descriptors between keeper and broker: each with what it is of. The same messages go both ways, so that whichever of the two
//! is left gives everything to the other's successor.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

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
    /// The process of the cleaner.
    Cleaner,
    /// Where a worker is told whom it serves.
    Post(Id),
    /// The bell of a worker, for those that it serves.
    Gong(Id),
    /// The ring of calls of a tenant.
    Calls(Id),
    Module(Id),
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
            Self::Cleaner => [11, 0],
            Self::Post(id) => [12, id.0],
            Self::Gong(id) => [13, id.0],
            Self::Calls(id) => [14, id.0],
            Self::Module(id) => [15, id.0],
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
            11 => Self::Cleaner,
            12 => Self::Post(id),
            13 => Self::Gong(id),
            14 => Self::Calls(id),
            15 => Self::Module(id),
            _ => return None,
        })
    }
}

/// Descriptors by what they are of.
pub(crate) type Held = BTreeMap<Kept, Arc<OwnedFd>>;

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

fn send_now(socket: impl AsFd, words: &[u64], descriptor: Option<&Arc<OwnedFd>>) -> Result<(), Errno> {
    let mut slot = Slot::default();
    slot[..words.len()].copy_from_slice(words);
    let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
    socket::send(socket, &slot, &[], &descriptors)
}

/// Sends, and waits until there is room: for the keeper, which has nothing else to do.
fn send(socket: impl AsFd, words: &[u64], descriptor: Option<&Arc<OwnedFd>>) -> Result<(), Errno> {
    loop {
        match send_now(&socket, words, descriptor) {
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

fn hold(socket: impl AsFd, what: Kept, descriptor: &Arc<OwnedFd>) -> Result<(), Errno> {
    let [kind, id] = what.words();
    send(socket, &[HOLD, kind, id], Some(descriptor))
}

pub(crate) fn stop(socket: impl AsFd) -> Result<(), Errno> {
    send(socket, &[STOP], None)
}

/// Everything, and the word that it was that.
pub(crate) fn hold_all(socket: impl AsFd, all: &Held) -> Result<(), Errno> {
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

/// Letters of the broker's that its keeper has not taken. The broker never waits for it: a keeper that is stopped gets them when
/// it goes on.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// In the order in which they go.
    letters: BTreeMap<u64, (Vec<u64>, Option<Arc<OwnedFd>>)>,
    /// Where the letter is that gives a descriptor.
    holds: BTreeMap<Kept, u64>,
    order: u64,
}

impl Outbox {
    fn put(&mut self, words: Vec<u64>, descriptor: Option<Arc<OwnedFd>>) -> u64 {
        self.order += 1;
        self.letters.insert(self.order, (words, descriptor));
        self.order
    }

    pub(crate) fn hold(&mut self, what: Kept, descriptor: Arc<OwnedFd>) {
        let [kind, id] = what.words();
        let at = self.put(vec![HOLD, kind, id], Some(descriptor));
        if let Some(before) = self.holds.insert(what, at) {
            self.letters.remove(&before);
        }
    }

    /// What was not sent need not be taken back: so there are never more letters than descriptors on the two sides.
    pub(crate) fn drop(&mut self, what: Kept) {
        match self.holds.remove(&what) {
            Some(at) => drop(self.letters.remove(&at)),
            None => {
                let [kind, id] = what.words();
                self.put(vec![DROP, kind, id], None);
            }
        }
    }

    /// That was everything, or: the broker serves.
    pub(crate) fn all(&mut self) {
        self.put(vec![ALL], None);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Sends what is taken now.
    ///
    /// # Errors
    /// [`Errno::PIPE`] where nobody reads any more.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> Result<(), Errno> {
        while let Some((&at, (words, descriptor))) = self.letters.first_key_value() {
            match send_now(&socket, words, descriptor.as_ref()) {
                Ok(()) => {}
                // There is no room, or too many descriptors are on their way.
                Err(Errno::AGAIN | Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => return Ok(()),
                Err(Errno::CONNRESET) => return Err(Errno::PIPE),
                Err(error) => return Err(error),
            }
            let kept = Kept::of([words.get(1).copied().unwrap_or(0), words.get(2).copied().unwrap_or(0)]);
            if let Some(what) = kept.filter(|what| self.holds.get(what) == Some(&at)) {
                self.holds.remove(&what);
            }
            self.letters.remove(&at);
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
        let (ours, theirs) = crate::part::pair().unwrap();
        let mut outbox = Outbox::default();
        for number in 0..2000 {
            outbox.hold(Kept::Segment(Id(number)), descriptor());
            outbox.flush(&ours).unwrap();
        }
        assert!(!outbox.is_empty(), "a socket has room for fewer");
        let mut next = 0;
        while next < 2000 {
            outbox.flush(&ours).unwrap();
            match receive(&theirs, RecvFlags::DONTWAIT).unwrap() {
                Letter::Hold(what, _) => assert_eq!(what, Kept::Segment(Id(next))),
                other => panic!("{other:?}"),
            }
            next += 1;
        }
        assert!(outbox.is_empty());
    }

    #[test]
    fn what_comes_and_goes_while_nobody_reads_is_never_sent() {
        let (ours, theirs) = crate::part::pair().unwrap();
        let mut outbox = Outbox::default();
        outbox.drop(Kept::Host(Id(3)));
        for number in 0..1000 {
            outbox.hold(Kept::Segment(Id(number)), descriptor());
            outbox.drop(Kept::Segment(Id(number)));
        }
        outbox.hold(Kept::Cleaner, descriptor());
        outbox.hold(Kept::Cleaner, descriptor());
        assert_eq!(outbox.letters.len(), 2);
        outbox.flush(&ours).unwrap();
        assert!(matches!(receive(&theirs, RecvFlags::DONTWAIT), Ok(Letter::Drop(Kept::Host(Id(3))))));
        assert!(matches!(receive(&theirs, RecvFlags::DONTWAIT), Ok(Letter::Hold(Kept::Cleaner, _))));
        assert!(matches!(receive(&theirs, RecvFlags::DONTWAIT), Err(NotReceived::Nothing)));
    }

    #[test]
    fn nobody_to_read_is_told() {
        let (ours, theirs) = crate::part::pair().unwrap();
        drop(theirs);
        let mut outbox = Outbox::default();
        outbox.all();
        assert_eq!(outbox.flush(&ours), Err(Errno::PIPE));
    }
}
