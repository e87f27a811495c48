//! Blocks of anonymous pages. The checker is off, so only the tests query which work is complete.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::ptr;

use freehold_check::QueueId;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::block::{Allowed, PAGE_BYTES, PROTECTED};
use super::*;

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Pages that are unmapped at the end.
struct Pages {
    start: u64,
    bytes: usize,
}

impl Pages {
    fn map(count: usize) -> Self {
        let bytes = count * PAGE_BYTES as usize;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, READ_WRITE, MapFlags::PRIVATE) };
        Self { start: start.expect("there is memory") as u64, bytes }
    }

    /// Unmaps the pages, and maps others at their addresses, without a moment in which another thread could.
    fn replace(self) -> Self {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: the pages that are replaced are those of this value, and there is no reference to them.
        let start = unsafe { mmap_anonymous(self.start as *mut c_void, self.bytes, READ_WRITE, flags) };
        assert_eq!(start.expect("there is memory") as u64, self.start);
        self
    }

    fn block(&self) -> Arc<Block> {
        Arc::new(Block::new(self.start, self.bytes as u64))
    }

    /// Returns whether the program may write to the first page.
    fn is_writable(&self) -> bool {
        let (reader, mut writer) = std::io::pipe().expect("there are files");
        writer.write_all(&[7]).expect("the pipe has room");
        // SAFETY: the kernel writes the byte, or fails if the page is protected.
        let count = unsafe { libc::read(reader.as_raw_fd(), self.start as *mut c_void, 1) };
        count == 1
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are those of this value.
        let _ = unsafe { munmap(ptr::with_exposed_provenance_mut(self.start as usize), self.bytes) };
    }
}

fn epoch(queue: u64, seq: u64) -> Epoch {
    Epoch { queue: QueueId(queue), seq }
}

/// Notes a use as `expect_in` does, without handlers of signals.
fn expect_of(block: &Arc<Block>, epoch: Epoch, bytes: Range<u64>, is_write: bool) {
    let used = Use { start: bytes.start, end: bytes.end, queue: epoch.queue, is_write };
    if let Some(mut state) = block.live() {
        let before = state.add(used, epoch.seq);
        pending::add(block, used, before, epoch.seq);
    }
}

fn allowed(block: &Block, page: usize) -> Allowed {
    block.live().expect("the block is mapped").allowed(page)
}

#[test]
fn pages_are_protected_as_the_pending_uses_need_it() {
    let pages = Pages::map(8);
    let (block, at) = (pages.block(), |page: u64| pages.start + page * PAGE_BYTES);
    expect_of(&block, epoch(1001, 1), at(1)..at(3), false);
    expect_of(&block, epoch(1002, 1), at(2) + 10..at(4) + 1, true);
    let found: Vec<_> = (0..6).map(|page| allowed(&block, page)).collect();
    use Allowed::{All, Nothing, Reads};
    assert_eq!(found, [All, Reads, Nothing, Nothing, Nothing, All]);
    pending::drop_over(|epoch| epoch.queue == QueueId(1002));
    let found: Vec<_> = (0..6).map(|page| allowed(&block, page)).collect();
    assert_eq!(found, [All, Reads, Reads, All, All, All]);
    pending::remove(block.retire());
}

#[test]
fn a_block_that_is_found_before_it_is_unmapped_does_not_protect_what_is_mapped_there_next() {
    let pages = Pages::map(1);
    let start = pages.start;
    let block = pages.block();
    // Another thread has found the block, and this one frees it.
    pending::remove(block.retire());
    let next = pages.replace();
    expect_of(&block, epoch(1011, 1), start..start + 8, true);
    assert!(next.is_writable());
}

#[test]
fn an_instruction_that_ends_after_its_block_was_unmapped_does_not_protect_what_is_mapped_there_next() {
    let pages = Pages::map(1);
    let start = pages.start;
    let block = pages.block();
    expect_of(&block, epoch(1021, 1), start..start + 8, true);
    assert!(!pages.is_writable());
    let mut registers = registers(0);
    begin(&block, false, &mut registers);
    pending::remove(block.retire());
    let next = pages.replace();
    finish(&mut registers);
    assert!(next.is_writable());
}

/// Returns the registers of a thread that was interrupted at an address.
fn registers(instruction: usize) -> libc::ucontext_t {
    // SAFETY: all bits zero are valid registers.
    let mut registers: libc::ucontext_t = unsafe { std::mem::zeroed() };
    registers.uc_mcontext.gregs[libc::REG_RIP as usize] = instruction as i64;
    registers
}

/// Opens the first page of a block for the interrupted instruction.
fn begin(block: &Arc<Block>, is_whole: bool, registers: &mut libc::ucontext_t) {
    block.live().expect("the block is mapped").open(0).expect("the page can be opened");
    steps::begin(Arc::clone(block), 0, is_whole, registers);
}

fn finish(registers: &mut libc::ucontext_t) {
    steps::Step::take_last().expect("an instruction has begun").finish(registers);
}

fn has_trap(registers: &libc::ucontext_t) -> bool {
    registers.uc_mcontext.gregs[libc::REG_EFL as usize] != 0
}

#[test]
fn a_page_is_open_for_one_instruction() {
    let pages = Pages::map(1);
    let block = pages.block();
    expect_of(&block, epoch(1031, 1), pages.start..pages.start + 8, true);
    let mut registers = registers(0);
    begin(&block, false, &mut registers);
    assert!(pages.is_writable() && has_trap(&registers));
    finish(&mut registers);
    assert!(!pages.is_writable() && !has_trap(&registers));
    pending::remove(block.retire());
}

