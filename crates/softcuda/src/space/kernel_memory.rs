//! The memory that a kernel can access: the live spans, checked to the byte at every access. If checks are off, an
//! access may go anywhere in the pages of a span, as on hardware.
//!
//! Each slice of a block has its own view, which caches the spans used last and leaves the cache to another slice. Cached
//! spans keep pages mapped, so they are dropped before the kernel can be complete. The cache is valid until kernels lose
//! access to a span, which one atomic load of the span epoch detects. All accesses are those of `racing`: kernels, copies and
//! the program may race as they do on a GPU, and a race only gives mixed values.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use freehold_driver::cuda::{CUlimit, CUmemAccess_flags, host_register_flags};
use freehold_ptx::{LANES, Memory, Observer, OutOfBounds, Surface, Texture, Width};

use super::address_space::AddressSpace;
use super::checked_block::CheckedBlock;
use super::imports::ImportedBlock;
use super::object_table::KernelObjects;
use super::racing::{load, load_pair, load_words, store, store_pair, store_words, update, update_pair};
use super::span::{Span, SpanKind};
use crate::memory::mem_ref::is_host_mapped;
use crate::memory::page_heap::PAGE_BYTES;
use crate::objects::context::Context;

/// Number of cached spans: as many as the arrays that a kernel commonly uses at once.
const TLB_ENTRIES: usize = 8;

/// The memory as a kernel in a context sees it.
#[derive(Debug)]
pub(crate) struct KernelMemory<'c> {
    space: &'c AddressSpace,
    context: &'c Arc<Context>,
    objects: &'c KernelObjects,
    tlb: Tlb,
    /// Whom the accesses are told.
    checked: Option<CheckedBlock<'c>>,
}

/// The cached spans, which slices of a launch use one after the other.
#[derive(Debug)]
pub(crate) struct Tlb {
    entries: Box<[TlbEntry; TLB_ENTRIES]>,
    /// The entry that was hit last.
    last: usize,
    /// The entry that is replaced next.
    oldest: usize,
    /// The value of `AddressSpace::span_epoch` when the entries were filled.
    epoch: u64,
}

// SAFETY: `start` is not `Send`. It points into pages that the entry keeps mapped, which any thread may access as atomics.
unsafe impl Send for TlbEntry {}

/// A cached span.
#[derive(Debug, Clone)]
struct TlbEntry {
    base: u64,
    /// Zero in an empty entry.
    bytes: u64,
    is_writable: bool,
    /// The driver's pointer to the byte at `base`.
    start: *mut u8,
    /// Keeps the pages that `start` points to alive.
    _keep: Option<Arc<Span>>,
}

impl TlbEntry {
    const EMPTY: Self = Self { base: 0, bytes: 0, is_writable: false, start: std::ptr::null_mut(), _keep: None };

