//! Pinned memory that blocks travel through: a few chunks for each transfer, so that the device copies some while the network
//! moves others. A lane is used by one transfer at a time, and by the next when the device is done with it.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use freehold::{Device, Event, HostMemory, ImportedSlice, Stream};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::lock;
use crate::CHUNK_BYTES_MAX;
use crate::failure::Failure;

/// Chunks of one lane: one is filled, one is copied, and one is ready when either is late.
const SLOTS: usize = 3;

/// Transfers that move at once. Further ones wait until one of these is over.
const LANES_MAX: usize = 32;

pub(super) struct Pinned {
    device: Device,
    idle: Mutex<Vec<HostMemory>>,
    permits: Arc<Semaphore>,
}

/// The pinned memory of one transfer.
pub(super) struct Lane {
    pool: Arc<Pinned>,
    /// Nothing where the device failed: then it is not used again.
    memory: Option<HostMemory>,
    /// Slots that the device may still use, the oldest first, with the bytes of each.
    flying: VecDeque<(usize, usize, Event)>,
    next: usize,
    _permit: Permit,
}

/// The right to a lane: the session's, and the gate's.
pub(super) struct Permit {
    _permits: [OwnedSemaphorePermit; 2],
}

impl Pinned {
    pub(super) fn new(device: Device) -> Self {
        Self { device, idle: Mutex::default(), permits: Arc::new(Semaphore::new(LANES_MAX)) }
    }

    /// The right to a lane, when the session may have one more and there is one.
    pub(super) async fn permit(&self, of_session: &Arc<Semaphore>) -> Permit {
        let own = of_session.clone().acquire_owned().await.expect("nobody closes it");
        let one = self.permits.clone().acquire_owned().await.expect("nobody closes it");
        Permit { _permits: [own, one] }
    }

    /// A lane, which may have to be made.
    pub(super) fn lane(self: &Arc<Self>, permit: Permit) -> Result<Lane, Failure> {
        let idle = lock(&self.idle).pop();
        let memory = match idle {
            Some(memory) => memory,
            None => self.make()?,
        };
        let flying = VecDeque::with_capacity(SLOTS);
        Ok(Lane { pool: self.clone(), memory: Some(memory), flying, next: 0, _permit: permit })
    }

    fn make(&self) -> Result<HostMemory, Failure> {
        let refused = |error: rustix::io::Errno| Failure::server(format!("at the gate: the system refused: {error}"));
        let bytes = (SLOTS * CHUNK_BYTES_MAX) as u64;
        let file = memfd_create("freehold-lane", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(refused)?;
        ftruncate(&file, bytes).map_err(refused)?;
        fcntl_add_seals(&file, SealFlags::SHRINK).map_err(refused)?;
        Ok(self.device.host_memory(file.as_fd(), bytes)?)
    }
}

impl Lane {
    pub(super) fn is_full(&self) -> bool {
        self.flying.len() == SLOTS
    }

    /// Copies bytes into pinned memory, and lets the device copy them on.
    pub(super) fn send(
        &mut self,
        stream: &Stream,
        bytes: &[u8],
        copy: impl FnOnce(&ImportedSlice<u8>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.is_full() {
            self.land()?;
        }
        let slot = self.next;
        fill(self.words(slot), bytes);
        self.fly(stream, bytes.len(), |part| copy(part))
    }

    /// Lets the device copy so many bytes into pinned memory. [`take`](Self::take) has them, in the order of the asking.
    pub(super) fn ask(
        &mut self,
        stream: &Stream,
        bytes: usize,
        copy: impl FnOnce(&mut ImportedSlice<u8>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        assert!(!self.is_full(), "a lane is asked for what it has room for");
        self.fly(stream, bytes, copy)
    }

    /// The oldest bytes that were asked for, when the device has copied them.
    pub(super) fn take(&mut self) -> Result<Vec<u8>, Failure> {
        let (slot, bytes) = self.land()?;
        let mut taken = vec![0; bytes];
        empty(self.words(slot), &mut taken);
        Ok(taken)
    }

    /// Waits until the device is done with everything.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        while !self.flying.is_empty() {
            self.land()?;
        }
        Ok(())
    }

    fn fly(
        &mut self,
        stream: &Stream,
        bytes: usize,
        copy: impl FnOnce(&mut ImportedSlice<u8>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let slot = self.next;
        let mut part = self.memory().part::<u8>(stream, (slot * CHUNK_BYTES_MAX) as u64, bytes)?;
        copy(&mut part)?;
        match stream.event() {
            Ok(event) => self.flying.push_back((slot, bytes, event)),
            Err(error) => {
                self.memory = None;
                return Err(error.into());
            }
        }
        self.next = (slot + 1) % SLOTS;
        Ok(())
    }

    fn land(&mut self) -> Result<(usize, usize), Failure> {
        let (slot, bytes, event) = self.flying.pop_front().expect("a lane is asked for what flies");
        match event.synchronize() {
            Ok(()) => Ok((slot, bytes)),
            Err(error) => {
                self.memory = None;
                Err(error.into())
            }
        }
    }

    fn memory(&self) -> &HostMemory {
        self.memory.as_ref().expect("a lane whose device failed is dropped")
    }

    fn words(&self, slot: usize) -> &[AtomicU32] {
        let words = CHUNK_BYTES_MAX / size_of::<u32>();
        &self.memory().words()[slot * words..][..words]
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // What failed is given up: the driver's last use of it is not known.
        if self.memory.is_some()
            && self.settle().is_ok()
            && let Some(memory) = self.memory.take()
        {
            lock(&self.pool.idle).push(memory);
        }
    }
}

fn fill(words: &[AtomicU32], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<4>();
    whole.iter().zip(words).for_each(|(&bytes, word)| word.store(u32::from_ne_bytes(bytes), Ordering::Relaxed));
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u32::from_ne_bytes(last), Ordering::Relaxed);
    }
}

fn empty(words: &[AtomicU32], bytes: &mut [u8]) {
    let (whole, rest) = bytes.as_chunks_mut::<4>();
    let after = whole.len();
    whole.iter_mut().zip(words).for_each(|(to, word)| *to = word.load(Ordering::Relaxed).to_ne_bytes());
    if !rest.is_empty() {
        rest.copy_from_slice(&words[after].load(Ordering::Relaxed).to_ne_bytes()[..rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_length_go_through_words_unchanged() {
        for bytes in [0, 1, 7, 8, 9, 63] {
            let words: Vec<AtomicU32> = (0..16).map(|_| AtomicU32::new(u32::MAX)).collect();
            let from: Vec<u8> = (1..=bytes).collect();
            fill(&words, &from);
            let mut to = vec![0; from.len()];
            empty(&words, &mut to);
            assert_eq!(to, from);
        }
    }
}
