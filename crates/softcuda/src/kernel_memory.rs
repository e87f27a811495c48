//! The memory that a kernel reaches: the live spans, checked to the byte at every access.
//!
//! Each slice of a block has a view of its own, with the spans that it met last. A view trusts them for as long as no
//! span was lost to kernels since, which one atomic load tells. All accesses are atomic in their width: kernels, copies
//! and the program may race as they do on a GPU, and nothing worse comes of it than mixed values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use freehold_driver::cuda::{CUlimit, CUmemAccess_flags, host_register_flags};
use freehold_ptx::{LANES, Memory, OutOfBounds, Width};

use crate::context::Context;
use crate::memory::place::is_mapped;
use crate::span::{Span, SpanKind};
use crate::world::{World, lock};

/// Spans that a view remembers: as many as the arrays that a kernel commonly uses at once.
const WINDOWS: usize = 8;

/// What a kernel in a context sees.
#[derive(Debug)]
pub(crate) struct View<'c> {
    world: &'static World,
    context: &'c Arc<Context>,
    windows: [Window; WINDOWS],
    /// The window that was hit last.
    last: usize,
    /// The window that gives way next.
    oldest: usize,
    /// What `World::losses` said when the windows were opened.
    losses: u64,
}

/// A span that a view remembers.
#[derive(Debug, Clone)]
struct Window {
    base: u64,
    /// Zero where there is no span.
    bytes: u64,
    writable: bool,
    /// Where the driver reaches the byte at `base`.
    start: *mut u8,
    /// Keeps the pages that `start` points to.
    _keep: Option<Arc<Span>>,
}

impl Window {
    const CLOSED: Self = Self { base: 0, bytes: 0, writable: false, start: std::ptr::null_mut(), _keep: None };

    /// Whether `bytes` from `address` on lie in it.
    fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.base);
        offset < self.bytes && self.bytes - offset >= bytes
    }

    /// Where the driver reaches an address that lies in it.
    fn at(&self, address: u64) -> *mut u8 {
        self.start.wrapping_add((address - self.base) as usize)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl<'c> View<'c> {
    pub(crate) fn new(world: &'static World, context: &'c Arc<Context>) -> Self {
        let windows = [const { Window::CLOSED }; WINDOWS];
        Self { world, context, windows, last: 0, oldest: 0, losses: world.losses() }
    }

    /// Forgets the windows if a span was lost since they were opened.
    fn refresh(&mut self) {
        let losses = self.world.losses();
        if losses != self.losses {
            self.windows = [const { Window::CLOSED }; WINDOWS];
            self.losses = losses;
        }
    }

    /// Where the driver reaches `bytes` at `address`.
    fn pointer(&mut self, address: u64, bytes: u64, access: Access) -> Result<*mut u8, OutOfBounds> {
        if !self.windows[self.last].holds(address, bytes) {
            let found = self.windows.iter().position(|window| window.holds(address, bytes));
            self.last = match found {
                Some(index) => index,
                None => self.open(address, bytes).ok_or(OutOfBounds { address })?,
            };
        }
        let window = &self.windows[self.last];
        if access == Access::Write && !window.writable {
            return Err(OutOfBounds { address });
        }
        Ok(window.at(address))
    }

    /// The window that was hit last, if all lanes lie in it: then none needs a look of its own.
    fn common(&self, width: Width, addresses: &[u64; LANES], lanes: u32, access: Access) -> Option<&Window> {
        let (mut low, mut high) = (u64::MAX, 0);
        if lanes == u32::MAX {
            for &address in addresses {
                (low, high) = (low.min(address), high.max(address));
            }
        } else {
            for lane in each(lanes) {
                (low, high) = (low.min(addresses[lane]), high.max(addresses[lane]));
            }
        }
        let window = &self.windows[self.last];
        let is_whole = window.holds(low, 1) && window.holds(high, width.bytes());
        (is_whole && (access == Access::Read || window.writable)).then_some(window)
    }

    /// Opens a window for the span at `address`, if `bytes` lie in it.
    fn open(&mut self, address: u64, bytes: u64) -> Option<usize> {
        let span = { self.world.spans().reached(address).cloned() }?;
        let rights = self.rights(&span);
        if !rights.reads {
            return None;
        }
        let start = match &span.kind {
            SpanKind::Device
            | SpanKind::Pool(_)
            | SpanKind::Variable { .. }
            | SpanKind::Hidden { .. }
            | SpanKind::Opened(_) => self.world.devices[span.device].arena.pointer(span.base),
            SpanKind::Mapped(_) => self.world.addresses.arena().pointer(span.base),
            SpanKind::Pinned { pages, .. } | SpanKind::Managed { pages, .. } => pages.start(),
            // The program's own pages, which it promised to keep mapped. One that has broken its promise by now is
            // told so; one that breaks it later, in the middle of a slice, gets what a wild pointer of its own gets.
            SpanKind::Registered { .. } if !is_mapped(span.base, span.bytes) => return None,
            SpanKind::Registered { .. } => span.base as *mut u8,
        };
        let window = Window { base: span.base, bytes: span.bytes, writable: rights.writes, start, _keep: Some(span) };
        if !window.holds(address, bytes) {
            return None;
        }
        let index = self.oldest;
        self.oldest = (index + 1) % WINDOWS;
        self.windows[index] = window;
        Some(index)
    }
}

/// What a kernel may do with a span.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Rights {
    reads: bool,
    writes: bool,
}

