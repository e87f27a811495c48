//! A bounded table of values by number and by name, generic over the value. Used for the modules of a session.

use std::collections::HashMap;

/// Values by number, each with a unique name.
pub(super) struct NamedTable<T> {
    entries: HashMap<u64, (Box<str>, T)>,
    max: usize,
}

impl<T> NamedTable<T> {
    /// A table of at most `max` entries.
    pub(super) fn new(max: usize) -> Self {
        Self { entries: HashMap::new(), max }
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        self.entries.get(&number).map(|(_, thing)| thing)
    }

    /// Whether a value of that name can be added.
    pub(super) fn has_room(&self, name: &str) -> bool {
        self.entries.len() < self.max || self.contains_name(name)
    }

    fn contains_name(&self, name: &str) -> bool {
        self.entries.values().any(|(known, _)| &**known == name)
    }

    /// Adds a value, in place of the one with the same name or number. Returns whether there was room.
    pub(super) fn insert(&mut self, number: u64, name: &str, thing: T) -> bool {
        let has_room = self.has_room(name) || self.entries.contains_key(&number);
        if has_room {
            self.remove(name);
            self.entries.insert(number, (name.into(), thing));
        }
        has_room
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.entries.retain(|_, (known, _)| &**known != name);
    }

    /// Removes all values whose names do not satisfy the predicate.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.entries.retain(|_, (name, _)| is_there(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_known_and_each_name_once() {
        let mut known = NamedTable::new(2);
        assert!(known.insert(1, "a", 'a') && known.insert(2, "b", 'b'));
        assert!(!known.has_room("c") && !known.insert(3, "c", 'c'));
        assert_eq!(known.get(3), None);
        assert!(known.insert(4, "b", 'B'), "a value of the same name is replaced");
        assert_eq!((known.get(2), known.get(4)), (None, Some(&'B')));
        assert!(known.insert(4, "b", 'b') && known.insert(1, "a", 'A'), "replacing takes no room");
        known.remove("a");
        assert!(known.insert(3, "c", 'c'));
        known.retain(|name| name == "b");
        assert_eq!([1, 3, 4].map(|number| known.get(number).copied()), [None, None, Some('b')]);
    }
}
