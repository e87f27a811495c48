//! Pools for allocation in the order of streams: which free memory a stream may have at once.
//!
//! Free memory carries the points in streams at which it was freed. A stream may have it if it comes after those
//! points: they are its own, or it waited for an event behind them, or they have passed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use freehold_driver::cuda::{CUerror, CUmemAccess_flags, CUmemPool_attribute, CUmemoryPool};

use crate::engine::queue::{Point, Queue};
use crate::memory::PAGE_BYTES;
use crate::memory::heap::GRAIN_BYTES;
use crate::world::{Device, lock};

/// A pool takes memory from its device in segments of at least this.
const SEGMENT_BYTES: u64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) handle: CUmemoryPool,
    pub(crate) device: Weak<Device>,
    pub(crate) is_default: bool,
    /// The most it may take from its device.
    max_bytes: u64,
    destroyed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Bytes by address of what was taken from the device.
    segments: BTreeMap<u64, u64>,
    /// Free memory by address.
    free: BTreeMap<u64, Fragment>,
    /// Bytes by address of what is in use.
    live: BTreeMap<u64, u64>,
    /// What was freed last, the first place to look.
    recent: Option<u64>,
    reserved_bytes: u64,
    reserved_high: u64,
    used_bytes: u64,
    used_high: u64,
    follow_events: bool,
    opportunistic: bool,
    internal_dependencies: bool,
    release_threshold: u64,
    /// Access of other devices, by ordinal.
    access: BTreeMap<i32, CUmemAccess_flags>,
}

/// Free memory within one segment.
#[derive(Debug, Clone)]
struct Fragment {
    segment: u64,
    bytes: u64,
    /// Where it was freed. Empty once all have passed.
    freed: Vec<Point>,
}

/// Memory for a stream, which must wait for `after` before it touches it.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) address: u64,
    pub(crate) after: Vec<Point>,
}

/// Whether free memory may be had with a wait that the driver adds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    None,
    Added,
}

