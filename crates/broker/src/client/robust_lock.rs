//! A lock and a condition variable in shared memory, for processes that may be killed at any point. Knows no device,
//! and trusts nothing that it reads.
//!
//! A process that opens the memory takes a ticket, and a file lock on the one byte that belongs to that ticket. The
//! kernel releases the file lock when the process ends. The lock word holds the holder's ticket. Waiters poll whether
//! the byte of that ticket is still locked, and take over from a dead holder. Tickets are never reused, so a dead
//! ticket stays dead. A wait ends at its deadline even if other processes write garbage here.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::thread::futex;

use crate::os::time::timespec;

/// Bytes before the data.
pub(crate) const HEADER_BYTES: u64 = 4096;

/// Indexes of words in the header, each in a cache line of its own.
mod at {
    /// The ticket of the holder, or 0; and whether threads sleep on it.
    pub(super) const LOCK: usize = 0;
    /// The number of notifications. Waiters sleep on it.
    pub(super) const CONDITION: usize = 32;
    /// The last ticket that was handed out.
    pub(super) const TICKET: usize = 64;
}

const HAS_WAITERS: u32 = 1 << 31;
const TICKET_MASK: u32 = HAS_WAITERS - 1;

/// The offset of the byte of ticket 0, beyond all data.
const TICKET_BYTES_START: i64 = 1 << 40;

/// How many used tickets are skipped. No more can be in use unless the count was corrupted.
const TICKET_ATTEMPTS_MAX: u32 = 1 << 16;

/// How long a sleeper sleeps before it checks whether the holder is alive, and whether a wake-up was lost with its
/// sender.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(5);

/// The deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedOut;

/// The ticket of this process, valid as long as the process or this value lives.
#[derive(Debug)]
pub(crate) struct LockTicket {
    /// A file description of its own: the kernel's lock belongs to it, and descriptors that were passed on share
    /// theirs.
    file: OwnedFd,
    number: u32,
}

impl LockTicket {
    /// Takes a ticket of the memory with this header and descriptor.
    pub(crate) fn new(header: &[AtomicU32], descriptor: BorrowedFd<'_>) -> Result<Self, Errno> {
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        for _ in 0..TICKET_ATTEMPTS_MAX {
            let ticket = header[at::TICKET].fetch_add(1, Ordering::Relaxed).wrapping_add(1) & TICKET_MASK;
            if ticket == 0 {
                continue;
            }
            match lock_byte(&file, libc::F_OFD_SETLK, ticket) {
                Ok(_) => return Ok(Self { file, number: ticket }),
                Err(Errno::AGAIN | Errno::ACCESS) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::USERS)
    }

    /// Whether the process of a ticket is alive.
    fn is_alive(&self, ticket: u32) -> bool {
        // The kernel reports only locks of others. An error does not count as a death.
        let is_locked = |lock: libc::flock| i32::from(lock.l_type) != libc::F_UNLCK;
        ticket == self.number || lock_byte(&self.file, libc::F_OFD_GETLK, ticket).map_or(true, is_locked)
    }
}

/// Locks the byte of a ticket, or queries its lock. Returns the structure that the kernel wrote.
fn lock_byte(file: &OwnedFd, command: i32, ticket: u32) -> Result<libc::flock, Errno> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: TICKET_BYTES_START + i64::from(ticket),
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and both commands read and write one `flock`, which outlives the call.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if outcome == 0 {
        return Ok(lock);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The lock and the condition variable, for a process with a ticket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RobustLock<'a> {
    word: &'a AtomicU32,
    condition: &'a AtomicU32,
    ticket: &'a LockTicket,
}

impl<'a> RobustLock<'a> {
    pub(crate) fn new(header: &'a [AtomicU32], ticket: &'a LockTicket) -> Self {
        Self { word: &header[at::LOCK], condition: &header[at::CONDITION], ticket }
    }

