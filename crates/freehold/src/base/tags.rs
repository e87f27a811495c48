//! Tags: the live bytes of each, and its limit. A tag with slashes is part of its prefixes: bytes of `model/cache` also
//! count for `model`.
//!
//! Pure: counts bytes and checks limits, and knows nothing of memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// How many names are counted. Blocks of further names keep their name, and are not counted.
const NAMES_MAX: usize = 4096;

/// The number of a block without a name.
pub(crate) const NONE: u32 = 0;

/// The number of all names that are not counted.
const UNCOUNTED: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Tags {
    known: RwLock<Known>,
    /// The names that are not counted, by the number of the block's meta.
    uncounted: Mutex<HashMap<u32, Arc<str>>>,
}

#[derive(Debug, Default)]
struct Known {
    /// The tag with number n is at n - 1.
    tags: Vec<Arc<Tag>>,
    numbers: HashMap<Arc<str>, u32>,
}

#[derive(Debug)]
struct Tag {
    name: Arc<str>,
    within: Option<Arc<Tag>>,
    live_bytes: AtomicU64,
    budget_bytes: AtomicU64,
}

/// The name whose limit a request would exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) tag: Arc<str>,
    pub(crate) live_bytes: u64,
    pub(crate) budget_bytes: u64,
}

impl Tags {
    /// Returns the number of a name, if more names can be counted.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        if let Some(&number) = self.known().numbers.get(name) {
            return Some(number);
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.add(name)
    }

    /// Returns the name of a block, by its tag and the number of its meta.
    pub(crate) fn name(&self, tag: u32, meta: u32) -> Option<Arc<str>> {
        match tag {
            NONE => None,
            UNCOUNTED => self.uncounted().get(&meta).cloned(),
            number => self.known().tags.get(number as usize - 1).map(|tag| tag.name.clone()),
        }
    }

    /// Counts bytes for a name and the names that contain it, unless that exceeds one of their limits. Returns the tag
    /// for the block's meta, which has to be passed to [`name_uncounted`](Self::name_uncounted).
    pub(crate) fn charge(&self, name: Option<&str>, bytes: u64) -> Result<u32, Full> {
        let Some(name) = name else { return Ok(NONE) };
        let Some(number) = self.number(name) else { return Ok(UNCOUNTED) };
        let tag = self.known().tags[number as usize - 1].clone();
        tag.charge(bytes)?;
        Ok(number)
    }

    /// Counts more bytes for a block that has a tag already, unless that exceeds the limit of its name or of one that
    /// contains it.
    pub(crate) fn charge_more(&self, tag: u32, bytes: u64) -> Result<(), Full> {
        // A request for no more bytes is not refused, even if the limit was lowered since.
        if bytes == 0 || tag == NONE || tag == UNCOUNTED {
            return Ok(());
        }
        let tag = self.known().tags[tag as usize - 1].clone();
        tag.charge(bytes)
    }

    /// Like [`charge`](Self::charge), regardless of the limits.
    pub(crate) fn charge_anyway(&self, name: &str, bytes: u64) -> u32 {
        let Some(number) = self.number(name) else { return UNCOUNTED };
        self.charge_more_anyway(number, bytes);
        number
    }

    /// Like [`charge_more`](Self::charge_more), regardless of the limits.
    pub(crate) fn charge_more_anyway(&self, tag: u32, bytes: u64) {
        if tag == NONE || tag == UNCOUNTED {
            return;
        }
        let tag = self.known().tags[tag as usize - 1].clone();
        let mut next = Some(&tag);
        while let Some(tag) = next {
            tag.live_bytes.fetch_add(bytes, Ordering::Relaxed);
            next = tag.within.as_ref();
        }
    }

    /// Keeps the name of a block whose tag is not counted.
    pub(crate) fn name_uncounted(&self, tag: u32, meta: u32, name: Option<&str>) {
        if let (UNCOUNTED, Some(name)) = (tag, name) {
            self.uncounted().insert(meta, name.into());
        }
    }

    /// Moves the name of an uncounted block to another, which has its content from now on.
    pub(crate) fn rename(&self, from: u32, to: u32) {
        let mut uncounted = self.uncounted();
        if let Some(name) = uncounted.remove(&from) {
            uncounted.insert(to, name);
        }
    }

    /// Uncounts the bytes of a block.
    pub(crate) fn discharge(&self, tag: u32, meta: u32, bytes: u64) {
        match tag {
            NONE => {}
            UNCOUNTED => drop(self.uncounted().remove(&meta)),
            number => {
                let tag = self.known().tags[number as usize - 1].clone();
                tag.discharge(bytes);
            }
        }
    }

    /// Uncounts some of the bytes of a block that lives on.
    pub(crate) fn discharge_part(&self, tag: u32, bytes: u64) {
        if tag != NONE && tag != UNCOUNTED {
            let tag = self.known().tags[tag as usize - 1].clone();
            tag.discharge(bytes);
        }
    }

    /// Limits the live bytes under a name, from now on.
    pub(crate) fn set_budget(&self, name: &str, budget_bytes: u64) -> bool {
        let Some(number) = self.number(name) else { return false };
        self.known().tags[number as usize - 1].budget_bytes.store(budget_bytes, Ordering::Relaxed);
        true
    }

    /// Returns the live bytes under a name and the names within it.
    pub(crate) fn live_bytes(&self, name: &str) -> u64 {
        let known = self.known();
        let tag = known.numbers.get(name).map(|&number| &known.tags[number as usize - 1]);
        tag.map_or(0, |tag| tag.live_bytes.load(Ordering::Relaxed))
    }

    /// Returns the live bytes under each name that has some, the largest first.
    pub(crate) fn live(&self) -> Vec<(Arc<str>, u64)> {
        let known = self.known();
        let live = known.tags.iter().map(|tag| (tag.name.clone(), tag.live_bytes.load(Ordering::Relaxed)));
        let mut live: Vec<_> = live.filter(|&(_, bytes)| bytes > 0).collect();
        live.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        live
    }

    fn known(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn uncounted(&self) -> MutexGuard<'_, HashMap<u32, Arc<str>>> {
        self.uncounted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn add(&mut self, name: &str) -> Option<u32> {
        if let Some(&number) = self.numbers.get(name) {
            return Some(number);
        }
        let within = match name.rsplit_once('/') {
            Some((within, _)) => Some(self.add(within)?),
            None => None,
        };
        if self.tags.len() >= NAMES_MAX {
            return None;
        }
        let name: Arc<str> = name.into();
        let tag = Tag {
            name: name.clone(),
            within: within.map(|number| self.tags[number as usize - 1].clone()),
            live_bytes: AtomicU64::new(0),
            budget_bytes: AtomicU64::new(u64::MAX),
        };
        self.tags.push(Arc::new(tag));
        let number = u32::try_from(self.tags.len()).expect("few names are counted");
        self.numbers.insert(name, number);
        Some(number)
    }
}

