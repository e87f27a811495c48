//! A connection to the broker: what is asked over the ring and over the socket, and what comes unasked. Knows no device.

mod ending;
mod greeting;
mod many;
mod worker;

pub use ending::Lost;
use std::fmt;

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use freehold::ForkGuard;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::place;
use crate::ring::{Doorstep, Spin, Used};
use crate::shared::Shared;
use crate::socket::{self, NotReceived};
use crate::state::CLOCK_WORDS;
use crate::wire::{Access, Framed, Id, Point, Refusal, Reply, Request, is_unasked};

/// How long a tenant sleeps before it looks whether the broker is still there.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// How many refusals are kept for who asks later.
const REFUSED_MAX: usize = 64;

/// How long it looks for a reply before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// For ever: the quickest, and a processor of its own.
    Spin,
    /// For so long.
    For(Duration),
}

/// Why a tenant did not get what it asked for.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("no broker is running at {}: start one with `freehold serve --memory 8GiB`", .path.display())]
    NoBroker { path: PathBuf },
    #[error(transparent)]
    TooLong(#[from] place::TooLong),
    #[error("the broker at {} is another user's, or this user may not use it", .path.display())]
    NotAllowed { path: PathBuf },
    #[error("the broker has hung up: it was stopped, or both of its processes were killed")]
    Gone,
    #[error("the broker does not answer: its processes, which `pgrep -af freehold` lists, are stopped or hang")]
    Silent,
    #[error("what the broker said is no message: update the program or the broker")]
    Malformed,
    #[error("{refusal}{}", nearest(.told))]
    Refused { refusal: Refusal, told: String },
    #[error(
        "this process is a fork of the one that connected to the broker: start another program instead of a fork, or connect anew"
    )]
    ForkedChild,
    #[error("the system refused: {0}")]
    System(Errno),
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn nearest(told: &str) -> String {
    if told.is_empty() { String::new() } else { format!("; nearest: {}", told.replace('\n', ", ")) }
}

impl LinkError {
    pub(super) fn from_system(error: std::io::Error) -> Self {
        Self::System(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<Refusal> for LinkError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { refusal, told: String::new() }
    }
}

impl From<Errno> for LinkError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::PIPE | Errno::CONNRESET => Self::Gone,
            error => Self::System(error),
        }
    }
}

impl From<NotReceived> for LinkError {
    fn from(error: NotReceived) -> Self {
        match error {
            NotReceived::Closed => Self::Gone,
            NotReceived::Nothing => Self::Silent,
            NotReceived::Malformed => Self::Malformed,
            NotReceived::Failed(error) => Self::System(error),
        }
    }
}

/// A lease as the broker granted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub lease: Id,
    pub segment: Id,
    pub offset: u64,
    pub bytes: u64,
    pub access: Access,
    /// What has to pass before it is used.
    pub point: Point,
}

impl TryFrom<Reply> for Granted {
    type Error = LinkError;

    fn try_from(reply: Reply) -> Result<Self, LinkError> {
        match reply {
            Reply::Granted { lease, segment, offset, bytes, point, access } => {
                Ok(Self { lease, segment, offset, bytes, access, point })
            }
            Reply::Refused(refusal) => Err(refusal.into()),
            _ => Err(LinkError::Malformed),
        }
    }
}

/// A lease that another tenant gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub granted: Granted,
    /// Who gave it.
    pub from: Id,
}

/// What came over the socket: a reply, its text, its descriptors.
#[derive(Debug)]
pub struct Answer {
    pub reply: Reply,
    pub text: String,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Ids are the broker's, which nobody chooses: little has to be mixed.
#[derive(Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A connection. One request is on its way at a time over the socket, and as many as the ring holds over that.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    ring: Used,
    bell: OwnedFd,
    clock: Shared,
    tenant: Id,
    device: u128,
    number: u32,
    pub patience: Patience,
    spin: Spin,
    /// A child of this process has the same ring and socket, which are not its own.
    family: ForkGuard,
    given: VecDeque<Given>,
    /// Leases that were given and handed out, until they are over: a broker that took over may tell of them again.
    taken: HashSet<Id, BuildHasherDefault<Mixed>>,
    /// Of those, what may be half written: its giver ended before its work did.
    unfinished: HashSet<Id, BuildHasherDefault<Mixed>>,
    /// Those that were returned, with the number of the request, which is not answered yet.
    ended: VecDeque<(u32, Id)>,
    leave: VecDeque<Id>,
    /// Borrowed leases that are to be returned.
    recalled: VecDeque<Id>,
    /// Modules that were dropped and are to be unloaded.
    dropped: VecDeque<Id>,
    /// The last refusals of what nobody waited for.
    refused: VecDeque<Refusal>,
    /// Replies that are on their way and nobody waits for.
    unanswered: u32,
    /// Whether the broker was told of the end.
    is_over: bool,
}

