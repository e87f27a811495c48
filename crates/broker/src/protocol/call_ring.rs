//! The call ring: launches that a tenant sends to its worker, and the failures that the worker reports, in memory that
//! the two share. The broker is not involved, and while both sides spin there is no system call.
//!
//! A successful call has no reply: the worker's stream writes the number of the call into the worker's semaphores,
//! after the kernel. Only failures have messages. The worker trusts nothing that it reads here: a slot is copied before
//! it is decoded, and the worker keeps its own counts in private memory. A tenant can only corrupt its own ring.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;

use crate::os::shared_memory::SharedMemory;
use crate::os::time::timespec;
use crate::protocol::types::STREAMS;

/// Calls that a ring holds.
pub(crate) const CALL_SLOTS: u32 = 256;

/// Words of a call: 8 of header, then fences and arguments.
pub(crate) const CALL_WORDS: usize = 64;
pub(crate) const HEADER_WORDS: usize = 8;

const CALL_BYTES: usize = CALL_WORDS * 8;

/// Failure messages that a ring holds, and the words of each.
pub(crate) const FAILURE_SLOTS: u32 = 64;
pub(crate) const FAILURE_WORDS: usize = 8;

/// The longest text of a failure message, such as a compiler's log.
pub(crate) const TEXT_BYTES_MAX: usize = 8 << 10;

/// The phase bit in the first word of a slot.
const PHASE: u64 = 1 << 63;

mod at {
    /// Worker: calls taken.
    pub(super) const TAKEN: usize = 128;
    /// Worker: nonzero if it must be woken.
    pub(super) const WORKER_ASLEEP: usize = 256;
    /// Worker: failures pushed.
    pub(super) const FAILURES_PUSHED: usize = 384;
    /// Tenant: failures taken.
    pub(super) const FAILURES_READ: usize = 512;
    /// Tenant: how many of its threads sleep.
    pub(super) const TENANT_ASLEEP: usize = 640;
    /// Worker: increases when work of the tenant makes progress. The tenant sleeps on this word.
    pub(super) const PROGRESS: usize = 768;
    pub(super) const FAILURES: usize = 4096;
    pub(super) const TEXT: usize = FAILURES + super::FAILURE_SLOTS as usize * super::FAILURE_WORDS * 8;
    /// Each failure message has a text buffer of its own.
    pub(super) const CALLS: usize = TEXT + super::FAILURE_SLOTS as usize * super::TEXT_BYTES_MAX;
}

/// The word of a failure message with the length of its text in bytes.
const TEXT_WORD: usize = 6;

pub(crate) const CALL_RING_BYTES: usize = at::CALLS + CALL_SLOTS as usize * CALL_BYTES;

/// The semaphore of the worker that a stream of a session writes.
pub(crate) fn semaphore_of(session_index: u32, stream: u32) -> u32 {
    STREAMS + session_index * STREAMS + stream
}

/// The offset of a failure's text.
fn text_offset(count: u32) -> usize {
    at::TEXT + (count % FAILURE_SLOTS) as usize * TEXT_BYTES_MAX
}

fn phase(count: u32, slots: u32) -> u64 {
    if (count / slots).is_multiple_of(2) { PHASE } else { 0 }
}

/// Copies the slot of a count to `to`. Returns whether it is there.
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

/// Writes the slot of a count. Its first word is written last and carries the phase bit. Words beyond `from` keep their
/// values.
fn write(shared: &SharedMemory, base: usize, slots: u32, slot_words: usize, count: u32, from: &[u64]) {
    let offset = base + (count % slots) as usize * slot_words * 8;
    for (at, &word) in from.iter().enumerate().skip(1) {
        shared.u64_at(offset + 8 * at).store(word, Ordering::Relaxed);
    }
    shared.u64_at(offset).store(from[0] & !PHASE | phase(count, slots), Ordering::Release);
}

/// A call ring, with the operations of both sides.
#[derive(Debug)]
pub(crate) struct CallRing {
    shared: SharedMemory,
    /// Worker: calls taken. The word in the ring tells the tenant, which could overwrite it.
    taken: AtomicU32,
    /// Worker: failures pushed. Private for the same reason.
    pushed: AtomicU32,
}

impl CallRing {
    pub(crate) fn create() -> Result<Self, Errno> {
        SharedMemory::create("freehold-calls", CALL_RING_BYTES).map(Self::from_memory)
    }

    pub(crate) fn open(file: impl Into<std::sync::Arc<std::os::fd::OwnedFd>>) -> Result<Self, Errno> {
        SharedMemory::open(file, CALL_RING_BYTES).map(Self::from_memory)
    }

    /// For a ring that no worker has served: each tenant of a worker gets a new one.
    fn from_memory(shared: SharedMemory) -> Self {
        Self { shared, taken: AtomicU32::new(0), pushed: AtomicU32::new(0) }
    }

    pub(crate) fn shared(&self) -> &SharedMemory {
        &self.shared
    }

    fn count(&self, at: usize) -> &AtomicU32 {
        self.shared.u32_at(at)
    }

    /// Calls that the worker has taken.
    pub(crate) fn taken(&self) -> u32 {
        self.count(at::TAKEN).load(Ordering::Acquire)
    }

    // The tenant's side.

