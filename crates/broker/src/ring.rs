//! A tenant's ring: requests one way and replies the other, in memory that tenant and broker share. While both sides spin
//! there is no system call.
//!
//! The broker believes nothing that it reads here: a count that cannot be is an error, and a slot is copied out before it is
//! looked at. What the tenant spoils is its own ring.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;

use crate::shared::Shared;

/// Waits a moment for another process, without the system where there are processors enough: giver, broker and taker spin, and
/// something has to be left for their work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    is_crowded: bool,
}

/// On fewer processors, who spins lets others run.
const PROCESSORS_MIN: usize = 4;

impl Spin {
    pub(crate) fn new() -> Self {
        Self { is_crowded: std::thread::available_parallelism().map_or(1, usize::from) < PROCESSORS_MIN }
    }

    #[inline]
    pub(crate) fn moment(self) {
        if self.is_crowded { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// One message.
pub(crate) type Slot = [u64; SLOT_WORDS];

pub(crate) const SLOT_WORDS: usize = 8;
const SLOT_BYTES: usize = 64;

/// How many messages a ring holds each way.
pub(crate) const SLOTS: u32 = 256;

/// Each count has a line of the cache to itself. The side that writes it is named.
mod at {
    /// The tenant's: how many requests were put in.
    pub(super) const REQUESTED: usize = 0;
    /// The broker's: how many requests were taken out.
    pub(super) const TAKEN: usize = 128;
    /// The broker's: not zero where it has to be woken.
    pub(super) const BROKER_ASLEEP: usize = 256;
    /// The broker's: how many replies were put in. The tenant sleeps here.
    pub(super) const REPLIED: usize = 384;
    /// The tenant's: how many replies were taken out.
    pub(super) const READ: usize = 512;
    /// The tenant's: not zero where it has to be woken, a bit for each [`Sleeper`](super::Sleeper).
    pub(super) const TENANT_ASLEEP: usize = 640;
    pub(super) const REQUESTS: usize = 4096;
    pub(super) const REPLIES: usize = REQUESTS + super::SLOTS as usize * super::SLOT_BYTES;
}

pub(crate) const RING_BYTES: usize = at::REPLIES + SLOTS as usize * SLOT_BYTES;

/// The tenant counts what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonsense;

fn slot_at(shared: &Shared, base: usize, count: u32) -> impl Iterator<Item = &std::sync::atomic::AtomicU64> {
    let offset = base + (count % SLOTS) as usize * SLOT_BYTES;
    (0..SLOT_WORDS).map(move |word| shared.word(offset + 8 * word))
}

fn read_slot(shared: &Shared, base: usize, count: u32) -> Slot {
    let mut slot = [0; SLOT_WORDS];
    slot.iter_mut().zip(slot_at(shared, base, count)).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
    slot
}

fn write_slot(shared: &Shared, base: usize, count: u32, slot: &Slot) {
    slot_at(shared, base, count).zip(slot).for_each(|(to, &from)| to.store(from, Ordering::Relaxed));
}

/// The broker's side.
#[derive(Debug)]
pub(crate) struct Served {
    shared: Shared,
}

impl Served {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared }
    }

    fn count(&self, at: usize) -> &AtomicU32 {
        self.shared.half(at)
    }

    /// The number of the oldest request that was not taken, and the request.
    #[inline]
    pub(crate) fn peek(&self) -> Result<Option<(u32, Slot)>, Nonsense> {
        let taken = self.count(at::TAKEN).load(Ordering::Relaxed);
        let requested = self.count(at::REQUESTED).load(Ordering::Acquire);
        match requested.wrapping_sub(taken) {
            0 => Ok(None),
            1..=SLOTS => Ok(Some((taken, read_slot(&self.shared, at::REQUESTS, taken)))),
            _ => Err(Nonsense),
        }
    }

    /// Takes the oldest request out. After its reply was put in: whoever serves the ring next begins with it otherwise.
    #[inline]
    pub(crate) fn take(&self) {
        let taken = self.count(at::TAKEN).load(Ordering::Relaxed);
        self.count(at::TAKEN).store(taken.wrapping_add(1), Ordering::Release);
    }

    /// How many replies can be put in.
    #[inline]
    pub(crate) fn room(&self) -> Result<u32, Nonsense> {
        let replied = self.count(at::REPLIED).load(Ordering::Relaxed);
        let read = self.count(at::READ).load(Ordering::Acquire);
        SLOTS.checked_sub(replied.wrapping_sub(read)).ok_or(Nonsense)
    }

    /// The reply that was put in last, if there was ever one.
    pub(crate) fn last_reply(&self) -> Option<Slot> {
        let replied = self.count(at::REPLIED).load(Ordering::Relaxed);
        (replied != 0).then(|| read_slot(&self.shared, at::REPLIES, replied.wrapping_sub(1)))
    }

    /// Puts a reply in, and wakes the tenant if it sleeps. There is [room](Self::room).
    #[inline]
    pub(crate) fn reply(&self, slot: &Slot) {
        let replied = self.count(at::REPLIED).load(Ordering::Relaxed);
        write_slot(&self.shared, at::REPLIES, replied, slot);
        self.count(at::REPLIED).store(replied.wrapping_add(1), Ordering::Release);
        // The tenant says that it sleeps, and then looks once more.
        fence(Ordering::SeqCst);
        if self.count(at::TENANT_ASLEEP).load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // Nobody sleeps any more where this fails.
        let _ = futex::wake(self.count(at::REPLIED), futex::Flags::empty(), i32::MAX.cast_unsigned());
    }

    /// Says whether the broker has to be woken. Whether there is a request meanwhile.
    pub(crate) fn set_asleep(&self, is_asleep: bool) -> bool {
        self.count(at::BROKER_ASLEEP).store(u32::from(is_asleep), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !matches!(self.peek(), Ok(None))
    }
}

/// The tenant's side.
#[derive(Debug)]
pub(crate) struct Used {
    shared: Shared,
}

impl Used {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared }
    }