impl Link {
    /// The UUID of the broker's device, or zero where it is not known.
    pub fn device(&self) -> u128 {
        self.device
    }

    /// Who this is at the broker.
    pub fn tenant(&self) -> Id {
        self.tenant
    }

    /// The descriptor of this tenant's clock, and how many words it has.
    pub(super) fn clock(&self) -> (impl AsFd + '_, usize) {
        (self.clock.file(), CLOCK_WORDS as usize)
    }

    /// Memory of its own.
    pub fn reserve(&mut self, bytes: u64) -> Result<Granted, LinkError> {
        self.granted(Request::Reserve { bytes })
    }

    /// A lease of what has a name.
    pub fn lease(&mut self, name: Id, access: Access) -> Result<Granted, LinkError> {
        self.granted(Request::Lease { name, access })
    }

    fn granted(&mut self, request: Request) -> Result<Granted, LinkError> {
        self.ask(request)?.try_into()
    }

    /// Makes a lease another tenant's, ready when the point has passed.
    pub fn give(&mut self, lease: Id, to: Id, point: Point) -> Result<(), LinkError> {
        match self.ask(Request::Give { lease, to, point })? {
            Reply::Done => {
                self.taken.remove(&lease);
                self.unfinished.remove(&lease);
                Ok(())
            }
            _ => Err(LinkError::Malformed),
        }
    }

    /// Ends a lease when the point has passed. Nothing is waited for.
    pub fn give_back(&mut self, lease: Id, point: Point) -> Result<(), LinkError> {
        let number = self.put(Request::Return { lease, point })?;
        if !self.taken.is_empty() && self.taken.remove(&lease) {
            self.unfinished.remove(&lease);
            self.ended.push_back((number, lease));
        }
        self.posted();
        Ok(())
    }

    /// Says that a segment is mapped no more. Nothing is waited for.
    pub fn detach(&mut self, segment: Id) -> Result<(), LinkError> {
        self.put(Request::Detach { segment })?;
        self.posted();
        Ok(())
    }

    /// The next lease that somebody gave, if one came.
    pub fn given(&mut self) -> Option<Given> {
        self.drain();
        let given = self.given.pop_front()?;
        self.taken.insert(given.granted.lease);
        Some(given)
    }

    /// Whether the process that gave a lease ended before its work with it did: what is in it may be half written. Told before
    /// anything that waits for that work goes on.
    pub fn is_unfinished(&mut self, lease: Id) -> bool {
        self.drain();
        self.unfinished.contains(&lease)
    }

    /// Waits for a lease that somebody gives.
    pub fn wait_given(&mut self) -> Result<Given, LinkError> {
        let mut given = None;
        self.wait(|link| {
            given = link.given();
            given.is_some()
        })?;
        Ok(given.expect("it was waited for"))
    }

    /// What others wait at that do not have the connection, and how.
    pub(super) fn doorstep(&self) -> Result<(Doorstep, Spin), LinkError> {
        Ok((self.ring.doorstep()?, self.spin))
    }

    /// The next segment that nobody has anything in any more: it is to be unmapped, and then detached.
    pub fn to_leave(&mut self) -> Option<Id> {
        self.drain();
        self.leave.pop_front()
    }

    /// What was refused of requests that nobody waited for.
    pub fn take_refused(&mut self) -> Vec<Refusal> {
        self.drain();
        std::mem::take(&mut self.refused).into()
    }

    /// Notes a request over the ring that nobody waits for.
    fn posted(&mut self) {
        self.unanswered += 1;
        self.drain();
    }

