//! Handles: an index and a generation, encoded as an address. A dead, foreign or wild handle is detected by a look-up
//! and never dereferenced.
//!
//! Programs treat handles as pointers: they read them as signed numbers and expect them to be aligned. So handles are
//! addresses below 2^47 in a range that this process has reserved and that is never readable or writable. A handle is
//! never the address of an object, and a program that dereferences one crashes at that access.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, RwLock};

use super::sync::{read, write};
use freehold_driver::cuda::CUerror;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The kind of object that a handle names. It selects the part of the reserved range.
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
    UserObject,
    Array,
    MipmappedArray,
    Texture,
    Surface,
}

impl HandleKind {
    /// The error code for a handle of this kind that names nothing.
    fn invalid_handle_code(self) -> CUerror {
        match self {
            Self::Context => CUerror::INVALID_CONTEXT,
            Self::Stream
            | Self::Event
            | Self::Module
            | Self::Function
            | Self::Library
            | Self::Kernel
            | Self::Link
            | Self::Array
            | Self::MipmappedArray => CUerror::INVALID_HANDLE,
            Self::Pool
            | Self::Allocation
            | Self::Graph
            | Self::GraphExec
            | Self::GraphNode
            | Self::LogsCallback
            | Self::UserObject
            | Self::Texture
            | Self::Surface => CUerror::INVALID_VALUE,
        }
    }
}

/// Number of parts of the range, one for each kind.
const KINDS: usize = 20;
/// Distance between two handles: the alignment that allocators guarantee.
const HANDLE_STRIDE_BYTES: usize = 16;
const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 11;
/// Maximum number of live handles of one kind.
const INDICES: usize = 1 << INDEX_BITS;
/// Number of objects that one index names before it is set aside as exhausted.
const GENERATIONS: u32 = 1 << GENERATION_BITS;
const HANDLES_PER_KIND: usize = 1 << (INDEX_BITS + GENERATION_BITS);
const KIND_BYTES: usize = HANDLES_PER_KIND * HANDLE_STRIDE_BYTES;
const RANGE_BYTES: usize = KINDS * KIND_BYTES;
/// End of user-space addresses, and so of handles.
const ADDRESS_END: usize = 1 << 47;

/// The reserved addresses that handles are taken from. Dropping the value releases them.
#[derive(Debug)]
pub(crate) struct HandleRange {
    base: usize,
}

impl HandleRange {
    /// Reserves the addresses. The hint is the same each time, below the addresses of devices, so that handles are the
    /// same in a repeated run.
    pub(crate) fn reserve() -> io::Result<Self> {
        const HINT: usize = 0x0400_0000_0000;
        let hint = HINT as *mut std::ffi::c_void;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe { mmap_anonymous(hint, RANGE_BYTES, ProtFlags::empty(), flags) }?;
        let range = Self { base: start as usize };
        if range.base + RANGE_BYTES > ADDRESS_END {
            return Err(io::Error::other("no free address range below 2^47 for handles"));
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
        // SAFETY: this value owns the mapping, and its pages are inaccessible, so nothing reads or writes them.
        let unmapped = unsafe { munmap(self.base as *mut std::ffi::c_void, RANGE_BYTES) };
        assert!(unmapped.is_ok(), "an owned mapping can be unmapped");
    }
}

/// The handles of one kind, numbered from zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandleSpace {
    kind: HandleKind,
    base: usize,
}

impl HandleSpace {
    /// Returns the handle with this index, which is below 2^35.
    pub(crate) fn handle(self, index: usize) -> usize {
        self.base + index % HANDLES_PER_KIND * HANDLE_STRIDE_BYTES
    }

    /// Returns the index of a handle, or `None` if the handle is wild or of another kind.
    pub(crate) fn index(self, handle: usize) -> Option<usize> {
        let offset = handle.checked_sub(self.base).filter(|offset| offset % HANDLE_STRIDE_BYTES == 0)?;
        Some(offset / HANDLE_STRIDE_BYTES).filter(|&index| index < HANDLES_PER_KIND)
    }
}

/// Whether a removed handle is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleReuse {
    /// The next object gets the removed handle, as with the real driver, whose handles are addresses of reused records.
    Immediate,
    /// A removed handle is never used again.
    Never,
}

/// The live objects of one kind by handle.
#[derive(Debug)]
pub(crate) struct HandleTable<T> {
    space: HandleSpace,
    reuse: HandleReuse,
    slots: RwLock<Slots<T>>,
}

#[derive(Debug)]
struct Slots<T> {
    entries: Vec<Slot<T>>,
    /// Indices of entries without a value. The last one removed is reused first.
    free: Vec<u32>,
    /// Indices without a value that have used all their generations, oldest first. They are reused when every index is
    /// exhausted.
    exhausted: VecDeque<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<Arc<T>>,
    /// The object that a removed handle named, until the handle is reused.
    removed: Option<Arc<T>>,
}

impl<T> Slots<T> {
    /// Returns an index without a value.
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

    /// Takes the value out of an entry, if there is one.
    fn free_slot(&mut self, index: usize, reuse: HandleReuse) -> Option<Arc<T>> {
        let slot = &mut self.entries[index];
        let value = slot.value.take()?;
        match reuse {
            HandleReuse::Never => slot.generation = (slot.generation + 1) % GENERATIONS,
            HandleReuse::Immediate => slot.removed = Some(Arc::clone(&value)),
        }
        let is_exhausted = reuse == HandleReuse::Never && slot.generation == 0;
        let index = u32::try_from(index).expect("an index fits in 24 bits");
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

    /// Inserts the value that `make` builds from its handle.
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

    /// Returns the object that a handle names.
    ///
    /// # Errors
    /// The handle names nothing: the code is that of its kind.
    pub(crate) fn get(&self, handle: usize) -> Result<Arc<T>, CUerror> {
        self.find(handle).ok_or(self.space.kind.invalid_handle_code())
    }

    /// Returns the object that a handle names, or the one it named before it was removed. For kinds whose handles are
    /// reused.
    pub(crate) fn find_or_removed(&self, handle: usize) -> Option<Arc<T>> {
        let (index, generation) = self.decode(handle)?;
        let slots = read(&self.slots);
        let slot = slots.entries.get(index as usize).filter(|slot| slot.generation == generation)?;
        slot.value.clone().or_else(|| slot.removed.clone())
    }

    /// Removes a handle and returns the object that it named.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let (index, generation) = self.decode(handle)?;
        let mut slots = write(&self.slots);
        if slots.entries.get(index as usize)?.generation != generation {
            return None;
        }
        slots.free_slot(index as usize, self.reuse)
    }

    /// Removes the handles of all objects for which `unwanted` returns true.
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