    fn count(&self, at: usize) -> &AtomicU32 {
        self.shared.half(at)
    }

    /// Puts a request in: its number, and whether the broker has to be woken. Nothing where the ring is full.
    #[inline]
    pub(crate) fn request(&self, fill: impl FnOnce(u32) -> Slot) -> Option<(u32, bool)> {
        let requested = self.count(at::REQUESTED).load(Ordering::Relaxed);
        if requested.wrapping_sub(self.count(at::TAKEN).load(Ordering::Acquire)) >= SLOTS {
            return None;
        }
        write_slot(&self.shared, at::REQUESTS, requested, &fill(requested));
        self.count(at::REQUESTED).store(requested.wrapping_add(1), Ordering::Release);
        // The broker says that it sleeps, and then looks once more.
        fence(Ordering::SeqCst);
        Some((requested, self.count(at::BROKER_ASLEEP).load(Ordering::Relaxed) != 0))
    }

    /// Takes the oldest reply out.
    #[inline]
    pub(crate) fn reply(&self) -> Option<Slot> {
        let read = self.count(at::READ).load(Ordering::Relaxed);
        if self.count(at::REPLIED).load(Ordering::Acquire) == read {
            return None;
        }
        let slot = read_slot(&self.shared, at::REPLIES, read);
        self.count(at::READ).store(read.wrapping_add(1), Ordering::Release);
        Some(slot)
    }

    /// How many replies there were, for [`sleep`](Self::sleep).
    #[inline]
    pub(crate) fn replied(&self) -> u32 {
        self.count(at::REPLIED).load(Ordering::Acquire)
    }

    /// Sleeps until there are more replies than were [seen](Self::replied), or for so long at the most.
    #[cold]
    pub(crate) fn sleep(&self, sleeper: Sleeper, seen: u32, longest: Duration) {
        let asleep = self.count(at::TENANT_ASLEEP);
        asleep.fetch_or(sleeper as u32, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.replied() == seen {
            let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
            match futex::wait(self.count(at::REPLIED), futex::Flags::empty(), seen, Some(&longest)) {
                // Woken, or there was a reply already, or it lasted: the caller looks again in each case.
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                Err(error) => panic!("a word of the ring can be slept at: {error}"),
            }
        }
        asleep.fetch_and(!(sleeper as u32), Ordering::Relaxed);
    }
}

/// Who of a tenant sleeps at its ring. Each is one thread at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    /// Who has the connection, and waits for a reply.
    Holder = 1,
    /// Who waits for what is given, without the connection.
    Receiver = 2,
    /// Who sees to segments that are to be left.
    Leaver = 4,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (Served, Used) {
        let served = Shared::create("ring", RING_BYTES).unwrap();
        let used = Shared::open(served.another_file().unwrap(), RING_BYTES).unwrap();
        (Served::new(served), Used::new(used))
    }

    #[test]
    fn requests_come_in_their_order_with_their_numbers() {
        let (served, used) = ring();
        for number in 0..3 {
            assert_eq!(used.request(|number| [u64::from(number); 8]), Some((number, false)));
        }
        for number in 0..3 {
            assert_eq!(served.peek(), Ok(Some((number, [u64::from(number); 8]))));
            served.take();
        }
        assert_eq!(served.peek(), Ok(None));
    }

    #[test]
    fn a_full_ring_takes_no_request_until_one_is_taken() {
        let (served, used) = ring();
        for _ in 0..SLOTS {
            assert!(used.request(|_| [0; 8]).is_some());
        }
        assert_eq!(used.request(|_| [0; 8]), None);
        served.take();
        assert_eq!(used.request(|_| [0; 8]), Some((SLOTS, false)));
    }

    #[test]
    fn a_request_that_is_not_taken_is_there_again() {
        let (served, used) = ring();
        used.request(|_| [5; 8]);
        assert_eq!(served.peek(), served.peek());
    }

    #[test]
    fn a_count_that_cannot_be_is_nonsense() {
        let (served, used) = ring();
        used.count(at::REQUESTED).store(SLOTS + 1, Ordering::Relaxed);
        assert_eq!(served.peek(), Err(Nonsense));
        used.count(at::READ).store(1, Ordering::Relaxed);
        assert_eq!(served.room(), Err(Nonsense));
    }

    #[test]
    fn a_sleeping_broker_is_to_be_woken() {
        let (served, used) = ring();
        assert!(!served.set_asleep(true));
        assert_eq!(used.request(|_| [0; 8]), Some((0, true)));
        assert!(served.set_asleep(false), "the request is seen before the sleep");
    }

    #[test]
    fn a_sleeping_tenant_is_woken_by_a_reply() {
        let (served, used) = ring();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                loop {
                    let seen = used.replied();
                    if let Some(slot) = used.reply() {
                        return slot;
                    }
                    used.sleep(Sleeper::Holder, seen, Duration::from_secs(60));
                }
            });
            served.reply(&[9; 8]);
            assert_eq!(sleeper.join().unwrap(), [9; 8]);
        });
    }
}
