//! A device: its addresses, its memory as far as this process has it, its primary context and its pools.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use freehold_driver::cuda::CUerror;

use crate::config::Config;
use crate::context::PrimaryContext;
use crate::driver_state::lock;
use crate::memory::PAGE_BYTES;
use crate::memory::arena::{ARENA_BYTES_MAX, Arena, HOST_READ_WRITE};
use crate::memory::backing::Backing;
use crate::memory::dirty_ranges::DirtyRanges;
use crate::memory::page_heap::{PageHeap, PageRun};
use crate::memory::usage_file::UsageFile;
use crate::pool::Pool;
use crate::span::Span;

/// Addresses of a device for each byte of its memory: a free page is never out of reach for lack of neighbours, and
/// every pool has room to grow in.
const ADDRESSES_PER_BYTE: u64 = 16;

/// As many pages without a block stay attached.
const SPARE_PAGES_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) ordinal: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) arena: Arena,
    /// Who has how much of the memory, in all processes.
    pub(crate) usage: Arc<UsageFile>,
    heap: Mutex<PageHeap>,
    /// The memory of this process's blocks, by the address of its first page. Locked after the heap.
    backings: Mutex<BTreeMap<u64, Arc<Backing>>>,
    /// By offset, where freed blocks were written. Locked after the heap.
    dirty: Mutex<DirtyRanges>,
    /// Pages without a block that are still attached, by address: a program that has one small block at a time would
    /// otherwise make and lose its memory each time. Nothing is charged for them. Locked after the heap.
    spare_pages: Mutex<BTreeMap<u64, Arc<Backing>>>,
    primary: Mutex<PrimaryContext>,
    pools: Mutex<DevicePools>,
}

/// The pools of one device.
#[derive(Debug, Default)]
pub(crate) struct DevicePools {
    /// Made when it is first asked for.
    pub(crate) default: Option<Arc<Pool>>,
    /// What `cuMemAllocAsync` takes from, if not the default one.
    pub(crate) current: Option<Arc<Pool>>,
    /// All that hold memory, destroyed ones with live blocks too.
    pub(crate) all: Vec<Arc<Pool>>,
}

impl Device {
    pub(crate) fn open(config: &Config, ordinal: usize) -> io::Result<Self> {
        let memory_bytes = config.memory_bytes;
        let address_bytes = (memory_bytes * ADDRESSES_PER_BYTE).min(ARENA_BYTES_MAX);
        Ok(Self {
            ordinal,
            memory_bytes,
            arena: Arena::reserve(ordinal + 1, address_bytes, config.is_coherent)?,
            usage: Arc::new(UsageFile::open(&config.machine, ordinal, memory_bytes)?),
            heap: Mutex::new(PageHeap::new(address_bytes)),
            backings: Mutex::default(),
            dirty: Mutex::default(),
            spare_pages: Mutex::default(),
            primary: Mutex::default(),
            pools: Mutex::default(),
        })
    }

