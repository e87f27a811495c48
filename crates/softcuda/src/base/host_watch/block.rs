//! A block of pages that the program can access: the work that may use it, and the protection of its pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use freehold_check::QueueId;
use rustix::mm::{MprotectFlags, mprotect};

use super::reads::Reads;
use super::run_map::RunMap;
use crate::base::sync::lock;

pub(super) const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
thread_local! {
    /// How often this thread has changed the protection of pages.
    pub(super) static PROTECTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// What the program may do with a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Allowed {
    #[default]
    All,
    Reads,
    Nothing,
}

impl Allowed {
    pub(super) fn permits(self, is_write: bool) -> bool {
        self == Self::All || self == Self::Reads && !is_write
    }

    fn flags(self) -> MprotectFlags {
        match self {
            Self::All => MprotectFlags::READ | MprotectFlags::WRITE,
            Self::Reads => MprotectFlags::READ,
            Self::Nothing => MprotectFlags::empty(),
        }
    }
}

/// Bytes of a block that a queue has pending work for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) queue: QueueId,
    pub(super) is_write: bool,
}

/// How many uses that read and that write a page has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Users {
    readers: u32,
    writers: u32,
}

impl Users {
    fn allowed(self) -> Allowed {
        match self {
            Self { writers: 1.., .. } => Allowed::Nothing,
            Self { readers: 1.., .. } => Allowed::Reads,
            _ => Allowed::All,
        }
    }

    fn count_mut(&mut self, is_write: bool) -> &mut u32 {
        if is_write { &mut self.writers } else { &mut self.readers }
    }
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) base: u64,
    pages: usize,
    state: Mutex<State>,
}

/// Its pages are protected only through this, while the block's lock is held.
#[derive(Debug)]
pub(super) struct State {
    base: u64,
    pages: usize,
    /// Whether the pages may be unmapped: other memory may have their addresses.
    is_gone: bool,
    /// The uses, with the seq of the last work of each.
    pending: BTreeMap<Use, u64>,
    users: RunMap<Users>,
    protected: RunMap<Allowed>,
    /// The pages that are open although work uses them, because a race was reported there.
    opened: BTreeSet<usize>,
    /// The reads of the program since work began to use a page.
    reads: BTreeMap<usize, Reads>,
}

impl Block {
    pub(super) fn new(base: u64, bytes: u64) -> Self {
        let pages = bytes.div_ceil(PAGE_BYTES) as usize;
        let state = State {
            base,
            pages,
            is_gone: false,
            pending: BTreeMap::new(),
            users: RunMap::new(pages, Users::default()),
            protected: RunMap::new(pages, Allowed::All),
            opened: BTreeSet::new(),
            reads: BTreeMap::new(),
        };
        Self { base, pages, state: Mutex::new(state) }
    }

    pub(super) fn end(&self) -> u64 {
        self.base + self.pages as u64 * PAGE_BYTES
    }

    pub(super) fn page_of(&self, address: u64) -> usize {
        ((address - self.base) / PAGE_BYTES) as usize
    }

    /// Returns the bytes of a page.
    pub(super) fn bytes_of(&self, page: usize) -> Range<u64> {
        let start = self.base + page as u64 * PAGE_BYTES;
        start..start + PAGE_BYTES
    }

    /// Returns the state, unless the block is gone.
    pub(super) fn live(&self) -> Option<MutexGuard<'_, State>> {
        Some(lock(&self.state)).filter(|state| !state.is_gone)
    }

    /// Notes that the pages will be unmapped. Returns the uses that were pending.
    pub(super) fn retire(&self) -> BTreeMap<Use, u64> {
        let mut state = lock(&self.state);
        state.is_gone = true;
        std::mem::take(&mut state.pending)
    }
}

impl State {
    /// Adds a use, or moves it to later work. Returns the seq that it had.
    pub(super) fn add(&mut self, used: Use, seq: u64) -> Option<u64> {
        let pages = self.pages_of(&used);
        let read: Vec<usize> = self.reads.range(pages.clone()).map(|(page, _)| *page).collect();
        for page in read {
            self.reads.remove(&page);
        }
        // Later work of a queue stands for the earlier one.
        if let Some(last) = self.pending.get_mut(&used) {
            let before = *last;
            *last = before.max(seq);
            self.apply(Vec::new());
            return Some(before);
        }
        self.pending.insert(used, seq);
        self.users.update(pages.clone(), |users| *users.count_mut(used.is_write) += 1);
        self.apply(vec![pages]);
        None
    }

