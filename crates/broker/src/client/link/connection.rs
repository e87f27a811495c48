//! A connection to the broker: requests over the ring and the socket, and notifications. Knows no device.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use freehold::ForkGuard;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::error::LinkError;
use crate::os::eventfd;
use crate::os::seqpacket;
use crate::os::shared_memory::SharedMemory;
use crate::os::time::timespec;
use crate::protocol::message::{Frame, Reply, Request, is_notification};
use crate::protocol::request_error::RequestError;
use crate::protocol::ring::{TenantRing, Waiter};
use crate::protocol::spin::SpinWait;
use crate::protocol::types::{Access, Fence, Id, SEMAPHORES};

/// How long a tenant sleeps before it checks whether the broker is alive.
pub(in crate::client) const LIVENESS_INTERVAL: Duration = Duration::from_millis(100);

/// Errors that are kept for a later [`Link::take_errors`].
const ERRORS_MAX: usize = 64;

/// How long to poll for a reply before sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinPolicy {
    /// Forever: lowest latency, at the cost of a processor.
    Forever,
    /// For this long.
    For(Duration),
}

/// A lease as the broker granted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The lease.
    pub lease: Id,
    /// The segment that it lies in.
    pub segment: Id,
    /// Where it begins there, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// What its holder may do.
    pub access: Access,
    /// The fence that must be complete before it is used.
    pub fence: Fence,
    /// Which version of its name it is. 0 if it is of no name, or of new memory that was not published yet, or of an
    /// older version that the broker does not number any more.
    pub version: u64,
}

impl TryFrom<Reply> for Granted {
    type Error = LinkError;

    fn try_from(reply: Reply) -> Result<Self, LinkError> {
        match reply {
            Reply::Granted { lease, segment, offset, bytes, fence, access, version } => {
                Ok(Self { lease, segment, offset, bytes, access, fence, version })
            }
            Reply::Error(error) => Err(error.into()),
            _ => Err(LinkError::Malformed),
        }
    }
}

/// A lease that another tenant gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The lease.
    pub granted: Granted,
    /// The tenant that gave it.
    pub from: Id,
}

/// An answer over the socket: a reply, its text and its descriptors.
#[derive(Debug)]
pub struct Answer {
    /// The reply.
    pub reply: Reply,
    /// Its text; empty for most.
    pub text: String,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// The broker chooses the ids, so no attacker can make them collide, and little mixing is enough.
#[derive(Debug, Default)]
pub(super) struct IdHasher(u64);

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

/// A connection. Over the socket one request is in flight at a time, over the ring as many as it holds.
#[derive(Debug)]
pub struct Link {
    pub(super) socket: OwnedFd,
    pub(super) ring: TenantRing,
    pub(super) doorbell: OwnedFd,
    pub(super) semaphores: SharedMemory,
    pub(super) tenant: Id,
    pub(super) device: u128,
    pub(super) number: u32,
    /// How long it polls the ring for a reply before it sleeps.
    pub spin_policy: SpinPolicy,
    pub(super) spin: SpinWait,
    /// A forked child inherits the ring and the socket, and must not use them.
    pub(super) fork_guard: ForkGuard,
    pub(super) given: VecDeque<Given>,
    /// Given leases that were handed out, until they end: a broker that took over may announce them again.
    pub(super) received: HashSet<Id, BuildHasherDefault<IdHasher>>,
    /// Those of them that may be incomplete: the giver ended before its work did.
    pub(super) unfinished: HashSet<Id, BuildHasherDefault<IdHasher>>,
    /// Leases that were returned, with the number of the request that has no reply yet.
    pub(super) returned: VecDeque<(u32, Id)>,
    pub(super) unmaps: VecDeque<Id>,
    /// Borrowed leases that must be returned.
    pub(super) recalled: VecDeque<Id>,
    /// Dropped modules that must be unloaded.
    pub(super) dropped_modules: VecDeque<Id>,
    /// The last errors of requests whose replies no call waited for.
    pub(super) errors: VecDeque<RequestError>,
    /// Outstanding replies that no call waits for.
    pub(super) unanswered: u32,
    /// Whether the broker was told that the connection ends.
    pub(super) is_closed: bool,
}

impl Link {
    /// Returns the UUID of the broker's device, or 0 if it is not known.
    pub fn device(&self) -> u128 {
        self.device
    }

    /// Returns the id of this tenant.
    pub fn tenant(&self) -> Id {
        self.tenant
    }

