//! A connection to the broker: what is asked over the ring and over the socket, and what comes unasked. Knows no device.

mod batch;
mod handshake;
mod stop;
mod worker;

use std::fmt;
pub use stop::StopReport;

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

use crate::ring::{SpinWait, TenantRing, Waiter};
use crate::seqpacket::{self, ReceiveError};
use crate::shared_memory::SharedMemory;
use crate::socket_path;
use crate::state::SEMAPHORES;
use crate::wire::{Access, Fence, Frame, Id, Reply, Request, RequestError, is_notification};

/// How long a tenant sleeps before it looks whether the broker is still there.
pub(super) const LIVENESS_INTERVAL: Duration = Duration::from_millis(100);

/// How many refusals are kept for who asks later.
const ERRORS_MAX: usize = 64;

/// How long it looks for a reply before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinPolicy {
    /// For ever: the quickest, and a processor of its own.
    Forever,
    /// For so long.
    For(Duration),
}

/// Why a tenant did not get what it asked for.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("no broker is running at {}: start one with `freehold serve --memory 8GiB`", .path.display())]
    NoBroker { path: PathBuf },
    #[error(transparent)]
    PathTooLong(#[from] socket_path::PathTooLong),
    #[error("the broker at {} is another user's, or this user may not use it", .path.display())]
    NotAllowed { path: PathBuf },
    #[error("the broker has hung up: it was stopped, or both of its processes were killed")]
    Closed,
    #[error("the broker does not answer: its processes, which `pgrep -af freehold` lists, are stopped or hang")]
    TimedOut,
    #[error("what the broker said is no message: update the program or the broker")]
    Malformed,
    #[error("{error}{}", nearest(.detail))]
    Request { error: RequestError, detail: String },
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

fn nearest(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!("; nearest: {}", detail.replace('\n', ", ")) }
}

impl LinkError {
    pub(super) fn from_system(error: std::io::Error) -> Self {
        Self::System(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<RequestError> for LinkError {
    fn from(error: RequestError) -> Self {
        Self::Request { error, detail: String::new() }
    }
}

impl From<Errno> for LinkError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            error => Self::System(error),
        }
    }
}

impl From<ReceiveError> for LinkError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Closed => Self::Closed,
            ReceiveError::WouldBlock => Self::TimedOut,
            ReceiveError::Malformed => Self::Malformed,
            ReceiveError::System(error) => Self::System(error),
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
    pub fence: Fence,
}

impl TryFrom<Reply> for Granted {
    type Error = LinkError;

