//! The ring of calls: what a tenant asks its worker to launch, and what went wrong with it, in memory that the two share. No
//! broker is on the way, and while both sides spin there is no system call.
//!
//! A call that goes well is answered by nobody: the worker's stream writes its number into the worker's clock, behind the
//! kernel. Only what goes wrong has a message. The worker believes nothing that it reads here: a slot is copied out before it
//! is looked at, what it has counted itself it keeps in memory of its own, and what the tenant spoils is its own ring.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;

use crate::shared::Shared;

/// How many calls a ring holds.
pub(crate) const CALLS: u32 = 256;

/// Words of a call: eight that say what is called, and the rest for points and arguments.
pub(crate) const CALL_WORDS: usize = 64;
pub(crate) const HEAD_WORDS: usize = 8;

const CALL_BYTES: usize = CALL_WORDS * 8;

/// How many messages a ring holds, and their words.
pub(crate) const TOLD: u32 = 64;
pub(crate) const TOLD_WORDS: usize = 8;

/// The longest text of a message, such as what a compiler says.
pub(crate) const TEXT_BYTES_MAX: usize = 8 << 10;

/// Streams of a tenant at its worker.
pub(crate) const STREAMS: u32 = 16;

/// Tenants that one worker serves at the most: each has a word of the worker's clock for each stream, behind those that the worker
/// has as a tenant itself.
pub(crate) const SEATS: u32 = 31;

/// In a clock: that the process it is of has ended. What the word had come to is below it.
pub(crate) const ENDED: u64 = 1 << 62;

/// In the first word of a slot: whether it is of this lap.
const LAP: u64 = 1 << 63;

mod at {
    /// The worker's: how many calls were taken out.
    pub(super) const TAKEN: usize = 128;
    /// The worker's: not zero where it has to be woken.
    pub(super) const WORKER_ASLEEP: usize = 256;
    /// The worker's: how many messages were put in.
    pub(super) const TOLD: usize = 384;
    /// The tenant's: how many messages were taken out.
    pub(super) const HEARD: usize = 512;
    /// The tenant's: how many of its threads sleep.
    pub(super) const TENANT_ASLEEP: usize = 640;
    /// The worker's: counts on when work of the tenant has come further. The tenant sleeps here.
    pub(super) const MOVED: usize = 768;
    pub(super) const MESSAGES: usize = 4096;
    pub(super) const TEXT: usize = MESSAGES + super::TOLD as usize * super::TOLD_WORDS * 8;
    /// Each message has room for a text of its own.
    pub(super) const CALLS: usize = TEXT + super::TOLD as usize * super::TEXT_BYTES_MAX;
}

/// The word of a message that says how many bytes its text has.
const TEXT_WORD: usize = 6;

pub(crate) const CALLS_BYTES: usize = at::CALLS + CALLS as usize * CALL_BYTES;

/// The word of a worker's clock that a stream of a seat writes.
pub(crate) fn word_of(seat: u32, stream: u32) -> u32 {
    STREAMS + seat * STREAMS + stream
}

/// Where the text of a message lies.
fn text_of(count: u32) -> usize {
    at::TEXT + (count % TOLD) as usize * TEXT_BYTES_MAX
}

fn lap(count: u32, slots: u32) -> u64 {
    if (count / slots).is_multiple_of(2) { LAP } else { 0 }
}

/// Copies the slot of a count out, if it is there.
fn read(shared: &Shared, base: usize, slots: u32, count: u32, to: &mut [u64]) -> bool {
    let offset = base + (count % slots) as usize * to.len() * 8;
    let first = shared.word(offset).load(Ordering::Acquire);
    if first & LAP != lap(count, slots) {
        return false;
    }
    to[0] = first & !LAP;
    for (at, word) in to.iter_mut().enumerate().skip(1) {
        *word = shared.word(offset + 8 * at).load(Ordering::Relaxed);
    }
    true
}

/// Writes the slot of a count; its first word, last, says that it is there. Words beyond `from` stay as they are.
fn write(shared: &Shared, base: usize, slots: u32, slot_words: usize, count: u32, from: &[u64]) {
    let offset = base + (count % slots) as usize * slot_words * 8;
    for (at, &word) in from.iter().enumerate().skip(1) {
        shared.word(offset + 8 * at).store(word, Ordering::Relaxed);
    }
    shared.word(offset).store(from[0] & !LAP | lap(count, slots), Ordering::Release);
}

/// What both sides share.
#[derive(Debug)]
pub(crate) struct Calls {
    shared: Shared,
    /// The worker's: how many calls it has taken out. The word in the ring tells the tenant, which could write it.
    taken: AtomicU32,
    /// The worker's: how many messages it has put in. Likewise.
    told: AtomicU32,
}

