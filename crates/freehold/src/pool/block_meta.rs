//! A block's metadata: found by number, read without a lock.
//!
//! It is written by the thread that has the block: by the one that allocates it, before it is owned, and by the one
//! that frees it, after its release. Readers use it as a seqlock: they read the state before and after, and retry if it
//! changed.

use std::panic::Location;
use std::ptr;
use std::time::Duration;

use super::stable_array::Numbered;
use super::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// The state of a block, in the low byte of its state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockState {
    /// The meta has no block.
    Vacant = 0,
    /// The block has an owner.
    Owned = 1,
    /// The block is free, in a thread's magazine or in a slab.
    Free = 2,
    /// The block was released, and waits for fences.
    Pending = 3,
    /// The block ended with its context.
    Ended = 4,
}

/// Set if streams other than the block's own have used it.
const USED: u64 = 1 << 8;
/// Set if the owner said where it allocated.
const DESCRIBED: u64 = 1 << 9;
const STATE: u64 = 0xff;
const GENERATION: u64 = 1 << 16;

/// A meta's state word: the block's state, flags, and the meta's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateWord(u64);

impl StateWord {
    #[inline]
    pub(crate) fn state(self) -> BlockState {
        match self.0 & STATE {
            1 => BlockState::Owned,
            2 => BlockState::Free,
            3 => BlockState::Pending,
            4 => BlockState::Ended,
            _ => BlockState::Vacant,
        }
    }

    #[inline]
    pub(crate) fn is_used_in_other_streams(self) -> bool {
        self.0 & USED != 0
    }

    /// Whether the owner has the block by a handle, rather than by its address alone.
    pub(crate) fn is_held(self) -> bool {
        self.state() == BlockState::Owned && self.0 & DESCRIBED != 0
    }

    #[inline]
    fn with(self, state: BlockState) -> Self {
        Self(self.0 & !(STATE | USED) | state as u64)
    }

    #[inline]
    fn without_info(self) -> Self {
        Self(self.0 & !DESCRIBED)
    }

    pub(crate) fn generation(self) -> u64 {
        self.0 / GENERATION
    }
}

/// Where a block lies in its heap: an extent of its own, or a slab and its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement(u32);

/// Set in the placement of a slab's block. The class is above the slab's number, which is less than 2^24.
const SLAB: u32 = 1 << 31;
const CLASS_SHIFT: u32 = 24;

impl Placement {
    #[inline]
    pub(crate) fn in_extent(extent: u32) -> Self {
        assert!(extent & SLAB == 0, "a heap has fewer than 2^31 extents");
        Self(extent)
    }

    pub(crate) fn in_slab(slab: u32, class: usize) -> Self {
        Self(SLAB | (class as u32) << CLASS_SHIFT | slab)
    }

    #[inline]
    pub(crate) fn extent(self) -> Option<u32> {
        (self.0 & SLAB == 0).then_some(self.0)
    }

    pub(crate) fn slab(self) -> Option<u32> {
        (self.0 & SLAB != 0).then_some(self.0 & ((1 << CLASS_SHIFT) - 1))
    }

    /// The class of a slab's block.
    #[inline]
    pub(crate) fn class(self) -> Option<usize> {
        (self.0 & SLAB != 0).then_some(((self.0 & !SLAB) >> CLASS_SHIFT) as usize)
    }
}

/// One block's metadata. In cache lines of its own, since neighbours belong to other threads. The warm path touches the
/// first line only.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct BlockMeta {
    state: AtomicU64,
    base: AtomicU64,
    /// The bytes that the owner requested.
    bytes: AtomicU64,
    /// The bytes that the block can hold.
    capacity_bytes: AtomicU64,
    /// The stream whose order the block is in.
    stream: AtomicU32,
    /// The heap that it lies in.
    heap: AtomicU32,
    /// A [`Placement`].
    placement: AtomicU32,
    number: AtomicU32,
    /// The seq in its stream after which nothing uses the block. Written only where the library counts the stream's
    /// work.
    seq: AtomicU64,
    /// How many fences a released block still waits for.
    waiting_for: AtomicU32,
    /// The number of its name; zero if it has none.
    tag: AtomicU32,
    /// Where the owner allocated and released it, and when. Valid only if the state has `DESCRIBED`.
    allocated_at: AtomicPtr<Location<'static>>,
    released_at: AtomicPtr<Location<'static>>,
    /// In nanoseconds since the device was opened; zero if not released.
    released_ns: AtomicU64,
}

/// How an owner refers to its block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OwnedBy {
    /// By its address alone, as C has it.
    Address,
    /// By a handle, which says where it was allocated, and its tag; zero is no tag.
    Handle { allocated_at: &'static Location<'static>, tag: u32 },
}

