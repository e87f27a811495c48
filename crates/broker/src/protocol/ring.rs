//! A tenant's ring: requests in one direction and replies in the other, in memory that tenant and broker share. While
//! both sides spin there is no system call.
//!
//! Each slot has a phase bit that flips with every lap of the ring and says whether the slot is filled. So a spinning
//! side polls one cache line, and the message arrives with it. The counts are only used for sleeping, for the free
//! room, and for recovery.
//!
//! The broker trusts nothing that it reads here: an impossible count is an error, and a slot is copied before it is
//! decoded. A tenant can only corrupt its own ring.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;

use crate::os::seqpacket::{SLOT_WORDS, Slot};
use crate::os::shared_memory::SharedMemory;
use crate::os::time::timespec;

const SLOT_BYTES: usize = 64;

/// Messages that a ring holds in each direction.
pub(crate) const SLOTS: u32 = 256;

/// The phase bit in the first word of a slot.
const PHASE: u64 = 1 << 17;

/// While the cached room is at least this, it is not read again from shared memory.
const ROOM_CACHED_MIN: u32 = 192;

/// Each count has a cache line of its own. The comment names the side that writes it.
mod at {
    /// Broker: requests taken.
    pub(super) const TAKEN: usize = 128;
    /// Broker: nonzero if it must be woken.
    pub(super) const BROKER_ASLEEP: usize = 256;
    /// Broker: replies pushed. The tenant sleeps on this word.
    pub(super) const REPLIED: usize = 384;
    /// Tenant: replies taken.
    pub(super) const READ: usize = 512;
    /// Tenant: nonzero if it must be woken, one bit for each [`Sleeper`](super::Sleeper).
    pub(super) const TENANT_ASLEEP: usize = 640;
    /// Worker: increases while it is alive. Only the broker and the worker share a worker's ring.
    pub(super) const HEARTBEAT: usize = 768;
    pub(super) const REQUESTS: usize = 4096;
    pub(super) const REPLIES: usize = REQUESTS + super::SLOTS as usize * super::SLOT_BYTES;
}

pub(crate) const RING_BYTES: usize = at::REPLIES + SLOTS as usize * SLOT_BYTES;

/// A count of the tenant is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CorruptRing;

fn slot_offset(base: usize, count: u32) -> usize {
    base + (count % SLOTS) as usize * SLOT_BYTES
}

/// The phase bit of the message with this count. It is 0 in memory that was never written.
fn phase(count: u32) -> u64 {
    if (count / SLOTS).is_multiple_of(2) { PHASE } else { 0 }
}

/// Reads the message of a count, if it is there.
#[inline]
fn read_slot(shared: &SharedMemory, base: usize, count: u32) -> Option<Slot> {
    let offset = slot_offset(base, count);
    let first = shared.u64_at(offset).load(Ordering::Acquire);
    if first & PHASE != phase(count) {
        return None;
    }
    let mut slot = [first & !PHASE; SLOT_WORDS];
    for (at, word) in slot.iter_mut().enumerate().skip(1) {
        *word = shared.u64_at(offset + 8 * at).load(Ordering::Relaxed);
    }
    Some(slot)
}

/// Writes the message of a count. Its first word is written last and carries the phase bit.
#[inline]
fn write_slot(shared: &SharedMemory, base: usize, count: u32, slot: &Slot) {
    let offset = slot_offset(base, count);
    for (at, &word) in slot.iter().enumerate().skip(1) {
        shared.u64_at(offset + 8 * at).store(word, Ordering::Relaxed);
    }
    shared.u64_at(offset).store(slot[0] & !PHASE | phase(count), Ordering::Release);
}

/// The broker's side of a ring.
#[derive(Debug)]
pub(crate) struct BrokerRing {
    shared: SharedMemory,
    /// Replies that the tenant had taken when this side last checked.
    read: Cell<u32>,
    /// Whether replies were pushed since the last [`wake_if_asleep`](Self::wake_if_asleep).
    needs_wake: Cell<bool>,
}

impl BrokerRing {
    /// For a ring that has not been used yet.
    pub(crate) fn new(shared: SharedMemory) -> Self {
        Self { shared, read: Cell::new(0), needs_wake: Cell::new(false) }
    }

