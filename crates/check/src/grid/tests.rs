//! Each rule and its opposite: accesses of single threads of blocks with 64 threads.

use proptest::prelude::*;

use super::*;
use crate::access::Instruction;
use crate::words::clock::CLOCK_BLOCKS_MAX;

const READ: AccessKind = AccessKind::Read;
const WRITE: AccessKind = AccessKind::Write;
const ADD: AccessKind = AccessKind::Atomic;

const DATA: u64 = 0x1000;
const FLAG: u64 = 0x2_0000;

struct Grid {
    check: GridCheck,
    blocks: Vec<GridBlock>,
}

/// How an access is ordered.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Weak,
    Strong,
    Ordering,
}

impl Grid {
    fn new() -> Self {
        Self::of(GridCheck::new(1 << 20), 4)
    }

    fn of(check: GridCheck, blocks: u64) -> Self {
        let blocks = (0..blocks).map(|block| check.start(block, 64)).collect();
        Self { check, blocks }
    }

    fn warp(&mut self, access: &WarpAccess<'_>) -> Option<Race> {
        self.check.access(&mut self.blocks[access.block as usize], &access.with_range(), None)
    }

    fn fence(&mut self, block: usize, scope: FenceScope) {
        self.check.fence(&mut self.blocks[block], scope);
    }

    fn synchronize(&mut self, block: usize) {
        self.check.synchronize(&mut self.blocks[block]);
    }

    fn synchronize_warp(&mut self, block: usize, warp: u32) {
        self.check.synchronize_warp(&mut self.blocks[block], warp);
    }

    fn access(&mut self, block: u64, thread: u32, kind: AccessKind, how: How, at: (u64, u64)) -> Option<Race> {
        let access = WarpAccess {
            block,
            warp: thread / 32,
            instruction: Instruction { function: 0, line: 1 + thread },
            kind,
            is_strong: how != How::Weak,
            is_ordering: how == How::Ordering,
            is_async: false,
            bytes: at.1,
            addresses: &[at.0; LANES],
            lanes: 1 << (thread % 32),
            unchanged: 0,
            is_range: false,
        };
        self.warp(&access)
    }

    fn weak(&mut self, block: u64, thread: u32, kind: AccessKind, address: u64) -> Option<Race> {
        self.access(block, thread, kind, How::Weak, (address, 4))
    }

    fn strong(&mut self, block: u64, kind: AccessKind, address: u64) -> Option<Race> {
        self.access(block, 0, kind, How::Strong, (address, 4))
    }
}

fn access(block: u64, thread: u32, kind: AccessKind) -> ThreadAccess {
    ThreadAccess { block, thread, instruction: Instruction { function: 0, line: 1 + thread }, kind }
}

#[test]
fn blocks_race_if_one_of_them_writes() {
    let mut grid = Grid::new();
    assert_eq!(grid.weak(0, 3, WRITE, DATA), None);
    let race = Race { address: DATA, first: access(0, 3, WRITE), second: access(2, 40, READ) };
    assert_eq!(grid.weak(2, 40, READ, DATA), Some(race));
    let mut grid = Grid::new();
    assert_eq!(grid.weak(0, 3, READ, DATA), None);
    assert_eq!(grid.weak(1, 3, READ, DATA), None);
    assert_eq!(grid.weak(1, 3, WRITE, DATA).unwrap().first, access(0, 3, READ));
    assert_eq!(grid.weak(1, 3, WRITE, DATA + 4), None);
}

#[test]
fn a_barrier_orders_its_block_and_no_other() {
    let mut grid = Grid::new();
    grid.weak(0, 3, WRITE, DATA);
    assert!(grid.weak(0, 40, READ, DATA).is_some());
    grid.synchronize(0);
    assert_eq!(grid.weak(0, 40, READ, DATA), None);
    grid.synchronize(1);
    assert!(grid.weak(1, 40, READ, DATA).is_some());
}