    /// Returns whether `bytes` from `address` on lie in the span.
    #[inline(always)]
    fn contains(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.base);
        offset < self.bytes && self.bytes - offset >= bytes
    }

    /// Returns the driver's pointer to an address in the span.
    #[inline(always)]
    fn at(&self, address: u64) -> *mut u8 {
        self.start.wrapping_add((address - self.base) as usize)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl<'c> KernelMemory<'c> {
    /// Continues with the spans that an earlier slice has cached.
    pub(crate) fn new(
        space: &'c AddressSpace,
        context: &'c Arc<Context>,
        objects: &'c KernelObjects,
        tlb: Option<Tlb>,
    ) -> Self {
        let entries = || Box::new([const { TlbEntry::EMPTY }; TLB_ENTRIES]);
        let new_tlb = || Tlb { entries: entries(), last: 0, oldest: 0, epoch: space.span_epoch() };
        let mut this = Self { space, context, objects, tlb: tlb.unwrap_or_else(new_tlb), checked: None };
        this.flush_if_stale();
        this
    }

    /// Returns the cached spans, for another slice.
    pub(crate) fn into_tlb(mut self) -> Tlb {
        self.flush_if_stale();
        self.tlb
    }

    /// Tells all accesses to a checker.
    pub(crate) fn check(&mut self, checked: CheckedBlock<'c>) {
        self.checked = Some(checked);
    }

    /// Clears the cache if kernels have lost access to a span since it was filled.
    #[inline(always)]
    fn flush_if_stale(&mut self) {
        let epoch = self.space.span_epoch();
        if epoch != self.tlb.epoch {
            *self.tlb.entries = [const { TlbEntry::EMPTY }; TLB_ENTRIES];
            self.tlb.epoch = epoch;
        }
    }

    /// Returns the driver's pointer to `bytes` at `address`.
    #[inline(always)]
    fn pointer(&mut self, address: u64, bytes: u64, access: Access) -> Result<*mut u8, OutOfBounds> {
        if !self.tlb.entries[self.tlb.last].contains(address, bytes) {
            self.tlb.last = self.find_entry(address, bytes).ok_or(OutOfBounds { address })?;
        }
        let entry = &self.tlb.entries[self.tlb.last];
        if access == Access::Write && !entry.is_writable {
            return Err(OutOfBounds { address });
        }
        Ok(entry.at(address))
    }

    fn find_entry(&mut self, address: u64, bytes: u64) -> Option<usize> {
        let found = self.tlb.entries.iter().position(|entry| entry.contains(address, bytes));
        found.or_else(|| self.fill_tlb(address, bytes))
    }

    /// Returns the entry that was hit last if it contains the addresses of all lanes, so that no lane needs its own
    /// look-up.
    fn entry_for_all_lanes(
        &self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        access: Access,
    ) -> Option<&TlbEntry> {
        let (mut low, mut high) = (u64::MAX, 0);
        if lanes == u32::MAX {
            for &address in addresses {
                (low, high) = (low.min(address), high.max(address));
            }
        } else {
            for lane in active_lanes(lanes) {
                (low, high) = (low.min(addresses[lane]), high.max(addresses[lane]));
            }
        }
        let entry = &self.tlb.entries[self.tlb.last];
        let is_whole = entry.contains(low, 1) && entry.contains(high, width.bytes());
        (is_whole && (access == Access::Read || entry.is_writable)).then_some(entry)
    }

    /// Fills an entry for the span at `address`, if the span contains `bytes`.
    fn fill_tlb(&mut self, address: u64, bytes: u64) -> Option<usize> {
        let found = { self.space.spans().find_for_kernel(address).cloned() };
        let found = found.and_then(|span| self.tlb_entry(span)).filter(|entry| entry.contains(address, bytes));
        let entry = found.or_else(|| self.page_entry(address).filter(|entry| entry.contains(address, bytes)))?;
        let index = self.tlb.oldest;
        self.tlb.oldest = (index + 1) % TLB_ENTRIES;
        self.tlb.entries[index] = entry;
        Some(index)
    }

    /// Returns an entry for all pages of a span with memory in the page of `address`, if checks are off. The span keeps
    /// its pages attached.
    fn page_entry(&self, address: u64) -> Option<TlbEntry> {
        if self.space.are_bounds_exact {
            return None;
        }
        let span = { self.space.spans().find_in_page(address).cloned() }?;
        // Other memory ends at a page, or is the host's.
        if !matches!(span.kind, SpanKind::Device | SpanKind::Pool(_) | SpanKind::Variable { .. }) {
            return None;
        }
        let entry = self.tlb_entry(span)?;
        let before = entry.base % PAGE_BYTES;
        Some(TlbEntry {
            base: entry.base - before,
            bytes: (before + entry.bytes).next_multiple_of(PAGE_BYTES),
            start: entry.start.wrapping_sub(before as usize),
            ..entry
        })
    }

    /// Returns an entry for a span, if kernels may read it.
    fn tlb_entry(&self, span: Arc<Span>) -> Option<TlbEntry> {
        let permissions = self.permissions(&span);
        if !permissions.can_read {
            return None;
        }
        let start = match &span.kind {
            SpanKind::Device
            | SpanKind::Pool(_)
            | SpanKind::Graph(_)
            | SpanKind::Variable { .. }
            | SpanKind::Internal { .. }
            | SpanKind::Imported(_) => self.space.devices[span.device].memory.arena.pointer(span.base),
            SpanKind::Mapped(_) => self.space.reservations.arena().pointer(span.base),
            SpanKind::Pinned { pages, .. } | SpanKind::Managed { pages, .. } => pages.pointer(),
            // The program promised to keep its registered pages mapped. If they are unmapped by now, the access is a
            // fault. If they are unmapped in the middle of a slice, the access crashes, as a wild pointer of the
            // program would.
            SpanKind::Registered { .. } if !is_host_mapped(span.base, span.bytes) => return None,
            SpanKind::Registered { .. } => span.base as *mut u8,
        };
        Some(TlbEntry {
            base: span.base,
            bytes: span.bytes,
            is_writable: permissions.can_write,
            start,
            _keep: Some(span),
        })
    }
}

/// The accesses to a span that a kernel is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Permissions {
    can_read: bool,
    can_write: bool,
}

fn permissions_of(flags: CUmemAccess_flags) -> Permissions {
    Permissions {
        can_read: matches!(flags, CUmemAccess_flags::PROT_READ | CUmemAccess_flags::PROT_READWRITE),
        can_write: flags == CUmemAccess_flags::PROT_READWRITE,
    }
}