impl Pool {
    pub(crate) fn new(handle: CUmemoryPool, device: &Arc<Device>, is_default: bool, max_bytes: u64) -> Self {
        Self {
            handle,
            device: Arc::downgrade(device),
            is_default,
            max_bytes: if max_bytes == 0 { u64::MAX } else { max_bytes },
            destroyed: false.into(),
            state: Mutex::new(State {
                segments: BTreeMap::new(),
                free: BTreeMap::new(),
                live: BTreeMap::new(),
                recent: None,
                reserved_bytes: 0,
                reserved_high: 0,
                used_bytes: 0,
                used_high: 0,
                follow_events: true,
                opportunistic: true,
                internal_dependencies: true,
                release_threshold: 0,
                access: BTreeMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Memory that `queue` may have: free memory it comes after, or new memory of the device, or free memory with a
    /// wait.
    pub(crate) fn allocate(&self, device: &Device, bytes: u64, queue: &Queue) -> Result<Grant, CUerror> {
        let bytes = bytes.checked_next_multiple_of(GRAIN_BYTES).ok_or(CUerror::OUT_OF_MEMORY)?;
        if let Some(grant) = self.state().take(bytes, queue, Waits::None) {
            return Ok(grant);
        }
        if self.grow(device, bytes) {
            let grant = self.state().take(bytes, queue, Waits::None);
            return grant.ok_or(CUerror::OUT_OF_MEMORY);
        }
        let mut state = self.state();
        if !state.internal_dependencies {
            return Err(CUerror::OUT_OF_MEMORY);
        }
        state.take(bytes, queue, Waits::Added).ok_or(CUerror::OUT_OF_MEMORY)
    }

    /// Takes another segment from the device, large enough for `bytes`. Not called with the state locked: the device
    /// may ask pools for what they do not use.
    fn grow(&self, device: &Device, bytes: u64) -> bool {
        let Some(least) = bytes.checked_next_multiple_of(PAGE_BYTES) else { return false };
        let room = self.max_bytes.saturating_sub(self.state().reserved_bytes);
        let sizes = [least.max(SEGMENT_BYTES), least];
        let found = sizes.into_iter().filter(|&size| size <= room).find_map(|size| {
            // A segment is never small, so its owner does not matter.
            device.allocate(size, 0).ok().map(|address| (address, size))
        });
        let Some((segment, size)) = found else { return false };
        let mut state = self.state();
        state.segments.insert(segment, size);
        state.free.insert(segment, Fragment { segment, bytes: size, freed: Vec::new() });
        state.reserved_bytes += size;
        state.reserved_high = state.reserved_high.max(state.reserved_bytes);
        true
    }

    /// Takes memory back that was freed at `point`.
    pub(crate) fn release(&self, address: u64, point: Point) {
        self.state().release(address, point);
    }

    /// Bytes of the live block at `address`.
    pub(crate) fn live_bytes(&self, address: u64) -> Option<u64> {
        self.state().live.get(&address).copied()
    }

    /// Gives segments back to the device that are free and whose points have passed, down to `keep_bytes`.
    pub(crate) fn trim(&self, device: &Device, keep_bytes: u64) {
        let mut state = self.state();
        if state.reserved_bytes <= keep_bytes || state.free.is_empty() {
            return;
        }
        state.tidy();
        let whole: Vec<_> = state.segments.iter().map(|(&segment, &bytes)| (segment, bytes)).collect();
        for (segment, bytes) in whole {
            let is_free = |fragment: &Fragment| fragment.bytes == bytes && fragment.freed.is_empty();
            if state.reserved_bytes.saturating_sub(bytes) < keep_bytes || !state.free.get(&segment).is_some_and(is_free)
            {
                continue;
            }
            state.free.remove(&segment);
            state.segments.remove(&segment);
            state.reserved_bytes -= bytes;
            device.heap().release(segment - device.arena.base());
        }
    }

    /// Ends the handle. What is in use stays until it is freed.
    pub(crate) fn destroy(&self) {
        self.destroyed.store(true, Ordering::Release);
    }

    /// Whether the pool is destroyed and holds no memory any more.
    pub(crate) fn is_over(&self) -> bool {
        self.destroyed.load(Ordering::Acquire) && self.state().reserved_bytes == 0
    }

    /// What the pool may keep when the program synchronises.
    pub(crate) fn keep_bytes(&self) -> u64 {
        if self.destroyed.load(Ordering::Acquire) { 0 } else { self.state().release_threshold }
    }

    /// The value of an attribute; those that are switches as 0 or 1.
    pub(crate) fn attribute(&self, attribute: CUmemPool_attribute) -> Result<u64, CUerror> {
        let state = self.state();
        Ok(match attribute {
            CUmemPool_attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES => state.follow_events.into(),
            CUmemPool_attribute::REUSE_ALLOW_OPPORTUNISTIC => state.opportunistic.into(),
            CUmemPool_attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => state.internal_dependencies.into(),
            CUmemPool_attribute::RELEASE_THRESHOLD => state.release_threshold,
            CUmemPool_attribute::RESERVED_MEM_CURRENT => state.reserved_bytes,
            CUmemPool_attribute::RESERVED_MEM_HIGH => state.reserved_high,
            CUmemPool_attribute::USED_MEM_CURRENT => state.used_bytes,
            CUmemPool_attribute::USED_MEM_HIGH => state.used_high,
            _ => return Err(CUerror::INVALID_VALUE),
        })
    }

    /// Sets an attribute. The high-water marks can only be set back to zero, which means to what is current.
    pub(crate) fn set_attribute(&self, attribute: CUmemPool_attribute, value: u64) -> Result<(), CUerror> {
        let mut state = self.state();
        match attribute {
            CUmemPool_attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES => state.follow_events = value != 0,
            CUmemPool_attribute::REUSE_ALLOW_OPPORTUNISTIC => state.opportunistic = value != 0,
            CUmemPool_attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => state.internal_dependencies = value != 0,
            CUmemPool_attribute::RELEASE_THRESHOLD => state.release_threshold = value,
            CUmemPool_attribute::RESERVED_MEM_HIGH if value == 0 => state.reserved_high = state.reserved_bytes,
            CUmemPool_attribute::USED_MEM_HIGH if value == 0 => state.used_high = state.used_bytes,
            _ => return Err(CUerror::INVALID_VALUE),
        }
        Ok(())
    }

    pub(crate) fn access(&self, ordinal: i32) -> Option<CUmemAccess_flags> {
        self.state().access.get(&ordinal).copied()
    }

    pub(crate) fn set_access(&self, ordinal: i32, flags: CUmemAccess_flags) {
        self.state().access.insert(ordinal, flags);
    }
}

impl State {
    fn take(&mut self, bytes: u64, queue: &Queue, waits: Waits) -> Option<Grant> {
        let known = queue.known();
        let (follow, opportunistic) = (self.follow_events, self.opportunistic);
        let comes_after = |point: &Point| {
            point.queue.id == queue.id
                || follow && known.get(&point.queue.id).is_some_and(|&position| position >= point.position)
                || opportunistic && point.has_passed()
        };
        let usable = |fragment: &Fragment| waits == Waits::Added || fragment.freed.iter().all(comes_after);
        let recent = self.recent.take().filter(|address| {
            self.free.get(address).is_some_and(|fragment| fragment.bytes >= bytes && usable(fragment))
        });
        let start = recent.or_else(|| first_run(&self.free, bytes, usable))?;
        let after = self.cut(start, bytes).into_iter().filter(|point| !comes_after(point)).collect();
        self.live.insert(start, bytes);
        self.used_bytes += bytes;
        self.used_high = self.used_high.max(self.used_bytes);
        Some(Grant { address: start, after })
    }

    /// Takes `bytes` from `start` on out of the free memory, and says where that was freed.
    fn cut(&mut self, start: u64, bytes: u64) -> Vec<Point> {
        let (mut at, end) = (start, start + bytes);
        let mut freed = Vec::new();
        while at < end {
            let fragment = self.free.remove(&at).expect("a run of free memory has no gap");
            freed.extend(fragment.freed.iter().cloned());
            let fragment_end = at + fragment.bytes;
            if fragment_end > end {
                self.free.insert(end, Fragment { bytes: fragment_end - end, ..fragment });
            }
            at = fragment_end;
        }
        freed
    }

    fn release(&mut self, address: u64, point: Point) {
        let bytes = self.live.remove(&address).expect("a live span of a pool is a live block of it");
        self.used_bytes -= bytes;
        let (&segment, _) = self.segments.range(..=address).next_back().expect("a block lies in a segment");
        self.free.insert(address, Fragment { segment, bytes, freed: vec![point] });
        self.recent = Some(address);
    }

    /// Forgets the points that have passed and merges neighbours that have none.
    fn tidy(&mut self) {
        let mut tidy: BTreeMap<u64, Fragment> = BTreeMap::new();
        for (address, mut fragment) in std::mem::take(&mut self.free) {
            fragment.freed.retain(|point| !point.has_passed());
            if let Some(mut last) = tidy.last_entry()
                && last.key() + last.get().bytes == address
                && last.get().segment == fragment.segment
                && last.get().freed.is_empty()
                && fragment.freed.is_empty()
            {
                last.get_mut().bytes += fragment.bytes;
                continue;
            }
            tidy.insert(address, fragment);
        }
        self.free = tidy;
    }
}

/// Where the first run of neighbouring usable fragments of one segment starts that holds `bytes`.
fn first_run(free: &BTreeMap<u64, Fragment>, bytes: u64, usable: impl Fn(&Fragment) -> bool) -> Option<u64> {
    let mut run: Option<(u64, u64, u64)> = None;
    for (&address, fragment) in free {
        if !usable(fragment) {
            run = None;
            continue;
        }
        let (start, end) = match run {
            Some((segment, start, end)) if segment == fragment.segment && end == address => {
                (start, end + fragment.bytes)
            }
            _ => (address, address + fragment.bytes),
        };
        if end - start >= bytes {
            return Some(start);
        }
        run = Some((fragment.segment, start, end));
    }
    None
}
