//! Loads and stores of the program to pinned and managed memory, for the checker.
//!
//! Work that the program has not waited for may use such memory. Until it has, the pages are protected: the next access of the
//! program raises SIGSEGV. The handler tells the checker, opens the page for this one instruction, and closes it at the
//! SIGTRAP that follows. The driver itself uses another mapping of the pages. Memory that the program has registered has no
//! other mapping, and is not watched.
//!
//! Thousands of accesses to one page count as polling for a value. Then the work that is pending is no longer watched: the program may
//! have learned in this way that it has completed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use freehold_check::sites::capture_interrupted;
use freehold_check::{Epoch, TaskView};
use rustix::mm::{MprotectFlags, mprotect};

use super::check;
use super::sync::{lock, read, write};

const PAGE_BYTES: u64 = 4096;

/// After so many accesses to a page nothing that is pending is watched.
const ACCESSES_MAX: u32 = 4096;

/// Turns this off.
const VARIABLE: &str = "FREEHOLD_CHECK_HOST";

static BLOCKS: RwLock<BTreeMap<u64, Arc<Block>>> = RwLock::new(BTreeMap::new());
static WATCHED: AtomicUsize = AtomicUsize::new(0);
/// The number of pending uses of all blocks.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Pages of blocks.
type Pages = Vec<(Arc<Block>, usize)>;

// Never dropped, so that they work in the destructors of other thread-locals; they are empty whenever a thread can end.
thread_local! {
    /// The function that this thread runs in a stream.
    static WITHIN: ManuallyDrop<RefCell<Option<TaskView>>> = const { ManuallyDrop::new(RefCell::new(None)) };
    /// The pages that are open for one instruction of this thread.
    static OPEN: ManuallyDrop<RefCell<Pages>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// What the program may do with a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Allowed {
    #[default]
    All,
    Reads,
    Nothing,
}

