//! The journal: the state of the broker, as records in memory that outlives it.
//!
//! It is a memfd. The fdstore holds its descriptor and never reads it. A record has two copies: a change writes the
//! invalid copy, then one word makes it the valid one. So the broker may be killed between any two stores.

use std::sync::atomic::{Ordering, fence};

use rustix::io::Errno;

use crate::os::shared_memory::SharedMemory;
use crate::protocol::types::Id;
use crate::state::record::{Record, RecordKind};
use crate::state::{Limits, State};

/// `FRHJ`, and the version of this layout.
const MAGIC: u64 = u32::from_le_bytes(*b"FRHJ") as u64 | 6 << 32;

const HEADER_BYTES: usize = 4096;

/// Bits of a record's first word; its generation is in the others.
const IS_PRESENT: u64 = 1;
const IS_SECOND_COPY: u64 = 2;

#[derive(Debug)]
pub(crate) struct Journal {
    shared: SharedMemory,
    limits: Limits,
    /// The offset of each kind's records.
    tables: [usize; RecordKind::ALL.len()],
}

/// Offsets in the header.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const BUDGET: usize = 8;
    pub(super) const USER: usize = 16;
    pub(super) const CACHED: usize = 24;
    pub(super) const TENANT: usize = 32;
}

fn record_bytes(kind: RecordKind) -> usize {
    8 * (1 + 2 * kind.words())
}

fn table(limits: &Limits, wanted: RecordKind) -> usize {
    let before = RecordKind::ALL.into_iter().take_while(|&kind| kind != wanted);
    HEADER_BYTES + before.map(|kind| record_bytes(kind) * kind.count(limits)).sum::<usize>()
}

fn bytes(limits: &Limits) -> usize {
    HEADER_BYTES + RecordKind::ALL.into_iter().map(|kind| record_bytes(kind) * kind.count(limits)).sum::<usize>()
}

impl Journal {
    pub(crate) fn create(limits: Limits) -> Result<Self, Errno> {
        let shared = SharedMemory::create("freehold-journal", bytes(&limits))?;
        shared.u64_at(at::BUDGET).store(limits.budget_bytes, Ordering::Relaxed);
        shared.u64_at(at::USER).store(limits.user_bytes, Ordering::Relaxed);
        shared.u64_at(at::CACHED).store(limits.cached_bytes, Ordering::Relaxed);
        shared.u64_at(at::TENANT).store(limits.tenant_bytes, Ordering::Relaxed);
        shared.u64_at(at::MAGIC).store(MAGIC, Ordering::Release);
        Ok(Self { shared, limits, tables: RecordKind::ALL.map(|kind| table(&limits, kind)) })
    }

    /// Opens the journal of a broker that is gone. [`Errno::INVAL`] if it is not a journal.
    pub(crate) fn open(file: std::sync::Arc<std::os::fd::OwnedFd>) -> Result<Self, Errno> {
        // The number of records does not depend on the numbers in the header.
        let mut limits = Limits::new(0);
        let shared = SharedMemory::open(file, bytes(&limits))?;
        if shared.u64_at(at::MAGIC).load(Ordering::Acquire) != MAGIC {
            return Err(Errno::INVAL);
        }
        limits.budget_bytes = shared.u64_at(at::BUDGET).load(Ordering::Relaxed);
        limits.user_bytes = shared.u64_at(at::USER).load(Ordering::Relaxed);
        limits.cached_bytes = shared.u64_at(at::CACHED).load(Ordering::Relaxed);
        limits.tenant_bytes = shared.u64_at(at::TENANT).load(Ordering::Relaxed);
        Ok(Self { shared, limits, tables: RecordKind::ALL.map(|kind| table(&limits, kind)) })
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn shared(&self) -> &SharedMemory {
        &self.shared
    }

    /// Writes the changed records, in the order of the changes.
    pub(crate) fn write(&self, state: &mut State) {
        state.write_dirty(|state, dirty| {
            let (kind, index) = dirty.kind();
            state.record(dirty, |id, words| self.write_record(kind, index, id, words));
        });
    }

    fn write_record(&self, kind: RecordKind, index: usize, id: Id, words: Option<&[u64]>) {
        assert!(index < kind.count(&self.limits), "the state never has more of a kind than the journal has records");
        let offset = self.tables[kind as usize] + index * record_bytes(kind);
        let first = self.shared.u64_at(offset);
        let generation = id.0 & !0xffff_ffff;
        let Some(words) = words else {
            first.store(generation, Ordering::Release);
            return;
        };
        let is_second = first.load(Ordering::Relaxed) & IS_SECOND_COPY == 0;
        let copy = offset + 8 + if is_second { 8 * kind.words() } else { 0 };
        for (at, &word) in words.iter().enumerate() {
            self.shared.u64_at(copy + 8 * at).store(word, Ordering::Relaxed);
        }
        fence(Ordering::Release);
        let second = if is_second { IS_SECOND_COPY } else { 0 };
        first.store(generation | IS_PRESENT | second, Ordering::Release);
    }

    /// Overwrites any word of the header or of a table.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn corrupt(&self, table: usize, at: usize, word: u64) {
        let start = if table == 0 { 0 } else { self.tables[table - 1] };
        self.shared.u64_at(start + 8 * at).store(word, Ordering::Relaxed);
    }

    /// Reads all records of a kind.
    pub(crate) fn records(&self, kind: RecordKind) -> Vec<Record> {
        let table = self.tables[kind as usize];
        let mut records = Vec::new();
        for index in 0..kind.count(&self.limits) {
            let offset = table + index * record_bytes(kind);
            let first = self.shared.u64_at(offset).load(Ordering::Acquire);
            // Slots are used in order.
            if first == 0 {
                break;
            }
            let copy = offset + 8 + if first & IS_SECOND_COPY == 0 { 0 } else { 8 * kind.words() };
            let words = (0..kind.words()).map(|at| self.shared.u64_at(copy + 8 * at).load(Ordering::Relaxed));
            let id = Id(first & !0xffff_ffff | index as u64);
            records.push(Record { id, words: (first & IS_PRESENT != 0).then(|| words.collect()) });
        }
        records
    }
}