fn by_flags(flags: CUmemAccess_flags) -> Rights {
    Rights {
        reads: matches!(flags, CUmemAccess_flags::PROT_READ | CUmemAccess_flags::PROT_READWRITE),
        writes: flags == CUmemAccess_flags::PROT_READWRITE,
    }
}

impl View<'_> {
    /// What a kernel of this context may do with a span: memory of another device only as far as that was allowed.
    fn rights(&self, span: &Span) -> Rights {
        let all = Rights { reads: true, writes: true };
        let own = self.context.device.ordinal;
        match &span.kind {
            SpanKind::Variable { constant: true } if span.device == own => Rights { writes: false, ..all },
            SpanKind::Registered { flags } => Rights { writes: flags & host_register_flags::READ_ONLY == 0, ..all },
            SpanKind::Pinned { .. } | SpanKind::Managed { .. } => all,
            SpanKind::Mapped(mapping) => by_flags(mapping.access(own)),
            _ if span.device == own => all,
            SpanKind::Pool(pool) => by_flags(pool.access(own as i32).unwrap_or(CUmemAccess_flags::PROT_NONE)),
            _ => {
                let is_peer = |owner: &Arc<Context>| lock(&self.context.peers).contains(&owner.number);
                let allowed = span.context.as_ref().is_some_and(is_peer);
                Rights { reads: allowed, writes: allowed }
            }
        }
    }
}