impl KernelMemory<'_> {
    /// Returns the accesses to a span that kernels of this context are allowed. Memory of another device needs peer
    /// access.
    fn permissions(&self, span: &Span) -> Permissions {
        let all = Permissions { can_read: true, can_write: true };
        let own = self.context.device.ordinal;
        match &span.kind {
            SpanKind::Variable { constant: true } if span.device == own => {
                Permissions { can_write: !self.space.are_bounds_exact, ..all }
            }
            SpanKind::Registered { flags } => {
                Permissions { can_write: flags & host_register_flags::READ_ONLY == 0, ..all }
            }
            SpanKind::Pinned { .. } | SpanKind::Managed { .. } => all,
            SpanKind::Mapped(mapping) => permissions_of(mapping.access(own)),
            SpanKind::Graph(block) if block.status.is_unmapped() => permissions_of(CUmemAccess_flags::PROT_NONE),
            _ if span.device == own => all,
            SpanKind::Graph(block) => permissions_of(block.peer_access(own)),
            SpanKind::Pool(pool) | SpanKind::Imported(ImportedBlock { pool: Some(pool), .. }) => {
                permissions_of(pool.access(own as i32).unwrap_or(CUmemAccess_flags::PROT_NONE))
            }
            _ => {
                // Opening memory of another process gives the context access to the memory's device.
                let may = |owner: &Arc<Context>| owner.may_be_accessed_by(self.context);
                let allowed = span.context.as_ref().is_some_and(may);
                Permissions { can_read: allowed, can_write: allowed }
            }
        }
    }
}

impl Memory for KernelMemory<'_> {
    fn load(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &mut [u64; LANES],
    ) -> Result<(), OutOfBounds> {
        self.flush_if_stale();
        if let Some(entry) = self.entry_for_all_lanes(width, addresses, lanes, Access::Read) {
            match lanes {
                u32::MAX => (0..LANES).for_each(|lane| values[lane] = load(entry.at(addresses[lane]), width)),
                _ => active_lanes(lanes).for_each(|lane| values[lane] = load(entry.at(addresses[lane]), width)),
            }
            return Ok(());
        }
        for lane in active_lanes(lanes) {
            let pointer = self.pointer(addresses[lane], width.bytes(), Access::Read)?;
            values[lane] = load(pointer, width);
        }
        Ok(())
    }

    fn store(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &[u64; LANES],
    ) -> Result<(), OutOfBounds> {
        self.flush_if_stale();
        if let Some(entry) = self.entry_for_all_lanes(width, addresses, lanes, Access::Write) {
            match lanes {
                u32::MAX => (0..LANES).for_each(|lane| store(entry.at(addresses[lane]), width, values[lane])),
                _ => active_lanes(lanes).for_each(|lane| store(entry.at(addresses[lane]), width, values[lane])),
            }
            return Ok(());
        }
        for lane in active_lanes(lanes) {
            let pointer = self.pointer(addresses[lane], width.bytes(), Access::Write)?;
            store(pointer, width, values[lane]);
        }
        Ok(())
    }

    fn load_words(&mut self, address: u64, words: &mut [u32; LANES]) -> bool {
        self.flush_if_stale();
        let Ok(pointer) = self.pointer(address, size_of_val(words) as u64, Access::Read) else { return false };
        load_words(pointer, words);
        true
    }

    fn store_words(&mut self, address: u64, words: &[u32; LANES]) -> bool {
        self.flush_if_stale();
        let Ok(pointer) = self.pointer(address, size_of_val(words) as u64, Access::Write) else { return false };
        store_words(pointer, words);
        true
    }

    fn store_some_words(&mut self, address: u64, words: &[u32; LANES], lanes: u32) -> bool {
        self.flush_if_stale();
        let (first, last) = (u64::from(lanes.trailing_zeros()), u64::from(lanes.leading_zeros() ^ 31));
        let (low, bytes) = (address.wrapping_add(4 * first), 4 * (last - first + 1));
        let Ok(pointer) = self.pointer(low, bytes, Access::Write) else { return false };
        let pointer = pointer.wrapping_sub(4 * first as usize);
        active_lanes(lanes).for_each(|lane| store(pointer.wrapping_add(4 * lane), Width::Four, words[lane].into()));
        true
    }

    fn load_pairs(
        &mut self,
        addresses: &[u64; LANES],
        lanes: u32,
        pairs: &mut [[u64; 2]; LANES],
    ) -> Result<(), OutOfBounds> {
        self.flush_if_stale();
        for lane in active_lanes(lanes) {
            pairs[lane] = load_pair(self.pointer(addresses[lane], 16, Access::Read)?);
        }
        Ok(())
    }

    fn store_pairs(
        &mut self,
        addresses: &[u64; LANES],
        lanes: u32,
        pairs: &[[u64; 2]; LANES],
    ) -> Result<(), OutOfBounds> {
        self.flush_if_stale();
        for lane in active_lanes(lanes) {
            store_pair(self.pointer(addresses[lane], 16, Access::Write)?, pairs[lane]);
        }
        Ok(())
    }

    fn atomic_update(
        &mut self,
        width: Width,
        address: u64,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, OutOfBounds> {
        self.flush_if_stale();
        let pointer = self.pointer(address, width.bytes(), Access::Write)?;
        Ok(update(pointer, width, change))
    }

    fn atomic_update_pair(
        &mut self,
        address: u64,
        change: &mut dyn FnMut([u64; 2]) -> [u64; 2],
    ) -> Result<[u64; 2], OutOfBounds> {
        self.flush_if_stale();
        let pointer = self.pointer(address, 16, Access::Write)?;
        Ok(update_pair(pointer, change))
    }

    fn fence(&mut self) {
        fence(Ordering::SeqCst);
    }

    fn allocate(&mut self, bytes: u64) -> u64 {
        kernel_malloc(self.space, self.context, bytes).unwrap_or(0)
    }

    fn release(&mut self, address: u64) -> bool {
        let found = { self.space.spans().malloc_block(address).cloned() };
        let Some(span) = found else { return false };
        let ended = self.space.free_internal(address);
        if ended && let Some(owner) = &span.context {
            owner.malloc_bytes.fetch_sub(span.bytes, Ordering::Relaxed);
        }
        ended
    }

    fn texture(&mut self, handle: u64) -> Option<Arc<Texture>> {
        let known = self.objects.textures.get(&(handle as usize)).cloned();
        let object = known.or_else(|| self.space.textures.find(handle as usize))?;
        (object.context_id == self.context.id).then(|| Arc::clone(&object.texture))
    }

    fn surface(&mut self, handle: u64) -> Option<Arc<Surface>> {
        let known = self.objects.surfaces.get(&(handle as usize)).cloned();
        let object = known.or_else(|| self.space.surfaces.find(handle as usize))?;
        (object.context_id == self.context.id).then(|| Arc::clone(&object.surface))
    }

    fn observer(&mut self) -> Option<&mut dyn Observer> {
        self.checked.as_mut().map(|checked| checked as _)
    }

    fn describe(&mut self, address: u64) -> String {
        let reached = { self.space.spans().find_for_kernel(address).cloned() };
        match reached {
            Some(span) if matches!(span.kind, SpanKind::Mapped(_)) && !self.permissions(&span).can_write => {
                let permissions = self.permissions(&span);
                let only = if permissions.can_read { "may only read" } else { "may not use" };
                format!("a mapping of {} bytes at {:#x}, which this device {only}", span.bytes, span.base)
            }
            Some(span) if !self.permissions(&span).can_read => {
                format!("memory of device {}, to which this context has no access", span.device)
            }
            Some(span) => match span.kind {
                SpanKind::Variable { constant: true } => "a constant, which kernels do not write".to_owned(),
                SpanKind::Registered { flags } if flags & host_register_flags::READ_ONLY != 0 => {
                    "memory that was registered to be read only".to_owned()
                }
                SpanKind::Registered { .. } => "registered memory that the program has unmapped".to_owned(),
                _ => format!("beyond the end of a block of {} bytes at {:#x}", span.bytes, span.base),
            },
            None => self.space.spans().describe(address),
        }
    }
}