/// Where an owner allocated and released its block, when it released it, and the block's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DebugInfo {
    pub(crate) allocated_at: &'static Location<'static>,
    pub(crate) released_at: Option<&'static Location<'static>>,
    pub(crate) released: Option<Duration>,
    pub(crate) tag: u32,
}

/// A consistent copy of a meta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetaSnapshot {
    pub(crate) state: StateWord,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) capacity_bytes: u64,
    pub(crate) stream: u32,
    pub(crate) heap: u32,
    pub(crate) waiting_for: u32,
    pub(crate) debug_info: Option<DebugInfo>,
}

/// The record of a freed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreedBlock {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// Whether it ended with its context.
    pub(crate) is_ended: bool,
    pub(crate) described: Option<DebugInfo>,
}

impl FreedBlock {
    /// Only for the thread that has the meta.
    #[inline]
    pub(crate) fn of(meta: &BlockMeta) -> Self {
        let state = StateWord(meta.state.load(Ordering::Relaxed));
        Self {
            base: meta.base(),
            bytes: meta.bytes(),
            is_ended: state.state() == BlockState::Ended,
            described: if state.0 & DESCRIBED == 0 { None } else { meta.debug_info() },
        }
    }
}

// SAFETY: all fields are atomic numbers and pointers: zero is a valid value of each, and none needs a drop.
unsafe impl Numbered for BlockMeta {
    fn set_number(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
    }
}

