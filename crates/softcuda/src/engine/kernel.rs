//! A kernel on its way: which of its blocks have begun, which are paused, and how each goes on for a slice.
//!
//! Blocks begin a few at a time. Whenever one is paused a further one may begin, so that one that spins for another
//! meets it in the end, and short ones never crowd the memory.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use freehold_driver::cuda::CUerror;
use freehold_ptx::{Block, Grid, Progress as BlockProgress, Slice};

use super::steps::Random;
use super::work::Progress;
use crate::site::Site;

/// Instructions of warps that a block executes before others have their turn.
pub(super) const SLICE_INSTRUCTIONS: u64 = 20_000;

/// The same where a generator decides.
const SEEDED_INSTRUCTIONS: u64 = 2_000;

/// After a step in which no block has ended, a kernel may be waiting for what the program does next: its steps are
/// short then, so that calls which wait for nothing are too.
const SHORT_STEP_INSTRUCTIONS: u64 = 1 << 13;

/// Blocks that begin before one was paused.
const RESIDENT_FIRST: u64 = 16;

/// Blocks that one turn of a worker may end, one after the other.
const BLOCKS_PER_TURN: usize = 32;

/// How many blocks may be on their way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residence {
    /// All, from the start: they may wait for each other.
    Whole,
    /// So many at the most.
    AtMost(u64),
}

/// One launch.
#[derive(Debug)]
pub(crate) struct Run {
    kernel: String,
    grid: Arc<Grid>,
    site: Site,
    residence: Residence,
    resident_max: u64,
    front: Mutex<Front>,
    ended: Condvar,
}

#[derive(Debug)]
struct Front {
    /// Blocks that have begun.
    begun: u64,
    /// In which order they do.
    order: Order,
    paused: VecDeque<Paused>,
    /// Blocks that workers have in their hands.
    out: u64,
    /// Blocks that may be on their way at once, for now.
    resident: u64,
    /// No block has ended since the last step began.
    is_fruitless: bool,
    /// When the first block began.
    began: Option<Instant>,
    /// Somebody writes down how it failed.
    fails: bool,
    outcome: Option<Result<(), CUerror>>,
}

#[derive(Debug)]
struct Paused {
    block: Block,
    /// When it wants to go on.
    at_nanoseconds: u64,
}

/// In which order blocks begin: each as far behind the one before as the stride says, around and around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    /// Has no factor in common with the number of blocks, so that every block has its turn once.
    stride: u64,
    offset: u64,
}

impl Order {
    /// One of the orders for so many blocks.
    fn any(blocks: u64, random: &mut Random) -> Self {
        let tries = std::iter::repeat_with(|| 1 + random.below(blocks)).take(32);
        let stride = tries.into_iter().find(|&stride| common_factor(stride, blocks) == 1).unwrap_or(1);
        Self { stride, offset: random.below(blocks) }
    }

    /// The block that begins when `begun` have.
    fn nth(self, begun: u64, blocks: u64) -> u64 {
        let steps = u128::from(begun) * u128::from(self.stride) + u128::from(self.offset);
        (steps % u128::from(blocks)) as u64
    }
}

fn common_factor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_factor(other, one % other) }
}

/// What a worker finds to do.
#[derive(Debug)]
pub(super) enum Find {
    Block(Box<Block>),
    /// All that are paused sleep, the first until this time.
    Sleep {
        until_nanoseconds: u64,
    },
    /// Others have them all.
    Nothing,
}

impl Run {
    pub(crate) fn new(kernel: String, grid: Arc<Grid>, site: Site, residence: Residence) -> Self {
        let blocks = grid.blocks();
        let (resident, resident_max) = match residence {
            Residence::Whole => (blocks, blocks),
            Residence::AtMost(most) => (RESIDENT_FIRST.min(most.max(1)), most.max(1)),
        };
        Self {
            kernel,
            grid,
            site,
            residence,
            resident_max,
            front: Mutex::new(Front {
                begun: 0,
                order: Order { stride: 1, offset: 0 },
                paused: VecDeque::new(),
                out: 0,
                resident,
                is_fruitless: false,
                began: None,
                fails: false,
                outcome: None,
            }),
            ended: Condvar::new(),
        }
    }

