//! The traces of ended blocks, oldest first: a list linked through their records. Knows nothing of addresses.

use super::record::{NONE, Records};

/// How many ended blocks are remembered.
pub(super) const TRACES_MAX: u32 = 65_536;

#[derive(Debug)]
pub(super) struct Traces {
    oldest: u32,
    newest: u32,
    count: u32,
}

impl Traces {
    pub(super) fn new() -> Self {
        Self { oldest: NONE, newest: NONE, count: 0 }
    }

    /// Returns the trace to erase, if there are too many.
    pub(super) fn excess(&self) -> Option<u32> {
        (self.count > TRACES_MAX).then_some(self.oldest)
    }

    pub(super) fn add(&mut self, records: &mut Records, index: u32) {
        let rest = records.rest_mut(index);
        (rest.older, rest.newer) = (self.newest, NONE);
        match self.newest {
            NONE => self.oldest = index,
            newest => records.rest_mut(newest).newer = index,
        }
        self.newest = index;
        self.count += 1;
    }

    pub(super) fn remove(&mut self, records: &mut Records, index: u32) {
        let (older, newer) = (records.rest(index).older, records.rest(index).newer);
        match older {
            NONE => self.oldest = newer,
            older => records.rest_mut(older).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => records.rest_mut(newer).older = older,
        }
        self.count -= 1;
    }
}
