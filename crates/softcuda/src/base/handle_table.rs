//! Handles: an index and a generation, encoded as an address, so that a dead, foreign or wild handle is found out by a
//! look-up and never followed.
//!
//! Programs take handles for pointers: they read them as signed numbers, and expect them to be aligned. So handles are
//! addresses below 2^47 of a range that this process has reserved and that is never readable or writable: no handle is
//! the address of anything, and following one ends the program where it does so.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, RwLock};

use super::sync::{read, write};
use freehold_driver::cuda::CUerror;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// What kind of thing a handle names: which part of the reserved range it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HandleKind {
    Context,
    Stream,
    Event,
    Pool,
    Module,
    Function,
    Library,
    Kernel,
    Link,
    Allocation,
    Graph,
    GraphExec,
    GraphNode,
    LogsCallback,
}

impl HandleKind {
    /// What a call answers that is given a handle of this kind which names nothing.
    fn invalid_handle_code(self) -> CUerror {
        match self {
            Self::Context => CUerror::INVALID_CONTEXT,
            Self::Stream | Self::Event | Self::Module | Self::Function | Self::Library | Self::Kernel | Self::Link => {
                CUerror::INVALID_HANDLE
            }
            Self::Pool | Self::Allocation | Self::Graph | Self::GraphExec | Self::GraphNode | Self::LogsCallback => {
                CUerror::INVALID_VALUE
            }
        }
    }
}

/// Parts of the range, one for each kind.
const KINDS: usize = 16;
/// Distance of two handles, the alignment of what an allocator gives.
const HANDLE_STRIDE_BYTES: usize = 16;
const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 11;
/// Handles of one kind that are alive at once, at the most.
const INDICES: usize = 1 << INDEX_BITS;
/// Things that one index names before it rests.
const GENERATIONS: u32 = 1 << GENERATION_BITS;
const HANDLES_PER_KIND: usize = 1 << (INDEX_BITS + GENERATION_BITS);
const KIND_BYTES: usize = HANDLES_PER_KIND * HANDLE_STRIDE_BYTES;
const RANGE_BYTES: usize = KINDS * KIND_BYTES;
/// No address of a program is as large, and no handle may be.
const ADDRESS_END: usize = 1 << 47;

/// The addresses that handles are taken from, reserved for as long as the value lives.
#[derive(Debug)]
pub(crate) struct HandleRange {
    base: usize,
}

impl HandleRange {
    /// Reserves the addresses. The kernel is asked for the same place each time, so that a run can be repeated with the
    /// same handles; it lies below the addresses of devices.
    pub(crate) fn reserve() -> io::Result<Self> {
        const HINT: usize = 0x0400_0000_0000;
        let hint = HINT as *mut std::ffi::c_void;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at a place of the kernel's choice replaces nothing.
        let start = unsafe { mmap_anonymous(hint, RANGE_BYTES, ProtFlags::empty(), flags) }?;
        let range = Self { base: start as usize };
        if range.base + RANGE_BYTES > ADDRESS_END {
            return Err(io::Error::other("the system has no addresses below 2^47 for handles"));
        }
        Ok(range)
    }

    /// The handles of one kind.
    pub(crate) fn space(&self, kind: HandleKind) -> HandleSpace {
        HandleSpace { kind, base: self.base + kind as usize * KIND_BYTES }
    }
}

impl Drop for HandleRange {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nobody reads or writes where nothing can be read or written.
        let unmapped = unsafe { munmap(self.base as *mut std::ffi::c_void, RANGE_BYTES) };
        assert!(unmapped.is_ok(), "a whole mapping of our own can be unmapped");
    }
}

/// The handles of one kind, as numbers from zero on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandleSpace {
    kind: HandleKind,
    base: usize,
}

impl HandleSpace {
    /// The handle with an index, of which there are 2^35.
    pub(crate) fn handle(self, index: usize) -> usize {
        self.base + index % HANDLES_PER_KIND * HANDLE_STRIDE_BYTES
    }

    /// The index of a handle, unless it is of another kind or wild.
    pub(crate) fn index(self, handle: usize) -> Option<usize> {
        let offset = handle.checked_sub(self.base).filter(|offset| offset % HANDLE_STRIDE_BYTES == 0)?;
        Some(offset / HANDLE_STRIDE_BYTES).filter(|&index| index < HANDLES_PER_KIND)
    }
}

