//! The ring of calls: what a tenant asks its worker to launch, and what went wrong with it, in memory that the two share. No
//! broker is on the way, and while both sides spin there is no system call.
//!
//! A call that goes well is answered by nobody: the worker's stream writes its number into the worker's semaphores, behind the
//! kernel. Only what goes wrong has a message. The worker believes nothing that it reads here: a slot is copied out before it
//! is looked at, what it has counted itself it keeps in memory of its own, and what the tenant spoils is its own ring.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;

use crate::shared_memory::SharedMemory;

/// How many calls a ring holds.
pub(crate) const CALL_SLOTS: u32 = 256;

/// Words of a call: eight that say what is called, and the rest for fences and arguments.
pub(crate) const CALL_WORDS: usize = 64;
pub(crate) const HEADER_WORDS: usize = 8;

const CALL_BYTES: usize = CALL_WORDS * 8;

/// How many messages a ring holds, and their words.
pub(crate) const FAILURE_SLOTS: u32 = 64;
pub(crate) const FAILURE_WORDS: usize = 8;

/// The longest text of a message, such as what a compiler says.
pub(crate) const TEXT_BYTES_MAX: usize = 8 << 10;

/// Streams of a tenant at its worker.
pub(crate) const STREAMS: u32 = 16;

/// Tenants that one worker serves at the most: each has a word of the worker's semaphores for each stream, behind those that the worker
/// has as a tenant itself.
pub(crate) const SESSIONS_MAX: u32 = 31;

/// In a semaphores: that the process it is of has ended. What the word had come to is below it.
pub(crate) const PROCESS_ENDED: u64 = 1 << 62;

/// In the first word of a slot: whether it is of this lap.
const PHASE: u64 = 1 << 63;

mod at {
    /// The worker's: how many calls were taken out.
    pub(super) const TAKEN: usize = 128;
    /// The worker's: not zero where it has to be woken.
    pub(super) const WORKER_ASLEEP: usize = 256;
    /// The worker's: how many messages were put in.
    pub(super) const FAILURES_PUSHED: usize = 384;
    /// The tenant's: how many messages were taken out.
    pub(super) const FAILURES_READ: usize = 512;
    /// The tenant's: how many of its threads sleep.
    pub(super) const TENANT_ASLEEP: usize = 640;
    /// The worker's: counts on when work of the tenant has come further. The tenant sleeps here.
    pub(super) const PROGRESS: usize = 768;
    pub(super) const FAILURES: usize = 4096;
    pub(super) const TEXT: usize = FAILURES + super::FAILURE_SLOTS as usize * super::FAILURE_WORDS * 8;
    /// Each message has room for a text of its own.
    pub(super) const CALLS: usize = TEXT + super::FAILURE_SLOTS as usize * super::TEXT_BYTES_MAX;
}

/// The word of a message that says how many bytes its text has.
const TEXT_WORD: usize = 6;

pub(crate) const CALL_RING_BYTES: usize = at::CALLS + CALL_SLOTS as usize * CALL_BYTES;

/// The word of a worker's semaphores that a stream of a session_index writes.
pub(crate) fn semaphore_of(session_index: u32, stream: u32) -> u32 {
    STREAMS + session_index * STREAMS + stream
}

/// Where the text of a message lies.
fn text_offset(count: u32) -> usize {
    at::TEXT + (count % FAILURE_SLOTS) as usize * TEXT_BYTES_MAX
}

fn phase(count: u32, slots: u32) -> u64 {
    if (count / slots).is_multiple_of(2) { PHASE } else { 0 }
}

/// Copies the slot of a count out, if it is there.
fn read(shared: &SharedMemory, base: usize, slots: u32, count: u32, to: &mut [u64]) -> bool {
    let offset = base + (count % slots) as usize * to.len() * 8;
    let first = shared.u64_at(offset).load(Ordering::Acquire);
    if first & PHASE != phase(count, slots) {
        return false;
    }
    to[0] = first & !PHASE;
    for (at, word) in to.iter_mut().enumerate().skip(1) {
        *word = shared.u64_at(offset + 8 * at).load(Ordering::Relaxed);
    }
    true
}

