//! Handles: an index and a generation in one word, so that a dead, foreign or wild handle is found out by a look-up
//! and never followed.

use std::sync::{Arc, PoisonError, RwLock};

/// What kind of thing a handle names; the topmost byte of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Context = 0xc1,
    Stream = 0xc2,
    Event = 0xc3,
    Pool = 0xc4,
    Module = 0xc5,
    Function = 0xc6,
    Library = 0xc7,
    Kernel = 0xc8,
    Link = 0xc9,
    Graph = 0xcb,
    Exec = 0xcc,
}

/// What the next handle after a removal looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Return {
    /// The removed handle comes back for the next thing, as the real driver's do where they are addresses of
    /// records that are used again (fact 2.5).
    Comes,
    /// A removed handle is never seen again.
    Never,
}

/// The live things of one kind by their handles.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    kind: Kind,
    returns: Return,
    slots: RwLock<Slots<T>>,
}

#[derive(Debug)]
struct Slots<T> {
    entries: Vec<Slot<T>>,
    /// Indices of entries without a value; the last one removed is the first one used again.
    vacant: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<Arc<T>>,
    /// What a removed handle named, until it comes back.
    removed: Option<Arc<T>>,
}

const GENERATIONS: u32 = 1 << 24;

impl<T> Slots<T> {
    /// Takes the value out of an entry, if it has one.
    fn vacate(&mut self, index: usize, returns: Return) -> Option<Arc<T>> {
        let slot = &mut self.entries[index];
        let value = slot.value.take()?;
        match returns {
            Return::Never => slot.generation = (slot.generation + 1) % GENERATIONS,
            Return::Comes => slot.removed = Some(Arc::clone(&value)),
        }
        self.vacant.push(u32::try_from(index).expect("an index was made from 32 bits"));
        Some(value)
    }
}

impl<T> Registry<T> {
    pub(crate) const fn new(kind: Kind, returns: Return) -> Self {
        Self { kind, returns, slots: RwLock::new(Slots { entries: Vec::new(), vacant: Vec::new() }) }
    }

    /// Enters what `make` builds from its own handle.
    pub(crate) fn insert_with(&self, make: impl FnOnce(usize) -> Arc<T>) -> (usize, Arc<T>) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let index = match slots.vacant.pop() {
            Some(index) => index,
            None => {
                slots.entries.push(Slot { generation: 0, value: None, removed: None });
                u32::try_from(slots.entries.len() - 1).expect("fewer than 2^32 handles of one kind are alive")
            }
        };
        let slot = &mut slots.entries[index as usize];
        let handle = self.handle(index, slot.generation);
        let value = make(handle);
        slot.removed = None;
        slot.value = Some(Arc::clone(&value));
        (handle, value)
    }

    pub(crate) fn find(&self, handle: usize) -> Option<Arc<T>> {
        let (index, generation) = self.parts(handle)?;
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entries.get(index as usize)?;
        if slot.generation == generation { slot.value.clone() } else { None }
    }

    /// What a handle names, or named before it was removed: for a handle that comes back.
    pub(crate) fn find_dead_or_alive(&self, handle: usize) -> Option<Arc<T>> {
        let (index, generation) = self.parts(handle)?;
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entries.get(index as usize).filter(|slot| slot.generation == generation)?;
        slot.value.clone().or_else(|| slot.removed.clone())
    }

    /// Ends a handle and gives back what it named.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let (index, generation) = self.parts(handle)?;
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        if slots.entries.get(index as usize)?.generation != generation {
            return None;
        }
        slots.vacate(index as usize, self.returns)
    }

    /// Ends the handles of everything that `unwanted` picks.
    pub(crate) fn remove_all(&self, unwanted: impl Fn(&T) -> bool) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        for index in 0..slots.entries.len() {
            if slots.entries[index].value.as_deref().is_some_and(&unwanted) {
                slots.vacate(index, self.returns);
            }
        }
    }

    fn handle(&self, index: u32, generation: u32) -> usize {
        ((self.kind as usize) << 56) | ((generation as usize) << 32) | index as usize
    }

    fn parts(&self, handle: usize) -> Option<(u32, u32)> {
        if handle >> 56 != self.kind as usize {
            return None;
        }
        Some((handle as u32, (handle >> 32) as u32 % GENERATIONS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(registry: &Registry<u32>, value: u32) -> usize {
        registry.insert_with(|_| Arc::new(value)).0
    }

    #[test]
    fn a_handle_finds_what_it_names_until_it_is_removed() {
        let registry = Registry::new(Kind::Event, Return::Never);
        let handle = enter(&registry, 7);
        assert_eq!(registry.find(handle).as_deref(), Some(&7));
        assert_eq!(registry.remove(handle).as_deref(), Some(&7));
        assert_eq!(registry.find(handle), None);
        assert_eq!(registry.remove(handle), None);
    }

    #[test]
    fn a_handle_of_an_earlier_generation_finds_nothing() {
        let registry = Registry::new(Kind::Event, Return::Never);
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
        let registry = Registry::new(Kind::Stream, Return::Comes);
        let first = enter(&registry, 1);
        registry.remove(first);
        assert_eq!(registry.find(first), None);
        assert_eq!(registry.find_dead_or_alive(first).as_deref(), Some(&1));
        assert_eq!(enter(&registry, 2), first);
        assert_eq!(registry.find(first).as_deref(), Some(&2));
        assert_eq!(registry.find_dead_or_alive(first).as_deref(), Some(&2));
    }

    #[test]
    fn the_handles_of_what_is_picked_end_and_others_do_not() {
        let registry = Registry::new(Kind::Stream, Return::Comes);
        let (odd, even) = (enter(&registry, 1), enter(&registry, 2));
        registry.remove_all(|value| value % 2 == 1);
        assert_eq!(registry.find(odd), None);
        assert_eq!(registry.find(even).as_deref(), Some(&2));
    }

    #[test]
    fn wild_and_foreign_handles_find_nothing() {
        let registry = Registry::new(Kind::Stream, Return::Never);
        let streams = enter(&registry, 1);
        let others = Registry::new(Kind::Event, Return::Never);
        let event = enter(&others, 2);
        for handle in [0, 1, 2, usize::MAX, streams + 1, event, 0xdead_beef] {
            assert_eq!(registry.find(handle), None);
        }
    }
}