    /// Takes the lock. Returns whether the previous holder died with it.
    pub(crate) fn acquire(&self, deadline: Instant) -> Result<bool, TimedOut> {
        let own = self.ticket.number;
        if self.word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Ok(false);
        }
        loop {
            let found = self.word.load(Ordering::Relaxed);
            let holder = found & TICKET_MASK;
            if holder == 0 || !self.ticket.is_alive(holder) {
                // There may be sleepers that a dead holder did not wake.
                let taken = self.word.compare_exchange(found, own | HAS_WAITERS, Ordering::Acquire, Ordering::Relaxed);
                let was_abandoned = holder != 0;
                if taken.is_ok() && was_abandoned {
                    // The dead holder may have been about to notify, so all waiters check again.
                    self.notify();
                }
                if taken.is_ok() {
                    return Ok(was_abandoned);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TimedOut);
            }
            let waited = found | HAS_WAITERS;
            let is_noted = found == waited
                || self.word.compare_exchange(found, waited, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if is_noted && holder != 0 {
                sleep(self.word, waited, left.min(LIVENESS_INTERVAL));
            }
        }
    }

    /// Releases the lock. Does nothing if another process has overwritten it.
    pub(crate) fn release(&self) {
        let mut found = self.word.load(Ordering::Relaxed);
        while found & TICKET_MASK == self.ticket.number {
            match self.word.compare_exchange(found, 0, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if found & HAS_WAITERS != 0 => return wake(self.word, 1),
                Ok(_) => return,
                Err(other) => found = other,
            }
        }
    }

    /// The notification count for [`wait`](Self::wait). Read before the lock is released.
    pub(crate) fn notified(&self) -> u32 {
        self.condition.load(Ordering::Acquire)
    }

    /// Waits until there was a notification since `before`, or a holder died that may have been about to notify.
    pub(crate) fn wait(&self, before: u32, deadline: Instant) -> Result<(), TimedOut> {
        while self.notified() == before && !self.is_abandoned() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TimedOut);
            }
            sleep(self.condition, before, left.min(LIVENESS_INTERVAL));
        }
        Ok(())
    }

    fn is_abandoned(&self) -> bool {
        let holder = self.word.load(Ordering::Relaxed) & TICKET_MASK;
        holder != 0 && !self.ticket.is_alive(holder)
    }

    /// Wakes all waiters.
    pub(crate) fn notify(&self) {
        self.condition.fetch_add(1, Ordering::Release);
        wake(self.condition, i32::MAX.cast_unsigned());
    }
}

fn sleep(word: &AtomicU32, found: u32, longest: Duration) {
    let longest = timespec(longest);
    match futex::wait(word, futex::Flags::empty(), found, Some(&longest)) {
        // Woken, changed already, or timed out: the caller checks again in each case.
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
        Err(error) => panic!("futex wait on a word of shared memory failed: {error}"),
    }
}

