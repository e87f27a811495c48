//! Races on global memory between the threads of a kernel: for every word, the last accesses and their times.
//!
//! Time counts synchronization of any kind in the whole grid. Within a block, accesses are ordered as on shared memory (see
//! [`shared`](crate::shared)). Between blocks, a fence followed by a strong access to a flag publishes what the block has
//! done before the fence; a strong read of the flag by another block orders that before its next accesses. Each block has a
//! vector clock: for each other block, the time up to which its accesses are ordered before.
//!
//! All threads of a block count as one for fences and flags, and every strong read counts as one that sees all writes of
//! the flag before. That can hide a race, but never reports one that is not there.
//!
//! Blocks run in parallel, and locks are striped by page. A write or a strong access holds the locks of its pages from before
//! it is executed until it is recorded ([`GridCheck::hold`]), so that accesses to one word are recorded in the order of their
//! execution.

mod pages;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::access::{AccessKind, Instructions, LANES, Race, RecentInstructions, ThreadAccess, WarpAccess};
use crate::words::cell::How;
use crate::words::clock::BlockClock;
use crate::words::page::{Met, Run, WORD_BYTES, for_each_run};
use crate::words::slot::{ATOMIC, Slot};
use pages::{Flag, PAGE_BYTES, Pages};

/// Page `n` belongs to stripe `n % STRIPES`. The stripes of an access are the bits of a word.
const STRIPES: usize = 64;

/// The number of flags of a stripe. Words beyond it share one: that can hide a race.
const FLAGS_MAX: usize = 256;

/// The number of flags that a block remembers to have read.
const READ_FLAGS_MAX: usize = 1024;

/// Eight bits for each page of 8 MiB.
const WATCHED_BITS: u32 = 14;
const WATCHED_WORDS: usize = 1 << (WATCHED_BITS - u64::BITS.ilog2());

/// Returns the word and the bit of a page in `watched`.
#[inline]
fn watched_bit(number: u64) -> (usize, u64) {
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - WATCHED_BITS);
    ((hash / 64) as usize, 1 << (hash % 64))
}

/// Which threads a fence is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceScope {
    /// Those of the block.
    Block,
    /// Those of the device, or more.
    Device,
}

/// The accesses of one kernel to global memory.
#[derive(Debug)]
pub struct GridCheck {
    /// The number of synchronizations, from 1. When all numbers are used up, nothing is watched any more.
    now: AtomicU32,
    /// The number of pages that may be added.
    pages_left: AtomicU64,
    /// A bit for the hash of each page that was added.
    watched: Box<[AtomicU64; WATCHED_WORDS]>,
    stripes: Box<[Padded<Mutex<Stripe>>]>,
    instructions: Mutex<Instructions>,
}

/// A block that runs.
#[derive(Debug)]
pub struct GridBlock {
    number: u32,
    clock: BlockClock,
    instructions: RecentInstructions,
}

/// In cache lines of its own, and in those that the processor loads with them: blocks of neighbors use neighboring stripes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug, Default)]
struct Stripe {
    pages: Pages,
    flags: HashMap<u64, Flag>,
    /// The flag of the words that have none of their own.
    shared_flag: Flag,
}

impl Stripe {
    /// Returns the flag for a word, and adds it if there is room.
    fn flag(&mut self, word: u64) -> &mut Flag {
        if self.flags.len() >= FLAGS_MAX && !self.flags.contains_key(&word) {
            return &mut self.shared_flag;
        }
        self.flags.entry(word).or_default()
    }
}

/// The locks of the pages of an access.
#[derive(Debug)]
pub struct Held<'g> {
    mask: u64,
    /// In ascending order.
    stripes: Stripes<'g>,
}

#[derive(Debug)]
enum Stripes<'g> {
    One(MutexGuard<'g, Stripe>),
    Several(Vec<MutexGuard<'g, Stripe>>),
}

impl Held<'_> {
    #[inline]
    fn of_page(&mut self, number: u64) -> Option<&mut Stripe> {
        let bit = 1 << (number % STRIPES as u64);
        if self.mask & bit == 0 {
            return None;
        }
        Some(match &mut self.stripes {
            Stripes::One(stripe) => stripe,
            Stripes::Several(stripes) => &mut stripes[(self.mask & (bit - 1)).count_ones() as usize],
        })
    }
}

#[inline]
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the bits of the stripes that have a part of an access.
#[inline]
fn stripes_of(access: &WarpAccess<'_>) -> u64 {
    let &WarpAccess { addresses, bytes, .. } = access;
    let stripe = |address: u64| 1 << (address / PAGE_BYTES % STRIPES as u64);
    if let Some(start) = access.range_start().filter(|_| bytes * LANES as u64 <= PAGE_BYTES) {
        return stripe(start) | stripe(addresses[LANES - 1].wrapping_add(bytes - 1));
    }
    let (mut mask, mut left) = (0, access.lanes);
    while left != 0 {
        let address = addresses[left.trailing_zeros() as usize];
        mask |= stripe(address) | stripe(address.wrapping_add(bytes - 1));
        left &= left - 1;
    }
    mask
}

