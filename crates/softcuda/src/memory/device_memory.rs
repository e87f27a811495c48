//! This process's part of one device's memory: the addresses of its blocks, the file behind each, and what is charged.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use super::arena::{ARENA_BYTES_MAX, Arena, HOST_READ_WRITE};
use super::backing::Backing;
use super::dirty_ranges::DirtyRanges;
use super::page_heap::{PAGE_BYTES, PageHeap, PageRun};
use super::usage_file::UsageFile;
use crate::base::config::Config;
use crate::base::sync::lock;

/// Device addresses for each byte of device memory: fragmentation never makes a free page unusable, and every pool has
/// space to grow.
const ADDRESSES_PER_BYTE: u64 = 16;

/// Maximum number of pages without a block that stay attached.
const SPARE_PAGES_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct DeviceMemory {
    /// Memory of the device, shared by all processes.
    pub(crate) bytes: u64,
    pub(crate) arena: Arena,
    /// The memory that each process uses.
    pub(crate) usage: Arc<UsageFile>,
    heap: Mutex<PageHeap>,
    /// The memory of this process's blocks, by the address of its first page. Locked after the heap.
    backings: Mutex<BTreeMap<u64, Arc<Backing>>>,
    /// Offsets at which freed blocks had been written. Locked after the heap.
    dirty: Mutex<DirtyRanges>,
    /// Attached pages without a block, by address. They save a program that has one small block at a time from creating
    /// and destroying its memory each time. They are not charged. Locked after the heap.
    spare_pages: Mutex<BTreeMap<u64, Arc<Backing>>>,
}

impl DeviceMemory {
    pub(crate) fn open(config: &Config, index: usize) -> io::Result<Self> {
        let bytes = config.memory_bytes;
        let address_bytes = (bytes * ADDRESSES_PER_BYTE).min(ARENA_BYTES_MAX);
        Ok(Self {
            bytes,
            arena: Arena::reserve(index + 1, address_bytes, config.is_coherent)?,
            usage: Arc::new(UsageFile::open(&config.machine, index, bytes)?),
            heap: Mutex::new(PageHeap::new(address_bytes)),
            backings: Mutex::default(),
            dirty: Mutex::default(),
            spare_pages: Mutex::default(),
        })
    }

    fn heap(&self) -> MutexGuard<'_, PageHeap> {
        lock(&self.heap)
    }

    /// Allocates a block with memory behind it and returns its address, or `None` if there is no memory.
    pub(crate) fn alloc(&self, bytes: u64, owner: u64) -> io::Result<Option<u64>> {
        let mut heap = self.heap();
        let Some(placed) = heap.alloc(bytes, owner) else { return Ok(None) };
        let backed = placed.new_pages.map_or(Ok(true), |run| self.back_pages(run));
        if !matches!(backed, Ok(true)) {
            heap.free(placed.offset);
        }
        Ok(backed?.then(|| self.arena.base() + placed.offset))
    }

    /// Attaches new memory to pages.
    fn back_pages(&self, run: PageRun) -> io::Result<bool> {
        let address = self.arena.base() + run.offset;
        if let Some(memory) = self.take_spare(address, run.bytes) {
            let fits = memory.charge(run.bytes)?;
            let list = if fits { &self.backings } else { &self.spare_pages };
            lock(list).insert(address, memory);
            return Ok(fits);
        }
        let Some(memory) = Backing::create(&self.usage, run.bytes)? else { return Ok(false) };
        self.arena.attach(address, &memory, 0, run.bytes, HOST_READ_WRITE)?;
        for (start, end) in lock(&self.dirty).remove(run.offset, run.offset + run.bytes) {
            self.arena.poison(self.arena.base() + start, end - start);
        }
        lock(&self.backings).insert(address, memory);
        Ok(true)
    }

    /// Returns the memory that a block lies in, and the address at which that memory starts.
    pub(crate) fn backing(&self, address: u64) -> Option<(u64, Arc<Backing>)> {
        let backings = lock(&self.backings);
        let (&start, memory) = backings.range(..=address).next_back()?;
        (address - start < memory.bytes()).then(|| (start, Arc::clone(memory)))
    }

    /// Frees a block of `bytes` from [`alloc`](Self::alloc). No pending work may access it.
    pub(crate) fn free(&self, base: u64, bytes: u64) {
        let mut heap = self.heap();
        // Shared memory is not overwritten: importers read its contents until they are written over.
        if bytes < PAGE_BYTES && !self.backing(base).is_some_and(|(_, memory)| memory.is_shared()) {
            self.arena.poison(base, bytes);
        }
        if let Some(run) = heap.free(base - self.arena.base()) {
            let address = self.arena.base() + run.offset;
            let memory = lock(&self.backings).remove(&address).expect("the pages of blocks have memory");
            if self.can_keep_spare(run, &memory) {
                self.arena.poison_written(address, run.bytes, &memory, 0);
                // A damaged usage file is reported by the next charge.
                drop(memory.uncharge(run.bytes));
                lock(&self.spare_pages).insert(address, memory);
                return;
            }
            self.arena.detach(address, run.bytes);
            self.record_dirty(run, &memory);
            drop(heap);
            drop(memory);
        }
    }

    fn can_keep_spare(&self, run: PageRun, memory: &Backing) -> bool {
        run.bytes == PAGE_BYTES && !memory.is_shared() && lock(&self.spare_pages).len() < SPARE_PAGES_MAX
    }

    /// Removes the spare pages in a range. Returns the page if the range is a single page.
    fn take_spare(&self, address: u64, bytes: u64) -> Option<Arc<Backing>> {
        let mut spare_pages = lock(&self.spare_pages);
        let found = spare_pages.extract_if(address..address + bytes, |_, _| true).map(|(_, memory)| memory).last();
        found.filter(|_| bytes == PAGE_BYTES)
    }

    /// Records which parts of memory that is about to be released were written.
    fn record_dirty(&self, run: PageRun, memory: &Backing) {
        let mut dirty = lock(&self.dirty);
        let mut at = 0;
        while let Some((start, end)) = memory.next_written(at, run.bytes) {
            dirty.insert(run.offset + start, run.offset + end);
            at = end;
        }
    }

    /// Reserves addresses for memory that the caller attaches.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<u64> {
        let address = self.arena.base() + self.heap().reserve(bytes.div_ceil(PAGE_BYTES))?;
        // The caller's memory replaces any spare page in the range.
        self.take_spare(address, bytes.next_multiple_of(PAGE_BYTES));
        Some(address)
    }

    /// Releases addresses from [`reserve`](Self::reserve) and detaches the memory there.
    pub(crate) fn unreserve(&self, address: u64, bytes: u64) {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let mut heap = self.heap();
        self.arena.detach(address, bytes);
        heap.unreserve(address - self.arena.base(), bytes / PAGE_BYTES);
    }
}