    /// The same launch once more.
    ///
    /// # Errors
    /// There is no memory for the place where its blocks meet.
    pub(super) fn again(&self) -> Result<Self, CUerror> {
        let site = self.site.again()?;
        let grid = match site.workspace() {
            None => Arc::clone(&self.grid),
            Some(workspace) => Arc::new(self.grid.with_workspace(workspace)),
        };
        Ok(Self::new(self.kernel.clone(), grid, site, self.residence))
    }

    pub(super) fn is_one_block(&self) -> bool {
        self.grid.blocks() == 1
    }

    fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it ended, if it has.
    pub(super) fn outcome(&self) -> Option<Result<(), CUerror>> {
        self.front().outcome
    }

    /// Sleeps until it has ended.
    pub(super) fn wait(&self) -> Result<(), CUerror> {
        let mut front = self.front();
        loop {
            if let Some(outcome) = front.outcome {
                return outcome;
            }
            front = self.ended.wait(front).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends it, unless it has ended: what is left of its blocks is dropped.
    pub(super) fn end(&self, outcome: Result<(), CUerror>) {
        let mut front = self.front();
        front.outcome.get_or_insert(outcome);
        let dropped = std::mem::take(&mut front.paused);
        drop(front);
        self.ended.notify_all();
        drop(dropped);
    }

    /// Takes a block to go on with: a new one if one may begin, else the one that waits longest; or, with a generator,
    /// any of them.
    pub(super) fn find(&self, now_nanoseconds: u64, random: Option<&mut Random>) -> Find {
        let mut front = self.front();
        if front.outcome.is_some() {
            return Find::Nothing;
        }
        front.began.get_or_insert_with(Instant::now);
        let on_their_way = front.paused.len() as u64 + front.out;
        let may_begin = front.begun < self.grid.blocks() && on_their_way < front.resident;
        let ready = |paused: &Paused| paused.at_nanoseconds <= now_nanoseconds;
        let chosen = match random {
            None if may_begin => None,
            None => front.paused.iter().position(ready),
            Some(random) => {
                if front.begun == 0 {
                    front.order = Order::any(self.grid.blocks(), random);
                }
                let ready: Vec<_> = (0..front.paused.len()).filter(|&index| ready(&front.paused[index])).collect();
                let begins = may_begin && random.below(2) == 0;
                if ready.is_empty() || begins { None } else { Some(ready[random.below(ready.len() as u64) as usize]) }
            }
        };
        if let Some(paused) = chosen.and_then(|index| front.paused.remove(index)) {
            front.out += 1;
            return Find::Block(Box::new(paused.block));
        }
        if may_begin {
            let index = front.order.nth(front.begun, self.grid.blocks());
            front.begun += 1;
            front.out += 1;
            drop(front);
            return Find::Block(Box::new(self.grid.block(index)));
        }
        let soonest = front.paused.iter().map(|paused| paused.at_nanoseconds).min();
        soonest.map_or(Find::Nothing, |until_nanoseconds| Find::Sleep { until_nanoseconds })
    }

    /// Goes on with a block for a slice, and puts it back if it is not done. Says whether it is.
    pub(super) fn go_on(&self, mut block: Block, slice: Slice, limit: Option<Duration>) -> bool {
        let ran = catch_unwind(AssertUnwindSafe(|| block.run(&mut self.site.view(), slice)));
        self.site.print(&block.take_printed());
        let progress = match ran {
            Ok(Ok(progress)) => progress,
            Ok(Err(fault)) => {
                self.fail(|| self.site.report(&fault));
                return true;
            }
            // A mistake of this driver's own, which must not keep the stream waiting for ever.
            Err(_) => {
                self.fail(|| CUerror::UNKNOWN);
                return true;
            }
        };
        if progress != BlockProgress::Done
            && let Some(limit) = limit
            && self.front().began.is_some_and(|began| began.elapsed() > limit)
        {
            self.fail(|| self.site.report_overtime(&self.kernel, limit.as_secs_f64()));
            return true;
        }
        self.put_back(block, progress);
        progress == BlockProgress::Done
    }

    /// Ends it with the code that `report` says, which is called for the first failure only.
    fn fail(&self, report: impl FnOnce() -> CUerror) {
        let is_first = {
            let mut front = self.front();
            front.outcome.is_none() && !std::mem::replace(&mut front.fails, true)
        };
        if is_first {
            self.end(Err(report()));
        }
    }

    fn put_back(&self, block: Block, progress: BlockProgress) {
        let mut front = self.front();
        front.out -= 1;
        let at_nanoseconds = match progress {
            BlockProgress::Done => {
                front.is_fruitless = false;
                let is_last = front.out == 0 && front.paused.is_empty() && front.begun == self.grid.blocks();
                drop(front);
                if is_last {
                    self.end(Ok(()));
                }
                return;
            }
            BlockProgress::Running => 0,
            BlockProgress::Sleeping { until_nanoseconds } => until_nanoseconds,
        };
        if front.outcome.is_none() {
            front.resident = (front.resident + 1).min(self.resident_max);
            front.paused.push_back(Paused { block, at_nanoseconds });
        }
    }

    /// A worker's turn: goes on with a block, and as long as blocks end, with further ones.
    pub(super) fn turn(&self, mut block: Block, now: impl Fn() -> u64, limit: Option<Duration>) {
        for _ in 0..BLOCKS_PER_TURN {
            let slice = Slice { instructions: SLICE_INSTRUCTIONS, nanoseconds: now(), seed: None };
            if !self.go_on(block, slice, limit) {
                return;
            }
            block = match self.find(now(), None) {
                Find::Block(next) => *next,
                _ => return,
            };
        }
        self.put_back(block, BlockProgress::Running);
    }

    /// Goes on for about so many instructions, in the calling thread; for fewer if it goes nowhere.
    pub(super) fn step(
        &self,
        instructions: u64,
        now: impl Fn() -> u64,
        seed: Option<u64>,
        limit: Option<Duration>,
    ) -> Result<Progress, CUerror> {
        let mut random = seed.map(Random::new);
        let was_fruitless = std::mem::replace(&mut self.front().is_fruitless, true);
        let most = if was_fruitless { SHORT_STEP_INSTRUCTIONS } else { u64::MAX };
        let mut left = instructions.clamp(1, most);
        while left > 0 {
            let Find::Block(block) = self.find(now(), random.as_mut()) else { break };
            let most = left.min(SLICE_INSTRUCTIONS);
            let (most, seed) = match &mut random {
                None => (most, None),
                Some(random) => {
                    // Now and then only a few instructions, so that others come in between.
                    let usual = if random.below(4) == 0 { 16 } else { SEEDED_INSTRUCTIONS };
                    (1 + random.below(most.min(usual)), Some(random.next()))
                }
            };
            self.go_on(*block, Slice { instructions: most, nanoseconds: now(), seed }, limit);
            left -= most;
        }
        match self.outcome() {
            None => Ok(Progress::Ran),
            Some(outcome) => outcome.map(|()| Progress::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use freehold_testing::{print_seed, seeds};

    use super::*;

    #[test]
    fn every_order_gives_every_block_its_turn_once() {
        for seed in seeds(50, 500, 10_000) {
            print_seed(seed);
            let mut random = Random::new(seed);
            let blocks = 1 + random.below(300);
            let order = Order::any(blocks, &mut random);
            let mut begun: Vec<_> = (0..blocks).map(|begun| order.nth(begun, blocks)).collect();
            begun.sort_unstable();
            assert!(begun.into_iter().eq(0..blocks), "{order:?} of {blocks}");
        }
        let plain = Order { stride: 1, offset: 0 };
        assert_eq!([0, 1, u64::MAX - 1].map(|begun| plain.nth(begun, u64::MAX)), [0, 1, u64::MAX - 1]);
    }
}
