//! What a session knows by numbers and names, and how much of it at the most. Knows nothing of modules, of which it is used for.

use std::collections::HashMap;

/// Things by number, each with a name that no other of them has.
pub(super) struct Known<T> {
    things: HashMap<u64, (Box<str>, T)>,
    most: usize,
}

impl<T> Known<T> {
    /// With so many things at the most.
    pub(super) fn new(most: usize) -> Self {
        Self { things: HashMap::new(), most }
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        self.things.get(&number).map(|(_, thing)| thing)
    }

    /// Whether one of that name can be added.
    pub(super) fn has_room(&self, name: &str) -> bool {
        self.things.len() < self.most || self.has(name)
    }

    fn has(&self, name: &str) -> bool {
        self.things.values().any(|(known, _)| &**known == name)
    }

    /// Adds a thing, in place of the one that had its name or its number. Whether there was room.
    pub(super) fn add(&mut self, number: u64, name: &str, thing: T) -> bool {
        let has_room = self.has_room(name) || self.things.contains_key(&number);
        if has_room {
            self.remove(name);
            self.things.insert(number, (name.into(), thing));
        }
        has_room
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.things.retain(|_, (known, _)| &**known != name);
    }

    /// Forgets all whose names are not among these.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.things.retain(|_, (name, _)| is_there(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_known_and_each_name_once() {
        let mut known = Known::new(2);
        assert!(known.add(1, "a", 'a') && known.add(2, "b", 'b'));
        assert!(!known.has_room("c") && !known.add(3, "c", 'c'));
        assert_eq!(known.get(3), None);
        assert!(known.add(4, "b", 'B'), "another of a name takes its place");
        assert_eq!((known.get(2), known.get(4)), (None, Some(&'B')));
        assert!(known.add(4, "b", 'b') && known.add(1, "a", 'A'), "the same again is no other");
        known.remove("a");
        assert!(known.add(3, "c", 'c'));
        known.retain(|name| name == "b");
        assert_eq!([1, 3, 4].map(|number| known.get(number).copied()), [None, None, Some('b')]);
    }
}