    /// The descriptor of this tenant's semaphores, and their number.
    pub(in crate::client) fn semaphores(&self) -> (impl AsFd + '_, usize) {
        (self.semaphores.file(), SEMAPHORES as usize)
    }

    /// Leases new memory.
    pub fn reserve(&mut self, bytes: u64) -> Result<Granted, LinkError> {
        self.request_lease(Request::Reserve { bytes })
    }

    /// Leases a name.
    pub fn lease(&mut self, name: Id, access: Access) -> Result<Granted, LinkError> {
        self.request_lease(Request::Lease { name, access, bytes: 0 })
    }

    /// Leases the new version of a name for writing, with this length. Under a policy that writes in place, it is the
    /// current version, with the length that it has.
    pub fn lease_next(&mut self, name: Id, bytes: u64) -> Result<Granted, LinkError> {
        self.request_lease(Request::Lease { name, access: Access::Write, bytes })
    }

    pub(super) fn request_lease(&mut self, request: Request) -> Result<Granted, LinkError> {
        self.request(request)?.try_into()
    }

    /// Gives a lease to another tenant, ready when the fence is complete.
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

    /// Ends a lease when the fence is complete. Does not wait.
    pub fn return_lease(&mut self, lease: Id, fence: Fence) -> Result<(), LinkError> {
        let number = self.push_request(Request::Return { lease, fence })?;
        if !self.received.is_empty() && self.received.remove(&lease) {
            self.unfinished.remove(&lease);
            self.returned.push_back((number, lease));
        }
        self.note_posted();
        Ok(())
    }

    /// Reports that a segment is unmapped. Does not wait.
    pub fn detach(&mut self, segment: Id) -> Result<(), LinkError> {
        self.push_request(Request::Detach { segment })?;
        self.note_posted();
        Ok(())
    }

    /// Returns the next lease that another tenant gave, if there is one.
    pub fn next_given(&mut self) -> Option<Given> {
        self.drain();
        let given = self.given.pop_front()?;
        self.received.insert(given.granted.lease);
        Some(given)
    }

    /// Whether the giver of a lease ended before its work with it did, so that the contents may be incomplete. The
    /// notification precedes everything that waits for that work.
    pub fn is_unfinished(&mut self, lease: Id) -> bool {
        self.drain();
        self.unfinished.contains(&lease)
    }

    /// Waits for a lease that another tenant gives.
    pub fn wait_given(&mut self) -> Result<Given, LinkError> {
        let mut given = None;
        self.wait(|link| {
            given = link.next_given();
            given.is_some()
        })?;
        Ok(given.expect("it was waited for"))
    }

    /// Returns a handle with which threads wait without holding the connection.
    pub(in crate::client) fn waiter(&self) -> Result<(Waiter, SpinWait), LinkError> {
        Ok((self.ring.waiter()?, self.spin))
    }

    /// Returns the next segment that must be unmapped and then detached.
    pub fn next_unmap(&mut self) -> Option<Id> {
        self.drain();
        self.unmaps.pop_front()
    }

    /// Takes the errors of requests whose replies no call waited for.
    pub fn take_errors(&mut self) -> Vec<RequestError> {
        self.drain();
        std::mem::take(&mut self.errors).into()
    }

    /// Counts a request over the ring whose reply no call waits for.
    fn note_posted(&mut self) {
        self.unanswered += 1;
        self.drain();
    }

    /// Sends a request over the ring, and waits for the reply.
    fn request(&mut self, request: Request) -> Result<Reply, LinkError> {
        let number = self.push_request(request)?;
        match self.reply_to(number)? {
            Reply::Error(error) => Err(error.into()),
            reply => Ok(reply),
        }
    }

    /// Waits for the reply to a request.
    #[inline]
    pub(super) fn reply_to(&mut self, number: u32) -> Result<Reply, LinkError> {
        let mut reply = None;
        self.wait(|link| {
            reply = link.drain_until(number);
            reply.is_some()
        })?;
        Ok(reply.expect("it was waited for"))
    }

