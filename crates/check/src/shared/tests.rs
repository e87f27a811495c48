//! Each rule and its opposite, with accesses written as lane and address; and random accesses, compared with a check of
//! all pairs.

use freehold_testing::Random;

use super::*;
use crate::access::Instruction;

const READ: AccessKind = AccessKind::Read;
const WRITE: AccessKind = AccessKind::Write;
const ATOMIC_ADD: AccessKind = AccessKind::Atomic;

struct Block(SharedCheck);

impl Block {
    fn new() -> Self {
        Self(SharedCheck::new(256, 128))
    }

    /// An access of one thread to a word.
    fn word(&mut self, thread: u32, kind: AccessKind, address: u64, line: u32) -> Option<Race> {
        self.bytes(thread, kind, address, 4, line)
    }

    fn bytes(&mut self, thread: u32, kind: AccessKind, address: u64, bytes: u64, line: u32) -> Option<Race> {
        self.0.access(&WarpAccess { bytes, ..one(thread, kind, line, &[address; LANES]) })
    }
}

fn one(thread: u32, kind: AccessKind, line: u32, addresses: &[u64; LANES]) -> WarpAccess<'_> {
    WarpAccess {
        block: 0,
        warp: thread / 32,
        instruction: Instruction { function: 7, line },
        kind,
        is_strong: false,
        is_ordering: false,
        is_async: false,
        bytes: 4,
        addresses,
        lanes: 1 << (thread % 32),
        unchanged: 0,
        is_range: false,
    }
}

fn access(thread: u32, kind: AccessKind, line: u32) -> ThreadAccess {
    ThreadAccess { block: 0, thread, instruction: Instruction { function: 7, line }, kind }
}

/// The words of each lane of a warp, from an offset on.
fn row(offset: u64) -> [u64; LANES] {
    std::array::from_fn(|lane| offset + 4 * lane as u64)
}

#[test]
fn a_read_of_bytes_that_the_block_has_not_written_is_found() {
    let mut check = SharedCheck::new(1024, 128);
    let found = check.unwritten(&one(40, READ, 3, &[8; LANES]));
    assert_eq!(found, Some(UnwrittenRead { access: access(40, READ, 3), offset: 8, bytes: 4 }));
    let addresses = row(128);
    let all = WarpAccess { lanes: u32::MAX, ..one(0, WRITE, 1, &addresses) };
    assert_eq!(check.unwritten(&all.with_range()), None);
    for bytes in [1, 2, 4, 8, 16] {
        assert_eq!(check.unwritten(&WarpAccess { bytes, ..one(9, READ, 2, &[128; LANES]) }), None);
        assert_eq!(check.unwritten(&WarpAccess { bytes, ..one(9, READ, 2, &[256 - bytes; LANES]) }), None);
        // A part of it may be padding.
        let is_partial = bytes > 1;
        let found = check.unwritten(&WarpAccess { bytes, ..one(9, READ, 2, &[257 - bytes; LANES]) });
        assert_eq!(found.is_none(), is_partial, "{bytes}");
        assert!(check.unwritten(&WarpAccess { bytes, ..one(9, READ, 2, &[256; LANES]) }).is_some());
        assert!(check.unwritten(&WarpAccess { bytes, ..one(9, READ, 2, &[128 - bytes; LANES]) }).is_some());
    }
    for (offset, expected) in [(128, None), (132, Some((31, 256))), (0, Some((0, 0)))] {
        let addresses = row(offset);
        let read = WarpAccess { lanes: u32::MAX, ..one(0, READ, 2, &addresses) };
        let found = check.unwritten(&read.with_range());
        assert_eq!(found.map(|found| (found.access.thread, found.offset)), expected);
    }
    check.restart();
    assert!(check.unwritten(&one(0, READ, 3, &[128; LANES])).is_some());
}