    fn heap(&self) -> MutexGuard<'_, PageHeap> {
        lock(&self.heap)
    }

    pub(crate) fn primary(&self) -> MutexGuard<'_, PrimaryContext> {
        lock(&self.primary)
    }

    pub(crate) fn pools(&self) -> MutexGuard<'_, DevicePools> {
        lock(&self.pools)
    }

    /// How much memory no process has.
    pub(crate) fn free_bytes(&self) -> Result<u64, CUerror> {
        self.usage.free_bytes().map_err(|_| CUerror::OPERATING_SYSTEM)
    }

    /// An address for `bytes` of memory; what pools hold unused is taken from them if nothing else is left.
    pub(crate) fn alloc(&self, bytes: u64, owner: u64) -> Result<u64, CUerror> {
        let try_alloc = || self.alloc_block(bytes, owner).map_err(|_| CUerror::OUT_OF_MEMORY);
        if bytes > self.memory_bytes {
            return Err(CUerror::OUT_OF_MEMORY);
        }
        let offset = match try_alloc()? {
            Some(offset) => Some(offset),
            None => {
                self.trim_pools(|_| 0);
                try_alloc()?
            }
        };
        Ok(self.arena.base() + offset.ok_or(CUerror::OUT_OF_MEMORY)?)
    }

    /// The offset of a block with memory behind it; nothing if there is none.
    fn alloc_block(&self, bytes: u64, owner: u64) -> io::Result<Option<u64>> {
        let mut heap = self.heap();
        let Some(placed) = heap.alloc(bytes, owner) else { return Ok(None) };
        let backed = placed.new_pages.map_or(Ok(true), |run| self.back_pages(run));
        if !matches!(backed, Ok(true)) {
            heap.free(placed.offset);
        }
        Ok(backed?.then_some(placed.offset))
    }

    /// Puts new memory behind pages.
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

    /// The memory that a block lies in, and where it starts.
    pub(crate) fn backing(&self, address: u64) -> Option<(u64, Arc<Backing>)> {
        let backings = lock(&self.backings);
        let (&start, memory) = backings.range(..=address).next_back()?;
        (address - start < memory.bytes()).then(|| (start, Arc::clone(memory)))
    }

    /// Takes back a block that [`allocate`](Self::allocate) gave. Nothing may be at work on it any more.
    pub(crate) fn free_span(&self, block: &Span) {
        self.free(block.base, block.bytes);
    }

    /// Takes back a block of `bytes` at `base`.
    pub(crate) fn free(&self, base: u64, bytes: u64) {
        let mut heap = self.heap();
        // Whoever has opened shared memory reads what was there until somebody writes something else.
        if bytes < PAGE_BYTES && !self.backing(base).is_some_and(|(_, memory)| memory.is_shared()) {
            self.arena.poison(base, bytes);
        }
        if let Some(run) = heap.free(base - self.arena.base()) {
            let address = self.arena.base() + run.offset;
            let memory = lock(&self.backings).remove(&address).expect("the pages of blocks have memory");
            if self.can_keep_spare(run, &memory) {
                self.arena.poison_written(address, run.bytes, &memory, 0);
                // A usage file that cannot be written is met by the next charge.
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

    /// The spare page at `address`, if that is all that is wanted. Others that lie there give way.
    fn take_spare(&self, address: u64, bytes: u64) -> Option<Arc<Backing>> {
        let mut spare_pages = lock(&self.spare_pages);
        let found = spare_pages.extract_if(address..address + bytes, |_, _| true).map(|(_, memory)| memory).last();
        found.filter(|_| bytes == PAGE_BYTES)
    }

    /// Notes where memory was written that is about to go.
    fn record_dirty(&self, run: PageRun, memory: &Backing) {
        let mut dirty = lock(&self.dirty);
        let mut at = 0;
        while let Some((start, end)) = memory.next_written(at, run.bytes) {
            dirty.insert(run.offset + start, run.offset + end);
            at = end;
        }
    }

    /// Addresses for memory that is attached by the caller.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<u64> {
        let address = self.arena.base() + self.heap().reserve(bytes.div_ceil(PAGE_BYTES))?;
        // What is attached there next takes the place of a spare page.
        self.take_spare(address, bytes.next_multiple_of(PAGE_BYTES));
        Some(address)
    }

    /// Gives back what [`reserve`](Self::reserve) gave, and takes away the memory that is attached there.
    pub(crate) fn unreserve(&self, address: u64, bytes: u64) {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let mut heap = self.heap();
        self.arena.detach(address, bytes);
        heap.unreserve(address - self.arena.base(), bytes / PAGE_BYTES);
    }

    /// Lets every pool give back what it does not use beyond what it may keep.
    pub(crate) fn trim_pools(&self, keep_bytes: impl Fn(&Pool) -> u64) {
        let mut pools = self.pools();
        for pool in &pools.all {
            pool.trim(self, keep_bytes(pool));
        }
        pools.all.retain(|pool| !pool.is_drained());
    }
}