/// Allocates memory for a kernel's `malloc`, within the limit of its context.
fn kernel_malloc(space: &AddressSpace, context: &Arc<Context>, bytes: u64) -> Option<u64> {
    context.malloc_is_used.store(true, Ordering::Relaxed);
    let limit = context.limit(CUlimit::MALLOC_HEAP_SIZE);
    let bytes = bytes.max(1);
    let taken = context.malloc_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        used.checked_add(bytes).filter(|&used| used <= limit)
    });
    taken.ok()?;
    let allocated = space.alloc(context, bytes, SpanKind::Internal { from_malloc: true });
    if allocated.is_err() {
        context.malloc_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
    allocated.ok()
}

/// Returns the lanes whose bit is set, lowest first.
fn active_lanes(lanes: u32) -> impl Iterator<Item = usize> {
    let mut left = lanes;
    std::iter::from_fn(move || {
        let lane = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(lane)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lanes_of_a_mask_come_from_the_lowest_on() {
        assert_eq!(active_lanes(0).count(), 0);
        assert_eq!(active_lanes(0b1000_0101).collect::<Vec<_>>(), [0, 2, 7]);
        assert_eq!(active_lanes(u32::MAX).count(), 32);
    }

    #[test]
    fn a_tlb_entry_contains_whole_accesses_only() {
        let entry = TlbEntry { base: 512, bytes: 10, ..TlbEntry::EMPTY };
        assert!(entry.contains(520, 2));
        assert!(!entry.contains(520, 4));
        assert!(!entry.contains(522, 1));
        assert!(!entry.contains(511, 1));
        assert!(!TlbEntry::EMPTY.contains(0, 0));
    }
}