impl GridCheck {
    /// Starts with a kernel that has not accessed memory. At most about `memory_bytes` of it are watched, those that are
    /// accessed first.
    pub fn new(memory_bytes: u64) -> Self {
        Self {
            now: AtomicU32::new(1),
            pages_left: AtomicU64::new(memory_bytes.div_ceil(PAGE_BYTES)),
            watched: Box::new([const { AtomicU64::new(0) }; WATCHED_WORDS]),
            stripes: (0..STRIPES).map(|_| Padded::default()).collect(),
            instructions: Mutex::default(),
        }
    }

    /// A block starts. Nothing that others have done is ordered before it.
    pub fn start(&self, block: u64, threads: u32) -> GridBlock {
        let clock = BlockClock::new(threads.div_ceil(LANES as u32) as usize);
        GridBlock { number: block as u32, clock, instructions: RecentInstructions::default() }
    }

    /// A block starts, with the memory of one of the same kernel that has ended.
    pub fn start_again(&self, ended: &mut GridBlock, block: u64) {
        ended.number = block as u32;
        ended.clock.restart();
    }

    /// Returns whether an access may be to a page that is watched. If it is not, recording it changes and finds nothing.
    #[inline]
    pub fn may_watch(&self, access: &WarpAccess<'_>) -> bool {
        let is_weak = !access.is_strong && !access.is_ordering && access.kind != AccessKind::Atomic;
        let Some(start) = access.range_start().filter(|_| is_weak) else { return true };
        // The bits of all pages are set before none is left.
        if self.pages_left.load(Ordering::Acquire) > 0 {
            return true;
        }
        let is_watched = |address: u64| {
            let (word, bit) = watched_bit(address / PAGE_BYTES);
            self.watched[word].load(Ordering::Relaxed) & bit != 0
        };
        let last = access.addresses[LANES - 1].wrapping_add(access.bytes - 1);
        last.wrapping_sub(start) >= PAGE_BYTES || is_watched(start) || is_watched(last)
    }

    /// Threads of a block have synchronized at a barrier.
    pub fn synchronize(&self, block: &mut GridBlock) {
        block.clock.since = self.tick();
    }

    /// Threads of a warp have synchronized.
    pub fn synchronize_warp(&self, block: &mut GridBlock, warp: u32) {
        let now = self.tick();
        if let Some(since) = block.clock.warps.get_mut(warp as usize) {
            *since = now;
        }
    }

    /// A thread of a block has executed a fence: what the block has done until now is published by its next strong write.
    pub fn fence(&self, block: &mut GridBlock, scope: FenceScope) {
        let now = self.tick();
        block.clock.since = now;
        if scope == FenceScope::Device {
            let mut done = block.clock.known.clone();
            done.blocks.insert(block.number, now - 1);
            block.clock.fenced = Some(done);
            block.clock.published = None;
        }
    }

    /// Forgets the accesses to memory that was allocated or freed by the kernel.
    pub fn forget(&self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        for stripe in &self.stripes {
            let mut stripe = locked(&stripe.0);
            pages::forget(&mut stripe.pages, address, end);
            stripe.flags.retain(|flag, _| !(address..end).contains(flag));
        }
    }