    /// For a ring that another broker served, which may have been killed between a reply and its count.
    pub(crate) fn resume(shared: SharedMemory) -> Self {
        let served = Self { needs_wake: Cell::new(true), ..Self::new(shared) };
        let replied = served.count(at::REPLIED).load(Ordering::Relaxed);
        if read_slot(&served.shared, at::REPLIES, replied).is_some() {
            served.count(at::REPLIED).store(replied.wrapping_add(1), Ordering::Relaxed);
        }
        served.read.set(served.count(at::READ).load(Ordering::Acquire));
        served
    }

    fn count(&self, at: usize) -> &AtomicU32 {
        self.shared.u32_at(at)
    }

    /// Returns the oldest request and its number, without taking it.
    #[inline]
    pub(crate) fn peek(&self) -> Option<(u32, Slot)> {
        let taken = self.count(at::TAKEN).load(Ordering::Relaxed);
        read_slot(&self.shared, at::REQUESTS, taken).map(|slot| (taken, slot))
    }

    /// Takes the oldest request, after its reply was pushed: otherwise the next broker would serve it again.
    #[inline]
    pub(crate) fn pop(&self) {
        let taken = self.count(at::TAKEN).load(Ordering::Relaxed);
        self.count(at::TAKEN).store(taken.wrapping_add(1), Ordering::Release);
    }

    /// How many replies fit: exact below [`ROOM_CACHED_MIN`], a lower bound above.
    #[inline]
    pub(crate) fn room(&self) -> Result<u32, CorruptRing> {
        let replied = self.count(at::REPLIED).load(Ordering::Relaxed);
        let room = SLOTS.checked_sub(replied.wrapping_sub(self.read.get())).ok_or(CorruptRing)?;
        if room >= ROOM_CACHED_MIN {
            return Ok(room);
        }
        self.read.set(self.count(at::READ).load(Ordering::Acquire));
        SLOTS.checked_sub(replied.wrapping_sub(self.read.get())).ok_or(CorruptRing)
    }

    /// The last reply that was pushed, if any.
    pub(crate) fn last_reply(&self) -> Option<Slot> {
        let replied = self.count(at::REPLIED).load(Ordering::Relaxed);
        if replied == 0 { None } else { read_slot(&self.shared, at::REPLIES, replied.wrapping_sub(1)) }
    }

    /// Pushes a reply; there must be [room](Self::room). A sleeping tenant is woken by
    /// [`wake_if_asleep`](Self::wake_if_asleep).
    #[inline]
    pub(crate) fn push_reply(&self, slot: &Slot) {
        let replied = self.count(at::REPLIED).load(Ordering::Relaxed);
        write_slot(&self.shared, at::REPLIES, replied, slot);
        self.count(at::REPLIED).store(replied.wrapping_add(1), Ordering::Release);
        self.needs_wake.set(true);
    }

    /// Wakes the tenant if it sleeps and replies were pushed. Called once for several replies: the fence waits until
    /// all of them are written.
    #[inline]
    pub(crate) fn wake_if_asleep(&self) {
        if !self.needs_wake.take() {
            return;
        }
        // The tenant sets its asleep bit, then checks the ring once more.
        fence(Ordering::SeqCst);
        if self.count(at::TENANT_ASLEEP).load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // If this fails, no thread sleeps.
        let _ = futex::wake(self.count(at::REPLIED), futex::Flags::empty(), i32::MAX.cast_unsigned());
    }

    /// How often a worker has recorded a heartbeat.
    pub(crate) fn heartbeats(&self) -> u32 {
        self.count(at::HEARTBEAT).load(Ordering::Relaxed)
    }

    /// Sets whether the broker must be woken. Returns whether a request is there.
    pub(crate) fn set_asleep(&self, is_asleep: bool) -> bool {
        self.count(at::BROKER_ASLEEP).store(u32::from(is_asleep), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.peek().is_some()
    }
}

/// The tenant's side of a ring.
#[derive(Debug)]
pub(crate) struct TenantRing {
    shared: SharedMemory,
    /// Requests pushed.
    requested: Cell<u32>,
    /// Requests that the broker had taken when this side last checked.
    taken: Cell<u32>,
}

impl TenantRing {
    pub(crate) fn new(shared: SharedMemory) -> Self {
        Self { shared, requested: Cell::new(0), taken: Cell::new(0) }
    }

    fn count(&self, at: usize) -> &AtomicU32 {
        self.shared.u32_at(at)
    }