/// Writes the slot of a count; its first word, last, says that it is there. Words beyond `from` stay as they are.
fn write(shared: &SharedMemory, base: usize, slots: u32, slot_words: usize, count: u32, from: &[u64]) {
    let offset = base + (count % slots) as usize * slot_words * 8;
    for (at, &word) in from.iter().enumerate().skip(1) {
        shared.u64_at(offset + 8 * at).store(word, Ordering::Relaxed);
    }
    shared.u64_at(offset).store(from[0] & !PHASE | phase(count, slots), Ordering::Release);
}

/// What both sides share.
#[derive(Debug)]
pub(crate) struct CallRing {
    shared: SharedMemory,
    /// The worker's: how many calls it has taken out. The word in the ring tells the tenant, which could write it.
    taken: AtomicU32,
    /// The worker's: how many messages it has put in. Likewise.
    pushed: AtomicU32,
}

impl CallRing {
    pub(crate) fn create() -> Result<Self, Errno> {
        SharedMemory::create("freehold-calls", CALL_RING_BYTES).map(Self::from_memory)
    }

    pub(crate) fn open(file: impl Into<std::sync::Arc<std::os::fd::OwnedFd>>) -> Result<Self, Errno> {
        SharedMemory::open(file, CALL_RING_BYTES).map(Self::from_memory)
    }

    /// Of a ring that no worker has served: each tenant of a worker has a new one.
    fn from_memory(shared: SharedMemory) -> Self {
        Self { shared, taken: AtomicU32::new(0), pushed: AtomicU32::new(0) }
    }

    pub(crate) fn shared(&self) -> &SharedMemory {
        &self.shared
    }

    fn count(&self, at: usize) -> &AtomicU32 {
        self.shared.u32_at(at)
    }

    /// How many calls were taken out.
    pub(crate) fn taken(&self) -> u32 {
        self.count(at::TAKEN).load(Ordering::Acquire)
    }

    // The tenant's side.

    /// Puts a call in, for which there is room. Whether the worker has to be woken.
    #[inline]
    pub(crate) fn push(&self, count: u32, words: &[u64]) -> bool {
        write(&self.shared, at::CALLS, CALL_SLOTS, CALL_WORDS, count, words);
        // The worker says that it sleeps, and then looks once more.
        fence(Ordering::SeqCst);
        self.is_worker_asleep()
    }

    pub(crate) fn is_worker_asleep(&self) -> bool {
        self.count(at::WORKER_ASLEEP).load(Ordering::Relaxed) != 0
    }

    /// Takes the oldest message out, and its text.
    pub(crate) fn pop_failure(&self) -> Option<([u64; FAILURE_WORDS], String)> {
        let heard = self.count(at::FAILURES_READ).load(Ordering::Relaxed);
        let mut message = [0; FAILURE_WORDS];
        if !read(&self.shared, at::FAILURES, FAILURE_SLOTS, heard, &mut message) {
            return None;
        }
        let bytes = (message[TEXT_WORD] as usize).min(TEXT_BYTES_MAX);
        let offset = text_offset(heard);
        let words = (0..bytes.div_ceil(8)).map(|at| self.shared.u64_at(offset + 8 * at).load(Ordering::Relaxed));
        let mut text: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        text.truncate(bytes);
        self.count(at::FAILURES_READ).store(heard.wrapping_add(1), Ordering::Release);
        Some((message, String::from_utf8_lossy(&text).into_owned()))
    }

    /// How often work has come further, for [`sleep`](Self::sleep).
    pub(crate) fn progress(&self) -> u32 {
        self.count(at::PROGRESS).load(Ordering::Acquire)
    }