#[test]
fn a_noted_read_of_words_is_left_to_the_search_for_unwritten_bytes() {
    let instruction = Instruction { function: 7, line: 1 };
    let mut check = SharedCheck::new(1024, 128);
    let addresses = row(128);
    let write = WarpAccess { lanes: u32::MAX, ..one(0, WRITE, 1, &addresses) };
    assert_eq!(check.unwritten(&write.with_range()), None);
    for (first, distance, is_noted) in [
        ([128, 192], [4, 4], true),
        ([132, 196], [4, 4], false),
        ([124, 192], [4, 4], false),
        ([128, 252], [0, 0], true),
        ([128, 256], [0, 0], false),
        ([128, 132], [8, 8], true),
        ([128, 136], [8, 8], false),
        ([252, 252], [0_u32.wrapping_sub(4), 0], true),
    ] {
        assert_eq!(check.note_read(0, instruction, first, distance), is_noted, "{first:?} {distance:?}");
    }
}

#[test]
fn an_atomic_operation_needs_a_value_and_the_initialization_of_a_barrier_does_not() {
    let mut check = SharedCheck::new(1024, 128);
    assert!(check.unwritten(&one(5, ATOMIC_ADD, 1, &[16; LANES])).is_some());
    assert_eq!(check.unwritten(&one(5, ATOMIC_ADD, 1, &[16; LANES])), None);
    let barrier = WarpAccess { is_ordering: true, bytes: 8, ..one(5, ATOMIC_ADD, 1, &[32; LANES]) };
    assert_eq!(check.unwritten(&barrier), None);
    assert_eq!(check.unwritten(&one(6, READ, 2, &[36; LANES])), None);
}

#[test]
fn memory_that_is_written_to_its_last_byte_has_nothing_unwritten() {
    let mut check = SharedCheck::new(100, 32);
    for at in 0..100 {
        assert!(check.unwritten(&WarpAccess { bytes: 1, ..one(0, READ, 2, &[at; LANES]) }).is_some(), "{at}");
        assert_eq!(check.unwritten(&WarpAccess { bytes: 1, ..one(0, WRITE, 1, &[at; LANES]) }), None);
    }
    assert!(check.note_read(0, Instruction { function: 7, line: 1 }, [0, 36], [4, 4]));
    // Out of bounds: another error.
    assert_eq!(check.unwritten(&one(0, READ, 2, &[2000; LANES])), None);
    assert_eq!(SharedCheck::new(100, 32).unwritten(&one(0, READ, 2, &[100; LANES])), None);
}

#[test]
fn a_write_races_with_a_read_of_another_warp() {
    let mut block = Block::new();
    assert_eq!(block.word(3, WRITE, 8, 10), None);
    let race = Race { address: 8, first: access(3, WRITE, 10), second: access(40, READ, 11) };
    assert_eq!(block.word(40, READ, 8, 11), Some(race));
}

#[test]
fn a_read_races_with_a_later_write() {
    let mut block = Block::new();
    assert_eq!(block.word(3, READ, 8, 10), None);
    let race = Race { address: 8, first: access(3, READ, 10), second: access(40, WRITE, 11) };
    assert_eq!(block.word(40, WRITE, 8, 11), Some(race));
}

#[test]
fn reads_do_not_race_and_a_thread_does_not_race_with_itself() {
    let mut block = Block::new();
    for thread in [0, 1, 32, 127] {
        assert_eq!(block.word(thread, READ, 8, 1), None);
    }
    let mut block = Block::new();
    for kind in [WRITE, READ, ATOMIC_ADD, WRITE] {
        assert_eq!(block.word(5, kind, 8, 1), None);
    }
}

#[test]
fn a_barrier_orders_all_threads() {
    let mut block = Block::new();
    block.word(3, WRITE, 8, 1);
    block.word(4, READ, 12, 1);
    block.0.synchronize();
    assert_eq!(block.word(40, READ, 8, 2), None);
    assert_eq!(block.word(40, WRITE, 12, 2), None);
}

#[test]
fn a_warp_barrier_orders_its_warp_and_no_other() {
    let mut block = Block::new();
    block.word(3, WRITE, 8, 1);
    assert!(block.word(4, READ, 8, 2).is_some());
    block.0.synchronize_warp(0);
    assert_eq!(block.word(4, READ, 8, 2), None);
    assert!(block.word(40, READ, 8, 2).is_some());
    block.0.synchronize_warp(1);
    assert!(block.word(41, READ, 8, 2).is_some());
}

#[test]
fn a_write_races_with_any_of_many_readers() {
    for writer in [0, 5, 31, 33, 100] {
        let mut block = Block::new();
        for reader in [0, 1, 2, 40, 41, 3, 5] {
            assert_eq!(block.word(reader, READ, 8, 1), None);
        }
        assert!(block.word(writer, WRITE, 8, 2).is_some(), "{writer}");
    }
}

