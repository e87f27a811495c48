//! A tenant's place at a worker, without the library: the ring of calls and the worker's clock, both mapped for writing, as the
//! worker hands them out.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use sha2::{Digest, Sha256};

use super::{CLOCK_BYTES, Raw, Slot, Words, message};
use crate::stage::until;

/// Where the words of a ring of calls lie.
mod calls_at {
    pub(super) const TAKEN: usize = 128;
    pub(super) const WORKER_ASLEEP: usize = 256;
    pub(super) const TOLD: usize = 384;
    pub(super) const MESSAGES: usize = 4096;
    pub(super) const CALLS: usize = 532_480;
}

const CALLS_BYTES: usize = 663_552;
const CALLS: u32 = 256;
const CALL_WORDS: usize = 64;

/// In the first word of a call: whether it is of this lap.
const LAP: u64 = 1 << 63;

const PUT_MODULE: u64 = 20;
const DROP_MODULE: u64 = 23;
const HIRE: u64 = 18;

/// What is called: a kernel by its place in its module, and numbers that lie behind the head.
pub(crate) struct Task<'a> {
    pub(crate) module: u64,
    pub(crate) kernel: u64,
    pub(crate) stream: u64,
    /// Two words for each point that it waits for.
    pub(crate) points: &'a [[u64; 2]],
    /// Leases that are its arguments.
    pub(crate) leases: &'a [u64],
}

pub(crate) struct Seat {
    pub(crate) calls: Words,
    /// The worker's clock, which all that it serves have.
    pub(crate) clock: Words,
    bell: OwnedFd,
    seat: u64,
    put: u32,
    numbers: [u64; 16],
}

impl Raw {
    /// A seat at a worker: of its own where the label is zero.
    pub(crate) fn hire(&mut self, label: u64) -> Seat {
        let heard = self.ask(message(HIRE, &[label]), b"", &[]);
        assert_eq!(heard.slot[0] as u16, 112, "{:x?}", heard.slot);
        let [calls, clock, bell] = <[OwnedFd; 3]>::try_from(heard.descriptors).expect("calls, clock and bell");
        let (calls, clock) = (Words::map(&calls, CALLS_BYTES), Words::map(&clock, CLOCK_BYTES));
        Seat { calls, clock, bell, seat: heard.slot[2], put: 0, numbers: [0; 16] }
    }

    /// Takes a module's name away.
    pub(crate) fn drop_module(&mut self, name: &str) {
        let dropped = self.ask(message(DROP_MODULE, &[]), name.as_bytes(), &[]).slot;
        assert_eq!(dropped[0] as u16, 104, "{dropped:x?}");
    }

    /// Puts a text under a name: the reply. `device_bytes` is what the text is said to take of the device.
    pub(crate) fn put_module(&mut self, name: &str, text: &str, device_bytes: u64) -> Slot {
        let file = memfd_create("freehold-module", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
        rustix::io::write(&file, text.as_bytes()).expect("memory takes what is written");
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).expect("it is sealed");
        let hash: [u8; 32] = Sha256::digest(text).into();
        let mut put = message(PUT_MODULE, &[text.len() as u64]);
        for (word, bytes) in put[2..6].iter_mut().zip(hash.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        put[6] = device_bytes;
        self.ask(put, name.as_bytes(), &[file.as_fd()]).slot
    }
}

impl Seat {
    /// Puts a call in: its number in its stream. There is room, as far as this side has counted.
    pub(crate) fn call(&mut self, task: &Task<'_>) -> u64 {
        self.write(1, task)
    }

    /// Has the worker load a module: the number of that call in stream 0.
    pub(crate) fn load(&mut self, module: u64) -> u64 {
        self.write(2, &Task { module, kernel: 0, stream: 0, points: &[], leases: &[] })
    }

    fn write(&mut self, kind: u64, task: &Task<'_>) -> u64 {
        let number = &mut self.numbers[task.stream as usize];
        *number += 1;
        let (points, leases) = (task.points.len() as u64, task.leases.len() as u64);
        let mut words = [0; CALL_WORDS];
        words[0] = kind | task.stream << 16 | leases << 32 | points << 48;
        words[1..7].copy_from_slice(&[*number, task.module, task.kernel, 1 << 32 | 1, 1 << 32 | 1, 1 << 32 | 1]);
        let rest =
            task.points.iter().flatten().copied().chain(task.leases.iter().flat_map(|&lease| [8 << 32 | 5, lease, 0]));
        for (word, given) in words[8..].iter_mut().zip(rest) {
            *word = given;
        }
        let lap = if (self.put / CALLS).is_multiple_of(2) { LAP } else { 0 };
        let start = calls_at::CALLS + (self.put % CALLS) as usize * CALL_WORDS * 8;
        for (at, &word) in words.iter().enumerate().skip(1) {
            self.calls.word(start + 8 * at).store(word, Ordering::Relaxed);
        }
        self.calls.word(start).store(words[0] | lap, Ordering::Release);
        self.put = self.put.wrapping_add(1);
        fence(Ordering::SeqCst);
        if self.calls.half(calls_at::WORKER_ASLEEP).load(Ordering::Relaxed) != 0 {
            self.wake();
        }
        self.numbers[task.stream as usize]
    }

    pub(crate) fn wake(&self) {
        // A bell that has counted as far as it can rings.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// The word of the worker's clock that a stream of this tenant's writes.
    pub(crate) fn word(&self, stream: u64) -> &std::sync::atomic::AtomicU64 {
        self.clock.word(8 * (16 + 16 * self.seat + stream) as usize)
    }

    /// Waits until the worker says that a call has come to its end. Whatever was told of it.
    pub(crate) fn wait(&self, stream: u64, number: u64) {
        until("the call has come to its end", || (self.word(stream).load(Ordering::Acquire) >= number).then_some(()));
    }

    /// How many calls the worker says it has taken.
    pub(crate) fn taken(&self) -> u32 {
        self.calls.half(calls_at::TAKEN).load(Ordering::Acquire)
    }

    /// The messages that the worker has told so far.
    pub(crate) fn told(&self) -> Vec<Slot> {
        let told = self.calls.half(calls_at::TOLD).load(Ordering::Acquire).min(64);
        let word = |at: u32, word: usize| self.calls.word(calls_at::MESSAGES + 64 * at as usize + 8 * word);
        (0..told).map(|at| std::array::from_fn(|index| word(at, index).load(Ordering::Acquire))).collect()
    }

    /// The kinds of those.
    pub(crate) fn told_kinds(&self) -> Vec<u32> {
        self.told().iter().map(|message| message[0] as u32).collect()
    }
}