#[test]
fn a_warp_barrier_orders_its_warp() {
    let mut grid = Grid::new();
    grid.weak(0, 3, WRITE, DATA);
    grid.synchronize_warp(0, 0);
    assert_eq!(grid.weak(0, 4, READ, DATA), None);
    assert!(grid.weak(0, 40, READ, DATA).is_some());
    assert!(grid.weak(1, 4, READ, DATA).is_some());
}

#[test]
fn a_fence_and_a_counter_order_blocks() {
    for (has_fence, reads_flag) in [(true, true), (false, true), (true, false)] {
        let mut grid = Grid::new();
        grid.weak(0, 3, WRITE, DATA);
        if has_fence {
            grid.fence(0, FenceScope::Device);
        }
        assert_eq!(grid.strong(0, ADD, FLAG), None);
        if reads_flag {
            assert_eq!(grid.strong(1, ADD, FLAG), None);
        }
        let race = grid.weak(1, 7, READ, DATA);
        assert_eq!(race.is_none(), has_fence && reads_flag, "{has_fence} {reads_flag}: {race:?}");
    }
}

#[test]
fn a_fence_of_the_block_does_not_order_other_blocks() {
    let mut grid = Grid::new();
    grid.weak(0, 3, WRITE, DATA);
    grid.fence(0, FenceScope::Block);
    assert_eq!(grid.weak(0, 40, READ, DATA), None);
    grid.strong(0, WRITE, FLAG);
    grid.strong(1, READ, FLAG);
    assert!(grid.weak(1, 7, READ, DATA).is_some());
}

#[test]
fn accesses_after_the_fence_are_not_published() {
    let mut grid = Grid::new();
    grid.fence(0, FenceScope::Device);
    grid.weak(0, 3, WRITE, DATA);
    grid.strong(0, WRITE, FLAG);
    grid.strong(1, READ, FLAG);
    assert!(grid.weak(1, 7, READ, DATA).is_some());
}

#[test]
fn another_flag_orders_nothing() {
    let mut grid = Grid::new();
    grid.weak(0, 3, WRITE, DATA);
    grid.fence(0, FenceScope::Device);
    grid.strong(0, WRITE, FLAG);
    grid.strong(1, READ, FLAG + 4);
    assert!(grid.weak(1, 7, READ, DATA).is_some());
}

#[test]
fn a_release_and_an_acquire_order_blocks() {
    let mut grid = Grid::new();
    grid.weak(0, 3, WRITE, DATA);
    grid.access(0, 0, WRITE, How::Ordering, (FLAG, 4));
    grid.weak(0, 3, WRITE, DATA + 4);
    grid.access(1, 0, READ, How::Ordering, (FLAG, 4));
    assert_eq!(grid.weak(1, 7, READ, DATA), None);
    assert!(grid.weak(1, 7, READ, DATA + 4).is_some());
}

#[test]
fn a_flag_that_is_read_again_orders_what_was_published_since() {
    let mut grid = Grid::new();
    for at in [DATA, DATA + 4] {
        grid.weak(0, 3, WRITE, at);
        grid.fence(0, FenceScope::Device);
        grid.strong(0, WRITE, FLAG);
        grid.strong(1, READ, FLAG);
        assert_eq!(grid.weak(1, 7, READ, at), None);
    }
}

#[test]
fn a_reader_of_another_block_is_remembered_after_several_of_one_block() {
    let mut grid = Grid::new();
    for (block, thread) in [(0, 1), (1, 1), (1, 2), (1, 3)] {
        grid.weak(block, thread, READ, DATA);
    }
    grid.synchronize(1);
    assert_eq!(grid.weak(1, 1, WRITE, DATA).unwrap().first, access(0, 1, READ));
}

#[test]
fn order_is_transitive() {
    let mut grid = Grid::new();
    grid.weak(0, 3, WRITE, DATA);
    grid.access(0, 0, WRITE, How::Ordering, (FLAG, 4));
    grid.access(1, 0, READ, How::Ordering, (FLAG, 4));
    grid.access(1, 0, WRITE, How::Ordering, (FLAG + 8, 4));
    grid.access(2, 0, READ, How::Ordering, (FLAG + 8, 4));
    assert_eq!(grid.weak(2, 7, WRITE, DATA), None);
    assert!(grid.weak(3, 7, WRITE, DATA).is_some());
}