    /// Pushes a call, for which there must be room. Returns whether the worker must be woken.
    #[inline]
    pub(crate) fn push(&self, count: u32, words: &[u64]) -> bool {
        write(&self.shared, at::CALLS, CALL_SLOTS, CALL_WORDS, count, words);
        // The worker sets its asleep word, then checks the ring once more.
        fence(Ordering::SeqCst);
        self.is_worker_asleep()
    }

    pub(crate) fn is_worker_asleep(&self) -> bool {
        self.count(at::WORKER_ASLEEP).load(Ordering::Relaxed) != 0
    }

    /// Takes the oldest failure and its text.
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

    /// The progress count, for [`sleep`](Self::sleep).
    pub(crate) fn progress(&self) -> u32 {
        self.count(at::PROGRESS).load(Ordering::Acquire)
    }

    /// Sleeps until there is more [progress](Self::progress) than was `seen`, at most `longest`. `wake` wakes the
    /// worker, which polls its work while a tenant sleeps. `is_so` is checked once more before.
    #[cold]
    pub(crate) fn sleep(&self, seen: u32, longest: Duration, wake: impl FnOnce(), is_so: impl FnOnce() -> bool) {
        let asleep = self.count(at::TENANT_ASLEEP);
        asleep.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.is_worker_asleep() {
            wake();
        }
        if !is_so() {
            let longest = timespec(longest);
            match futex::wait(self.count(at::PROGRESS), futex::Flags::empty(), seen, Some(&longest)) {
                // Woken, progress was made already, or timed out: the caller checks again in each case.
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                Err(error) => panic!("futex wait on a word of the ring failed: {error}"),
            }
        }
        asleep.fetch_sub(1, Ordering::Relaxed);
    }

    // The worker's side.

    /// Copies the oldest call to `to`, without taking it. Returns whether there is one.
    #[inline]
    pub(crate) fn peek(&self, to: &mut [u64; CALL_WORDS]) -> bool {
        read(&self.shared, at::CALLS, CALL_SLOTS, self.taken.load(Ordering::Relaxed), to)
    }

    /// Takes the oldest call. From now on it counts as possibly executed.
    #[inline]
    pub(crate) fn pop(&self) {
        let taken = self.taken.load(Ordering::Relaxed).wrapping_add(1);
        self.taken.store(taken, Ordering::Relaxed);
        self.count(at::TAKEN).store(taken, Ordering::Release);
    }

    /// The value of [`taken`](Self::taken) once every call that is there now has been taken.
    pub(crate) fn pushed_end(&self) -> u32 {
        let taken = self.taken.load(Ordering::Relaxed);
        let is_there = |count: u32| {
            let offset = at::CALLS + (count % CALL_SLOTS) as usize * CALL_BYTES;
            self.shared.u64_at(offset).load(Ordering::Acquire) & PHASE == phase(count, CALL_SLOTS)
        };
        let there = (0..CALL_SLOTS).take_while(|&ahead| is_there(taken.wrapping_add(ahead))).count();
        taken.wrapping_add(there as u32)
    }

    /// Whether as many calls have been taken.
    pub(crate) fn has_taken(&self, count: u32) -> bool {
        self.taken.load(Ordering::Relaxed).wrapping_sub(count).cast_signed() >= 0
    }

    /// How many failures fit. 0 if a count of the tenant is impossible.
    pub(crate) fn room(&self) -> u32 {
        let (told, heard) =
            (self.pushed.load(Ordering::Relaxed), self.count(at::FAILURES_READ).load(Ordering::Acquire));
        FAILURE_SLOTS.saturating_sub(told.wrapping_sub(heard))
    }

    /// Pushes a failure, with as much of its text as fits. There must be [room](Self::room).
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

    /// Whether a thread of the tenant sleeps.
    pub(crate) fn is_tenant_asleep(&self) -> bool {
        self.count(at::TENANT_ASLEEP).load(Ordering::Relaxed) != 0
    }

    /// Records progress, and wakes the threads that sleep for it.
    pub(crate) fn notify_progress(&self) {
        self.count(at::PROGRESS).fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.is_tenant_asleep() {
            // If this fails, no thread sleeps.
            let _ = futex::wake(self.count(at::PROGRESS), futex::Flags::empty(), i32::MAX.cast_unsigned());
        }
    }

    /// Sets whether the worker must be woken. Returns whether a call is there.
    pub(crate) fn set_asleep(&self, is_asleep: bool) -> bool {
        self.count(at::WORKER_ASLEEP).store(u32::from(is_asleep), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.peek(&mut [0; CALL_WORDS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::types::{SEMAPHORES, SESSIONS_MAX};

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
            assert!(!worker.peek(&mut call), "no call before {count}");
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
    fn messages_have_room_while_they_are_read() {
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
    fn a_worker_about_to_sleep_sees_an_earlier_call() {
        let (tenant, worker) = ring();
        assert!(!worker.set_asleep(true));
        assert!(tenant.push(0, &[7]), "the worker must be woken");
        assert!(worker.set_asleep(true));
    }

    #[test]
    fn each_session_and_stream_has_its_own_semaphore() {
        assert_eq!(semaphore_of(0, 0), 16);
        assert_eq!(semaphore_of(SESSIONS_MAX - 1, STREAMS - 1), SEMAPHORES - 1);
    }
}