impl Allowed {
    fn permits(self, is_write: bool) -> bool {
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

#[derive(Debug)]
struct Block {
    base: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pages: Vec<Page>,
    pending: Vec<Pending>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    allowed: Allowed,
    /// How often the program has accessed it since work began to use it.
    accesses: u32,
}

/// Work that the program has not waited for, and the pages that it may use.
#[derive(Clone, Debug)]
struct Pending {
    epoch: Epoch,
    pages: Range<usize>,
    is_write: bool,
}

impl Block {
    fn protect(&self, pages: Range<usize>, allowed: Allowed) {
        let start = self.base + pages.start as u64 * PAGE_BYTES;
        let bytes = pages.len() * PAGE_BYTES as usize;
        // SAFETY: the pages are those of a block that is alive, which belong to the program. What it does with them goes on after
        // the signal. The driver has no reference to them.
        let _ = unsafe { mprotect(start as *mut c_void, bytes, allowed.flags()) };
    }

    /// Protects the pages as the pending work needs it.
    fn apply(&self, state: &mut State) {
        let mut wanted = vec![Allowed::All; state.pages.len()];
        for Pending { pages, is_write, .. } in &state.pending {
            let allowed = if *is_write { Allowed::Nothing } else { Allowed::Reads };
            wanted[pages.clone()].iter_mut().for_each(|page| *page = allowed.max(*page));
        }
        let mut start = 0;
        for same in wanted.chunk_by(|one, other| one == other) {
            let run = start..start + same.len();
            if state.pages[run.clone()].iter().any(|page| page.allowed != same[0]) {
                self.protect(run.clone(), same[0]);
                state.pages[run.clone()].iter_mut().for_each(|page| page.allowed = same[0]);
            }
            start = run.end;
        }
    }

    /// Drops the pending work for which `is_over` holds.
    fn drop_pending(&self, is_over: impl Fn(&Pending) -> bool) {
        let mut state = lock(&self.state);
        let before = state.pending.len();
        state.pending.retain(|pending| !is_over(pending));
        let dropped = before - state.pending.len();
        if dropped > 0 {
            PENDING.fetch_sub(dropped, Ordering::Relaxed);
            self.apply(&mut state);
        }
    }
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
    let pages = vec![Page::default(); bytes.div_ceil(PAGE_BYTES) as usize];
    let state = Mutex::new(State { pages, pending: Vec::new() });
    write(&BLOCKS).insert(base, Arc::new(Block { base, state }));
    WATCHED.fetch_add(1, Ordering::Relaxed);
}

/// Notes that a block is gone.
pub(crate) fn remove(base: u64) {
    if let Some(block) = write(&BLOCKS).remove(&base) {
        WATCHED.fetch_sub(1, Ordering::Relaxed);
        block.drop_pending(|_| true);
    }
}

/// Returns the block with an address, and the pages of a range of it.
fn find(address: u64, bytes: u64) -> Option<(Arc<Block>, Range<usize>)> {
    let blocks = read(&BLOCKS);
    let (_, block) = blocks.range(..=address).next_back()?;
    let pages = lock(&block.state).pages.len();
    let first = ((address - block.base) / PAGE_BYTES) as usize;
    let end = (address - block.base).saturating_add(bytes).div_ceil(PAGE_BYTES).min(pages as u64) as usize;
    (first < end).then(|| (Arc::clone(block), first..end))
}

/// Notes that submitted work uses memory.
pub(crate) fn expect(epoch: Epoch, address: u64, bytes: u64, is_write: bool) {
    if let Some((block, pages)) = find(address, bytes) {
        expect_in(&block, Pending { epoch, pages, is_write });
    }
}

/// Notes that submitted work may use all of the block that `address` is in, if there is one.
pub(crate) fn expect_any(epoch: Epoch, address: u64) {
    if let Some((block, _)) = find(address, 1) {
        let pages = 0..lock(&block.state).pages.len();
        expect_in(&block, Pending { epoch, pages, is_write: true });
    }
}

fn expect_in(block: &Block, pending: Pending) {
    handle_signals();
    let mut state = lock(&block.state);
    state.pages[pending.pages.clone()].iter_mut().for_each(|page| page.accesses = 0);
    // Later work of the same stream stands for the earlier one.
    let same = state.pending.iter_mut().find(|other| {
        other.epoch.queue == pending.epoch.queue && other.pages == pending.pages && other.is_write == pending.is_write
    });
    match same {
        Some(other) => other.epoch = pending.epoch,
        None => {
            PENDING.fetch_add(1, Ordering::Relaxed);
            state.pending.push(pending);
        }
    }
    block.apply(&mut state);
}

fn drop_all(is_over: impl Fn(&Pending) -> bool) {
    if PENDING.load(Ordering::Relaxed) > 0 {
        let blocks: Vec<_> = read(&BLOCKS).values().cloned().collect();
        blocks.iter().for_each(|block| block.drop_pending(&is_over));
    }
}

/// Opens the pages that no work uses any more of which the program does not know the end.
pub(crate) fn settle() {
    if let Some(checker) = check::checker() {
        drop_all(|pending| checker.is_observed(pending.epoch));
    }
}

/// Calls a function of the program as a task of a stream.
pub(crate) fn within<R>(task: Option<TaskView>, function: impl FnOnce() -> R) -> R {
    let outer = WITHIN.with(|within| within.replace(task));
    let result = function();
    WITHIN.with(|within| within.replace(outer));
    result
}

/// The handlers that the program had, for the signals that are not about watched memory.
static PREVIOUS: Mutex<[Option<libc::sigaction>; 2]> = Mutex::new([None; 2]);

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGTRAP];

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs the handlers, before those of the program if it has replaced them.
fn handle_signals() {
    let handlers: [Handler; 2] = [on_access, on_step];
    let mut previous = lock(&PREVIOUS);
    for index in 0..SIGNALS.len() {
        // SAFETY: all bits zero are a valid value.
        let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the call only writes the current handler to `found`.
        unsafe { libc::sigaction(SIGNALS[index], std::ptr::null(), &raw mut found) };
        if found.sa_sigaction == handlers[index] as usize {
            continue;
        }
        previous[index] = Some(found);
        // SAFETY: as above.
        let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
        new.sa_sigaction = handlers[index] as usize;
        new.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler has the signature that `SA_SIGINFO` asks for.
        unsafe { libc::sigaction(SIGNALS[index], &raw const new, std::ptr::null_mut()) };
    }
}

/// Does what the program would have done with a signal.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let index = usize::from(signal == libc::SIGTRAP);
    let previous = lock(&PREVIOUS)[index];
    match previous {
        Some(action) if action.sa_sigaction > libc::SIG_IGN && action.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the program installed a function with this signature for the signal.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(action.sa_sigaction) };
            handler(signal, info, context);
        }
        Some(action) if action.sa_sigaction > libc::SIG_IGN => {
            // SAFETY: the program installed a function with this signature for the signal.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(action.sa_sigaction) };
            handler(signal);
        }
        // The instruction is executed again, and ends the program as if there were no handler.
        // SAFETY: the default action is always valid.
        _ => drop(unsafe { libc::signal(signal, libc::SIG_DFL) }),
    }
}