impl Memory for View<'_> {
    fn load(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &mut [u64; LANES],
    ) -> Result<(), OutOfBounds> {
        self.refresh();
        if let Some(window) = self.common(width, addresses, lanes, Access::Read) {
            match lanes {
                u32::MAX => (0..LANES).for_each(|lane| values[lane] = load(window.at(addresses[lane]), width)),
                _ => each(lanes).for_each(|lane| values[lane] = load(window.at(addresses[lane]), width)),
            }
            return Ok(());
        }
        for lane in each(lanes) {
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
        self.refresh();
        if let Some(window) = self.common(width, addresses, lanes, Access::Write) {
            match lanes {
                u32::MAX => (0..LANES).for_each(|lane| store(window.at(addresses[lane]), width, values[lane])),
                _ => each(lanes).for_each(|lane| store(window.at(addresses[lane]), width, values[lane])),
            }
            return Ok(());
        }
        for lane in each(lanes) {
            let pointer = self.pointer(addresses[lane], width.bytes(), Access::Write)?;
            store(pointer, width, values[lane]);
        }
        Ok(())
    }

    fn atomic_update(
        &mut self,
        width: Width,
        address: u64,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, OutOfBounds> {
        self.refresh();
        let pointer = self.pointer(address, width.bytes(), Access::Write)?;
        Ok(update(pointer, width, change))
    }

    fn fence(&mut self) {
        fence(Ordering::SeqCst);
    }

    fn allocate(&mut self, bytes: u64) -> u64 {
        allocate_from_heap(self.world, self.context, bytes).unwrap_or(0)
    }

    fn release(&mut self, address: u64) -> bool {
        let found = { self.world.spans().malloced(address).cloned() };
        let Some(span) = found else { return false };
        let ended = self.world.end_hidden(address);
        if ended && let Some(owner) = &span.context {
            owner.heap_bytes.fetch_sub(span.bytes, Ordering::Relaxed);
        }
        ended
    }

    fn describe(&mut self, address: u64) -> String {
        let reached = { self.world.spans().reached(address).cloned() };
        match reached {
            Some(span) if matches!(span.kind, SpanKind::Mapped(_)) && !self.rights(&span).writes => {
                let rights = self.rights(&span);
                let only = if rights.reads { "may only read" } else { "may not use" };
                format!("a mapping of {} bytes at {:#x}, which this device {only}", span.bytes, span.base)
            }
            Some(span) if !self.rights(&span).reads => {
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
            None => self.world.spans().describe(address),
        }
    }
}

/// Memory for a kernel's `malloc`, within the limit of its context.
fn allocate_from_heap(world: &World, context: &Arc<Context>, bytes: u64) -> Option<u64> {
    context.heap_is_used.store(true, Ordering::Relaxed);
    let limit = context.limit(CUlimit::MALLOC_HEAP_SIZE);
    let bytes = bytes.max(1);
    let taken = context.heap_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        used.checked_add(bytes).filter(|&used| used <= limit)
    });
    taken.ok()?;
    let allocated = world.allocate(context, bytes, SpanKind::Hidden { from_malloc: true });
    if allocated.is_err() {
        context.heap_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
    allocated.ok()
}

/// The lanes whose bit is set, from the lowest on.
fn each(lanes: u32) -> impl Iterator<Item = usize> {
    let mut left = lanes;
    std::iter::from_fn(move || {
        let lane = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(lane)
    })
}

// The pointers below come from `View::pointer` and `View::common`: as many bytes as the access is wide lie in a span whose pages the
// window keeps mapped, or which the program promised to keep mapped; and they are aligned, which the kernel's own
// check of the address made sure of, since the driver's mappings keep an address's place within its page.

fn load(pointer: *mut u8, width: Width) -> u64 {
    match width {
        Width::One => {
            // SAFETY: as the comment above says; nobody makes a reference to these bytes but to an atomic.
            let word = unsafe { AtomicU8::from_ptr(pointer) };
            word.load(Ordering::Relaxed).into()
        }
        Width::Two => {
            // SAFETY: as for one byte.
            let word = unsafe { AtomicU16::from_ptr(pointer.cast()) };
            word.load(Ordering::Relaxed).into()
        }
        Width::Four => {
            // SAFETY: as for one byte.
            let word = unsafe { AtomicU32::from_ptr(pointer.cast()) };
            word.load(Ordering::Relaxed).into()
        }
        Width::Eight => {
            // SAFETY: as for one byte.
            let word = unsafe { AtomicU64::from_ptr(pointer.cast()) };
            word.load(Ordering::Relaxed)
        }
    }
}

fn store(pointer: *mut u8, width: Width, value: u64) {
    match width {
        Width::One => {
            // SAFETY: as in `load`.
            let word = unsafe { AtomicU8::from_ptr(pointer) };
            word.store(value as u8, Ordering::Relaxed);
        }
        Width::Two => {
            // SAFETY: as in `load`.
            let word = unsafe { AtomicU16::from_ptr(pointer.cast()) };
            word.store(value as u16, Ordering::Relaxed);
        }
        Width::Four => {
            // SAFETY: as in `load`.
            let word = unsafe { AtomicU32::from_ptr(pointer.cast()) };
            word.store(value as u32, Ordering::Relaxed);
        }
        Width::Eight => {
            // SAFETY: as in `load`.
            let word = unsafe { AtomicU64::from_ptr(pointer.cast()) };
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// Replaces a word by what `change` makes of it, and returns what was there.
fn update(pointer: *mut u8, width: Width, change: &mut dyn FnMut(u64) -> u64) -> u64 {
    macro_rules! replace {
        ($atomic:ty, $kind:ty) => {{
            // SAFETY: as in `load`.
            let word = unsafe { <$atomic>::from_ptr(pointer.cast()) };
            let mut old = word.load(Ordering::Relaxed);
            loop {
                let new = change(old.into()) as $kind;
                match word.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => break old.into(),
                    Err(now) => old = now,
                }
            }
        }};
    }
    match width {
        Width::One => replace!(AtomicU8, u8),
        Width::Two => replace!(AtomicU16, u16),
        Width::Four => replace!(AtomicU32, u32),
        Width::Eight => replace!(AtomicU64, u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lanes_of_a_mask_come_from_the_lowest_on() {
        assert_eq!(each(0).count(), 0);
        assert_eq!(each(0b1000_0101).collect::<Vec<_>>(), [0, 2, 7]);
        assert_eq!(each(u32::MAX).count(), 32);
    }

    #[test]
    fn words_are_loaded_stored_and_updated_in_their_width() {
        let mut bytes = [0xffu64; 2];
        let start = bytes.as_mut_ptr().cast::<u8>();
        store(start, Width::Two, 0x12345);
        assert_eq!(load(start, Width::Eight), 0x2345);
        assert_eq!(update(start, Width::Four, &mut |old| old + 1), 0x2345);
        assert_eq!(load(start, Width::One), 0x46);
        assert_eq!(load(start.wrapping_add(8), Width::Eight), 0xff);
    }

    #[test]
    fn a_window_holds_whole_accesses_only() {
        let window = Window { base: 512, bytes: 10, ..Window::CLOSED };
        assert!(window.holds(520, 2));
        assert!(!window.holds(520, 4));
        assert!(!window.holds(522, 1));
        assert!(!window.holds(511, 1));
        assert!(!Window::CLOSED.holds(0, 0));
    }
}