/// What the next handle after a removal looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleReuse {
    /// The removed handle comes back for the next thing, as the real driver's do where they are addresses of
    /// records that are used again.
    Immediate,
    /// A removed handle is never seen again.
    Never,
}

/// The live things of one kind by their handles.
#[derive(Debug)]
pub(crate) struct HandleTable<T> {
    space: HandleSpace,
    reuse: HandleReuse,
    slots: RwLock<Slots<T>>,
}

#[derive(Debug)]
struct Slots<T> {
    entries: Vec<Slot<T>>,
    /// Indices of entries without a value; the last one removed is the first one used again.
    free: Vec<u32>,
    /// Indices without a value that have had all their generations, oldest first: they begin again when every index was
    /// used as often.
    exhausted: VecDeque<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<Arc<T>>,
    /// What a removed handle named, until it comes back.
    removed: Option<Arc<T>>,
}

impl<T> Slots<T> {
    /// An index without a value.
    fn alloc_slot(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        if self.entries.len() == INDICES {
            return self.exhausted.pop_front().expect("fewer than 2^24 handles of one kind are alive");
        }
        self.entries.push(Slot { generation: 0, value: None, removed: None });
        (self.entries.len() - 1) as u32
    }

    /// Takes the value out of an entry, if it has one.
    fn free_slot(&mut self, index: usize, reuse: HandleReuse) -> Option<Arc<T>> {
        let slot = &mut self.entries[index];
        let value = slot.value.take()?;
        match reuse {
            HandleReuse::Never => slot.generation = (slot.generation + 1) % GENERATIONS,
            HandleReuse::Immediate => slot.removed = Some(Arc::clone(&value)),
        }
        let is_exhausted = reuse == HandleReuse::Never && slot.generation == 0;
        let index = u32::try_from(index).expect("an index has 24 bits");
        if is_exhausted {
            self.exhausted.push_back(index)
        } else {
            self.free.push(index)
        }
        Some(value)
    }
}

impl<T> HandleTable<T> {
    pub(crate) const fn new(handles: HandleSpace, reuse: HandleReuse) -> Self {
        let slots = Slots { entries: Vec::new(), free: Vec::new(), exhausted: VecDeque::new() };
        Self { space: handles, reuse, slots: RwLock::new(slots) }
    }

    /// Enters what `make` builds from its own handle.
    pub(crate) fn insert_with(&self, make: impl FnOnce(usize) -> Arc<T>) -> (usize, Arc<T>) {
        let mut slots = write(&self.slots);
        let index = slots.alloc_slot();
        let slot = &mut slots.entries[index as usize];
        let handle = self.encode(index, slot.generation);
        let value = make(handle);
        slot.removed = None;
        slot.value = Some(Arc::clone(&value));
        (handle, value)
    }

    pub(crate) fn find(&self, handle: usize) -> Option<Arc<T>> {
        let (index, generation) = self.decode(handle)?;
        let slots = read(&self.slots);
        let slot = slots.entries.get(index as usize)?;
        if slot.generation == generation { slot.value.clone() } else { None }
    }

    /// What a handle names.
    ///
    /// # Errors
    /// It names nothing: the code is that of its kind.
    pub(crate) fn get(&self, handle: usize) -> Result<Arc<T>, CUerror> {
        self.find(handle).ok_or(self.space.kind.invalid_handle_code())
    }

    /// What a handle names, or named before it was removed: for a handle that comes back.
    pub(crate) fn find_or_removed(&self, handle: usize) -> Option<Arc<T>> {
        let (index, generation) = self.decode(handle)?;
        let slots = read(&self.slots);
        let slot = slots.entries.get(index as usize).filter(|slot| slot.generation == generation)?;
        slot.value.clone().or_else(|| slot.removed.clone())
    }