extern "C" fn on_access(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the description of the signal, which is valid until the handler returns.
    let description = unsafe { &*info };
    // SAFETY: the signal is one of an access, whose description has an address.
    let address = unsafe { description.si_addr() } as u64;
    // SAFETY: the kernel passes the registers of the interrupted instruction, which nothing else uses.
    let registers = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    if !admit(address, registers) {
        pass_on(signal, info, context);
    }
}

extern "C" fn on_step(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let open = OPEN.with(|open| open.take());
    if open.is_empty() {
        return pass_on(signal, info, context);
    }
    // SAFETY: the kernel passes the registers of the interrupted instruction, which nothing else uses.
    step(unsafe { &mut *context.cast::<libc::ucontext_t>() }, false);
    for (block, page) in open {
        let state = lock(&block.state);
        block.protect(page..page + 1, state.pages[page].allowed);
    }
}

/// Notes an access of the program, and lets it happen. Returns whether it is one to a watched block.
fn admit(address: u64, registers: &mut libc::ucontext_t) -> bool {
    let (Some(checker), Some((block, pages))) = (check::checker(), find(address, 1)) else { return false };
    let (page, is_write) = (pages.start, is_write(registers));
    let count = {
        let mut state = lock(&block.state);
        let page = &mut state.pages[page];
        if page.allowed.permits(is_write) {
            // It was opened meanwhile.
            return true;
        }
        page.accesses += 1;
        page.accesses
    };
    if count > ACCESSES_MAX {
        drop_all(|_| true);
        return true;
    }
    let site = capture_interrupted(instruction(registers));
    let is_conflict =
        WITHIN.with(|within| checker.access_of_program(within.borrow_mut().as_mut(), site, address, is_write));
    settle();
    let mut state = lock(&block.state);
    block.protect(page..page + 1, Allowed::All);
    if is_conflict {
        state.pages[page].allowed = Allowed::All;
    } else {
        OPEN.with(|open| open.borrow_mut().push((Arc::clone(&block), page)));
        step(registers, true);
    }
    true
}

#[cfg(target_arch = "x86_64")]
fn is_write(registers: &libc::ucontext_t) -> bool {
    /// The bit of the page fault's error code.
    const WRITE: i64 = 1 << 1;
    registers.uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0
}

#[cfg(target_arch = "x86_64")]
fn instruction(registers: &libc::ucontext_t) -> usize {
    registers.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

/// Sets whether a trap follows the next instruction.
#[cfg(target_arch = "x86_64")]
fn step(registers: &mut libc::ucontext_t, is_on: bool) {
    const TRAP: i64 = 1 << 8;
    let flags = &mut registers.uc_mcontext.gregs[libc::REG_EFL as usize];
    *flags = if is_on { *flags | TRAP } else { *flags & !TRAP };
}

#[cfg(not(target_arch = "x86_64"))]
fn is_write(_registers: &libc::ucontext_t) -> bool {
    unreachable!("nothing is watched")
}

#[cfg(not(target_arch = "x86_64"))]
fn instruction(_registers: &libc::ucontext_t) -> usize {
    unreachable!("nothing is watched")
}

#[cfg(not(target_arch = "x86_64"))]
fn step(_registers: &mut libc::ucontext_t, _is_on: bool) {
    unreachable!("nothing is watched")
}