    /// Asks over the ring, and waits for the reply.
    fn ask(&mut self, request: Request) -> Result<Reply, LinkError> {
        let number = self.put(request)?;
        match self.reply_to(number)? {
            Reply::Refused(refusal) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }

    /// Waits for the reply to a request.
    #[inline]
    fn reply_to(&mut self, number: u32) -> Result<Reply, LinkError> {
        let mut reply = None;
        self.wait(|link| {
            reply = link.drain_until(number);
            reply.is_some()
        })?;
        Ok(reply.expect("it was waited for"))
    }

    /// Puts a request into the ring, when there is room: its number.
    fn put(&mut self, request: Request) -> Result<u32, LinkError> {
        self.check()?;
        let framed = Framed { number: 0, is_again: false, message: request };
        let (slot, _) = framed.encode();
        let fill = |number: u32| {
            let mut slot = slot;
            slot[0] = slot[0] & 0xffff_ffff | u64::from(number) << 32;
            slot
        };
        loop {
            if let Some((number, is_to_wake)) = self.ring.request(fill) {
                if is_to_wake {
                    self.wake()?;
                }
                return Ok(number);
            }
            let before = self.unanswered;
            self.wait(|link| {
                link.drain();
                link.unanswered < before
            })?;
        }
    }

    #[cold]
    fn wake(&self) -> Result<(), LinkError> {
        match rustix::io::write(&self.bell, &1u64.to_ne_bytes()) {
            // The bell has counted as far as it can: it rings.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether this is the process that connected.
    #[inline]
    fn check(&self) -> Result<(), LinkError> {
        if self.family.is_child() { Err(LinkError::ForkedChild) } else { Ok(()) }
    }

    /// Takes what came and nobody waits for.
    fn drain(&mut self) {
        // What comes is the parent's.
        if self.family.is_child() {
            return;
        }
        while let Some(slot) = self.ring.reply() {
            self.sort(&slot);
        }
    }

    /// Takes what came, up to the reply to a request.
    #[inline]
    fn drain_until(&mut self, number: u32) -> Option<Reply> {
        while let Some(slot) = self.ring.reply() {
            if (slot[0] >> 32) as u32 == number
                && !is_unasked(slot[0])
                && let Ok(framed) = Framed::<Reply>::decode(&slot)
            {
                return Some(framed.message);
            }
            self.sort(&slot);
        }
        None
    }

    fn sort(&mut self, slot: &crate::ring::Slot) {
        let Ok(framed) = Framed::<Reply>::decode(slot) else { return };
        match framed.message {
            Reply::Given { lease, segment, offset, bytes, point, from } => {
                let granted = Granted { lease, segment, offset, bytes, access: Access::Write, point };
                // A broker that took over may tell it again.
                let is_known = self.given.iter().any(|given| given.granted.lease == lease)
                    || self.taken.contains(&lease)
                    || self.ended.iter().any(|&(_, ended)| ended == lease);
                if !is_known {
                    self.given.push_back(Given { granted, from });
                }
            }
            Reply::Unfinished { lease } => {
                // Of one that was returned meanwhile nobody wants to know.
                if self.taken.contains(&lease) || self.given.iter().any(|given| given.granted.lease == lease) {
                    self.unfinished.insert(lease);
                }
            }
            Reply::Leave { segment } => self.leave.push_back(segment),
            Reply::Recall { lease } => self.recalled.push_back(lease),
            Reply::Unload { module } => self.dropped.push_back(module),
            reply => self.answered(framed.number, reply),
        }
    }

    /// A reply that nobody waits for.
    fn answered(&mut self, number: u32, reply: Reply) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if self.ended.front().is_some_and(|&(asked, _)| asked == number) {
            self.ended.pop_front();
        }
        if let Reply::Refused(refusal) = reply {
            if self.refused.len() == REFUSED_MAX {
                self.refused.pop_front();
            }
            self.refused.push_back(refusal);
        }
    }

    /// Waits until something is so.
    #[inline]
    fn wait(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) -> Result<(), LinkError> {
        self.check()?;
        let mut since = None;
        let mut turns = 0u32;
        loop {
            if is_so(self) {
                return Ok(());
            }
            if self.patience != Patience::For(Duration::ZERO) {
                self.spin.moment();
                turns = turns.wrapping_add(1);
                if !turns.is_multiple_of(self.spin.moments()) {
                    continue;
                }
            }
            let began = *since.get_or_insert_with(Instant::now);
            let has_patience = match self.patience {
                Patience::Spin => true,
                Patience::For(longest) => began.elapsed() < longest,
            };
            if has_patience {
                // A broker that is gone for good never answers.
                if turns.is_multiple_of(1 << 20) {
                    self.look()?;
                }
                continue;
            }
            self.ring.sleep(LOOK);
            if began.elapsed() > LOOK {
                self.look()?;
            }
        }
    }

    /// Whether the broker is still there, or another one comes.
    #[cold]
    pub(super) fn look(&self) -> Result<(), LinkError> {
        let mut ready = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        match poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Err(LinkError::Gone),
            Err(error) => return Err(error.into()),
        }
        // Whoever serves now may not have heard the bell.
        self.wake()
    }

    /// Asks over the socket, and waits for the answer. A broker that takes over is asked again.
    pub fn call(&mut self, request: Request) -> Result<Answer, LinkError> {
        self.call_with(request, &[])
    }

    /// As [`call`](Self::call), with a descriptor beside it, or none.
    pub(super) fn call_with(&mut self, request: Request, beside: &[BorrowedFd<'_>]) -> Result<Answer, LinkError> {
        self.check()?;
        self.number = self.number.wrapping_add(1);
        let mut framed = Framed { number: self.number, is_again: false, message: request };
        self.send(&framed, beside)?;
        loop {
            let received = socket::receive(&self.socket, RecvFlags::empty())?;
            let reply = Framed::<Reply>::decode(&received.slot).map_err(|_| LinkError::Malformed)?;
            match reply.message {
                Reply::Resumed => {
                    framed.is_again = true;
                    self.send(&framed, beside)?;
                }
                // Of a broker that answered before it was gone.
                _ if reply.number != framed.number => {}
                Reply::Refused(refusal) => {
                    let told = String::from_utf8_lossy(&received.tail).into_owned();
                    return Err(LinkError::Refused { refusal, told });
                }
                reply => {
                    let text = String::from_utf8(received.tail).map_err(|_| LinkError::Malformed)?;
                    return Ok(Answer { reply, text, descriptors: received.descriptors });
                }
            }
        }
    }

    fn send(&self, framed: &Framed<Request>, beside: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        let (slot, tail) = framed.encode();
        loop {
            match socket::send(&self.socket, &slot, tail.as_bytes(), beside) {
                // Brokers that come and go do not read for a moment.
                Err(Errno::AGAIN) => {
                    let mut ready = [PollFd::new(&self.socket, PollFlags::OUT)];
                    match poll(&mut ready, None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                outcome => return Ok(outcome?),
            }
        }
    }

    /// The descriptor of a segment in which this tenant has a lease, and its bytes.
    ///
    /// # Safety
    /// Leases of others lie in the segment too. What imports the descriptor uses no more than what this tenant has leased there, as the
    /// lease's access permits and until the lease is returned, and has unmapped it when the segment is detached.
    pub unsafe fn attach(&mut self, segment: Id) -> Result<(OwnedFd, u64), LinkError> {
        self.file(Request::Attach { segment })
    }

    /// A descriptor, and its bytes.
    ///
    /// # Safety
    /// Of a segment, as for [`attach`](Self::attach). A clock's words are not written: they say which work has passed.
    pub unsafe fn descriptor(&mut self, request: Request) -> Result<(OwnedFd, u64), LinkError> {
        self.file(request)
    }

    pub(super) fn file(&mut self, request: Request) -> Result<(OwnedFd, u64), LinkError> {
        let mut answer = self.call(request)?;
        match (answer.reply, answer.descriptors.pop()) {
            (Reply::Descriptor { bytes }, Some(descriptor)) => Ok((descriptor, bytes)),
            _ => Err(LinkError::Malformed),
        }
    }

    /// Gives up everything, and hangs up. Whoever attached segments has unmapped them.
    pub fn close(mut self) -> Result<(), LinkError> {
        let outcome = self.call(Request::Bye).map(drop);
        self.is_over = true;
        outcome
    }
}

impl Drop for Link {
    /// As [`close`](Self::close), without a word from the broker.
    fn drop(&mut self) {
        // A child hangs nothing up: the connection is its parent's.
        if !self.is_over && !self.family.is_child() {
            let (slot, _) = Framed { number: u32::MAX, is_again: false, message: Request::Bye }.encode();
            // Where nobody hears it, the broker hears that the connection ends.
            let _ = socket::send(&self.socket, &slot, &[], &[]);
        }
    }
}

#[cfg(test)]
mod tests;
