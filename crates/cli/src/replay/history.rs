//! Converts a log's addresses to operations on blocks, each with its own id from allocation to free.
//!
//! Addresses are reused, and logs are not perfect: they begin late, end early and lose lines. Operations that cannot be
//! replayed are skipped and counted. Pure: knows neither log formats nor allocators.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::Serialize;

use super::Op;

/// Anomalies of a log. The replay continues; the report lists them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Anomalies {
    /// Lines or events that cannot be parsed, including a truncated last line.
    pub(super) unreadable: u64,
    /// The first such line, counted from 1, if the log has lines.
    pub(super) unreadable_line: Option<u64>,
    /// Allocations of zero bytes: skipped.
    pub(super) of_no_bytes: u64,
    /// Allocations that failed when the log was recorded: skipped.
    pub(super) failed_then: u64,
    /// Blocks that are freed but never allocated in the log: allocated first.
    pub(super) alive_at_start: u64,
    /// Frees of blocks never allocated, of unknown size: skipped.
    pub(super) unknown_frees: u64,
    /// Frees of blocks already freed: skipped.
    pub(super) double_frees: u64,
    /// Uses of blocks that are not allocated: skipped.
    pub(super) stray_uses: u64,
    /// Allocations at an address that was not freed: the earlier block is freed first.
    pub(super) unreleased: u64,
    /// Blocks that the log never frees: freed at the end.
    pub(super) alive_at_end: u64,
    /// Operations on devices other than the replayed one: skipped.
    pub(super) on_other_devices: u64,
}

impl Anomalies {
    /// Counts an unreadable line, the `at`-th, counted from 0.
    pub(super) fn note_unreadable(&mut self, at: usize) {
        self.unreadable += 1;
        self.unreadable_line.get_or_insert(at as u64 + 1);
    }

    /// Returns one line, or `None` without anomalies.
    pub(super) fn summary(&self) -> Option<String> {
        let unreadable = match self.unreadable_line {
            Some(line) => format!("unreadable, first in line {line}"),
            None => "unreadable".to_owned(),
        };
        let parts = [
            (self.unreadable, unreadable.as_str(), "skipped"),
            (self.of_no_bytes, "allocations of 0 bytes", "skipped"),
            (self.failed_then, "failed when the log was recorded", "skipped"),
            (self.alive_at_start, "live before the log", "allocated first"),
            (self.unknown_frees, "freed but never allocated", "skipped"),
            (self.double_frees, "freed twice", "skipped"),
            (self.stray_uses, "used while not allocated", "skipped"),
            (self.unreleased, "allocated where no free was logged", "freed first"),
            (self.alive_at_end, "never freed", "freed at the end"),
            (self.on_other_devices, "on other devices", "skipped"),
        ];
        let odd: Vec<String> = parts
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, what, remedy)| format!("{count} {what} ({remedy})"))
            .collect();
        if odd.is_empty() { None } else { Some(format!("anomalies in the log: {}", odd.join(", "))) }
    }
}

/// A stream as the log names it. The thread's number distinguishes streams that have one name in all threads.
pub(super) type StreamKey = (u64, u64);

/// What is at an address.
#[derive(Clone, Copy, Debug)]
enum AddressState {
    Block {
        id: u32,
        stream: u32,
    },
    /// An allocation of zero bytes, whose free is ignored too.
    Empty,
    Freed,
}

/// Collects the operations of a log while it is read.
#[derive(Debug, Default)]
pub(super) struct HistoryBuilder {
    /// Allocations of blocks that were live when the log began.
    allocated_before: Vec<Op>,
    ops: Vec<Op>,
    addresses: HashMap<u64, AddressState>,
    streams: HashMap<StreamKey, u32>,
    blocks: u32,
    pub(super) oddities: Anomalies,
}

/// A log as operations. Every free and use refers to a block that is allocated and not yet freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct History {
    pub(super) ops: Vec<Op>,
    /// All ids are below this.
    pub(super) blocks: u32,
    /// All streams are below this.
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

    /// Adds a free. If the log gives the size, the block may be one from before the log.
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

    /// Adds a use of a block. A use in the block's home stream is dropped: the stream's order is enough.
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

    /// Adds a block that is live after the log. If the log does not mention its address, it was live before as well.
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
        self.blocks = id.checked_add(1).expect("a log has fewer than 2^32 blocks");
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
        assert_eq!(odd.summary().unwrap(), "anomalies in the log: 1 unreadable (skipped), 2 freed twice (skipped)");
        odd.note_unreadable(6);
        odd.note_unreadable(8);
        assert!(odd.summary().unwrap().contains("3 unreadable, first in line 7 (skipped)"));
        assert_eq!(Anomalies::default().summary(), None);
    }
}