#[test]
fn the_last_block_of_many_may_read_what_all_wrote() {
    let mut grid = Grid::new();
    for block in 0..4 {
        assert_eq!(grid.weak(block, 3, WRITE, DATA + 4 * block), None);
        grid.fence(block as usize, FenceScope::Device);
        grid.synchronize(block as usize);
        assert_eq!(grid.strong(block, ADD, FLAG), None);
    }
    for block in 0..4 {
        assert_eq!(grid.weak(3, 9, READ, DATA + 4 * block), None);
    }
    assert!(grid.weak(2, 9, READ, DATA + 12).is_some());
}

#[test]
fn a_lock_orders_its_critical_sections() {
    for has_fence in [true, false] {
        let mut grid = Grid::new();
        let mut races = 0;
        for block in [0, 1, 0, 2] {
            grid.strong(block, ADD, FLAG);
            races += usize::from(grid.weak(block, 0, READ, DATA).is_some());
            races += usize::from(grid.weak(block, 0, WRITE, DATA).is_some());
            if has_fence {
                grid.fence(block as usize, FenceScope::Device);
            }
            grid.strong(block, ADD, FLAG);
        }
        assert_eq!(races != 0, !has_fence);
    }
}

#[test]
fn atomic_accesses_race_with_weak_ones_only() {
    let mut grid = Grid::new();
    assert_eq!(grid.strong(0, ADD, DATA), None);
    assert_eq!(grid.strong(1, ADD, DATA), None);
    assert_eq!(grid.strong(2, READ, DATA), None);
    assert_eq!(grid.weak(2, 5, READ, DATA).unwrap().first, access(1, 0, ADD));
}

#[test]
fn writes_of_one_value_do_not_race() {
    let mut grid = Grid::new();
    grid.weak(0, 3, WRITE, DATA);
    let same = WarpAccess { block: 1, unchanged: 1, ..write_of(&[DATA; LANES]) };
    assert_eq!(grid.warp(&same), None);
    assert!(grid.warp(&WarpAccess { block: 2, unchanged: 0, ..same }).is_some());
}

#[test]
fn bytes_and_pages_are_told_apart() {
    let mut grid = Grid::new();
    let edge = DATA + PAGE_BYTES;
    for block in 0..4 {
        assert_eq!(grid.access(block, 1, WRITE, How::Weak, (edge - 2 + block, 1)), None);
    }
    assert_eq!(grid.access(0, 2, READ, How::Weak, (edge - 8, 16)).unwrap().address, edge - 2);
    let mut grid = Grid::new();
    assert_eq!(grid.access(0, 1, WRITE, How::Weak, (edge - 8, 16)), None);
    assert_eq!(grid.access(1, 1, READ, How::Weak, (edge + 7, 1)).unwrap().first, access(0, 1, WRITE));
    assert_eq!(grid.access(1, 1, READ, How::Weak, (edge + 8, 1)), None);
}

#[test]
fn memory_that_was_allocated_again_is_forgotten() {
    let mut grid = Grid::new();
    for at in [DATA, DATA + 4, DATA + 8] {
        grid.weak(0, 1, WRITE, at);
    }
    grid.access(0, 1, WRITE, How::Weak, (DATA + 13, 1));
    grid.check.forget(DATA + 4, 4);
    grid.check.forget(DATA + 13, 1);
    assert!(grid.weak(1, 1, WRITE, DATA).is_some());
    assert_eq!(grid.weak(1, 1, WRITE, DATA + 4), None);
    assert!(grid.weak(1, 1, WRITE, DATA + 8).is_some());
    assert_eq!(grid.access(1, 1, WRITE, How::Weak, (DATA + 13, 1)), None);
}

#[test]
fn memory_beyond_the_limit_is_not_watched() {
    let mut grid = Grid::of(GridCheck::new(2 * PAGE_BYTES), 2);
    for page in 0..3 {
        grid.weak(0, 1, WRITE, page * PAGE_BYTES);
        assert_eq!(grid.weak(1, 1, WRITE, page * PAGE_BYTES).is_some(), page < 2, "{page}");
    }
}