    /// Sleeps until work has come further than was [seen](Self::moved), or for so long at the most. `wake` wakes the worker, which
    /// looks after work while somebody sleeps; `is_so` is looked at once more before.
    #[cold]
    pub(crate) fn sleep(&self, seen: u32, longest: Duration, wake: impl FnOnce(), is_so: impl FnOnce() -> bool) {
        let asleep = self.count(at::TENANT_ASLEEP);
        asleep.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.is_worker_asleep() {
            wake();
        }
        if !is_so() {
            let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
            match futex::wait(self.count(at::PROGRESS), futex::Flags::empty(), seen, Some(&longest)) {
                // Woken, or it moved already, or it lasted: the caller looks again in each case.
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                Err(error) => panic!("a word of the ring can be slept at: {error}"),
            }
        }
        asleep.fetch_sub(1, Ordering::Relaxed);
    }

    // The worker's side.

    /// Copies the oldest call that was not taken out.
    #[inline]
    pub(crate) fn peek(&self, to: &mut [u64; CALL_WORDS]) -> bool {
        read(&self.shared, at::CALLS, CALL_SLOTS, self.taken.load(Ordering::Relaxed), to)
    }

    /// Takes the oldest call out: from now on it may have been carried out.
    #[inline]
    pub(crate) fn pop(&self) {
        let taken = self.taken.load(Ordering::Relaxed).wrapping_add(1);
        self.taken.store(taken, Ordering::Relaxed);
        self.count(at::TAKEN).store(taken, Ordering::Release);
    }

    /// How many calls will have been taken out when those have that are there now.
    pub(crate) fn pushed_end(&self) -> u32 {
        let taken = self.taken.load(Ordering::Relaxed);
        let is_there = |count: u32| {
            let offset = at::CALLS + (count % CALL_SLOTS) as usize * CALL_BYTES;
            self.shared.u64_at(offset).load(Ordering::Acquire) & PHASE == phase(count, CALL_SLOTS)
        };
        let there = (0..CALL_SLOTS).take_while(|&ahead| is_there(taken.wrapping_add(ahead))).count();
        taken.wrapping_add(there as u32)
    }

    /// Whether so many calls have been taken out.
    pub(crate) fn has_taken(&self, count: u32) -> bool {
        self.taken.load(Ordering::Relaxed).wrapping_sub(count).cast_signed() >= 0
    }

    /// How many messages can be put in: none where the tenant counts what cannot be.
    pub(crate) fn room(&self) -> u32 {
        let (told, heard) =
            (self.pushed.load(Ordering::Relaxed), self.count(at::FAILURES_READ).load(Ordering::Acquire));
        FAILURE_SLOTS.saturating_sub(told.wrapping_sub(heard))
    }

