//! A tenant's session at a worker, without the library: the call ring and the worker's semaphores, both mapped for
//! writing, as the worker hands them out.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use sha2::{Digest, Sha256};

use super::{CLOCK_BYTES, Raw, SharedWords, Slot, message};
use crate::harness::until;

/// Offsets of the words of a call ring.
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

/// The phase bit in the first word of a call.
const PHASE: u64 = 1 << 63;

const PUT_MODULE: u64 = 20;
const DROP_MODULE: u64 = 23;
const OPEN_SESSION: u64 = 18;

/// A call: a kernel by its index in its module, and what follows the header.
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
    /// The worker's semaphores, which all of its tenants share.
    pub(crate) semaphores: SharedWords,
    doorbell: OwnedFd,
    index: u64,
    put: u32,
    numbers: [u64; 16],
}

impl Raw {
    /// Opens a session: at a private worker if the label is 0.
    pub(crate) fn open_session(&mut self, label: u64) -> RawSession {
        let heard = self.ask(message(OPEN_SESSION, &[label]), b"", &[]);
        assert_eq!(heard.slot[0] as u16, 112, "{:x?}", heard.slot);
        let [calls, semaphores, doorbell] =
            <[OwnedFd; 3]>::try_from(heard.descriptors).expect("calls, semaphores and doorbell");
        let (calls, semaphores) = (SharedWords::map(&calls, CALLS_BYTES), SharedWords::map(&semaphores, CLOCK_BYTES));
        RawSession { calls, semaphores, doorbell, index: heard.slot[2], put: 0, numbers: [0; 16] }
    }

    /// Drops a module.
    pub(crate) fn drop_module(&mut self, name: &str) {
        let dropped = self.ask(message(DROP_MODULE, &[]), name.as_bytes(), &[]).slot;
        assert_eq!(dropped[0] as u16, 104, "{dropped:x?}");
    }

    /// Puts a text under a name. Returns the reply. `device_bytes` is the declared device memory of the text.
    pub(crate) fn put_module(&mut self, name: &str, text: &str, device_bytes: u64) -> Slot {
        let file = memfd_create("freehold-module", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
        rustix::io::write(&file, text.as_bytes()).expect("the memfd can be written");
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).expect("the memfd can be sealed");
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
    /// Submits a call. Returns its number in its stream. There is room, as far as this side has counted.
    pub(crate) fn call(&mut self, task: &RawCall<'_>) -> u64 {
        self.write(1, task)
    }

    /// Makes the worker load a module. Returns the number of that call in stream 0.
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
        // If the counter is full, the doorbell rings already.
        let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
    }

    /// The semaphore of the worker that a stream of this tenant writes.
    pub(crate) fn word(&self, stream: u64) -> &std::sync::atomic::AtomicU64 {
        self.semaphores.u64_at(8 * (16 + 16 * self.index + stream) as usize)
    }

    /// Waits until the worker reports that a call is complete, successful or not.
    pub(crate) fn wait(&self, stream: u64, number: u64) {
        until("the call is complete", || (self.word(stream).load(Ordering::Acquire) >= number).then_some(()));
    }

    /// How many calls the worker reports to have taken.
    pub(crate) fn taken(&self) -> u32 {
        self.calls.u32_at(calls_at::TAKEN).load(Ordering::Acquire)
    }

    /// The failures that the worker has reported so far.
    pub(crate) fn failures(&self) -> Vec<Slot> {
        let told = self.calls.u32_at(calls_at::TOLD).load(Ordering::Acquire).min(64);
        let word = |at: u32, word: usize| self.calls.u64_at(calls_at::MESSAGES + 64 * at as usize + 8 * word);
        (0..told).map(|at| std::array::from_fn(|index| word(at, index).load(Ordering::Acquire))).collect()
    }

    /// Their kinds.
    pub(crate) fn failure_kinds(&self) -> Vec<u32> {
        self.failures().iter().map(|message| message[0] as u32).collect()
    }
}