#[test]
fn very_many_flags_take_bounded_memory_and_order_what_they_should() {
    let mut grid = Grid::of(GridCheck::new(1 << 20), 3);
    let words = (STRIPES * FLAGS_MAX * 4) as u64;
    grid.weak(0, 0, WRITE, DATA);
    grid.fence(0, FenceScope::Device);
    for word in 0..words {
        grid.strong(0, ADD, FLAG + 4 * word);
    }
    let flags: usize = grid.check.stripes.iter().map(|stripe| locked(&stripe.0).flags.len()).sum();
    assert_eq!(flags, STRIPES * FLAGS_MAX);
    // Its own flag, and a shared one.
    for (block, word) in [(1, 0), (2, words - 1)] {
        grid.strong(block, READ, FLAG + 4 * word);
        assert_eq!(grid.weak(block, 0, READ, DATA), None);
    }
    for word in 0..words {
        grid.strong(1, READ, FLAG + 4 * word);
    }
    assert!(grid.blocks[1].clock.read.len() <= READ_FLAGS_MAX);
}

#[test]
fn a_clock_of_very_many_blocks_knows_all() {
    let blocks = CLOCK_BLOCKS_MAX as u64 + 2;
    let mut grid = Grid::of(GridCheck::new(1 << 20), blocks);
    for block in 0..blocks {
        assert_eq!(grid.weak(block, 1, WRITE, DATA + 4 * block), None);
        grid.access(block, 0, ADD, How::Ordering, (FLAG, 4));
    }
    for block in 0..blocks {
        assert_eq!(grid.weak(blocks - 1, 1, READ, DATA + 4 * block), None);
    }
}

#[test]
fn nothing_is_watched_when_time_is_used_up() {
    let mut grid = Grid::new();
    grid.check.now.store(u32::MAX - 2, Ordering::Relaxed);
    grid.weak(0, 1, WRITE, DATA);
    assert!(grid.weak(1, 1, WRITE, DATA).is_some());
    grid.synchronize(3);
    assert!(grid.weak(2, 1, WRITE, DATA).is_some());
    (0..2).for_each(|_| grid.synchronize(3));
    assert_eq!(grid.weak(3, 1, WRITE, DATA), None);
}

/// A random access, or a synchronization if there is no kind.
#[derive(Debug, Clone)]
struct Event {
    block: u64,
    warp: u32,
    kind: Option<AccessKind>,
    how: u8,
    bytes: u64,
    start: u64,
    /// The distance between lanes in parts of `bytes`; 9: places that look random.
    stride: u64,
    lanes: u32,
    unchanged: u32,
}

impl Event {
    fn address(&self, lane: u64) -> u64 {
        let place = if self.stride == 9 { lane * 7919 % 61 } else { lane * self.stride };
        PAGE_BYTES - 128 + (self.start + place) * self.bytes
    }

    fn apply(&self, grid: &mut Grid) -> Option<Race> {
        let Some(kind) = self.kind else {
            match self.how {
                0 => grid.synchronize(self.block as usize),
                1 => grid.synchronize_warp(self.block as usize, self.warp),
                _ => grid.fence(self.block as usize, FenceScope::Device),
            }
            return None;
        };
        let access = WarpAccess {
            block: self.block,
            warp: self.warp,
            instruction: Instruction { function: 0, line: 1 + self.start as u32 },
            kind,
            is_strong: self.how == 1,
            is_ordering: self.how == 2,
            is_async: false,
            bytes: self.bytes,
            addresses: &std::array::from_fn(|lane| self.address(lane as u64)),
            lanes: self.lanes,
            unchanged: self.unchanged & self.lanes,
            is_range: false,
        };
        grid.warp(&access)
    }
}

