//! From what a log says of addresses to operations on blocks: each block has its own id, from its allocation to its release.
//!
//! An address comes again when its block was released, and logs are not perfect: they begin late, end early and lose lines.
//! What cannot be replayed is left out here, and counted. Pure: no format of a log and no allocator is known.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::Serialize;

use super::Op;

/// What was odd in a log. Replay goes on; a person is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Anomalies {
    /// Lines or events that mean nothing, the last one of a log that was cut among them.
    pub(super) unreadable: u64,
    /// The line of the first of them, counted from 1, where the log has lines.
    pub(super) unreadable_line: Option<u64>,
    /// Allocations of nothing: left out.
    pub(super) of_no_bytes: u64,
    /// Allocations that were refused when the log was made: left out.
    pub(super) failed_then: u64,
    /// Blocks that were released and never allocated in the log: allocated before all else.
    pub(super) alive_at_start: u64,
    /// Releases of what was never allocated, nobody knows how large: left out.
    pub(super) unknown_frees: u64,
    /// Releases of what was released already: left out.
    pub(super) double_frees: u64,
    /// Uses of what is not allocated: left out.
    pub(super) stray_uses: u64,
    /// Allocations at an address that was not released: the earlier block is released first.
    pub(super) unreleased: u64,
    /// Blocks that the log never releases: released after it.
    pub(super) alive_at_end: u64,
    /// Operations on other devices than the one that is replayed: left out.
    pub(super) on_other_devices: u64,
}

impl Anomalies {
    /// Notes a line that means nothing, which is the `at`-th, counted from 0.
    pub(super) fn note_unreadable(&mut self, at: usize) {
        self.unreadable += 1;
        self.unreadable_line.get_or_insert(at as u64 + 1);
    }

    /// One line, or nothing where all was well.
    pub(super) fn summary(&self) -> Option<String> {
        let unreadable = match self.unreadable_line {
            Some(line) => format!("unreadable, first in line {line}"),
            None => "unreadable".to_owned(),
        };
        let parts = [
            (self.unreadable, unreadable.as_str(), "left out"),
            (self.of_no_bytes, "allocated with no bytes", "left out"),
            (self.failed_then, "refused when the log was made", "left out"),
            (self.alive_at_start, "alive before the log", "allocated first"),
            (self.unknown_frees, "freed and never allocated", "left out"),
            (self.double_frees, "freed twice", "left out"),
            (self.stray_uses, "used while not allocated", "left out"),
            (self.unreleased, "allocated where no free was logged", "freed first"),
            (self.alive_at_end, "never freed", "freed at the end"),
            (self.on_other_devices, "on other devices", "left out"),
        ];
        let odd: Vec<String> = parts
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, what, remedy)| format!("{count} {what} ({remedy})"))
            .collect();
        if odd.is_empty() { None } else { Some(format!("odd in the log: {}", odd.join(", "))) }
    }
}

/// A stream as the log names it. The number of a thread keeps apart what has one name in all threads.
pub(super) type StreamKey = (u64, u64);

/// What lies at an address.
#[derive(Clone, Copy, Debug)]
enum AddressState {
    Block {
        id: u32,
        stream: u32,
    },
    /// An allocation of no bytes, whose release means nothing either.
    Empty,
    Freed,
}

/// The operations of a log while it is read.
#[derive(Debug, Default)]
pub(super) struct HistoryBuilder {
    /// Allocations of what was alive when the log began.
    allocated_before: Vec<Op>,
    ops: Vec<Op>,
    addresses: HashMap<u64, AddressState>,
    streams: HashMap<StreamKey, u32>,
    blocks: u32,
    pub(super) oddities: Anomalies,
}

/// What a log comes down to. Every free and use is of a block that was allocated before and is not freed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct History {
    pub(super) ops: Vec<Op>,
    /// Ids are below this.
    pub(super) blocks: u32,
    /// Streams are below this.
    pub(super) streams: u32,
    pub(super) oddities: Anomalies,
}