impl Calls {
    pub(crate) fn create() -> Result<Self, Errno> {
        Shared::create("freehold-calls", CALLS_BYTES).map(Self::over)
    }

    pub(crate) fn open(file: impl Into<std::sync::Arc<std::os::fd::OwnedFd>>) -> Result<Self, Errno> {
        Shared::open(file, CALLS_BYTES).map(Self::over)
    }

    /// Of a ring that no worker has served: each tenant of a worker has a new one.
    fn over(shared: Shared) -> Self {
        Self { shared, taken: AtomicU32::new(0), told: AtomicU32::new(0) }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    fn count(&self, at: usize) -> &AtomicU32 {
        self.shared.half(at)
    }

    /// How many calls were taken out.
    pub(crate) fn taken(&self) -> u32 {
        self.count(at::TAKEN).load(Ordering::Acquire)
    }

    // The tenant's side.

    /// Puts a call in, for which there is room. Whether the worker has to be woken.
    #[inline]
    pub(crate) fn put(&self, count: u32, words: &[u64]) -> bool {
        write(&self.shared, at::CALLS, CALLS, CALL_WORDS, count, words);
        // The worker says that it sleeps, and then looks once more.
        fence(Ordering::SeqCst);
        self.is_worker_asleep()
    }

    pub(crate) fn is_worker_asleep(&self) -> bool {
        self.count(at::WORKER_ASLEEP).load(Ordering::Relaxed) != 0
    }

    /// Takes the oldest message out, and its text.
    pub(crate) fn hear(&self) -> Option<([u64; TOLD_WORDS], String)> {
        let heard = self.count(at::HEARD).load(Ordering::Relaxed);
        let mut message = [0; TOLD_WORDS];
        if !read(&self.shared, at::MESSAGES, TOLD, heard, &mut message) {
            return None;
        }
        let bytes = (message[TEXT_WORD] as usize).min(TEXT_BYTES_MAX);
        let offset = text_of(heard);
        let words = (0..bytes.div_ceil(8)).map(|at| self.shared.word(offset + 8 * at).load(Ordering::Relaxed));
        let mut text: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        text.truncate(bytes);
        self.count(at::HEARD).store(heard.wrapping_add(1), Ordering::Release);
        Some((message, String::from_utf8_lossy(&text).into_owned()))
    }

    /// How often work has come further, for [`sleep`](Self::sleep).
    pub(crate) fn moved(&self) -> u32 {
        self.count(at::MOVED).load(Ordering::Acquire)
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
            match futex::wait(self.count(at::MOVED), futex::Flags::empty(), seen, Some(&longest)) {
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
        read(&self.shared, at::CALLS, CALLS, self.taken.load(Ordering::Relaxed), to)
    }

    /// Takes the oldest call out: from now on it may have been carried out.
    #[inline]
    pub(crate) fn take(&self) {
        let taken = self.taken.load(Ordering::Relaxed).wrapping_add(1);
        self.taken.store(taken, Ordering::Relaxed);
        self.count(at::TAKEN).store(taken, Ordering::Release);
    }

    /// How many calls will have been taken out when those have that are there now.
    pub(crate) fn put_so_far(&self) -> u32 {
        let taken = self.taken.load(Ordering::Relaxed);
        let is_there = |count: u32| {
            let offset = at::CALLS + (count % CALLS) as usize * CALL_BYTES;
            self.shared.word(offset).load(Ordering::Acquire) & LAP == lap(count, CALLS)
        };
        let there = (0..CALLS).take_while(|&ahead| is_there(taken.wrapping_add(ahead))).count();
        taken.wrapping_add(there as u32)
    }

    /// Whether so many calls have been taken out.
    pub(crate) fn has_taken(&self, count: u32) -> bool {
        self.taken.load(Ordering::Relaxed).wrapping_sub(count).cast_signed() >= 0
    }

    /// How many messages can be put in: none where the tenant counts what cannot be.
    pub(crate) fn room(&self) -> u32 {
        let (told, heard) = (self.told.load(Ordering::Relaxed), self.count(at::HEARD).load(Ordering::Acquire));
        TOLD.saturating_sub(told.wrapping_sub(heard))
    }

    /// Puts a message in, with so much of its text as there is room for. There is [room](Self::room) for the message.
    pub(crate) fn tell(&self, message: &[u64; TOLD_WORDS], text: &str) {
        let told = self.told.load(Ordering::Relaxed);
        let bytes = &text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        for (at, letters) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..letters.len()].copy_from_slice(letters);
            self.shared.word(text_of(told) + 8 * at).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        let mut message = *message;
        message[TEXT_WORD] = bytes.len() as u64;
        write(&self.shared, at::MESSAGES, TOLD, TOLD_WORDS, told, &message);
        self.told.store(told.wrapping_add(1), Ordering::Relaxed);
        self.count(at::TOLD).store(told.wrapping_add(1), Ordering::Release);
    }

    /// Whether somebody of the tenant sleeps.
    pub(crate) fn is_tenant_asleep(&self) -> bool {
        self.count(at::TENANT_ASLEEP).load(Ordering::Relaxed) != 0
    }

    /// Says that work has come further, and wakes who sleeps for that.
    pub(crate) fn rouse(&self) {
        self.count(at::MOVED).fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.is_tenant_asleep() {
            // Nobody sleeps any more where this fails.
            let _ = futex::wake(self.count(at::MOVED), futex::Flags::empty(), i32::MAX.cast_unsigned());
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

    fn ring() -> (Calls, Calls) {
        let one = Calls::create().unwrap();
        let other = Calls::open(one.shared().shared_file()).unwrap();
        (one, other)
    }

    #[test]
    fn calls_come_in_their_order_lap_after_lap() {
        let (tenant, worker) = ring();
        for count in 0..3 * CALLS {
            let mut call = [0; CALL_WORDS];
            assert!(!worker.peek(&mut call), "nothing is there before {count}");
            assert!(!tenant.put(count, &[7, u64::from(count), 3]));
            assert!(worker.peek(&mut call));
            assert_eq!(call[..3], [7, u64::from(count), 3]);
            worker.take();
            assert_eq!(tenant.taken(), count + 1);
        }
    }

    #[test]
    fn calls_that_are_there_have_been_taken_when_no_other_has() {
        let (tenant, worker) = ring();
        let mut count = 0;
        for there in [0, 1, 3, CALLS, 7, CALLS] {
            for _ in 0..there {
                tenant.put(count, &[7]);
                count += 1;
            }
            assert_eq!(worker.put_so_far(), count);
            for _ in 0..there {
                assert!(!worker.has_taken(count));
                worker.take();
            }
            assert!(worker.has_taken(count) && worker.has_taken(count - there));
        }
    }

    #[test]
    fn messages_have_room_until_nobody_reads_them() {
        let (tenant, worker) = ring();
        for count in 0..u64::from(TOLD) {
            assert!(worker.room() > 0);
            worker.tell(&[1, count, 0, 0, 0, 0, 0, 0], "");
        }
        assert_eq!(worker.room(), 0);
        assert_eq!(tenant.hear(), Some(([1, 0, 0, 0, 0, 0, 0, 0], String::new())));
        assert_eq!(worker.room(), 1);
    }

    #[test]
    fn each_message_has_its_own_text_as_far_as_there_is_room() {
        let (tenant, worker) = ring();
        for _lap in 0..3 {
            worker.tell(&[10, 1, 0, 0, 0, 0, 0, 0], "line 3: no such register");
            worker.tell(&[10, 2, 0, 0, 0, 0, 0, 0], &"é".repeat(TEXT_BYTES_MAX));
            (2..TOLD).for_each(|_| worker.tell(&[1, 0, 0, 0, 0, 0, 0, 0], "x"));
            assert_eq!(tenant.hear().unwrap().1, "line 3: no such register");
            assert_eq!(tenant.hear().unwrap().1, "é".repeat(TEXT_BYTES_MAX / 2));
            (2..TOLD).for_each(|_| assert_eq!(tenant.hear().unwrap().1, "x"));
        }
    }

    #[test]
    fn a_worker_does_not_read_its_own_counts_out_of_the_ring() {
        let (tenant, worker) = ring();
        for count in 0..2 {
            tenant.put(count, &[7, u64::from(count)]);
        }
        worker.take();
        worker.tell(&[1, 0, 0, 0, 0, 0, 0, 0], "");
        for forged in [0, 1, 77, u32::MAX] {
            tenant.count(at::TAKEN).store(forged, Ordering::Relaxed);
            tenant.count(at::TOLD).store(forged, Ordering::Relaxed);
            let mut call = [0; CALL_WORDS];
            assert!(worker.peek(&mut call) && call[..2] == [7, 1], "the second call is the oldest: {:?}", &call[..2]);
            assert_eq!(worker.room(), TOLD - 1);
        }
    }

    #[test]
    fn who_is_about_to_sleep_sees_a_call_that_came_before() {
        let (tenant, worker) = ring();
        assert!(!worker.set_asleep(true));
        assert!(tenant.put(0, &[7]), "it is to be woken");
        assert!(worker.set_asleep(true));
    }

    #[test]
    fn seats_and_streams_have_words_of_their_own() {
        assert_eq!(word_of(0, 0), 16);
        assert_eq!(word_of(SEATS - 1, STREAMS - 1), crate::state::CLOCK_WORDS - 1);
    }
}