impl Tag {
    fn charge(&self, bytes: u64) -> Result<(), Full> {
        let budget_bytes = self.budget_bytes.load(Ordering::Relaxed);
        let within = |live: u64| live.checked_add(bytes).filter(|&sum| sum <= budget_bytes);
        // In one step, so that no thread ever sees more than the limit.
        let charged = self.live_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        charged.map_err(|live_bytes| Full { tag: self.name.clone(), live_bytes, budget_bytes })?;
        let outer = self.within.as_ref().map_or(Ok(()), |within| within.charge(bytes));
        if outer.is_err() {
            self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        outer
    }

    fn discharge(&self, bytes: u64) {
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(within) = &self.within {
            within.discharge(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_live_under_a_name_counts_for_those_it_is_within() {
        let tags = Tags::default();
        let cache = tags.charge(Some("model/cache"), 100).unwrap();
        tags.charge(Some("model"), 10).unwrap();
        assert_eq!(tags.live(), [("model".into(), 110), ("model/cache".into(), 100)]);
        assert_eq!(["model", "model/cache", "cache"].map(|name| tags.live_bytes(name)), [110, 100, 0]);
        tags.discharge(cache, 1, 100);
        assert_eq!(tags.live(), [("model".into(), 10)]);
    }

    #[test]
    fn a_child_asks_for_no_lock_of_names() {
        let device = crate::api::open::device(None).unwrap();
        device.set_tag_budget("model", 100).unwrap();
        // Held forever in the child, by a thread that does not exist there.
        let known = device.inner().tags.known.write().unwrap();
        let is_refused = crate::base::fork::in_child(|| {
            let refused = device.set_tag_budget("model", 200);
            device.live_by_tag().is_empty() && matches!(refused, Err(crate::Error::ForkedChild { .. }))
        });
        drop(known);
        assert!(is_refused);
    }

    #[test]
    fn a_budget_of_an_outer_name_refuses_an_inner_one_and_counts_nothing() {
        let tags = Tags::default();
        assert!(tags.set_budget("model", 150));
        tags.charge(Some("model/cache"), 100).unwrap();
        let full = tags.charge(Some("model/weights"), 51).unwrap_err();
        assert_eq!(full, Full { tag: "model".into(), live_bytes: 100, budget_bytes: 150 });
        tags.charge(Some("model/weights"), 50).unwrap();
        assert_eq!(tags.live()[0], ("model".into(), 150));
    }

    #[test]
    fn names_beyond_those_that_are_counted_are_kept_with_their_block() {
        let tags = Tags::default();
        for number in 0..NAMES_MAX {
            tags.charge(Some(&format!("block {number}")), 1).unwrap();
        }
        let tag = tags.charge(Some("one more"), 1).unwrap();
        tags.name_uncounted(tag, 7, Some("one more"));
        assert_eq!(tags.name(tag, 7).as_deref(), Some("one more"));
        tags.rename(7, 8);
        assert_eq!((tags.name(tag, 7), tags.name(tag, 8).as_deref()), (None, Some("one more")));
        tags.discharge(tag, 8, 1);
        assert_eq!(tags.name(tag, 8), None);
        assert_eq!(tags.name(NONE, 7), None);
    }
}