fn events() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![2 => Just(None), 5 => Just(Some(READ)), 5 => Just(Some(WRITE)), 1 => Just(Some(ADD))];
    let how = prop_oneof![6 => Just(0), 1 => Just(1), 1 => Just(2)];
    let bytes = prop_oneof![6 => Just(4), 1 => Just(1), 1 => Just(2), 2 => Just(8), 1 => Just(16), 1 => Just(12)];
    let stride = prop_oneof![6 => Just(1), 1 => Just(0), 1 => Just(2), 1 => Just(9)];
    let lanes = prop_oneof![4 => Just(u32::MAX), 1 => Just(1), 1 => any::<u32>(), 1 => Just(0xffff)];
    let lanes = lanes.prop_map(|lanes| lanes.max(1));
    let unchanged = prop_oneof![3 => Just(0), 1 => Just(u32::MAX), 1 => any::<u32>()];
    let who = (0..3u64, 0..2u32, kind, how);
    (who, bytes, prop_oneof![Just(0), 0..24u64], stride, lanes, unchanged).prop_map(
        |((block, warp, kind, how), bytes, start, stride, lanes, unchanged)| Event {
            block,
            warp,
            kind,
            how,
            bytes,
            start,
            stride,
            lanes,
            unchanged,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn patterns_find_what_cells_of_bytes_find(events in proptest::collection::vec(events(), 1..40)) {
        let (mut grid, mut model) = (Grid::new(), Grid::new());
        for page in 0..3 {
            let mut stripe = locked(&model.check.stripes[page].0);
            pages::page(&mut stripe.pages, page as u64, || true).unwrap().use_cells();
        }
        for event in events {
            prop_assert_eq!(event.apply(&mut grid), event.apply(&mut model));
        }
    }
}

#[test]
fn only_pages_that_were_added_are_watched_when_none_is_left() {
    let check = GridCheck::new(2 * PAGE_BYTES);
    let mut block = check.start(0, 64);
    let range_at = |page: u64| std::array::from_fn(|lane| page * PAGE_BYTES + 4 * lane as u64);
    let pages = [range_at(1), range_at(2), range_at(50)];
    let [first, second, third] = pages.each_ref().map(|at| WarpAccess { lanes: u32::MAX, ..write_of(at) }.with_range());
    for access in [&first, &second] {
        assert!(check.may_watch(&third));
        assert_eq!(check.access(&mut block, access, None), None);
    }
    assert!(check.may_watch(&first) && check.may_watch(&second));
    assert!(!check.may_watch(&third));
    assert!(check.may_watch(&WarpAccess { is_strong: true, ..third }));
    // One that begins in a page and ends in the next.
    let across = std::array::from_fn(|lane| 3 * PAGE_BYTES - 64 + 4 * lane as u64);
    assert!(check.may_watch(&WarpAccess { lanes: u32::MAX, ..write_of(&across) }.with_range()));
}

#[test]
fn writes_of_one_value_by_blocks_that_run_at_the_same_time_do_not_race() {
    use std::sync::atomic::AtomicU64;
    let check = GridCheck::new(1 << 20);
    let memory = AtomicU64::new(0);
    let races = std::thread::scope(|scope| {
        let blocks: Vec<_> = (0..4)
            .map(|number| {
                let (check, memory) = (&check, &memory);
                scope.spawn(move || {
                    let mut block = check.start(number, 32);
                    let held = check.hold(&write_of(&[DATA; LANES]));
                    let unchanged = u32::from(memory.swap(7, Ordering::Relaxed) == 7);
                    let access = WarpAccess { block: number, unchanged, ..write_of(&[DATA; LANES]) };
                    check.access(&mut block, &access, Some(held)).is_some()
                })
            })
            .collect();
        blocks.into_iter().map(|block| usize::from(block.join().unwrap())).sum::<usize>()
    });
    assert_eq!(races, 0);
}

fn write_of(addresses: &[u64; LANES]) -> WarpAccess<'_> {
    WarpAccess {
        block: 0,
        warp: 0,
        instruction: Instruction::default(),
        kind: WRITE,
        is_strong: false,
        is_ordering: false,
        is_async: false,
        bytes: 4,
        addresses,
        lanes: 1,
        unchanged: 0,
        is_range: false,
    }
}