    /// Drops uses, unless later work has taken them over.
    pub(super) fn drop_uses(&mut self, uses: impl Iterator<Item = (Use, u64)>) {
        let mut changed = Vec::new();
        for (used, seq) in uses {
            if self.pending.get(&used) == Some(&seq) {
                self.pending.remove(&used);
                let pages = self.pages_of(&used);
                self.users.update(pages.clone(), |users| *users.count_mut(used.is_write) -= 1);
                changed.push(pages);
            }
        }
        self.apply(changed);
    }

    /// Returns what the program may do with a page, apart from single instructions.
    pub(super) fn allowed(&self, page: usize) -> Allowed {
        self.protected.get(page)
    }

    /// Counts a read of the program. Returns how often it has read this address, if it does so over and over.
    pub(super) fn count_read(&mut self, page: usize, address: u64) -> u32 {
        self.reads.entry(page).or_default().count(address)
    }

    /// Returns the parts of a range that pending work may use, in order and apart from each other.
    pub(super) fn used_parts(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let uses = self.pending.range(..).map(|(used, _)| used).take_while(|used| used.start < range.end);
        let mut parts: Vec<Range<u64>> = Vec::new();
        for used in uses.filter(|used| used.end > range.start) {
            let part = used.start.max(range.start)..used.end.min(range.end);
            match parts.last_mut() {
                Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
                _ => parts.push(part),
            }
        }
        parts
    }

    /// Opens a page for one instruction.
    ///
    /// # Errors
    /// The system cannot split the mapping any more.
    pub(super) fn open(&self, page: usize) -> rustix::io::Result<()> {
        self.protect(page..page + 1, Allowed::All)
    }

    /// Opens a page until more work uses the block, or some that did is over.
    ///
    /// # Errors
    /// The system cannot split the mapping any more.
    pub(super) fn leave_open(&mut self, page: usize) -> rustix::io::Result<()> {
        self.open(page)?;
        self.protected.update(page..page + 1, |allowed| *allowed = Allowed::All);
        self.opened.insert(page);
        Ok(())
    }

    /// Closes a page after an instruction.
    pub(super) fn close(&self, page: usize) {
        // If this fails, accesses are missed.
        let _ = self.protect(page..page + 1, self.allowed(page));
    }

    /// Opens all pages and forgets the uses. Returns these. It needs no more mappings than there are.
    pub(super) fn give_up(&mut self) -> BTreeMap<Use, u64> {
        let _ = self.protect(0..self.pages, Allowed::All);
        self.users = RunMap::new(self.pages, Users::default());
        self.protected = RunMap::new(self.pages, Allowed::All);
        self.opened.clear();
        std::mem::take(&mut self.pending)
    }

    fn pages_of(&self, used: &Use) -> Range<usize> {
        let first = ((used.start - self.base) / PAGE_BYTES) as usize;
        first..(used.end - self.base).div_ceil(PAGE_BYTES) as usize
    }

    /// Protects the pages whose users have changed, and those that were left open, as the pending work needs it.
    fn apply(&mut self, mut changed: Vec<Range<usize>>) {
        changed.extend(std::mem::take(&mut self.opened).into_iter().map(|page| page..page + 1));
        changed.sort_unstable_by_key(|pages| pages.start);
        let mut apart: Vec<Range<usize>> = Vec::new();
        for pages in changed {
            match apart.last_mut() {
                Some(last) if pages.start <= last.end => last.end = last.end.max(pages.end),
                _ => apart.push(pages),
            }
        }
        let mut wanted: Vec<(Range<usize>, Allowed)> = Vec::new();
        for (run, users) in apart.into_iter().flat_map(|pages| self.users.runs(pages)) {
            match wanted.last_mut() {
                Some((last, allowed)) if last.end == run.start && *allowed == users.allowed() => last.end = run.end,
                _ => wanted.push((run, users.allowed())),
            }
        }
        for (run, allowed) in wanted {
            if self.protected.runs(run.clone()).any(|(_, before)| before != allowed) {
                // If this fails, the pages are too open, and accesses are missed, or too closed until the next access.
                let _ = self.protect(run.clone(), allowed);
                self.protected.update(run, |before| *before = allowed);
            }
        }
    }

    fn protect(&self, pages: Range<usize>, allowed: Allowed) -> rustix::io::Result<()> {
        debug_assert!(!self.is_gone, "the state of a block that is gone cannot be reached");
        #[cfg(test)]
        PROTECTED.set(PROTECTED.get() + 1);
        let start = self.base + pages.start as u64 * PAGE_BYTES;
        let bytes = pages.len() * PAGE_BYTES as usize;
        // SAFETY: the pages are mapped: `live` does not return the state once `retire` was called, the owner calls this before it
        // unmaps them, and it waits for the lock that the caller holds. Only the program accesses this mapping, and what is not
        // allowed any more goes on after its signal; the driver uses another one.
        unsafe { mprotect(start as *mut c_void, bytes, allowed.flags()) }
    }
}
