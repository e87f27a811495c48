//! Transfer slots: the progress of accesses by the host, or by an engine that it drives. A slot is for transfers what a
//! stream is for work: it has seqs, and a word of pinned memory that the host writes and streams wait for. Knows
//! nothing of the memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use freehold_driver::{CallError, StreamMemOps};

use crate::ledger::{Fence, StreamId};
use crate::ordering::fence_words::{FenceWord, FenceWords};

/// Distinguishes the number of a slot from that of a stream.
const TRANSFER: u32 = 1 << 31;

/// A slot is used by one transfer at a time, so that no transfer waits for another.
#[derive(Debug)]
pub(crate) struct TransferSlot {
    id: StreamId,
    /// The seqs of the last transfer that began and of the last that ended. Written by the holder of the slot.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The word that streams wait for, if they can.
    fence_word: Option<FenceWord>,
}

/// All transfer slots of a device. They live as long as it does.
#[derive(Debug, Default)]
pub(crate) struct TransferSlots {
    slots: Mutex<Slots>,
    /// Notified at the end of each transfer.
    ends: Condvar,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Arc<TransferSlot>>,
    /// Slots without a transfer, the last used one last.
    free: Vec<Arc<TransferSlot>>,
    /// How many threads wait for an end.
    waiters: usize,
}

impl TransferSlot {
    /// Whether a fence belongs to a transfer slot rather than to a stream.
    pub(crate) fn is_transfer(stream: StreamId) -> bool {
        stream.0 & TRANSFER != 0
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// The id of neither a slot nor a stream.
    pub(crate) const NONE: StreamId = StreamId(u32::MAX);

    /// Begins a transfer. Only for the thread that took the slot.
    pub(crate) fn begin(&self) -> Fence {
        let seq = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(seq, Ordering::Release);
        Fence { stream: self.id, seq }
    }

    pub(crate) fn is_complete(&self, seq: u64) -> bool {
        self.ended.load(Ordering::Acquire) >= seq
    }

    /// The device address of the word.
    pub(crate) fn address(&self) -> Option<u64> {
        self.fence_word.as_ref().map(|slot| slot.address)
    }
}

impl TransferSlots {
    /// Takes a free slot, with a word of `fence_words` if streams can wait for words.
    pub(crate) fn take(
        &self,
        fence_words: &FenceWords,
        words: Option<&dyn StreamMemOps>,
    ) -> Result<Arc<TransferSlot>, CallError> {
        if let Some(slot) = self.lock().free.pop() {
            return Ok(slot);
        }
        let fence_word = words.map(|words| fence_words.take(words)).transpose()?;
        let mut locked = self.lock();
        let number = u32::try_from(locked.all.len()).expect("fewer than 2^32 transfers at a time");
        assert_ne!(number | TRANSFER, TransferSlot::NONE.0, "fewer than 2^31 transfers at a time");
        let slot = Arc::new(TransferSlot {
            id: StreamId(number | TRANSFER),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            fence_word,
        });
        locked.all.push(slot.clone());
        Ok(slot)
    }

    /// Takes back a slot whose transfer has not begun.
    pub(crate) fn give_back(&self, slot: Arc<TransferSlot>) {
        self.lock().free.push(slot);
    }

    /// Ends the transfer of a slot and takes the slot back. Streams and threads that wait for it continue.
    pub(crate) fn end(&self, slot: Arc<TransferSlot>) {
        let seq = slot.begun.load(Ordering::Relaxed);
        if let Some(word) = &slot.fence_word {
            word.write(seq);
        }
        let mut locked = self.lock();
        slot.ended.store(seq, Ordering::Release);
        locked.free.push(slot);
        if locked.waiters > 0 {
            self.ends.notify_all();
        }
    }

    /// Waits on the host until a transfer has ended.
    pub(crate) fn wait(&self, fence: Fence) {
        let slot = self.of(fence.stream);
        let mut locked = self.lock();
        locked.waiters += 1;
        while !slot.is_complete(fence.seq) {
            locked = self.ends.wait(locked).unwrap_or_else(PoisonError::into_inner);
        }
        locked.waiters -= 1;
    }

    /// Returns the slot of a fence.
    pub(crate) fn of(&self, stream: StreamId) -> Arc<TransferSlot> {
        self.lock().all[(stream.0 & !TRANSFER) as usize].clone()
    }

    /// Returns the fences of everything that began so far.
    pub(crate) fn fences(&self) -> Vec<Fence> {
        let fence = |slot: &Arc<TransferSlot>| Fence { stream: slot.id, seq: slot.begun.load(Ordering::Acquire) };
        self.lock().all.iter().map(fence).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