#[test]
fn a_page_stays_open_until_a_repeated_instruction_has_left_it() {
    static REP_STOSB: [u8; 2] = [0xf3, 0xaa];
    let pages = Pages::map(1);
    let block = pages.block();
    expect_of(&block, epoch(1032, 1), pages.start..pages.start + 8, true);
    let mut registers = registers(REP_STOSB.as_ptr().addr());
    let set = |registers: &mut libc::ucontext_t, at: u64, count: i64| {
        registers.uc_mcontext.gregs[libc::REG_RDI as usize] = at as i64;
        registers.uc_mcontext.gregs[libc::REG_RCX as usize] = count;
    };
    set(&mut registers, pages.start, 5000);
    begin(&block, true, &mut registers);
    set(&mut registers, pages.start + 4095, 905);
    finish(&mut registers);
    assert!(pages.is_writable() && has_trap(&registers));
    set(&mut registers, pages.start + 4096, 904);
    finish(&mut registers);
    assert!(!pages.is_writable() && !has_trap(&registers));
    pending::remove(block.retire());
}

#[test]
fn an_instruction_of_a_signal_handler_leaves_the_page_of_the_interrupted_one_open() {
    let (first, second) = (Pages::map(1), Pages::map(1));
    let blocks = [first.block(), second.block()];
    for (block, queue) in blocks.iter().zip([1033, 1034]) {
        expect_of(block, epoch(queue, 1), block.base..block.base + 8, true);
    }
    let (mut interrupted, mut handler) = (registers(1), registers(2));
    begin(&blocks[0], false, &mut interrupted);
    begin(&blocks[1], false, &mut handler);
    finish(&mut handler);
    assert!(first.is_writable() && !second.is_writable());
    finish(&mut interrupted);
    assert!(!first.is_writable());
    blocks.iter().for_each(|block| pending::remove(block.retire()));
}

/// Returns how many runs of pages, uses of blocks and calls of the system `action` needs.
fn cost(action: impl FnOnce()) -> [usize; 3] {
    let counters = || [run_map::VISITED.get(), pending::VISITED.get(), PROTECTED.get()];
    let before = counters();
    action();
    let after = counters();
    std::array::from_fn(|index| after[index] - before[index])
}

#[test]
fn later_launches_with_a_block_look_at_none_of_its_pages() {
    let pages = Pages::map(1 << 15);
    let block = pages.block();
    let whole = pages.start..pages.start + pages.bytes as u64;
    let [visited, _, protected] = cost(|| expect_of(&block, epoch(1041, 1), whole.clone(), true));
    assert!(visited <= 4 && protected == 1, "{visited} {protected}");
    let launches = || (2..=2000).for_each(|seq| expect_of(&block, epoch(1041, seq), whole.clone(), true));
    assert_eq!(cost(launches), [0, 0, 0]);
    // The block is used until the last launch is over.
    pending::drop_over(|other| other.queue == QueueId(1041) && other.seq < 2000);
    assert_eq!(allowed(&block, 0), Allowed::Nothing);
    pending::drop_over(|other| other.queue == QueueId(1041));
    assert_eq!(allowed(&block, 0), Allowed::All);
}

#[test]
fn a_wait_looks_only_at_the_uses_that_it_ends() {
    let pages = Pages::map(1000);
    let block = |index| Arc::new(Block::new(pages.start + index * PAGE_BYTES, PAGE_BYTES));
    let blocks: Vec<_> = (0..1000).map(block).collect();
    for (block, seq) in blocks.iter().zip(1..) {
        expect_of(block, epoch(1051, seq), block.base..block.end(), true);
    }
    let [_, looked, protected] = cost(|| pending::drop_over(|other| other.queue == QueueId(1051) && other.seq <= 1));
    // Other tests may have pending uses too, in one or two queues each.
    assert!(looked < 50 && protected == 1, "{looked} {protected}");
    assert_eq!((allowed(&blocks[0], 0), allowed(&blocks[1], 0)), (Allowed::All, Allowed::Nothing));
    pending::drop_over(|other| other.queue == QueueId(1051));
}

#[test]
fn uses_of_neighbouring_parts_that_end_together_are_opened_together() {
    let pages = Pages::map(100);
    let block = pages.block();
    for index in 0..100 {
        let start = pages.start + index * PAGE_BYTES;
        expect_of(&block, epoch(1061, index + 1), start..start + PAGE_BYTES, true);
    }
    let [.., protected] = cost(|| pending::drop_over(|other| other.queue == QueueId(1061)));
    assert_eq!(protected, 1);
    let open: BTreeSet<_> = (0..100).filter(|page| allowed(&block, *page) == Allowed::All).collect();
    assert_eq!(open.len(), 100);
}

#[test]
fn the_parts_of_a_range_that_work_uses_are_in_order_and_joined() {
    let pages = Pages::map(1);
    let (block, at) = (pages.block(), pages.start);
    for (queue, range) in [(1071, 0..64), (1072, 32..100), (1073, 200..300), (1074, 2000..4096)] {
        expect_of(&block, epoch(queue, 1), at + range.start..at + range.end, queue % 2 == 0);
    }
    let parts = block.live().expect("the block is mapped").used_parts(&(at + 50..at + 2010));
    assert_eq!(parts, [at + 50..at + 100, at + 200..at + 300, at + 2000..at + 2010]);
    pending::remove(block.retire());
}
