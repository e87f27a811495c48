//! Things by number: a place in a list, and which of all that were ever there.

use crate::wire::Id;

/// Things that are found by an [`Id`], which is never another's later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shelf<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place<T> {
    /// Of the thing that is there, or of the last one that was.
    generation: u32,
    thing: Option<T>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Shelf<T> {
    pub(crate) fn add(&mut self, thing: T) -> Id {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, thing: None });
            u32::try_from(self.places.len() - 1).expect("fewer things are counted than a u32 does")
        });
        let place = &mut self.places[index as usize];
        // Zero is nothing's: neither an id nor a record of one is all zeros.
        place.generation = place.generation.wrapping_add(1).max(1);
        place.thing = Some(thing);
        id(index, place.generation)
    }

    /// Puts a thing where it was before.
    pub(crate) fn restore(&mut self, at: Id, thing: T) {
        let index = index(at);
        while self.places.len() <= index {
            self.places.push(Place { generation: 0, thing: None });
        }
        self.places[index] = Place { generation: generation(at), thing: Some(thing) };
    }

    /// Remembers which was the last thing at a place, and what places there are for new ones.
    pub(crate) fn restore_end(&mut self, last: impl Iterator<Item = Id>) {
        for at in last {
            let index = index(at);
            while self.places.len() <= index {
                self.places.push(Place { generation: 0, thing: None });
            }
            let place = &mut self.places[index];
            if place.thing.is_none() {
                place.generation = generation(at);
            }
        }
        let empty = self.places.iter().enumerate().filter(|(_, place)| place.thing.is_none());
        self.free = empty.map(|(index, _)| index as u32).rev().collect();
    }

    pub(crate) fn get(&self, at: Id) -> Option<&T> {
        self.places.get(index(at)).filter(|place| place.generation == generation(at))?.thing.as_ref()
    }

    pub(crate) fn get_mut(&mut self, at: Id) -> Option<&mut T> {
        self.places.get_mut(index(at)).filter(|place| place.generation == generation(at))?.thing.as_mut()
    }

    pub(crate) fn remove(&mut self, at: Id) -> Option<T> {
        let place = self.places.get_mut(index(at)).filter(|place| place.generation == generation(at))?;
        let thing = place.thing.take()?;
        self.free.push(index(at) as u32);
        Some(thing)
    }

    /// The thing at a place, whichever it is.
    pub(crate) fn at(&self, index: usize) -> Option<(Id, &T)> {
        let place = self.places.get(index)?;
        Some((id(index as u32, place.generation), place.thing.as_ref()?))
    }

    /// The last thing at a place, whether it is still there or not.
    pub(crate) fn last_at(&self, index: usize) -> Id {
        id(index as u32, self.places[index].generation)
    }

    /// Whether a thing of that number was there, and is no more.
    pub(crate) fn is_over(&self, at: Id) -> bool {
        let place = self.places.get(index(at)).filter(|_| generation(at) > 0);
        place.is_some_and(|place| match place.generation == generation(at) {
            true => place.thing.is_none(),
            false => generation(at) < place.generation,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// How many places there are, with things and without.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        (0..self.places.len()).filter_map(|index| self.at(index))
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
        let mut shelf = Shelf::default();
        let first = shelf.add("first");
        assert_eq!(shelf.remove(first), Some("first"));
        let second = shelf.add("second");
        assert_eq!(index(first), index(second));
        assert_eq!(shelf.get(first), None);
        assert_eq!(shelf.remove(first), None);
        assert_eq!(shelf.get(second), Some(&"second"));
    }

    #[test]
    fn a_guessed_id_is_nothings() {
        let mut shelf = Shelf::default();
        shelf.add(1);
        for guess in [0, 1, 2, u64::MAX, 1 << 32 | 1, 2 << 32] {
            assert_eq!(shelf.get(Id(guess)), None, "{guess:#x}");
        }
    }

    #[test]
    fn what_is_restored_has_its_id_and_ends_stay_ended() {
        let mut shelf = Shelf::default();
        let (gone, kept) = (shelf.add('a'), shelf.add('b'));
        shelf.remove(gone);
        let mut again = Shelf::default();
        again.restore(kept, 'b');
        again.restore_end([shelf.last_at(0), shelf.last_at(1)].into_iter());
        assert_eq!(again.get(kept), Some(&'b'));
        let new = again.add('c');
        assert_eq!(index(new), index(gone));
        assert_ne!(new, gone);
    }
}
