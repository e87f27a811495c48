//! Watches the program's loads and stores to pinned and managed memory, for the checker.
//!
//! While work that the program has not waited for may use such memory, the pages are protected: the next access of the program
//! raises SIGSEGV. The handler tells the checker, opens the page for this one instruction, and closes it at the SIGTRAP that
//! follows. The driver itself uses another mapping of the pages. Memory that the program has registered has no other mapping, and
//! is not watched.
//!
//! A string instruction (`rep movsb`) traps after each repetition. The range of all repetitions is recorded at the first one, and
//! the page stays open until the instruction has left it.
//!
//! Thousands of reads of one address count as polling for a value. Then the pending work is no longer watched, because the
//! program may have learned by polling that it is complete.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use freehold_check::sites::capture_interrupted;
use freehold_check::{Checker, Epoch, TaskView};

use super::check;
use super::sync::{read, write};
use block::{Block, State, Use};

mod block;
mod instruction;
mod pending;
mod reads;
mod run_map;
mod signals;
mod stack;
mod steps;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

/// After so many reads of an address nothing that is pending is watched.
const READS_MAX: u32 = 4096;

/// Turns this off.
const VARIABLE: &str = "FREEHOLD_CHECK_HOST";

static BLOCKS: RwLock<BTreeMap<u64, Arc<Block>>> = RwLock::new(BTreeMap::new());
static WATCHED: AtomicUsize = AtomicUsize::new(0);

// Never dropped, so that it works in the destructors of other thread-locals; it is empty whenever a thread can end.
thread_local! {
    /// The function that this thread runs in a stream.
    static WITHIN: ManuallyDrop<RefCell<Option<TaskView>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// Returns whether the accesses of the program are watched.
pub(crate) fn is_on() -> bool {
    check::is_on() && cfg!(target_arch = "x86_64") && std::env::var_os(VARIABLE).is_none_or(|value| value != "0")
}

/// Returns whether there is memory whose uses matter.
#[inline]
pub(crate) fn has_blocks() -> bool {
    WATCHED.load(Ordering::Relaxed) > 0
}

/// Notes a block of whole pages that the program can access.
pub(crate) fn add(base: u64, bytes: u64) {
    write(&BLOCKS).insert(base, Arc::new(Block::new(base, bytes)));
    WATCHED.fetch_add(1, Ordering::Relaxed);
}

/// Notes that a block will be unmapped.
pub(crate) fn remove(base: u64) {
    if let Some(block) = write(&BLOCKS).remove(&base) {
        WATCHED.fetch_sub(1, Ordering::Relaxed);
        pending::remove(block.retire());
    }
}

/// Returns the block with an address.
fn find(address: u64) -> Option<Arc<Block>> {
    let blocks = read(&BLOCKS);
    let (_, block) = blocks.range(..=address).next_back()?;
    (address < block.end()).then(|| Arc::clone(block))
}

/// Notes that submitted work uses memory.
pub(crate) fn expect(epoch: Epoch, address: u64, bytes: u64, is_write: bool) {
    if let Some(block) = find(address).filter(|_| bytes > 0) {
        let end = address.saturating_add(bytes).min(block.end());
        expect_in(&block, epoch, address..end, is_write);
    }
}

/// Notes that submitted work may use all of the block that `address` is in, if there is one.
pub(crate) fn expect_any(epoch: Epoch, address: u64) {
    if let Some(block) = find(address) {
        expect_in(&block, epoch, block.base..block.end(), true);
    }
}

fn expect_in(block: &Arc<Block>, epoch: Epoch, bytes: Range<u64>, is_write: bool) {
    signals::handle(admit);
    let used = Use { start: bytes.start, end: bytes.end, queue: epoch.queue, is_write };
    if let Some(mut state) = block.live() {
        let before = state.add(used, epoch.seq);
        pending::add(block, used, before, epoch.seq);
    }
}

/// Opens the pages that no work uses any more of which the program does not know the end.
pub(crate) fn open_unused_pages() {
    if let Some(checker) = check::checker() {
        pending::drop_over(|epoch| checker.is_observed(epoch));
    }
}

/// Calls a function of the program as a task of a stream.
pub(crate) fn within<R>(task: Option<TaskView>, function: impl FnOnce() -> R) -> R {
    let outer = WITHIN.with(|within| within.replace(task));
    let result = function();
    WITHIN.with(|within| within.replace(outer));
    result
}

/// Notes an access of the program, and lets it happen. Returns whether it is one to a watched block. Called by the handler of
/// SIGSEGV, with all signals blocked.
fn admit(address: u64, registers: &mut libc::ucontext_t) -> bool {
    let (Some(checker), Some(block)) = (check::checker(), find(address)) else { return false };
    // Pages are never executable.
    if instruction::is_fetch(registers) {
        return false;
    }
    stack::on_large_stack(|| note(checker, block, address, registers));
    true
}

/// Notes an access to a block, and opens its page unless it is open already.
fn note(checker: &Checker, block: Arc<Block>, address: u64, registers: &mut libc::ucontext_t) {
    let (page, is_write) = (block.page_of(address), instruction::is_write(registers));
    // SAFETY: the access interrupted the instruction.
    let rest = unsafe { instruction::rest(registers) };
    let accesses = {
        // If the block is gone, another fault follows when it is unmapped.
        let Some(mut state) = block.live() else { return };
        if state.allowed(page).permits(is_write) {
            // It was opened meanwhile.
            return;
        }
        match &rest {
            Some(rest) => [(&rest.read, false), (&rest.written, true)]
                .into_iter()
                .flat_map(|(bytes, is_write)| used_bytes(&state, &block.bytes_of(page), bytes, is_write))
                .collect(),
            None if !is_write && state.count_read(page, address) > READS_MAX => {
                drop(state);
                return pending::drop_over(|_| true);
            }
            None => vec![(address..address + 1, is_write)],
        }
    };
    let is_conflict = !accesses.is_empty() && is_conflict(checker, accesses, registers);
    open_unused_pages();
    let Some(mut state) = block.live() else { return };
    let opened = if is_conflict { state.leave_open(page) } else { state.open(page) };
    if opened.is_err() {
        // The process has as many mappings as it may have.
        return pending::remove(state.give_up());
    }
    drop(state);
    if !is_conflict {
        steps::begin(block, page, rest.is_some(), registers);
    }
}

/// Tells the checker about accesses, up to the first that conflicts with anything. Returns whether there is one.
fn is_conflict(checker: &Checker, accesses: Vec<(Range<u64>, bool)>, registers: &libc::ucontext_t) -> bool {
    let site = capture_interrupted(instruction::address(registers));
    let mut bytes = accesses.into_iter().flat_map(|(bytes, is_write)| bytes.map(move |address| (address, is_write)));
    bytes.any(|(address, is_write)| {
        WITHIN.with(|within| checker.access_of_program(within.borrow_mut().as_mut(), site, address, is_write))
    })
}

/// Returns which bytes of a page a string instruction accesses that pending work may use.
fn used_bytes(state: &State, page: &Range<u64>, bytes: &Range<u64>, is_write: bool) -> Vec<(Range<u64>, bool)> {
    let bytes = bytes.start.max(page.start)..bytes.end.min(page.end);
    state.used_parts(&bytes).into_iter().map(|part| (part, is_write)).collect()
}
