//! Pinned memory between network and device: a few chunks for each transfer, so that the device copies some while the
//! network moves others. One transfer uses a buffer at a time, and the next when the device is done with it.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use freehold::{Device, Event, HostMemory, ImportedSlice, Stream};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::RemoteError;
use crate::sync::lock;
use crate::transport::CHUNK_BYTES_MAX;

/// Chunks of one buffer: one is filled, one is copied, and one is ready when either is late.
const CHUNKS: usize = 3;

/// Active transfers. Further ones wait until one ends.
const TRANSFERS_MAX: usize = 32;

pub(super) struct PinnedPool {
    device: Device,
    idle: Mutex<Vec<HostMemory>>,
    permits: Arc<Semaphore>,
}

/// The pinned memory of one transfer.
pub(super) struct TransferBuffer {
    pool: Arc<PinnedPool>,
    /// `None` if the device failed: then it is not reused.
    memory: Option<HostMemory>,
    /// Slots that the device may still use, oldest first, with their bytes.
    in_flight: VecDeque<(usize, usize, Event)>,
    next: usize,
    _permit: TransferPermit,
}

/// The right to a buffer, of the session and of the server.
pub(super) struct TransferPermit {
    _permits: [OwnedSemaphorePermit; 2],
}

impl PinnedPool {
    pub(super) fn new(device: Device) -> Self {
        Self { device, idle: Mutex::default(), permits: Arc::new(Semaphore::new(TRANSFERS_MAX)) }
    }

    /// Waits until the session and the server have a buffer left.
    pub(super) async fn permit(&self, of_session: &Arc<Semaphore>) -> TransferPermit {
        let own = of_session.clone().acquire_owned().await.expect("the semaphore is never closed");
        let one = self.permits.clone().acquire_owned().await.expect("the semaphore is never closed");
        TransferPermit { _permits: [own, one] }
    }

    /// Returns a buffer, and allocates one if none is free.
    pub(super) fn buffer(self: &Arc<Self>, permit: TransferPermit) -> Result<TransferBuffer, RemoteError> {
        let idle = lock(&self.idle).pop();
        let memory = match idle {
            Some(memory) => memory,
            None => self.alloc()?,
        };
        let flying = VecDeque::with_capacity(CHUNKS);
        Ok(TransferBuffer { pool: self.clone(), memory: Some(memory), in_flight: flying, next: 0, _permit: permit })
    }

    fn alloc(&self) -> Result<HostMemory, RemoteError> {
        let refused = |error: rustix::io::Errno| RemoteError::server(format!("at the server: system error: {error}"));
        let bytes = (CHUNKS * CHUNK_BYTES_MAX) as u64;
        let file =
            memfd_create("freehold-transfer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(refused)?;
        ftruncate(&file, bytes).map_err(refused)?;
        fcntl_add_seals(&file, SealFlags::SHRINK).map_err(refused)?;
        Ok(self.device.host_memory(file.as_fd(), bytes)?)
    }
}

impl TransferBuffer {
    pub(super) fn is_full(&self) -> bool {
        self.in_flight.len() == CHUNKS
    }

    /// Copies bytes to pinned memory, and submits the copy to the device.
    pub(super) fn upload(
        &mut self,
        stream: &Stream,
        bytes: &[u8],
        copy: impl FnOnce(&ImportedSlice<u8>) -> Result<(), RemoteError>,
    ) -> Result<(), RemoteError> {
        if self.is_full() {
            self.wait_oldest()?;
        }
        let slot = self.next;
        store_bytes(self.words(slot), bytes);
        self.submit(stream, bytes.len(), |part| copy(part))
    }

    /// Submits a copy from the device to pinned memory. [`take_downloaded`](Self::take_downloaded) returns the bytes,
    /// in the same order.
    pub(super) fn download(
        &mut self,
        stream: &Stream,
        bytes: usize,
        copy: impl FnOnce(&mut ImportedSlice<u8>) -> Result<(), RemoteError>,
    ) -> Result<(), RemoteError> {
        assert!(!self.is_full(), "the buffer has a free slot");
        self.submit(stream, bytes, copy)
    }

    /// Waits for the oldest submitted copy and returns its bytes.
    pub(super) fn take_downloaded(&mut self) -> Result<Vec<u8>, RemoteError> {
        let (slot, bytes) = self.wait_oldest()?;
        let mut taken = vec![0; bytes];
        load_bytes(self.words(slot), &mut taken);
        Ok(taken)
    }

    /// Waits until the device is done with all slots.
    pub(super) fn wait_all(&mut self) -> Result<(), RemoteError> {
        while !self.in_flight.is_empty() {
            self.wait_oldest()?;
        }
        Ok(())
    }

    fn submit(
        &mut self,
        stream: &Stream,
        bytes: usize,
        copy: impl FnOnce(&mut ImportedSlice<u8>) -> Result<(), RemoteError>,
    ) -> Result<(), RemoteError> {
        let slot = self.next;
        let mut part = self.memory().slice::<u8>(stream, (slot * CHUNK_BYTES_MAX) as u64, bytes)?;
        copy(&mut part)?;
        match stream.event() {
            Ok(event) => self.in_flight.push_back((slot, bytes, event)),
            Err(error) => {
                self.memory = None;
                return Err(error.into());
            }
        }
        self.next = (slot + 1) % CHUNKS;
        Ok(())
    }

    fn wait_oldest(&mut self) -> Result<(usize, usize), RemoteError> {
        let (slot, bytes, event) = self.in_flight.pop_front().expect("a copy is in flight");
        match event.synchronize() {
            Ok(()) => Ok((slot, bytes)),
            Err(error) => {
                self.memory = None;
                Err(error.into())
            }
        }
    }

    fn memory(&self) -> &HostMemory {
        self.memory.as_ref().expect("a buffer whose device failed is dropped")
    }

    fn words(&self, slot: usize) -> &[AtomicU32] {
        let words = CHUNK_BYTES_MAX / size_of::<u32>();
        &self.memory().words()[slot * words..][..words]
    }
}

impl Drop for TransferBuffer {
    fn drop(&mut self) {
        // After a failure the memory is not reused: the driver may still access it.
        if self.memory.is_some()
            && self.wait_all().is_ok()
            && let Some(memory) = self.memory.take()
        {
            lock(&self.pool.idle).push(memory);
        }
    }
}

fn store_bytes(words: &[AtomicU32], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<4>();
    whole.iter().zip(words).for_each(|(&bytes, word)| word.store(u32::from_ne_bytes(bytes), Ordering::Relaxed));
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u32::from_ne_bytes(last), Ordering::Relaxed);
    }
}

fn load_bytes(words: &[AtomicU32], bytes: &mut [u8]) {
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
            store_bytes(&words, &from);
            let mut to = vec![0; from.len()];
            load_bytes(&words, &mut to);
            assert_eq!(to, from);
        }
    }
}