#[test]
fn a_reader_before_a_warp_barrier_races_with_other_warps_only() {
    let mut block = Block::new();
    block.word(1, READ, 8, 1);
    block.word(2, READ, 8, 1);
    block.0.synchronize_warp(0);
    assert_eq!(block.word(1, READ, 8, 1), None);
    assert_eq!(block.word(1, WRITE, 8, 2), None);
    assert!(block.word(64, WRITE, 8, 2).is_some());
}

#[test]
fn a_reader_of_another_warp_is_remembered_after_several_of_one_warp() {
    let mut block = Block::new();
    for reader in [0, 33, 34, 35] {
        block.word(reader, READ, 8, 1);
    }
    block.0.synchronize_warp(1);
    assert_eq!(block.word(34, WRITE, 8, 2).unwrap().first, access(0, READ, 1));
}

#[test]
fn atomic_accesses_race_with_plain_ones_only() {
    let mut block = Block::new();
    assert_eq!(block.word(0, ATOMIC_ADD, 8, 1), None);
    assert_eq!(block.word(40, ATOMIC_ADD, 8, 1), None);
    let race = block.word(70, READ, 8, 2).unwrap();
    assert_eq!(race.first, access(40, ATOMIC_ADD, 1));
    assert!(block.word(71, WRITE, 8, 2).is_some());
}

#[test]
fn strong_accesses_race_with_weak_ones_only() {
    let strong = |thread, kind, addresses| WarpAccess { is_strong: true, ..one(thread, kind, 1, addresses) };
    let mut block = Block::new();
    let at = [8; LANES];
    assert_eq!(block.0.access(&strong(1, WRITE, &at)), None);
    assert_eq!(block.0.access(&strong(40, READ, &at)), None);
    assert_eq!(block.word(41, ATOMIC_ADD, 8, 1), None);
    let mut block = Block::new();
    assert_eq!(block.0.access(&strong(40, READ, &at)), None);
    assert_eq!(block.word(41, WRITE, 8, 2).unwrap().first, access(40, READ, 1));
    let mut block = Block::new();
    block.word(41, WRITE, 8, 2);
    assert!(block.0.access(&strong(40, READ, &at)).is_some());
}

#[test]
fn an_acquire_orders_what_was_before_it() {
    let mut block = Block::new();
    block.word(1, WRITE, 8, 1);
    let at = [64; LANES];
    block.0.access(&WarpAccess { is_strong: true, is_ordering: true, ..one(40, READ, 2, &at) });
    assert_eq!(block.word(40, READ, 8, 3), None);
}

#[test]
fn lanes_of_one_instruction_race_if_they_write_different_values() {
    let at = [16; LANES];
    let store = |unchanged| WarpAccess { lanes: 0b111, unchanged, ..one(0, WRITE, 1, &at) };
    let mut block = Block::new();
    assert_eq!(block.0.access(&store(0b110)), None);
    let mut block = Block::new();
    let race = Race { address: 16, first: access(1, WRITE, 1), second: access(2, WRITE, 1) };
    assert_eq!(block.0.access(&store(0b010)), Some(race));
}

#[test]
fn writes_of_the_same_value_do_not_race_with_each_other_but_with_reads() {
    let at = [16; LANES];
    let same = WarpAccess { unchanged: 1 << 8, ..one(40, WRITE, 2, &at) };
    let mut block = Block::new();
    block.word(3, WRITE, 16, 1);
    assert_eq!(block.0.access(&same), None);
    let mut block = Block::new();
    block.word(3, READ, 16, 1);
    assert!(block.0.access(&same).is_some());
}

#[test]
fn bytes_of_a_word_are_told_apart() {
    let mut block = Block::new();
    for thread in 0..8 {
        assert_eq!(block.bytes(thread, WRITE, thread.into(), 1, 1), None);
    }
    assert_eq!(block.bytes(60, READ, 5, 1, 2).unwrap().address, 5);
    assert_eq!(block.bytes(61, READ, 2, 2, 2).unwrap().first, access(2, WRITE, 1));
    let race = block.bytes(62, READ, 0, 8, 2).unwrap();
    assert_eq!((race.address, race.first), (0, access(0, WRITE, 1)));
    // A word that was written as a whole keeps its writer when it is split.
    let mut block = Block::new();
    block.word(1, WRITE, 32, 1);
    assert_eq!(block.bytes(40, READ, 34, 1, 2).unwrap().first, access(1, WRITE, 1));
}