impl BlockMeta {
    #[inline]
    pub(crate) fn state(&self) -> StateWord {
        StateWord(self.state.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn base(&self) -> u64 {
        self.base.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn stream(&self) -> u32 {
        self.stream.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn heap(&self) -> u32 {
        self.heap.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn placement(&self) -> Placement {
        Placement(self.placement.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Gives a free block to an owner, and returns the generation of the ownership. Only for the thread that took it
    /// out of a cache or a slab.
    #[inline]
    pub(crate) fn own(&self, bytes: u64, by: OwnedBy) -> u64 {
        let state = StateWord(self.state.load(Ordering::Relaxed));
        // Readers that saw the earlier state discard what is written from here on.
        fence(Ordering::Release);
        self.bytes.store(bytes, Ordering::Relaxed);
        let owned = match by {
            OwnedBy::Address => state.with(BlockState::Owned).without_info().0,
            OwnedBy::Handle { allocated_at, tag } => {
                self.describe(allocated_at, tag);
                state.with(BlockState::Owned).0 | DESCRIBED
            }
        };
        let owned = owned.wrapping_add(GENERATION);
        self.state.store(owned, Ordering::Release);
        StateWord(owned).generation()
    }

    #[inline]
    fn describe(&self, allocated_at: &'static Location<'static>, tag: u32) {
        self.allocated_at.store(ptr::from_ref(allocated_at).cast_mut(), Ordering::Relaxed);
        self.released_at.store(ptr::null_mut(), Ordering::Relaxed);
        self.released_ns.store(0, Ordering::Relaxed);
        self.tag.store(tag, Ordering::Relaxed);
    }

    /// Ends one ownership, and records where and when. Returns whether that ownership lasted until now.
    pub(crate) fn disown_with_info(
        &self,
        generation: u64,
        released_at: Option<&'static Location<'static>>,
        released: Duration,
    ) -> bool {
        let state = self.state();
        if state.state() != BlockState::Owned || state.generation() != generation {
            return false;
        }
        let free = state.with(BlockState::Free).0;
        if self.state.compare_exchange(state.0, free, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        let at = released_at.map_or(ptr::null_mut(), |at| ptr::from_ref(at).cast_mut());
        self.released_at.store(at, Ordering::Relaxed);
        self.released_ns.store(u64::try_from(released.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        true
    }

    #[inline]
    pub(crate) fn seq(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_seq(&self, seq: u64) {
        self.seq.store(seq, Ordering::Relaxed);
    }

    pub(crate) fn set_waiting_for(&self, fences: usize) {
        self.waiting_for.store(u32::try_from(fences).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn tag(&self) -> u32 {
        self.tag.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tag(&self, tag: u32) {
        self.tag.store(tag, Ordering::Relaxed);
    }

    fn debug_info(&self) -> Option<DebugInfo> {
        let location = |at: &AtomicPtr<Location<'static>>| {
            // SAFETY: the pointer is null or comes from a `&'static Location`: nothing else is ever stored.
            unsafe { at.load(Ordering::Relaxed).as_ref() }
        };
        let released_ns = self.released_ns.load(Ordering::Relaxed);
        Some(DebugInfo {
            allocated_at: location(&self.allocated_at)?,
            released_at: location(&self.released_at),
            released: (released_ns > 0).then(|| Duration::from_nanos(released_ns)),
            tag: self.tag(),
        })
    }

    /// Returns the state of an owned block that no other stream uses, if it begins at `base`.
    #[inline]
    pub(crate) fn owned_at(&self, base: u64) -> Option<StateWord> {
        let state = self.state();
        (state.0 & (STATE | USED) == BlockState::Owned as u64 && self.base() == base).then_some(state)
    }

    /// Returns the state of a block while one ownership of it lasts that is by a handle and without a name.
    #[inline]
    pub(crate) fn held_by(&self, generation: u64) -> Option<StateWord> {
        let state = self.state();
        let is_it = state.0 == (generation * GENERATION) | DESCRIBED | BlockState::Owned as u64;
        (is_it && self.tag() == 0).then_some(state)
    }

    /// Ends the ownership if the state is still `state`. Then everything read of the meta since is consistent.
    #[inline]
    pub(crate) fn disown_from(&self, state: StateWord) -> bool {
        let free = state.with(BlockState::Free).0;
        self.state.compare_exchange(state.0, free, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends the ownership, once: a second caller gets the state as the error.
    pub(crate) fn disown(&self, base: u64) -> Result<StateWord, StateWord> {
        loop {
            let state = self.state();
            if state.state() != BlockState::Owned || self.base() != base {
                return Err(state);
            }
            // Another thread may note a use in another stream at the same time.
            if self.disown_from(state) {
                return Ok(state);
            }
        }
    }

    /// Undoes a [`disown`](Self::disown) that was not followed through. Only for the thread that disowned.
    pub(crate) fn return_to_owner(&self, state: StateWord) {
        self.state.store(state.0, Ordering::Release);
    }

    /// Notes that other streams use the block, if it has an owner.
    pub(crate) fn note_used_in_other_stream(&self, base: u64) -> Result<(), StateWord> {
        loop {
            let state = self.state();
            if state.state() != BlockState::Owned || self.base() != base {
                return Err(state);
            }
            if self.state.compare_exchange(state.0, state.0 | USED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(());
            }
        }
    }

    /// Sets the state of a block without an owner: free, or waiting for fences.
    pub(crate) fn set_state(&self, to: BlockState) {
        let state = StateWord(self.state.load(Ordering::Relaxed));
        self.state.store(state.with(to).0, Ordering::Release);
    }

    /// Gives the meta a block, which is free.
    pub(crate) fn begin(&self, base: u64, capacity_bytes: u64, stream: u32, heap: u32, placement: Placement, seq: u64) {
        let state = StateWord(self.state.load(Ordering::Relaxed));
        fence(Ordering::Release);
        self.base.store(base, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.capacity_bytes.store(capacity_bytes, Ordering::Relaxed);
        self.stream.store(stream, Ordering::Relaxed);
        self.heap.store(heap, Ordering::Relaxed);
        self.placement.store(placement.0, Ordering::Relaxed);
        self.seq.store(seq, Ordering::Relaxed);
        let free = state.with(BlockState::Free).without_info().0.wrapping_add(GENERATION);
        self.state.store(free, Ordering::Release);
    }

    /// Moves a free block to the order of another stream.
    pub(crate) fn set_stream(&self, stream: u32) {
        self.stream.store(stream, Ordering::Relaxed);
    }

    /// Changes the size of a block that only the caller has.
    pub(crate) fn resize(&self, bytes: u64, capacity_bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.capacity_bytes.store(capacity_bytes, Ordering::Relaxed);
    }

    /// Takes the block from the meta.
    pub(crate) fn end(&self) {
        self.set_state(BlockState::Vacant);
    }

    /// Returns a consistent copy of the meta while one ownership of its block lasts.
    pub(crate) fn owned_as(&self, generation: u64) -> Option<MetaSnapshot> {
        let seen = self.snapshot();
        (seen.state.state() == BlockState::Owned && seen.state.generation() == generation).then_some(seen)
    }

    /// Returns a consistent copy of the meta.
    pub(crate) fn snapshot(&self) -> MetaSnapshot {
        loop {
            let state = self.state();
            let seen = MetaSnapshot {
                state,
                base: self.base(),
                bytes: self.bytes(),
                capacity_bytes: self.capacity_bytes(),
                stream: self.stream(),
                heap: self.heap(),
                waiting_for: self.waiting_for.load(Ordering::Relaxed),
                debug_info: if state.0 & DESCRIBED == 0 { None } else { self.debug_info() },
            };
            fence(Ordering::Acquire);
            if self.state.load(Ordering::Relaxed) == state.0 {
                return seen;
            }
        }
    }
}