    /// Puts a message in, with so much of its text as there is room for. There is [room](Self::room) for the message.
    pub(crate) fn push_failure(&self, message: &[u64; FAILURE_WORDS], text: &str) {
        let told = self.pushed.load(Ordering::Relaxed);
        let bytes = &text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        for (at, letters) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..letters.len()].copy_from_slice(letters);
            self.shared.u64_at(text_offset(told) + 8 * at).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        let mut message = *message;
        message[TEXT_WORD] = bytes.len() as u64;
        write(&self.shared, at::FAILURES, FAILURE_SLOTS, FAILURE_WORDS, told, &message);
        self.pushed.store(told.wrapping_add(1), Ordering::Relaxed);
        self.count(at::FAILURES_PUSHED).store(told.wrapping_add(1), Ordering::Release);
    }

    /// Whether somebody of the tenant sleeps.
    pub(crate) fn is_tenant_asleep(&self) -> bool {
        self.count(at::TENANT_ASLEEP).load(Ordering::Relaxed) != 0
    }

    /// Says that work has come further, and wakes who sleeps for that.
    pub(crate) fn notify_progress(&self) {
        self.count(at::PROGRESS).fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.is_tenant_asleep() {
            // Nobody sleeps any more where this fails.
            let _ = futex::wake(self.count(at::PROGRESS), futex::Flags::empty(), i32::MAX.cast_unsigned());
        }
    }

    /// Says whether the worker has to be woken. Whether there is a call meanwhile.
    pub(crate) fn set_asleep(&self, is_asleep: bool) -> bool {
        self.count(at::WORKER_ASLEEP).store(u32::from(is_asleep), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.peek(&mut [0; CALL_WORDS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (CallRing, CallRing) {
        let one = CallRing::create().unwrap();
        let other = CallRing::open(one.shared().shared_fd()).unwrap();
        (one, other)
    }

    #[test]
    fn calls_stay_in_order_across_ring_laps() {
        let (tenant, worker) = ring();
        for count in 0..3 * CALL_SLOTS {
            let mut call = [0; CALL_WORDS];
            assert!(!worker.peek(&mut call), "nothing is there before {count}");
            assert!(!tenant.push(count, &[7, u64::from(count), 3]));
            assert!(worker.peek(&mut call));
            assert_eq!(call[..3], [7, u64::from(count), 3]);
            worker.pop();
            assert_eq!(tenant.taken(), count + 1);
        }
    }

    #[test]
    fn calls_that_are_there_have_been_taken_when_no_other_has() {
        let (tenant, worker) = ring();
        let mut count = 0;
        for there in [0, 1, 3, CALL_SLOTS, 7, CALL_SLOTS] {
            for _ in 0..there {
                tenant.push(count, &[7]);
                count += 1;
            }
            assert_eq!(worker.pushed_end(), count);
            for _ in 0..there {
                assert!(!worker.has_taken(count));
                worker.pop();
            }
            assert!(worker.has_taken(count) && worker.has_taken(count - there));
        }
    }

    #[test]
    fn messages_have_room_until_nobody_reads_them() {
        let (tenant, worker) = ring();
        for count in 0..u64::from(FAILURE_SLOTS) {
            assert!(worker.room() > 0);
            worker.push_failure(&[1, count, 0, 0, 0, 0, 0, 0], "");
        }
        assert_eq!(worker.room(), 0);
        assert_eq!(tenant.pop_failure(), Some(([1, 0, 0, 0, 0, 0, 0, 0], String::new())));
        assert_eq!(worker.room(), 1);
    }

    #[test]
    fn each_message_has_its_own_text_as_far_as_there_is_room() {
        let (tenant, worker) = ring();
        for _lap in 0..3 {
            worker.push_failure(&[10, 1, 0, 0, 0, 0, 0, 0], "line 3: no such register");
            worker.push_failure(&[10, 2, 0, 0, 0, 0, 0, 0], &"é".repeat(TEXT_BYTES_MAX));
            (2..FAILURE_SLOTS).for_each(|_| worker.push_failure(&[1, 0, 0, 0, 0, 0, 0, 0], "x"));
            assert_eq!(tenant.pop_failure().unwrap().1, "line 3: no such register");
            assert_eq!(tenant.pop_failure().unwrap().1, "é".repeat(TEXT_BYTES_MAX / 2));
            (2..FAILURE_SLOTS).for_each(|_| assert_eq!(tenant.pop_failure().unwrap().1, "x"));
        }
    }

    #[test]
    fn a_worker_does_not_read_its_own_counts_out_of_the_ring() {
        let (tenant, worker) = ring();
        for count in 0..2 {
            tenant.push(count, &[7, u64::from(count)]);
        }
        worker.pop();
        worker.push_failure(&[1, 0, 0, 0, 0, 0, 0, 0], "");
        for forged in [0, 1, 77, u32::MAX] {
            tenant.count(at::TAKEN).store(forged, Ordering::Relaxed);
            tenant.count(at::FAILURES_PUSHED).store(forged, Ordering::Relaxed);
            let mut call = [0; CALL_WORDS];
            assert!(worker.peek(&mut call) && call[..2] == [7, 1], "the second call is the oldest: {:?}", &call[..2]);
            assert_eq!(worker.room(), FAILURE_SLOTS - 1);
        }
    }

    #[test]
    fn who_is_about_to_sleep_sees_a_call_that_came_before() {
        let (tenant, worker) = ring();
        assert!(!worker.set_asleep(true));
        assert!(tenant.push(0, &[7]), "it is to be woken");
        assert!(worker.set_asleep(true));
    }

    #[test]
    fn each_session_and_stream_has_its_own_semaphore() {
        assert_eq!(semaphore_of(0, 0), 16);
        assert_eq!(semaphore_of(SESSIONS_MAX - 1, STREAMS - 1), crate::state::SEMAPHORES - 1);
    }
}