    /// Puts a request into the ring, when there is room. Returns its number.
    pub(super) fn push_request(&mut self, request: Request) -> Result<u32, LinkError> {
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
        match eventfd::notify(&self.doorbell) {
            // The counter is full, so the doorbell rings already.
            Ok(()) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails if this process is a fork of the one that connected.
    #[inline]
    fn check_fork(&self) -> Result<(), LinkError> {
        if self.fork_guard.is_child() { Err(LinkError::ForkedChild) } else { Ok(()) }
    }

    /// Takes messages that no call waits for.
    pub(super) fn drain(&mut self) {
        // They belong to the parent process.
        if self.fork_guard.is_child() {
            return;
        }
        while let Some(slot) = self.ring.pop_reply() {
            self.dispatch(&slot);
        }
    }

    /// Takes messages, up to the reply to a request.
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

    fn dispatch(&mut self, slot: &crate::os::seqpacket::Slot) {
        let Ok(framed) = Frame::<Reply>::decode(slot) else { return };
        match framed.message {
            Reply::Given { lease, segment, offset, bytes, fence, from } => {
                let granted = Granted { lease, segment, offset, bytes, access: Access::Write, fence, version: 0 };
                // A broker that took over may announce it again.
                let is_known = self.given.iter().any(|given| given.granted.lease == lease)
                    || self.received.contains(&lease)
                    || self.returned.iter().any(|&(_, ended)| ended == lease);
                if !is_known {
                    self.given.push_back(Given { granted, from });
                }
            }
            Reply::Unfinished { lease } => {
                // A lease that was returned by then is ignored.
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

    /// Handles a reply that no call waits for.
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

    /// Waits until a condition holds.
    #[inline]
    pub(super) fn wait(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) -> Result<(), LinkError> {
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

    /// Checks whether the broker is alive or another one is taking over.
    #[cold]
    pub(in crate::client) fn check_alive(&self) -> Result<(), LinkError> {
        let mut ready = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        match poll(&mut ready, Some(&timespec(Duration::ZERO))) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Err(LinkError::Closed),
            Err(error) => return Err(error.into()),
        }
        // A new broker may have missed the doorbell.
        self.wake()
    }

    /// Sends a request over the socket, and waits for the answer. It is repeated to a broker that takes over.
    pub fn call(&mut self, request: Request) -> Result<Answer, LinkError> {
        self.call_with(request, &[])
    }

    /// Like [`call`](Self::call), with descriptors.
    pub(in crate::client) fn call_with(
        &mut self,
        request: Request,
        beside: &[BorrowedFd<'_>],
    ) -> Result<Answer, LinkError> {
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
                // The answer of a broker that has died since, to an earlier request.
                _ if reply.number != framed.number => {}
                Reply::Error(error) => {
                    let detail = String::from_utf8_lossy(&received.tail).into_owned();
                    let name = framed.message.name().map_or_else(String::new, |name| name.as_str().to_owned());
                    return Err(LinkError::Request { error, name, detail });
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
                // Brokers that restart do not read for a moment.
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

    /// Returns the descriptor of a segment in which this tenant has a lease, and its size in bytes.
    ///
    /// # Safety
    /// The segment also contains leases of other tenants. Code that imports the descriptor uses only the memory that
    /// this tenant has leased there, as the access of the lease permits and until the lease is returned, and unmaps the
    /// segment before it is detached.
    pub unsafe fn attach(&mut self, segment: Id) -> Result<(OwnedFd, u64), LinkError> {
        self.file(Request::Attach { segment })
    }

    /// Returns a descriptor and its size in bytes.
    ///
    /// # Safety
    /// For a segment, as for [`attach`](Self::attach). Semaphores are not written: they record which work is complete.
    pub unsafe fn descriptor(&mut self, request: Request) -> Result<(OwnedFd, u64), LinkError> {
        self.file(request)
    }

    pub(in crate::client) fn file(&mut self, request: Request) -> Result<(OwnedFd, u64), LinkError> {
        let mut answer = self.call(request)?;
        match (answer.reply, answer.descriptors.pop()) {
            (Reply::Descriptor { bytes }, Some(descriptor)) => Ok((descriptor, bytes)),
            _ => Err(LinkError::Malformed),
        }
    }

    /// Returns everything and closes the connection. Attached segments must be unmapped first.
    pub fn close(mut self) -> Result<(), LinkError> {
        let outcome = self.call(Request::Bye).map(drop);
        self.is_closed = true;
        outcome
    }
}

impl Drop for Link {
    /// Like [`close`](Self::close), without waiting for the broker.
    fn drop(&mut self) {
        // The connection belongs to the parent process.
        if !self.is_closed && !self.fork_guard.is_child() {
            let (slot, _) = Frame { number: u32::MAX, is_retry: false, message: Request::Bye }.encode();
            // If this fails, the broker sees the connection end.
            let _ = seqpacket::send(&self.socket, &slot, &[], &[]);
        }
    }
}

#[cfg(test)]
mod tests;