impl HistoryBuilder {
    pub(super) fn alloc(&mut self, address: u64, bytes: u64, stream: StreamKey) {
        let stream = self.stream(stream);
        if let Some(&AddressState::Block { id, stream: home }) = self.addresses.get(&address) {
            self.oddities.unreleased += 1;
            self.ops.push(Op::Free { id, stream: home });
        }
        if bytes == 0 {
            self.oddities.of_no_bytes += 1;
            self.addresses.insert(address, AddressState::Empty);
            return;
        }
        let id = self.next_block();
        self.addresses.insert(address, AddressState::Block { id, stream });
        self.ops.push(Op::Allocate { id, bytes, stream });
    }

    /// A release. Where the log says how large the block was, it can be one from before the log.
    pub(super) fn free(&mut self, address: u64, bytes: Option<u64>, stream: StreamKey) {
        let place = self.addresses.insert(address, AddressState::Freed);
        let id = match (place, bytes) {
            (Some(AddressState::Block { id, .. }), _) => id,
            (Some(AddressState::Empty), _) | (None, Some(0)) => return,
            (Some(AddressState::Freed), _) => {
                self.oddities.double_frees += 1;
                return;
            }
            (None, None) => {
                self.oddities.unknown_frees += 1;
                return;
            }
            (None, Some(bytes)) => self.block_before_log(bytes, stream),
        };
        let stream = self.stream(stream);
        self.ops.push(Op::Free { id, stream });
    }

    /// A use of a block. In the stream where the block was allocated it says nothing: that stream's order is enough.
    pub(super) fn record_use(&mut self, address: u64, stream: StreamKey) {
        match self.addresses.get(&address).copied() {
            Some(AddressState::Block { id, stream: home }) => {
                let stream = self.stream(stream);
                if stream != home {
                    self.ops.push(Op::Use { id, stream });
                }
            }
            Some(AddressState::Empty) => {}
            Some(AddressState::Freed) | None => self.oddities.stray_uses += 1,
        }
    }

    /// A block that is alive after the log. If the log says nothing of its address, it was so before it, too.
    pub(super) fn live_at_end(&mut self, address: u64, bytes: u64, stream: StreamKey) {
        if bytes > 0 && !self.addresses.contains_key(&address) {
            let id = self.block_before_log(bytes, stream);
            let stream = self.stream(stream);
            self.addresses.insert(address, AddressState::Block { id, stream });
        }
    }

    pub(super) fn finish(mut self) -> History {
        let is_block = |place: &&AddressState| matches!(place, AddressState::Block { .. });
        self.oddities.alive_at_end = self.addresses.values().filter(is_block).count() as u64;
        let mut ops = self.allocated_before;
        ops.append(&mut self.ops);
        History { ops, blocks: self.blocks, streams: self.streams.len() as u32, oddities: self.oddities }
    }

    fn block_before_log(&mut self, bytes: u64, stream: StreamKey) -> u32 {
        self.oddities.alive_at_start += 1;
        let (id, stream) = (self.next_block(), self.stream(stream));
        self.allocated_before.push(Op::Allocate { id, bytes, stream });
        id
    }

    fn next_block(&mut self) -> u32 {
        let id = self.blocks;
        self.blocks = id.checked_add(1).expect("a log in memory has fewer blocks than a u32 counts");
        id
    }

