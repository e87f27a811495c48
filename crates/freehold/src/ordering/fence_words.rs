//! Words of pinned memory. Each stream has a word that the device writes and the host reads, which shows how far the
//! stream has come. Each transfer slot has a word that the host writes and streams wait for.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use freehold_driver::{CallError, StreamMemOps};

const PAGE_BYTES: usize = 4096;

/// A word has a cache line of its own: the device writes it while the host reads its neighbours.
const SLOT_BYTES: usize = 64;
const SLOTS: usize = PAGE_BYTES / SLOT_BYTES;

/// All pages of a device. They belong to its primary context, which outlives the library's other contexts.
#[derive(Debug, Default)]
pub(crate) struct FenceWords {
    pages: Mutex<Vec<Page>>,
}

#[derive(Debug)]
struct Page {
    start: NonNull<u8>,
    address: u64,
    /// The slots that are not in use.
    free: Vec<usize>,
}

// SAFETY: `start` is not `Send` as a pointer; it is pinned memory of this value alone, which any thread may read.
unsafe impl Send for Page {}

/// The word of one stream or transfer slot. It is not `Clone`: two owners of one word would overwrite each other.
#[derive(Debug)]
pub(crate) struct FenceWord {
    word: NonNull<AtomicU64>,
    pub(crate) address: u64,
    page: usize,
    index: usize,
}

// SAFETY: `word` is not `Send` as a pointer; it is read and written through atomics only.
unsafe impl Send for FenceWord {}
// SAFETY: as above.
unsafe impl Sync for FenceWord {}

impl FenceWord {
    /// Returns the value that the device wrote last.
    pub(crate) fn read(&self) -> u64 {
        self.word().load(Ordering::Acquire)
    }

    /// Writes the word from the host, for a word that no stream writes.
    pub(crate) fn write(&self, value: u64) {
        self.word().store(value, Ordering::Release);
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the pages live as long as the device, which lives as long as any stream, any transfer slot and thus
        // any word; the word is aligned to 64 bytes and written by the device in one piece.
        unsafe { self.word.as_ref() }
    }
}

impl FenceWords {
    /// Takes a word, which is zero.
    pub(crate) fn take(&self, words: &dyn StreamMemOps) -> Result<FenceWord, CallError> {
        loop {
            if let Some(slot) = self.free_slot() {
                return Ok(slot);
            }
            self.add_page(words)?;
        }
    }

    fn add_page(&self, words: &dyn StreamMemOps) -> Result<(), CallError> {
        let (start, address) = words.alloc_mapped_host(PAGE_BYTES)?;
        let page = Page { start, address, free: (0..SLOTS).rev().collect() };
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).push(page);
        Ok(())
    }

    /// Takes back a word that the device no longer writes.
    pub(crate) fn give_back(&self, slot: &FenceWord) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages[slot.page].free.push(slot.index);
    }

    /// Frees all pages, which waits for all work of the primary context.
    ///
    /// # Safety
    /// No slot is used from this call on.
    pub(crate) unsafe fn free(&self, words: &dyn StreamMemOps) -> Result<(), CallError> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(page) = pages.last() {
            // SAFETY: the page is this value's own pinned memory, and the caller guarantees that nothing still reads
            // it.
            unsafe { words.free_mapped_host(page.start) }?;
            pages.pop();
        }
        Ok(())
    }

    fn free_slot(&self) -> Option<FenceWord> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let (page, found) = pages.iter_mut().enumerate().find(|(_, page)| !page.free.is_empty())?;
        let index = found.free.pop()?;
        let offset = index * SLOT_BYTES;
        // SAFETY: `offset` is less than the length of the page, which is one allocation.
        let word = unsafe { found.start.add(offset) }.cast::<AtomicU64>();
        let slot = FenceWord { word, address: found.address + offset as u64, page, index };
        slot.word().store(0, Ordering::Release);
        Some(slot)
    }
}