    /// Pushes a request. Returns its number and whether the broker must be woken, or `None` if the ring is full.
    #[inline]
    pub(crate) fn push_request(&self, fill: impl FnOnce(u32) -> Slot) -> Option<(u32, bool)> {
        let requested = self.requested.get();
        if requested.wrapping_sub(self.taken.get()) >= SLOTS {
            self.taken.set(self.count(at::TAKEN).load(Ordering::Acquire));
            if requested.wrapping_sub(self.taken.get()) >= SLOTS {
                return None;
            }
        }
        write_slot(&self.shared, at::REQUESTS, requested, &fill(requested));
        self.requested.set(requested.wrapping_add(1));
        // The broker sets its asleep word, then checks the ring once more.
        fence(Ordering::SeqCst);
        Some((requested, self.count(at::BROKER_ASLEEP).load(Ordering::Relaxed) != 0))
    }

    /// Takes the oldest reply.
    #[inline]
    pub(crate) fn pop_reply(&self) -> Option<Slot> {
        let read = self.count(at::READ).load(Ordering::Relaxed);
        let slot = read_slot(&self.shared, at::REPLIES, read)?;
        self.count(at::READ).store(read.wrapping_add(1), Ordering::Release);
        Some(slot)
    }

    /// Sleeps until there is a reply, at most `longest`.
    #[cold]
    pub(crate) fn sleep(&self, longest: Duration) {
        let read = self.count(at::READ).load(Ordering::Relaxed);
        let is_there = || read_slot(&self.shared, at::REPLIES, read).is_some();
        sleep(&self.shared, Sleeper::Holder, read, is_there, longest);
    }

    /// A handle with which other threads of this process wait for replies without the connection.
    pub(crate) fn waiter(&self) -> Result<Waiter, Errno> {
        Ok(Waiter { shared: SharedMemory::open(self.shared.shared_fd(), RING_BYTES)? })
    }
}

/// The threads of a tenant that sleep on its ring. Each is one thread at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    /// Holds the connection and waits for a reply.
    Holder = 1,
    /// Waits for leases that other tenants give.
    Receiver = 2,
    /// Unmaps segments when the broker asks for it.
    Unmapper = 4,
}

/// The reply count of a ring, for threads that take no replies.
#[derive(Debug)]
pub(crate) struct Waiter {
    shared: SharedMemory,
}

impl Waiter {
    /// The number of replies so far, for [`sleep`](Self::sleep).
    #[inline]
    pub(crate) fn replied(&self) -> u32 {
        self.shared.u32_at(at::REPLIED).load(Ordering::Acquire)
    }

    /// Records that a worker is alive.
    pub(crate) fn record_heartbeat(&self) {
        self.shared.u32_at(at::HEARTBEAT).fetch_add(1, Ordering::Relaxed);
    }

    /// Sleeps until there are more replies than were [seen](Self::replied), at most `longest`.
    #[cold]
    pub(crate) fn sleep(&self, sleeper: Sleeper, seen: u32, longest: Duration) {
        sleep(&self.shared, sleeper, seen, || self.replied() != seen, longest);
    }
}