    /// Ends a handle and gives back what it named.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let (index, generation) = self.decode(handle)?;
        let mut slots = write(&self.slots);
        if slots.entries.get(index as usize)?.generation != generation {
            return None;
        }
        slots.free_slot(index as usize, self.reuse)
    }

    /// Ends the handles of everything that `unwanted` picks.
    pub(crate) fn remove_all(&self, unwanted: impl Fn(&T) -> bool) {
        let mut slots = write(&self.slots);
        for index in 0..slots.entries.len() {
            if slots.entries[index].value.as_deref().is_some_and(&unwanted) {
                slots.free_slot(index, self.reuse);
            }
        }
    }

    fn encode(&self, index: u32, generation: u32) -> usize {
        self.space.handle((generation as usize) << INDEX_BITS | index as usize)
    }

    fn decode(&self, handle: usize) -> Option<(u32, u32)> {
        let index = self.space.index(handle)?;
        Some(((index % INDICES) as u32, (index >> INDEX_BITS) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(kind: HandleKind, reuse: HandleReuse) -> HandleTable<u32> {
        HandleTable::new(HandleSpace { kind, base: (1 << 42) + kind as usize * KIND_BYTES }, reuse)
    }

    fn enter(registry: &HandleTable<u32>, value: u32) -> usize {
        registry.insert_with(|_| Arc::new(value)).0
    }

    #[test]
    fn a_handle_finds_what_it_names_until_it_is_removed() {
        let registry = new(HandleKind::Event, HandleReuse::Never);
        let handle = enter(&registry, 7);
        assert_eq!(registry.find(handle).as_deref(), Some(&7));
        assert_eq!(registry.remove(handle).as_deref(), Some(&7));
        assert_eq!(registry.find(handle), None);
        assert_eq!(registry.get(handle), Err(CUerror::INVALID_HANDLE));
        assert_eq!(registry.remove(handle), None);
    }

    #[test]
    fn a_handle_of_an_earlier_generation_finds_nothing() {
        let registry = new(HandleKind::Event, HandleReuse::Never);
        let first = enter(&registry, 1);
        registry.remove(first);
        let second = enter(&registry, 2);
        assert_ne!(first, second);
        assert_eq!(registry.find(first), None);
        assert_eq!(registry.remove(first), None);
        assert_eq!(registry.find(second).as_deref(), Some(&2));
    }

    #[test]
    fn a_handle_that_comes_back_names_the_newer_thing() {
        let registry = new(HandleKind::Stream, HandleReuse::Immediate);
        let first = enter(&registry, 1);
        registry.remove(first);
        assert_eq!(registry.find(first), None);
        assert_eq!(registry.find_or_removed(first).as_deref(), Some(&1));
        assert_eq!(enter(&registry, 2), first);
        assert_eq!(registry.find(first).as_deref(), Some(&2));
        assert_eq!(registry.find_or_removed(first).as_deref(), Some(&2));
    }

    #[test]
    fn the_handles_of_what_is_picked_end_and_others_do_not() {
        let registry = new(HandleKind::Stream, HandleReuse::Immediate);
        let (odd, even) = (enter(&registry, 1), enter(&registry, 2));
        registry.remove_all(|value| value % 2 == 1);
        assert_eq!(registry.find(odd), None);
        assert_eq!(registry.find(even).as_deref(), Some(&2));
    }

    #[test]
    fn wild_and_foreign_handles_find_nothing() {
        let registry = new(HandleKind::Stream, HandleReuse::Never);
        let streams = enter(&registry, 1);
        let others = new(HandleKind::Event, HandleReuse::Never);
        let event = enter(&others, 2);
        for handle in [0, 1, 2, usize::MAX, streams + 1, streams + 8, streams + 16, streams - 16, event, 0xdead_beef] {
            assert_eq!(registry.find(handle), None);
        }
    }

    #[test]
    fn a_removed_handle_is_not_seen_again_however_often_its_place_is_used() {
        let registry = new(HandleKind::Event, HandleReuse::Never);
        let first = enter(&registry, 0);
        registry.remove(first);
        for value in 0..3 * GENERATIONS {
            let handle = enter(&registry, value);
            assert_ne!(handle, first);
            registry.remove(handle);
        }
        assert_eq!(registry.find(first), None);
    }

    #[test]
    fn the_first_and_the_last_handle_of_a_kind_lie_in_the_range() {
        let range = HandleRange::reserve().unwrap();
        let all = [HandleKind::Context, HandleKind::GraphNode].map(|kind| range.space(kind));
        for handles in all {
            for index in [0, HANDLES_PER_KIND - 1] {
                let handle = handles.handle(index);
                assert_eq!(handles.index(handle), Some(index));
                assert!(handle >= range.base && handle + HANDLE_STRIDE_BYTES <= range.base + RANGE_BYTES);
                assert_eq!(handle % HANDLE_STRIDE_BYTES, 0);
            }
        }
        assert_ne!(all[0].handle(HANDLES_PER_KIND - 1), all[1].handle(0));
    }
}
