//! The memory of a launch: it depends on how many blocks are resident, not on how many the grid has.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use freehold_ptx::{Grid, Image, LANES, Launch, Memory, OutOfBounds, Progress, Slice, ThreadBlock, Unit, Width};

/// Counts the calls of each thread, and the bytes that it has allocated now and had at most. The harness's thread is
/// none of the test's business.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static PEAK: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator, and counting allocates nothing: the cells need neither a lazy
// initialization nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        BYTES.set(BYTES.get().wrapping_add(layout.size() as u64));
        PEAK.set(PEAK.get().max(BYTES.get()));
        // SAFETY: the caller's layout has a size, as `alloc` requires of it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get().wrapping_sub(layout.size() as u64));
        // SAFETY: the caller got the pointer from `alloc` with this layout, which got it from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// No memory: the kernel here accesses none outside its block.
struct Nothing;

impl Memory for Nothing {
    fn load(&mut self, _: Width, at: &[u64; LANES], _: u32, _: &mut [u64; LANES]) -> Result<(), OutOfBounds> {
        Err(OutOfBounds { address: at[0] })
    }

    fn store(&mut self, _: Width, at: &[u64; LANES], _: u32, _: &[u64; LANES]) -> Result<(), OutOfBounds> {
        Err(OutOfBounds { address: at[0] })
    }

    fn atomic_update(&mut self, _: Width, address: u64, _: &mut dyn FnMut(u64) -> u64) -> Result<u64, OutOfBounds> {
        Err(OutOfBounds { address })
    }

    fn fence(&mut self) {}

    fn allocate(&mut self, _: u64) -> u64 {
        0
    }

    fn release(&mut self, _: u64) -> bool {
        false
    }

    fn describe(&mut self, _: u64) -> String {
        "nothing".to_owned()
    }
}

/// Registers, shared and local memory, a divergent branch, and a slice that ends within the block.
const KERNEL: &str = ".version 8.6\n.target sm_90\n.address_size 64
    .visible .entry k() {
    .reg .b32 %r<9>; .reg .pred %p; .shared .b32 tile[8]; .local .b32 own[4];
    mov.u32 %r0, %tid.x; setp.gt.u32 %p, %r0, 3; @%p bra HIGH;
    st.local.u32 [own], %r0;
    HIGH: bar.sync 0; ld.local.u32 %r1, [own]; st.shared.u32 [tile], %r1; ret;\n}";

/// Runs a launch with at most `resident` blocks at a time. Returns the most bytes that were allocated during it, and how
/// often something was.
fn run(blocks: u32, resident: usize) -> (u64, u64) {
    let (program, _) = Image::link(vec![Unit::compile(KERNEL).unwrap()]).unwrap().relocate(&[]);
    let launch = Launch {
        kernel: 0,
        grid: [blocks, 1, 1],
        block: [8, 1, 1],
        cluster: None,
        shared_bytes: 0,
        is_shared_exact: true,
        parameters: Vec::new(),
        pointers: Vec::new(),
        workspace: 0,
        stack_bytes: 1024,
    };
    let mut running: Vec<ThreadBlock> = Vec::with_capacity(resident);
    let (calls, bytes) = (CALLS.get(), BYTES.get());
    PEAK.set(bytes);
    let grid = Arc::new(Grid::new(program, launch));
    let mut left = 0..grid.blocks();
    loop {
        while running.len() < resident
            && let Some(index) = left.next()
        {
            running.push(grid.cluster(index));
        }
        if running.is_empty() {
            return (PEAK.get() - bytes, CALLS.get() - calls);
        }
        let slice = Slice { instructions: 6, nanoseconds: 0, seed: None };
        running.retain_mut(|block| block.run(&mut Nothing, slice).unwrap() != Progress::Done);
    }
}

#[test]
fn a_grid_needs_the_memory_of_its_resident_blocks() {
    let (few, few_calls) = run(1_000, 16);
    let (many, many_calls) = run(1_000_000, 16);
    println!("1,000 blocks: {few} bytes in {few_calls} allocations; 1,000,000: {many} in {many_calls}");
    assert_eq!((many, many_calls), (few, few_calls));
    // As many again for as many more.
    let (twice, _) = run(1_000, 32);
    println!("32 resident blocks: {twice} bytes");
    assert!(twice > few && twice <= 2 * few, "{few} and {twice}");
}