#[test]
fn wide_accesses_are_checked_in_each_word() {
    let mut block = Block::new();
    block.word(1, WRITE, 28, 1);
    let race = block.bytes(40, WRITE, 16, 16, 2).unwrap();
    assert_eq!(race.address, 28);
}

#[test]
fn a_uniform_read_of_a_warp_races_with_a_write_of_any_thread() {
    for writer in [30, 31, 0, 64] {
        let mut block = Block::new();
        let at = [16; LANES];
        assert_eq!(block.0.access(&WarpAccess { lanes: u32::MAX, ..one(0, READ, 1, &at) }), None);
        assert!(block.word(writer, WRITE, 16, 2).is_some(), "{writer}");
        let mut block = Block::new();
        block.word(writer, WRITE, 16, 2);
        assert!(block.0.access(&WarpAccess { lanes: u32::MAX, ..one(0, READ, 1, &at) }).is_some(), "{writer}");
    }
}

#[test]
fn an_address_outside_the_memory_is_ignored() {
    let mut block = Block::new();
    for thread in [0, 40] {
        assert_eq!(block.bytes(thread, WRITE, 252, 8, 1).map(|race| race.address), (thread == 40).then_some(252));
        assert_eq!(block.bytes(thread, WRITE, u64::MAX, 8, 1), None);
    }
}

#[test]
fn time_that_is_used_up_starts_again() {
    let mut block = Block::new();
    block.0.now = u32::MAX;
    block.word(0, WRITE, 8, 1);
    block.0.synchronize();
    assert_eq!(block.word(40, WRITE, 8, 1), None);
    assert!(block.word(0, WRITE, 8, 1).is_some());
}

/// One access of the random test.
struct Past {
    thread: u32,
    kind: AccessKind,
    range: (u64, u64),
    /// Synchronizations of the block and of the thread's warp before it.
    epochs: (u32, u32),
}

/// The reference: every pair of accesses, with no bound on what is remembered. What the check reports is a race; and it
/// reports each access that is the first to race.
#[test]
fn random_accesses_race_where_any_pair_does() {
    for seed in freehold_testing::seeds(20, 200, 2000) {
        freehold_testing::print_seed(seed);
        let mut numbers = Random::new(seed);
        let mut random = |below: u64| numbers.below(below);
        let mut block = Block::new();
        let (mut past, mut block_epoch, mut warp_epochs): (Vec<Past>, u32, [u32; 4]) = (Vec::new(), 0, [0; 4]);
        for _ in 0..60 {
            match random(10) {
                0 => {
                    block.0.synchronize();
                    block_epoch += 1;
                }
                1 | 2 => {
                    let warp = random(4) as usize;
                    block.0.synchronize_warp(warp as u32);
                    warp_epochs[warp] += 1;
                }
                _ => {
                    let thread = (random(4) * 32 + random(3)) as u32;
                    let kind = [READ, READ, WRITE][random(3) as usize];
                    // Words that are not split are checked in another way.
                    let bytes = if seed % 2 == 0 { 4 } else { [1, 2, 4, 8][random(4) as usize] };
                    let address = random(4) * 8 / bytes * bytes;
                    let warp_epoch = warp_epochs[thread as usize / 32];
                    let now =
                        Past { thread, kind, range: (address, address + bytes), epochs: (block_epoch, warp_epoch) };
                    let races = past.iter().any(|before| before.races(&now));
                    let found = block.bytes(thread, kind, address, bytes, 1);
                    assert_eq!(found.is_some(), races, "seed {seed}: {found:?}");
                    if races {
                        break;
                    }
                    past.push(now);
                }
            }
        }
    }
}

impl Past {
    fn races(&self, now: &Self) -> bool {
        let overlap = self.range.0 < now.range.1 && now.range.0 < self.range.1;
        let same_warp = self.thread / 32 == now.thread / 32;
        let ordered = self.epochs.0 < now.epochs.0 || same_warp && self.epochs.1 < now.epochs.1;
        overlap && (self.kind == WRITE || now.kind == WRITE) && self.thread != now.thread && !ordered
    }
}

