//! Each rule and its opposite: accesses of single threads of blocks with 64 threads.

use super::*;
use crate::access::Instruction;

const READ: AccessKind = AccessKind::Read;
const WRITE: AccessKind = AccessKind::Write;
const ADD: AccessKind = AccessKind::Atomic;

const DATA: u64 = 0x1000;
const FLAG: u64 = 0x2_0000;

struct Grid(GridCheck);

/// How an access is ordered.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Weak,
    Strong,
    Ordering,
}

impl Grid {
    fn new() -> Self {
        let mut check = GridCheck::new(1 << 20);
        (0..4).for_each(|block| check.start(block, 64));
        Self(check)
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
        };
        self.0.access(&access)
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
    grid.0.synchronize(0);
    assert_eq!(grid.weak(0, 40, READ, DATA), None);
    grid.0.synchronize(1);
    assert!(grid.weak(1, 40, READ, DATA).is_some());
}

#[test]
fn a_warp_barrier_orders_its_warp() {
    let mut grid = Grid::new();
    grid.weak(0, 3, WRITE, DATA);
    grid.0.synchronize_warp(0, 0);
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
            grid.0.fence(0, FenceScope::Device);
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
    grid.0.fence(0, FenceScope::Block);
    assert_eq!(grid.weak(0, 40, READ, DATA), None);
    grid.strong(0, WRITE, FLAG);
    grid.strong(1, READ, FLAG);
    assert!(grid.weak(1, 7, READ, DATA).is_some());
}

#[test]
fn accesses_after_the_fence_are_not_published() {
    let mut grid = Grid::new();
    grid.0.fence(0, FenceScope::Device);
    grid.weak(0, 3, WRITE, DATA);
    grid.strong(0, WRITE, FLAG);
    grid.strong(1, READ, FLAG);
    assert!(grid.weak(1, 7, READ, DATA).is_some());
}

#[test]
fn another_flag_orders_nothing() {
    let mut grid = Grid::new();
    grid.weak(0, 3, WRITE, DATA);
    grid.0.fence(0, FenceScope::Device);
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
        grid.0.fence(0, FenceScope::Device);
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
    grid.0.synchronize(1);
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
        grid.0.fence(block, FenceScope::Device);
        grid.0.synchronize(block);
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
                grid.0.fence(block, FenceScope::Device);
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
    let same = WarpAccess {
        block: 1,
        warp: 0,
        instruction: Instruction::default(),
        kind: WRITE,
        is_strong: false,
        is_ordering: false,
        is_async: false,
        bytes: 4,
        addresses: &[DATA; LANES],
        lanes: 1,
        unchanged: 1,
    };
    assert_eq!(grid.0.access(&same), None);
    assert!(grid.0.access(&WarpAccess { block: 2, unchanged: 0, ..same }).is_some());
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
    grid.0.forget(DATA + 4, 4);
    grid.0.forget(DATA + 13, 1);
    assert!(grid.weak(1, 1, WRITE, DATA).is_some());
    assert_eq!(grid.weak(1, 1, WRITE, DATA + 4), None);
    assert!(grid.weak(1, 1, WRITE, DATA + 8).is_some());
    assert_eq!(grid.access(1, 1, WRITE, How::Weak, (DATA + 13, 1)), None);
}

#[test]
fn memory_beyond_the_limit_is_not_watched() {
    let mut grid = Grid(GridCheck::new(2 * PAGE_BYTES));
    (0..2).for_each(|block| grid.0.start(block, 32));
    for page in 0..3 {
        grid.weak(0, 1, WRITE, page * PAGE_BYTES);
        assert_eq!(grid.weak(1, 1, WRITE, page * PAGE_BYTES).is_some(), page < 2, "{page}");
    }
}

#[test]
fn a_clock_of_very_many_blocks_knows_all() {
    let mut grid = Grid::new();
    let blocks = CLOCK_BLOCKS_MAX as u64 + 2;
    for block in 0..blocks {
        grid.0.start(block, 32);
        assert_eq!(grid.weak(block, 1, WRITE, DATA + 4 * block), None);
        grid.access(block, 0, ADD, How::Ordering, (FLAG, 4));
    }
    for block in 0..blocks {
        assert_eq!(grid.weak(blocks - 1, 1, READ, DATA + 4 * block), None);
    }
}

#[test]
fn time_that_is_used_up_starts_again() {
    let mut grid = Grid::new();
    grid.0.now = u32::MAX - 1;
    grid.weak(0, 1, WRITE, DATA);
    grid.access(0, 0, WRITE, How::Ordering, (FLAG, 4));
    grid.0.synchronize(3);
    assert_eq!(grid.weak(1, 1, WRITE, DATA), None);
    assert!(grid.weak(2, 1, WRITE, DATA).is_some());
    // What was published before orders nothing after it.
    grid.weak(0, 1, WRITE, DATA + 4);
    grid.strong(1, READ, FLAG);
    assert!(grid.weak(1, 1, READ, DATA + 4).is_some());
}