fn sleep(shared: &SharedMemory, sleeper: Sleeper, seen: u32, is_there: impl FnOnce() -> bool, longest: Duration) {
    let asleep = shared.u32_at(at::TENANT_ASLEEP);
    asleep.fetch_or(sleeper as u32, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    if !is_there() {
        let longest = timespec(longest);
        match futex::wait(shared.u32_at(at::REPLIED), futex::Flags::empty(), seen, Some(&longest)) {
            // Woken, a reply was there already, or timed out: the caller checks again in each case.
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            Err(error) => panic!("futex wait on a word of the ring failed: {error}"),
        }
    }
    asleep.fetch_and(!(sleeper as u32), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (BrokerRing, TenantRing) {
        let served = SharedMemory::create("ring", RING_BYTES).unwrap();
        let used = SharedMemory::open(served.shared_fd(), RING_BYTES).unwrap();
        (BrokerRing::new(served), TenantRing::new(used))
    }

    #[test]
    fn requests_come_in_their_order_with_their_numbers() {
        let (served, used) = ring();
        for number in 0..3 {
            assert_eq!(used.push_request(|number| [u64::from(number); 8]), Some((number, false)));
        }
        for number in 0..3 {
            assert_eq!(served.peek(), Some((number, [u64::from(number); 8])));
            served.pop();
        }
        assert_eq!(served.peek(), None);
    }

    #[test]
    fn a_full_ring_takes_no_request_until_one_is_taken() {
        let (served, used) = ring();
        for _ in 0..SLOTS {
            assert!(used.push_request(|_| [0; 8]).is_some());
        }
        assert_eq!(used.push_request(|_| [0; 8]), None);
        served.pop();
        assert_eq!(used.push_request(|_| [0; 8]), Some((SLOTS, false)));
    }

    #[test]
    fn a_request_that_is_not_taken_is_there_again() {
        let (served, used) = ring();
        used.push_request(|_| [5; 8]);
        assert_eq!(served.peek(), served.peek());
    }

    #[test]
    fn an_impossible_count_is_a_corrupt_ring() {
        let (served, used) = ring();
        for _ in 0..SLOTS - ROOM_CACHED_MIN + 1 {
            served.push_reply(&[0; 8]);
        }
        used.count(at::READ).store(SLOTS, Ordering::Relaxed);
        assert_eq!(served.room(), Err(CorruptRing));
    }

    #[test]
    fn a_waiter_sees_replies_that_another_thread_popped() {
        let (served, used) = ring();
        let waiter = used.waiter().unwrap();
        let seen = waiter.replied();
        served.push_reply(&[9; 8]);
        assert_eq!(used.pop_reply(), Some([9; 8]));
        waiter.sleep(Sleeper::Receiver, seen, Duration::from_secs(600));
        assert_eq!(waiter.replied(), seen + 1);
    }

    #[test]
    fn a_ring_goes_round_without_end() {
        let (served, used) = ring();
        for turn in 0..5 * SLOTS {
            assert_eq!(used.push_request(|number| [u64::from(number) << 32 | 3; 8]), Some((turn, false)));
            assert_eq!(served.peek(), Some((turn, [u64::from(turn) << 32 | 3; 8])));
            served.pop();
            assert_eq!(served.peek(), None);
            assert!(served.room().unwrap() > 0);
            served.push_reply(&[u64::from(turn) << 32 | 104; 8]);
            assert_eq!(used.pop_reply(), Some([u64::from(turn) << 32 | 104; 8]));
            assert_eq!(used.pop_reply(), None);
        }
        assert!(served.room().unwrap() >= ROOM_CACHED_MIN);
    }

    #[test]
    fn a_full_ring_of_replies_has_no_room_until_one_is_read() {
        let (served, used) = ring();
        assert_eq!(served.last_reply(), None);
        for left in (0..SLOTS).rev() {
            served.push_reply(&[7; 8]);
            assert_eq!(served.room(), Ok(left));
        }
        assert_eq!(used.pop_reply(), Some([7; 8]));
        assert_eq!(served.room(), Ok(1));
    }

    #[test]
    fn a_reply_that_was_not_counted_is_counted_by_the_next_broker() {
        let (served, used) = ring();
        served.push_reply(&[7; 8]);
        write_slot(&served.shared, at::REPLIES, 1, &[8; 8]);
        assert_eq!((used.pop_reply(), used.pop_reply()), (Some([7; 8]), Some([8; 8])));
        let next = BrokerRing::resume(SharedMemory::open(served.shared.shared_fd(), RING_BYTES).unwrap());
        assert_eq!((next.room(), next.last_reply()), (Ok(SLOTS), Some([8; 8])));
        next.push_reply(&[9; 8]);
        assert_eq!(used.pop_reply(), Some([9; 8]));
    }

    #[test]
    fn a_sleeping_broker_must_be_woken() {
        let (served, used) = ring();
        assert!(!served.set_asleep(true));
        assert_eq!(used.push_request(|_| [0; 8]), Some((0, true)));
        assert!(served.set_asleep(false), "the request is seen before the sleep");
    }

    #[test]
    fn a_sleeping_tenant_is_woken_by_a_reply() {
        let (served, used) = ring();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(move || {
                loop {
                    if let Some(slot) = used.pop_reply() {
                        return slot;
                    }
                    used.sleep(Duration::from_secs(60));
                }
            });
            served.push_reply(&[9; 8]);
            served.wake_if_asleep();
            assert_eq!(sleeper.join().unwrap(), [9; 8]);
        });
    }
}