    fn stream(&mut self, name: StreamKey) -> u32 {
        let next = self.streams.len() as u32;
        match self.streams.entry(name) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: StreamKey = (0, 0);
    const SIDE: StreamKey = (7, 0);

    fn lived(tell: impl FnOnce(&mut HistoryBuilder)) -> History {
        let mut builder = HistoryBuilder::default();
        tell(&mut builder);
        builder.finish()
    }

    #[test]
    fn an_address_that_comes_again_is_another_block() {
        let history = lived(|builder| {
            builder.alloc(0x100, 10, MAIN);
            builder.free(0x100, Some(10), MAIN);
            builder.alloc(0x100, 20, SIDE);
            builder.record_use(0x100, SIDE);
            builder.record_use(0x100, MAIN);
            builder.free(0x100, Some(20), SIDE);
        });
        assert_eq!(
            history.ops,
            [
                Op::Allocate { id: 0, bytes: 10, stream: 0 },
                Op::Free { id: 0, stream: 0 },
                Op::Allocate { id: 1, bytes: 20, stream: 1 },
                Op::Use { id: 1, stream: 0 },
                Op::Free { id: 1, stream: 1 },
            ]
        );
        assert_eq!((history.blocks, history.streams), (2, 2));
        assert_eq!(history.oddities, Anomalies::default());
    }

    #[test]
    fn a_block_that_is_freed_and_was_never_allocated_lived_before_the_log() {
        let history = lived(|builder| {
            builder.alloc(0x100, 10, MAIN);
            builder.free(0x200, Some(30), SIDE);
        });
        assert_eq!(
            history.ops,
            [
                Op::Allocate { id: 1, bytes: 30, stream: 1 },
                Op::Allocate { id: 0, bytes: 10, stream: 0 },
                Op::Free { id: 1, stream: 1 },
            ]
        );
        assert_eq!(history.oddities, Anomalies { alive_at_start: 1, alive_at_end: 1, ..Anomalies::default() });
    }

    #[test]
    fn a_free_of_an_unknown_address_is_skipped() {
        let history = lived(|builder| builder.free(0x100, None, MAIN));
        assert_eq!(history.ops, []);
        assert_eq!(history.oddities, Anomalies { unknown_frees: 1, ..Anomalies::default() });
    }

    #[test]
    fn a_second_free_is_left_out() {
        let history = lived(|builder| {
            builder.alloc(0x100, 10, MAIN);
            builder.free(0x100, Some(10), MAIN);
            builder.free(0x100, Some(10), MAIN);
        });
        assert_eq!(history.ops.len(), 2);
        assert_eq!(history.oddities, Anomalies { double_frees: 1, ..Anomalies::default() });
    }

    #[test]
    fn an_allocation_where_a_block_is_alive_frees_that_one_in_its_stream() {
        let history = lived(|builder| {
            builder.alloc(0x100, 10, SIDE);
            builder.alloc(0x100, 20, MAIN);
            builder.free(0x100, None, MAIN);
        });
        assert_eq!(
            history.ops,
            [
                Op::Allocate { id: 0, bytes: 10, stream: 0 },
                Op::Free { id: 0, stream: 0 },
                Op::Allocate { id: 1, bytes: 20, stream: 1 },
                Op::Free { id: 1, stream: 1 },
            ]
        );
        assert_eq!(history.oddities, Anomalies { unreleased: 1, ..Anomalies::default() });
    }

    #[test]
    fn nothing_is_allocated_for_no_bytes_and_nothing_freed() {
        let history = lived(|builder| {
            builder.alloc(0x100, 0, MAIN);
            builder.record_use(0x100, MAIN);
            builder.free(0x100, Some(0), MAIN);
            builder.free(0x200, Some(0), MAIN);
        });
        assert_eq!(history.ops, []);
        assert_eq!(history.oddities, Anomalies { of_no_bytes: 1, ..Anomalies::default() });
    }

    #[test]
    fn a_use_of_what_is_not_allocated_is_left_out() {
        let history = lived(|builder| {
            builder.record_use(0x100, MAIN);
            builder.alloc(0x100, 10, MAIN);
            builder.free(0x100, None, MAIN);
            builder.record_use(0x100, MAIN);
        });
        assert_eq!(history.ops.len(), 2);
        assert_eq!(history.oddities, Anomalies { stray_uses: 2, ..Anomalies::default() });
    }

    #[test]
    fn a_block_live_at_the_end_and_absent_from_the_log_was_live_before_it() {
        let history = lived(|builder| {
            builder.alloc(0x100, 10, MAIN);
            builder.live_at_end(0x100, 10, MAIN);
            builder.live_at_end(0x300, 50, MAIN);
        });
        assert_eq!(
            history.ops,
            [Op::Allocate { id: 1, bytes: 50, stream: 0 }, Op::Allocate { id: 0, bytes: 10, stream: 0 }]
        );
        assert_eq!(history.oddities, Anomalies { alive_at_start: 1, alive_at_end: 2, ..Anomalies::default() });
    }

    #[test]
    fn anomalies_are_summarized_in_one_line() {
        let mut odd = Anomalies { double_frees: 2, unreadable: 1, ..Anomalies::default() };
        assert_eq!(odd.summary().unwrap(), "odd in the log: 1 unreadable (left out), 2 freed twice (left out)");
        odd.note_unreadable(6);
        odd.note_unreadable(8);
        assert!(odd.summary().unwrap().contains("3 unreadable, first in line 7 (left out)"));
        assert_eq!(Anomalies::default().summary(), None);
    }
}