    fn try_from(reply: Reply) -> Result<Self, LinkError> {
        match reply {
            Reply::Granted { lease, segment, offset, bytes, fence, access } => {
                Ok(Self { lease, segment, offset, bytes, access, fence })
            }
            Reply::Error(error) => Err(error.into()),
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
struct IdHasher(u64);

impl Hasher for IdHasher {
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
    ring: TenantRing,
    doorbell: OwnedFd,
    semaphores: SharedMemory,
    tenant: Id,
    device: u128,
    number: u32,
    pub spin_policy: SpinPolicy,
    spin: SpinWait,
    /// A child of this process has the same ring and socket, which are not its own.
    fork_guard: ForkGuard,
    given: VecDeque<Given>,
    /// Leases that were given and handed out, until they are over: a broker that took over may tell of them again.
    received: HashSet<Id, BuildHasherDefault<IdHasher>>,
    /// Of those, what may be half written: its giver ended before its work did.
    unfinished: HashSet<Id, BuildHasherDefault<IdHasher>>,
    /// Those that were returned, with the number of the request, which is not answered yet.
    returned: VecDeque<(u32, Id)>,
    unmaps: VecDeque<Id>,
    /// Borrowed leases that are to be returned.
    recalled: VecDeque<Id>,
    /// Modules that were dropped and are to be unloaded.
    dropped_modules: VecDeque<Id>,
    /// The last refusals of what nobody waited for.
    errors: VecDeque<RequestError>,
    /// Replies that are on their way and nobody waits for.
    unanswered: u32,
    /// Whether the broker was told of the end.
    is_closed: bool,
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

    /// The descriptor of this tenant's semaphores, and how many words it has.
    pub(super) fn semaphores(&self) -> (impl AsFd + '_, usize) {
        (self.semaphores.file(), SEMAPHORES as usize)
    }

    /// Memory of its own.
    pub fn reserve(&mut self, bytes: u64) -> Result<Granted, LinkError> {
        self.request_lease(Request::Reserve { bytes })
    }

    /// A lease of what has a name.
    pub fn lease(&mut self, name: Id, access: Access) -> Result<Granted, LinkError> {
        self.request_lease(Request::Lease { name, access })
    }

    fn request_lease(&mut self, request: Request) -> Result<Granted, LinkError> {
        self.request(request)?.try_into()
    }

    /// Makes a lease another tenant's, ready when the fence has passed.
    pub fn give(&mut self, lease: Id, to: Id, fence: Fence) -> Result<(), LinkError> {
        match self.request(Request::Give { lease, to, fence })? {
            Reply::Done => {
                self.received.remove(&lease);
                self.unfinished.remove(&lease);
                Ok(())
            }
            _ => Err(LinkError::Malformed),
        }
    }

    /// Ends a lease when the fence has passed. Nothing is waited for.
    pub fn return_lease(&mut self, lease: Id, fence: Fence) -> Result<(), LinkError> {
        let number = self.push_request(Request::Return { lease, fence })?;
        if !self.received.is_empty() && self.received.remove(&lease) {
            self.unfinished.remove(&lease);
            self.returned.push_back((number, lease));
        }
        self.note_posted();
        Ok(())
    }

    /// Says that a segment is mapped no more. Nothing is waited for.
    pub fn detach(&mut self, segment: Id) -> Result<(), LinkError> {
        self.push_request(Request::Detach { segment })?;
        self.note_posted();
        Ok(())
    }

    /// The next lease that somebody gave, if one came.
    pub fn next_given(&mut self) -> Option<Given> {
        self.drain();
        let given = self.given.pop_front()?;
        self.received.insert(given.granted.lease);
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
            given = link.next_given();
            given.is_some()
        })?;
        Ok(given.expect("it was waited for"))
    }

    /// What others wait at that do not have the connection, and how.
    pub(super) fn waiter(&self) -> Result<(Waiter, SpinWait), LinkError> {
        Ok((self.ring.waiter()?, self.spin))
    }

    /// The next segment that nobody has anything in any more: it is to be unmapped, and then detached.
    pub fn next_unmap(&mut self) -> Option<Id> {
        self.drain();
        self.unmaps.pop_front()
    }

    /// What was refused of requests that nobody waited for.
    pub fn take_errors(&mut self) -> Vec<RequestError> {
        self.drain();
        std::mem::take(&mut self.errors).into()
    }

    /// Notes a request over the ring that nobody waits for.
    fn note_posted(&mut self) {
        self.unanswered += 1;
        self.drain();
    }

    /// Asks over the ring, and waits for the reply.
    fn request(&mut self, request: Request) -> Result<Reply, LinkError> {
        let number = self.push_request(request)?;
        match self.reply_to(number)? {
            Reply::Error(error) => Err(error.into()),
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
    fn push_request(&mut self, request: Request) -> Result<u32, LinkError> {
        self.check_fork()?;
        let framed = Frame { number: 0, is_retry: false, message: request };
        let (slot, _) = framed.encode();
        let fill = |number: u32| {
            let mut slot = slot;
            slot[0] = slot[0] & 0xffff_ffff | u64::from(number) << 32;
            slot
        };
        loop {
            if let Some((number, is_to_wake)) = self.ring.push_request(fill) {
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
        match rustix::io::write(&self.doorbell, &1u64.to_ne_bytes()) {
            // The doorbell has counted as far as it can: it rings.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether this is the process that connected.
    #[inline]
    fn check_fork(&self) -> Result<(), LinkError> {
        if self.fork_guard.is_child() { Err(LinkError::ForkedChild) } else { Ok(()) }
    }

    /// Takes what came and nobody waits for.
    fn drain(&mut self) {
        // What comes is the parent's.
        if self.fork_guard.is_child() {
            return;
        }
        while let Some(slot) = self.ring.pop_reply() {
            self.dispatch(&slot);
        }
    }

    /// Takes what came, up to the reply to a request.
    #[inline]
    fn drain_until(&mut self, number: u32) -> Option<Reply> {
        while let Some(slot) = self.ring.pop_reply() {
            if (slot[0] >> 32) as u32 == number
                && !is_notification(slot[0])
                && let Ok(framed) = Frame::<Reply>::decode(&slot)
            {
                return Some(framed.message);
            }
            self.dispatch(&slot);
        }
        None
    }

    fn dispatch(&mut self, slot: &crate::ring::Slot) {
        let Ok(framed) = Frame::<Reply>::decode(slot) else { return };
        match framed.message {
            Reply::Given { lease, segment, offset, bytes, fence, from } => {
                let granted = Granted { lease, segment, offset, bytes, access: Access::Write, fence };
                // A broker that took over may tell it again.
                let is_known = self.given.iter().any(|given| given.granted.lease == lease)
                    || self.received.contains(&lease)
                    || self.returned.iter().any(|&(_, ended)| ended == lease);
                if !is_known {
                    self.given.push_back(Given { granted, from });
                }
            }
            Reply::Unfinished { lease } => {
                // Of one that was returned meanwhile nobody wants to know.
                if self.received.contains(&lease) || self.given.iter().any(|given| given.granted.lease == lease) {
                    self.unfinished.insert(lease);
                }
            }
            Reply::Unmap { segment } => self.unmaps.push_back(segment),
            Reply::Recall { lease } => self.recalled.push_back(lease),
            Reply::Unload { module } => self.dropped_modules.push_back(module),
            reply => self.note_reply(framed.number, reply),
        }
    }

    /// A reply that nobody waits for.
    fn note_reply(&mut self, number: u32, reply: Reply) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if self.returned.front().is_some_and(|&(asked, _)| asked == number) {
            self.returned.pop_front();
        }
        if let Reply::Error(error) = reply {
            if self.errors.len() == ERRORS_MAX {
                self.errors.pop_front();
            }
            self.errors.push_back(error);
        }
    }

    /// Waits until something is so.
    #[inline]
    fn wait(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) -> Result<(), LinkError> {
        self.check_fork()?;
        let mut since = None;
        let mut turns = 0u32;
        loop {
            if is_so(self) {
                return Ok(());
            }
            if self.spin_policy != SpinPolicy::For(Duration::ZERO) {
                self.spin.spin_once();
                turns = turns.wrapping_add(1);
                if !turns.is_multiple_of(self.spin.spins_max()) {
                    continue;
                }
            }
            let began = *since.get_or_insert_with(Instant::now);
            let may_spin = match self.spin_policy {
                SpinPolicy::Forever => true,
                SpinPolicy::For(longest) => began.elapsed() < longest,
            };
            if may_spin {
                // A broker that is gone for good never answers.
                if turns.is_multiple_of(1 << 20) {
                    self.check_alive()?;
                }
                continue;
            }
            self.ring.sleep(LIVENESS_INTERVAL);
            if began.elapsed() > LIVENESS_INTERVAL {
                self.check_alive()?;
            }
        }
    }

    /// Whether the broker is still there, or another one comes.
    #[cold]
    pub(super) fn check_alive(&self) -> Result<(), LinkError> {
        let mut ready = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        match poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Err(LinkError::Closed),
            Err(error) => return Err(error.into()),
        }
        // Whoever serves now may not have heard the doorbell.
        self.wake()
    }

    /// Asks over the socket, and waits for the answer. A broker that takes over is asked again.
    pub fn call(&mut self, request: Request) -> Result<Answer, LinkError> {
        self.call_with(request, &[])
    }

    /// As [`call`](Self::call), with a descriptor beside it, or none.
    pub(super) fn call_with(&mut self, request: Request, beside: &[BorrowedFd<'_>]) -> Result<Answer, LinkError> {
        self.check_fork()?;
        self.number = self.number.wrapping_add(1);
        let mut framed = Frame { number: self.number, is_retry: false, message: request };
        self.send(&framed, beside)?;
        loop {
            let received = seqpacket::receive(&self.socket, RecvFlags::empty())?;
            let reply = Frame::<Reply>::decode(&received.slot).map_err(|_| LinkError::Malformed)?;
            match reply.message {
                Reply::Resumed => {
                    framed.is_retry = true;
                    self.send(&framed, beside)?;
                }
                // Of a broker that answered before it was gone.
                _ if reply.number != framed.number => {}
                Reply::Error(error) => {
                    let detail = String::from_utf8_lossy(&received.tail).into_owned();
                    return Err(LinkError::Request { error, detail });
                }
                reply => {
                    let text = String::from_utf8(received.tail).map_err(|_| LinkError::Malformed)?;
                    return Ok(Answer { reply, text, descriptors: received.descriptors });
                }
            }
        }
    }

    fn send(&self, framed: &Frame<Request>, beside: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        let (slot, tail) = framed.encode();
        loop {
            match seqpacket::send(&self.socket, &slot, tail.as_bytes(), beside) {
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
    /// Of a segment, as for [`attach`](Self::attach). A semaphores's words are not written: they say which work has passed.
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
        self.is_closed = true;
        outcome
    }
}

impl Drop for Link {
    /// As [`close`](Self::close), without a word from the broker.
    fn drop(&mut self) {
        // A child hangs nothing up: the connection is its parent's.
        if !self.is_closed && !self.fork_guard.is_child() {
            let (slot, _) = Frame { number: u32::MAX, is_retry: false, message: Request::Bye }.encode();
            // Where nobody hears it, the broker hears that the connection ends.
            let _ = seqpacket::send(&self.socket, &slot, &[], &[]);
        }
    }
}

#[cfg(test)]
mod tests;
