//! A tenant's place at a worker, without the library: the ring of calls and the worker's semaphores, both mapped for writing, as the
//! worker hands them out.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use sha2::{Digest, Sha256};

use super::{CLOCK_BYTES, Raw, SharedWords, Slot, message};
use crate::harness::until;

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
const PHASE: u64 = 1 << 63;

const PUT_MODULE: u64 = 20;
const DROP_MODULE: u64 = 23;
const OPEN_SESSION: u64 = 18;

/// What is called: a kernel by its place in its module, and numbers that lie behind the head.
pub(crate) struct RawCall<'a> {
    pub(crate) module: u64,
    pub(crate) kernel: u64,
    pub(crate) stream: u64,
    /// Two words for each fence that it waits for.
    pub(crate) fences: &'a [[u64; 2]],
    /// Leases that are its arguments.
    pub(crate) leases: &'a [u64],
}

pub(crate) struct RawSession {
    pub(crate) calls: SharedWords,
    /// The worker's semaphores, which all that it serves have.
    pub(crate) semaphores: SharedWords,
    doorbell: OwnedFd,
    index: u64,
    put: u32,
    numbers: [u64; 16],
}

impl Raw {
    /// A session at a worker: of its own where the label is zero.
    pub(crate) fn open_session(&mut self, label: u64) -> RawSession {
        let heard = self.ask(message(OPEN_SESSION, &[label]), b"", &[]);
        assert_eq!(heard.slot[0] as u16, 112, "{:x?}", heard.slot);
        let [calls, semaphores, doorbell] =
            <[OwnedFd; 3]>::try_from(heard.descriptors).expect("calls, semaphores and doorbell");
        let (calls, semaphores) = (SharedWords::map(&calls, CALLS_BYTES), SharedWords::map(&semaphores, CLOCK_BYTES));
        RawSession { calls, semaphores, doorbell, index: heard.slot[2], put: 0, numbers: [0; 16] }
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

impl RawSession {
    /// Puts a call in: its number in its stream. There is room, as far as this side has counted.
    pub(crate) fn call(&mut self, task: &RawCall<'_>) -> u64 {
        self.write(1, task)
    }

    /// Has the worker load a module: the number of that call in stream 0.
    pub(crate) fn load(&mut self, module: u64) -> u64 {
        self.write(2, &RawCall { module, kernel: 0, stream: 0, fences: &[], leases: &[] })
    }

    fn write(&mut self, kind: u64, task: &RawCall<'_>) -> u64 {
        let number = &mut self.numbers[task.stream as usize];
        *number += 1;
        let (fences, leases) = (task.fences.len() as u64, task.leases.len() as u64);
        let mut words = [0; CALL_WORDS];
        words[0] = kind | task.stream << 16 | leases << 32 | fences << 48;
        words[1..7].copy_from_slice(&[*number, task.module, task.kernel, 1 << 32 | 1, 1 << 32 | 1, 1 << 32 | 1]);
        let rest =
            task.fences.iter().flatten().copied().chain(task.leases.iter().flat_map(|&lease| [8 << 32 | 5, lease, 0]));
        for (word, given) in words[8..].iter_mut().zip(rest) {
            *word = given;
        }
        let lap = if (self.put / CALLS).is_multiple_of(2) { PHASE } else { 0 };
        let start = calls_at::CALLS + (self.put % CALLS) as usize * CALL_WORDS * 8;
        for (at, &word) in words.iter().enumerate().skip(1) {
            self.calls.u64_at(start + 8 * at).store(word, Ordering::Relaxed);
        }
        self.calls.u64_at(start).store(words[0] | lap, Ordering::Release);
        self.put = self.put.wrapping_add(1);
        fence(Ordering::SeqCst);
        if self.calls.u32_at(calls_at::WORKER_ASLEEP).load(Ordering::Relaxed) != 0 {
            self.wake();
        }
        self.numbers[task.stream as usize]
    }

    pub(crate) fn wake(&self) {
        // A doorbell that has counted as far as it can rings.
        let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
    }

    /// The word of the worker's semaphores that a stream of this tenant's writes.
    pub(crate) fn word(&self, stream: u64) -> &std::sync::atomic::AtomicU64 {
        self.semaphores.u64_at(8 * (16 + 16 * self.index + stream) as usize)
    }

    /// Waits until the worker says that a call has come to its end. Whatever was told of it.
    pub(crate) fn wait(&self, stream: u64, number: u64) {
        until("the call has come to its end", || (self.word(stream).load(Ordering::Acquire) >= number).then_some(()));
    }

    /// How many calls the worker says it has taken.
    pub(crate) fn taken(&self) -> u32 {
        self.calls.u32_at(calls_at::TAKEN).load(Ordering::Acquire)
    }

    /// The messages that the worker has told so far.
    pub(crate) fn failures(&self) -> Vec<Slot> {
        let told = self.calls.u32_at(calls_at::TOLD).load(Ordering::Acquire).min(64);
        let word = |at: u32, word: usize| self.calls.u64_at(calls_at::MESSAGES + 64 * at as usize + 8 * word);
        (0..told).map(|at| std::array::from_fn(|index| word(at, index).load(Ordering::Acquire))).collect()
    }

    /// The kinds of those.
    pub(crate) fn failure_kinds(&self) -> Vec<u32> {
        self.failures().iter().map(|message| message[0] as u32).collect()
    }
}
