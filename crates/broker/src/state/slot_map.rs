//! A slot map: values by index and generation.

use crate::protocol::types::Id;

/// Values by [`Id`]. An id is never reused for another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotMap<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry<T> {
    /// Of the current value, or of the last one.
    generation: u32,
    value: Option<T>,
}

impl<T> Default for SlotMap<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> SlotMap<T> {
    pub(crate) fn insert(&mut self, value: T) -> Id {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            u32::try_from(self.entries.len() - 1).expect("fewer than u32::MAX entries")
        });
        let entry = &mut self.entries[index as usize];
        // 0 is never used: neither an id nor a record is all zeros.
        entry.generation = entry.generation.wrapping_add(1).max(1);
        entry.value = Some(value);
        id(index, entry.generation)
    }

    /// Inserts a value with the id that it had before.
    pub(crate) fn restore(&mut self, at: Id, value: T) {
        let index = index(at);
        while self.entries.len() <= index {
            self.entries.push(Entry { generation: 0, value: None });
        }
        self.entries[index] = Entry { generation: generation(at), value: Some(value) };
    }

    /// Sets the last generation of each entry, and collects the free entries.
    pub(crate) fn finish_restore(&mut self, last: impl Iterator<Item = Id>) {
        for at in last {
            let index = index(at);
            while self.entries.len() <= index {
                self.entries.push(Entry { generation: 0, value: None });
            }
            let entry = &mut self.entries[index];
            if entry.value.is_none() {
                entry.generation = generation(at);
            }
        }
        let empty = self.entries.iter().enumerate().filter(|(_, entry)| entry.value.is_none());
        self.free = empty.map(|(index, _)| index as u32).rev().collect();
    }

    pub(crate) fn get(&self, at: Id) -> Option<&T> {
        self.entries.get(index(at)).filter(|entry| entry.generation == generation(at))?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, at: Id) -> Option<&mut T> {
        self.entries.get_mut(index(at)).filter(|entry| entry.generation == generation(at))?.value.as_mut()
    }

    pub(crate) fn remove(&mut self, at: Id) -> Option<T> {
        let entry = self.entries.get_mut(index(at)).filter(|entry| entry.generation == generation(at))?;
        let value = entry.value.take()?;
        self.free.push(index(at) as u32);
        Some(value)
    }

    /// The value at an index, of any generation.
    pub(crate) fn get_at(&self, index: usize) -> Option<(Id, &T)> {
        let entry = self.entries.get(index)?;
        Some((id(index as u32, entry.generation), entry.value.as_ref()?))
    }

    /// The last id at an index, whether or not its value still exists.
    pub(crate) fn last_id_at(&self, index: usize) -> Id {
        id(index as u32, self.entries[index].generation)
    }

    /// Whether a value with this id existed and was removed.
    pub(crate) fn was_removed(&self, at: Id) -> bool {
        let entry = self.entries.get(index(at)).filter(|_| generation(at) > 0);
        entry.is_some_and(|entry| match entry.generation == generation(at) {
            true => entry.value.is_none(),
            false => generation(at) < entry.generation,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The number of entries, used and free.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        (0..self.entries.len()).filter_map(|index| self.get_at(index))
    }
}

pub(crate) fn id(index: u32, generation: u32) -> Id {
    Id(u64::from(generation) << 32 | u64::from(index))
}

pub(crate) fn index(at: Id) -> usize {
    at.0 as u32 as usize
}

pub(crate) fn generation(at: Id) -> u32 {
    (at.0 >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_never_anothers_later() {
        let mut slots = SlotMap::default();
        let first = slots.insert("first");
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert("second");
        assert_eq!(index(first), index(second));
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get(second), Some(&"second"));
    }

    #[test]
    fn a_guessed_id_is_nothings() {
        let mut slots = SlotMap::default();
        slots.insert(1);
        for guess in [0, 1, 2, u64::MAX, 1 << 32 | 1, 2 << 32] {
            assert_eq!(slots.get(Id(guess)), None, "{guess:#x}");
        }
    }

    #[test]
    fn what_is_restored_has_its_id_and_ends_stay_ended() {
        let mut slots = SlotMap::default();
        let (gone, kept) = (slots.insert('a'), slots.insert('b'));
        slots.remove(gone);
        let mut again = SlotMap::default();
        again.restore(kept, 'b');
        again.finish_restore([slots.last_id_at(0), slots.last_id_at(1)].into_iter());
        assert_eq!(again.get(kept), Some(&'b'));
        let new = again.insert('c');
        assert_eq!(index(new), index(gone));
        assert_ne!(new, gone);
    }
}