/// The same for accesses of whole warps.
#[test]
fn random_accesses_of_warps_race_where_any_pair_of_threads_does() {
    for seed in freehold_testing::seeds(40, 400, 4000) {
        freehold_testing::print_seed(seed);
        let mut numbers = Random::new(seed);
        let mut random = |below: u64| numbers.below(below);
        let mut block = SharedCheck::new(1 << 10, 128);
        let (mut past, mut block_epoch, mut warp_epochs): (Vec<Past>, u32, [u32; 4]) = (Vec::new(), 0, [0; 4]);
        for _ in 0..40 {
            match random(8) {
                0 => {
                    block.synchronize();
                    block_epoch += 1;
                }
                1 => {
                    let warp = random(4) as usize;
                    block.synchronize_warp(warp as u32);
                    warp_epochs[warp] += 1;
                }
                _ => {
                    let warp = random(4) as u32;
                    let kind = if random(4) == 0 { WRITE } else { READ };
                    let bytes = [4, 4, 8, 2][random(4) as usize];
                    // Writes of one lane to what another wrote race too.
                    let stride = if kind == READ { random(3) } else { 1 };
                    let half = if kind == READ && random(2) == 0 { 0 } else { 16 * stride };
                    let start = random(5) * 32;
                    let place = |lane: u64| (start + lane % 16 * stride + lane / 16 * half) % 64 * bytes;
                    let addresses = std::array::from_fn(|lane| place(lane as u64));
                    let lanes = if random(4) == 0 { 0x00ff_0ff0 } else { u32::MAX };
                    let epochs = (block_epoch, warp_epochs[warp as usize]);
                    let now: Vec<Past> = (0..32)
                        .filter(|lane| lanes >> lane & 1 != 0)
                        .map(|lane| {
                            let at = addresses[lane as usize];
                            Past { thread: 32 * warp + lane, kind, range: (at, at + bytes), epochs }
                        })
                        .collect();
                    let races = past.iter().any(|before| now.iter().any(|now| before.races(now)));
                    let access = WarpAccess { lanes, bytes, ..one(32 * warp, kind, 1, &addresses) }.with_range();
                    let found = block.access(&access);
                    assert_eq!(found.is_some(), races, "seed {seed}: {found:?}");
                    if races {
                        break;
                    }
                    past.extend(now);
                }
            }
        }
    }
}

/// An access of some lanes of a warp, each to the word with its number.
fn words(lanes: u32, words: impl Fn(u64) -> u64) -> (u32, [u64; LANES]) {
    (lanes, std::array::from_fn(|lane| 4 * words(lane as u64)))
}

fn warp(
    block: &mut Block,
    warp: u32,
    kind: AccessKind,
    line: u32,
    (lanes, addresses): (u32, [u64; LANES]),
) -> Option<Race> {
    block.0.access(&WarpAccess { lanes, ..one(warp * 32, kind, line, &addresses) })
}

#[test]
fn warps_that_write_parts_of_one_row_are_told_apart() {
    let mut block = Block(SharedCheck::new(512, 128));
    assert_eq!(warp(&mut block, 0, WRITE, 1, words(u32::MAX, |lane| 16 + lane)), None);
    assert_eq!(warp(&mut block, 1, WRITE, 1, words(u32::MAX, |lane| 48 + lane)), None);
    block.0.synchronize_warp(0);
    assert_eq!(block.word(3, READ, 4 * 40, 2), None);
    assert!(block.word(3, READ, 4 * 50, 2).is_some());
}

#[test]
fn a_read_after_a_warp_barrier_is_not_replaced_by_one_before_it() {
    let mut block = Block::new();
    assert_eq!(warp(&mut block, 0, READ, 1, words(u32::MAX, |lane| lane)), None);
    block.0.synchronize_warp(0);
    assert_eq!(warp(&mut block, 0, READ, 2, words(0x0000_ffff, |lane| lane)), None);
    assert!(warp(&mut block, 0, WRITE, 3, words(0xffff_0000, |lane| lane.wrapping_sub(16) % 32)).is_some());
}