fn wake(word: &AtomicU32, count: u32) {
    // A sleeper that is not woken checks by itself soon.
    let _ = futex::wake(word, futex::Flags::empty(), count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::shared_memory::SharedMemory;

    const WORDS: usize = HEADER_BYTES as usize / 4;

    struct Memory(SharedMemory);

    impl Memory {
        fn new() -> Self {
            Self(SharedMemory::create("lock", HEADER_BYTES as usize).unwrap())
        }

        fn header(&self) -> &[AtomicU32] {
            // SAFETY: the memory holds this many words from its first byte on, which every user accesses atomically.
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self.0.u32_at(0)), WORDS) }
        }

        fn ticket(&self) -> LockTicket {
            LockTicket::new(self.header(), self.0.file()).unwrap()
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn one_has_it_and_the_next_has_it_then() {
        let memory = Memory::new();
        let (one, two) = (memory.ticket(), memory.ticket());
        let (one, two) = (RobustLock::new(memory.header(), &one), RobustLock::new(memory.header(), &two));
        assert_eq!(one.acquire(late()), Ok(false));
        assert_eq!(two.acquire(soon()), Err(TimedOut));
        one.release();
        assert_eq!(two.acquire(late()), Ok(false));
        assert_eq!(one.acquire(soon()), Err(TimedOut));
    }

    #[test]
    fn the_holder_waits_for_itself_until_the_deadline() {
        let memory = Memory::new();
        let ticket = memory.ticket();
        let lock = RobustLock::new(memory.header(), &ticket);
        assert_eq!(lock.acquire(late()), Ok(false));
        assert_eq!(lock.acquire(soon()), Err(TimedOut));
    }

    #[test]
    fn what_a_dead_one_held_is_taken_over_and_said_to_be() {
        let memory = Memory::new();
        let (dead, other) = (memory.ticket(), memory.ticket());
        assert_eq!(RobustLock::new(memory.header(), &dead).acquire(late()), Ok(false));
        drop(dead);
        let lock = RobustLock::new(memory.header(), &other);
        assert_eq!(lock.acquire(late()), Ok(true));
        lock.release();
        assert_eq!(lock.acquire(late()), Ok(false), "reported once");
    }

    #[test]
    fn a_release_of_what_is_anothers_by_now_changes_nothing() {
        let memory = Memory::new();
        let (one, two) = (memory.ticket(), memory.ticket());
        let (one, two) = (RobustLock::new(memory.header(), &one), RobustLock::new(memory.header(), &two));
        one.acquire(late()).unwrap();
        memory.header()[at::LOCK].store(0, Ordering::Relaxed);
        two.acquire(late()).unwrap();
        one.release();
        assert_eq!(one.acquire(soon()), Err(TimedOut));
    }

    #[test]
    fn whatever_is_written_there_a_wait_ends() {
        let memory = Memory::new();
        let (one, two) = (memory.ticket(), memory.ticket());
        let lock = RobustLock::new(memory.header(), &one);
        for garbage in [0, 1, two.number, HAS_WAITERS, HAS_WAITERS | 5, TICKET_MASK, u32::MAX] {
            memory.header().iter().for_each(|word| word.store(garbage, Ordering::Relaxed));
            match lock.acquire(soon()) {
                Ok(_) => lock.release(),
                Err(TimedOut) => assert!([1, two.number].contains(&(garbage & TICKET_MASK)), "{garbage}"),
            }
            memory.header()[at::LOCK].store(garbage, Ordering::Relaxed);
            let is_dead = ![0, 1, two.number].contains(&(garbage & TICKET_MASK));
            assert_eq!(lock.wait(lock.notified(), soon()), if is_dead { Ok(()) } else { Err(TimedOut) });
            lock.notify();
            assert_ne!(memory.ticket().number, two.number, "a ticket in use is not handed out again");
        }
    }

    #[test]
    fn a_notification_before_the_sleep_is_not_lost() {
        let memory = Memory::new();
        let ticket = memory.ticket();
        let lock = RobustLock::new(memory.header(), &ticket);
        let before = lock.notified();
        lock.notify();
        assert_eq!(lock.wait(before, soon()), Ok(()));
        assert_eq!(lock.wait(lock.notified(), soon()), Err(TimedOut));
    }

    #[test]
    fn a_waiter_learns_that_the_holder_died() {
        let memory = Memory::new();
        let (dead, other) = (memory.ticket(), memory.ticket());
        let lock = RobustLock::new(memory.header(), &other);
        let before = lock.notified();
        RobustLock::new(memory.header(), &dead).acquire(late()).unwrap();
        assert_eq!(lock.wait(before, soon()), Err(TimedOut), "the holder is alive");
        drop(dead);
        assert_eq!(lock.wait(before, late()), Ok(()));
        assert_eq!(lock.acquire(late()), Ok(true));
        lock.release();
        assert_eq!(lock.wait(before, late()), Ok(()), "every waiter notices the death, whichever takes the lock next");
    }

    #[test]
    fn threads_that_add_one_by_one_lose_nothing() {
        let memory = Memory::new();
        let total = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let ticket = memory.ticket();
                    let lock = RobustLock::new(memory.header(), &ticket);
                    for _ in 0..1000 {
                        assert_eq!(lock.acquire(late()), Ok(false));
                        // Two steps, so that a race would lose an increment.
                        let found = total.load(Ordering::Relaxed);
                        std::thread::yield_now();
                        total.store(found + 1, Ordering::Relaxed);
                        lock.release();
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 4000);
    }
}