    /// Counts a synchronization, and returns its number.
    fn tick(&self) -> u32 {
        let last = self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| now.checked_add(1));
        last.map_or(u32::MAX, |before| before + 1)
    }

    /// Takes the locks of what lanes are about to access. A thread that holds some must not take more.
    #[inline]
    pub fn hold(&self, access: &WarpAccess<'_>) -> Held<'_> {
        let mask = stripes_of(access);
        let stripe = |index: usize| locked(&self.stripes[index].0);
        let stripes = if mask.is_power_of_two() {
            Stripes::One(stripe(mask.trailing_zeros() as usize))
        } else {
            Stripes::Several((0..STRIPES).filter(|index| mask >> index & 1 != 0).map(stripe).collect())
        };
        Held { mask, stripes }
    }

    /// Records an access of a block. Returns a race with an earlier one, if there is any. `held` has the locks of its pages, if
    /// they were taken before the access was made.
    pub fn access(&self, block: &mut GridBlock, access: &WarpAccess<'_>, held: Option<Held<'_>>) -> Option<Race> {
        let is_atomic = access.kind == AccessKind::Atomic;
        let is_write = access.kind != AccessKind::Read;
        let how = How { is_write, is_strong: access.is_strong || is_atomic, is_shared: false };
        if access.is_ordering {
            self.fence(block, FenceScope::Device);
        }
        let mut held = held.unwrap_or_else(|| self.hold(access));
        if how.is_strong {
            self.synchronize_by_flags(block, access, how.is_write, &mut held);
        }
        let find = || locked(&self.instructions).number(access.instruction);
        let instruction = block.instructions.number(access.instruction, find);
        let time = self.now.load(Ordering::Relaxed);
        if time == u32::MAX {
            return None;
        }
        let kind = if is_atomic { ATOMIC } else { 0 };
        let slot = Slot { time, block: block.number, thread_and_kind: kind, instruction };
        let unchanged = if access.is_async { access.lanes } else { access.unchanged };
        let mut found = None;
        for_each_run(access, |first, count| {
            let thread = access.warp * LANES as u32 + first;
            let slot = Slot { thread_and_kind: kind | thread as u16 & !ATOMIC, ..slot };
            let race = self.access_run(&block.clock, how, access, slot, count, unchanged >> first, &mut held);
            if found.is_none()
                && let Some((address, met)) = race
            {
                found = Some((address, met, thread));
            }
        });
        drop(held);
        let (address, Met { lane, first, kind, .. }, thread) = found?;
        let second = ThreadAccess {
            block: access.block,
            thread: thread + lane as u32,
            instruction: access.instruction,
            kind: access.kind,
        };
        let instruction = locked(&self.instructions).get(first.instruction);
        let first = ThreadAccess { block: first.block.into(), thread: first.thread().into(), instruction, kind };
        Some(Race { address, first, second })
    }

    /// Records the access of adjacent lanes, page by page. Returns a race, and its address.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "all of them describe one access")]
    fn access_run(
        &self,
        clock: &BlockClock,
        how: How,
        access: &WarpAccess<'_>,
        slot: Slot,
        lanes: u32,
        unchanged: u32,
        held: &mut Held<'_>,
    ) -> Option<(u64, Met)> {
        let bytes = access.bytes;
        let lane = (slot.thread() as u32 % LANES as u32) as usize;
        let address = access.addresses[lane];
        let end = address.checked_add(bytes * u64::from(lanes)).filter(|&end| end < u64::MAX - PAGE_BYTES)?;
        let mut found = None;
        for number in address / PAGE_BYTES..=(end - 1) / PAGE_BYTES {
            let page_start = number * PAGE_BYTES;
            let at = address.max(page_start);
            let (skipped_lanes, skipped) = ((at - address) / bytes, (at - address) % bytes);
            let Some(stripe) = held.of_page(number) else { continue };
            let Some(page) = pages::page(&mut stripe.pages, number, || self.takes_page(number)) else { continue };
            let run = Run {
                slot: Slot { thread_and_kind: slot.thread_and_kind + skipped_lanes as u16, ..slot },
                bytes,
                lanes: (u64::from(lanes) - skipped_lanes).min((page_start + PAGE_BYTES - at + skipped).div_ceil(bytes)),
                start: at - page_start,
                skipped,
                unchanged: unchanged.checked_shr(skipped_lanes as u32).unwrap_or(0),
            };
            if found.is_none()
                && let Some(met) = page.access(clock, how, &run)
            {
                found = Some((page_start + met.at, Met { lane: met.lane + skipped_lanes, ..met }));
            }
        }
        found
    }

    fn takes_page(&self, number: u64) -> bool {
        if self.pages_left.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let (word, bit) = watched_bit(number);
        self.watched[word].fetch_or(bit, Ordering::Relaxed);
        self.pages_left.fetch_update(Ordering::Release, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Publishes what the block has done before its last fence, and learns what others have published, at the words of a
    /// strong access.
    fn synchronize_by_flags(
        &self,
        block: &mut GridBlock,
        access: &WarpAccess<'_>,
        is_write: bool,
        held: &mut Held<'_>,
    ) {
        let now = self.now.load(Ordering::Relaxed);
        let clock = &mut block.clock;
        let mut has_learned = false;
        let mut previous = None;
        for lane in (0..LANES).filter(|lane| access.lanes >> lane & 1 != 0) {
            let word = access.addresses[lane] / WORD_BYTES * WORD_BYTES;
            if previous.replace(word) == Some(word) {
                continue;
            }
            let number = word / PAGE_BYTES;
            let Some(stripe) = held.of_page(number) else { continue };
            if access.kind != AccessKind::Write {
                // No word has such an address.
                let shared = u64::MAX - number % STRIPES as u64;
                let flags = stripe.flags.get(&word).map(|flag| (word, flag)).into_iter();
                for (key, flag) in flags.chain([(shared, &stripe.shared_flag)]) {
                    if flag.version != 0 && clock.read.get(&key) != Some(&flag.version) {
                        clock.known.join(&flag.known, now);
                        if clock.read.len() >= READ_FLAGS_MAX {
                            clock.read.clear();
                        }
                        clock.read.insert(key, flag.version);
                        has_learned = true;
                    }
                }
            }
            if is_write
                && clock.published != Some(word)
                && let Some(fenced) = &clock.fenced
            {
                let flag = stripe.flag(word);
                flag.known.join(fenced, now);
                flag.version += 1;
                clock.published = Some(word);
            }
        }
        if has_learned {
            self.synchronize(block);
        }
    }
}

#[cfg(test)]
mod tests;
