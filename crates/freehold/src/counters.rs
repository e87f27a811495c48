//! Words of pinned memory: one for each stream, that the device writes and the host reads, which tells how far the stream has
//! come, and one for each lane, that the host writes and streams await.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use freehold_driver::cuda::{Api, CUcontext, CUdeviceptr, CallError, host, host_alloc_flags};

use crate::current::calmly;

const PAGE_BYTES: usize = 4096;

/// A word has a line of the cache to itself: the device writes it while the host reads its neighbours.
const SLOT_BYTES: usize = 64;
const SLOTS: usize = PAGE_BYTES / SLOT_BYTES;

/// All pages of a device. They belong to its primary context, which outlives every other of ours.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pages: Mutex<Vec<Page>>,
}

#[derive(Debug)]
struct Page {
    start: NonNull<u8>,
    address: CUdeviceptr,
    /// The slots that no stream has.
    free: Vec<usize>,
}

// SAFETY: `start` is not `Send` as a pointer; it is pinned memory of this value alone, which any thread may read.
unsafe impl Send for Page {}

/// The word of one stream or lane. It is not `Clone`: two with one word would tell of each other.
#[derive(Debug)]
pub(crate) struct Slot {
    word: NonNull<AtomicU64>,
    pub(crate) address: CUdeviceptr,
    page: usize,
    index: usize,
}

// SAFETY: `word` is not `Send` as a pointer; it is read and written through atomics only.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// What the device wrote last.
    pub(crate) fn read(&self) -> u64 {
        self.word().load(Ordering::Acquire)
    }

    /// Writes the word from the host: for one that no stream writes.
    pub(crate) fn write(&self, value: u64) {
        self.word().store(value, Ordering::Release);
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the pages live as long as the device's core, which lives as long as any stream, lane and thus any slot;
        // the word is aligned to 64 bytes and written by the device in one piece.
        unsafe { self.word.as_ref() }
    }
}

impl Counters {
    /// A word that is zero.
    pub(crate) fn take(&self, api: &Api, primary: CUcontext) -> Result<Slot, CallError> {
        loop {
            if let Some(slot) = self.free_slot() {
                return Ok(slot);
            }
            self.add_page(api, primary)?;
        }
    }

    fn add_page(&self, api: &Api, primary: CUcontext) -> Result<(), CallError> {
        // Pinned memory of the primary context that is portable is seen by streams of all contexts.
        let flags = host_alloc_flags::PORTABLE | host_alloc_flags::DEVICEMAP;
        let (start, address) = calmly(api, primary, || {
            let start = host::alloc_with_flags(api, PAGE_BYTES, flags)?;
            let address = host::device_address(api, start, 0).or_else(|error| {
                // SAFETY: the page was made above, and nobody knows of it.
                unsafe { host::free(api, start) }.and(Err(error))
            })?;
            Ok((start, address))
        })?;
        let start = NonNull::new(start.cast::<u8>()).expect("the driver allocates nothing at null");
        let page = Page { start, address, free: (0..SLOTS).rev().collect() };
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).push(page);
        Ok(())
    }

    /// Takes a word back that the device will not write any more.
    pub(crate) fn give_back(&self, slot: &Slot) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages[slot.page].free.push(slot.index);
    }

    /// Frees all pages, which waits for all work of the primary context (fact 2.1).
    ///
    /// # Safety
    /// No slot is used from the call on.
    pub(crate) unsafe fn free(&self, api: &Api) -> Result<(), CallError> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(page) = pages.last() {
            // SAFETY: the page is pinned memory of ours, and the caller vouches that nothing reads it any more.
            unsafe { host::free(api, page.start.as_ptr().cast()) }?;
            pages.pop();
        }
        Ok(())
    }

    fn free_slot(&self) -> Option<Slot> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let (page, found) = pages.iter_mut().enumerate().find(|(_, page)| !page.free.is_empty())?;
        let index = found.free.pop()?;
        let offset = index * SLOT_BYTES;
        // SAFETY: `offset` is less than the length of the page, which is one allocation.
        let word = unsafe { found.start.add(offset) }.cast::<AtomicU64>();
        let slot = Slot { word, address: CUdeviceptr(found.address.0 + offset as u64), page, index };
        slot.word().store(0, Ordering::Release);
        Some(slot)
    }
}
