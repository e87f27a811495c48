//! Reports the accesses and synchronization of a block's threads to the checker.

use std::collections::HashMap;
use std::sync::Mutex;

use freehold_check::access::{self, Instruction};
use freehold_check::grid::{FenceScope, GridBlock, GridCheck, Held};
use freehold_check::shared::SharedCheck;
use freehold_check::{Checker, KernelView, Spot, TaskView};
use freehold_ptx::{AccessKind, DivergedBarrier, LANES, Observer, Place, Scope, WarpAccess, WarpLanes, WordsRead};

use crate::base::shared_frees;
use crate::base::sync::lock;

/// What the blocks of a kernel leave for the next slice.
#[derive(Debug, Default)]
pub(crate) struct Paused {
    /// What is known of blocks that are paused, by their numbers.
    blocks: HashMap<u64, Box<BlockState>>,
    /// Those that no slice uses, with what they have cached.
    views: Vec<KernelView<'static>>,
    /// What was known of blocks that have ended, for the next ones.
    #[expect(clippy::vec_box, reason = "the next block has the same box")]
    ended: Vec<Box<BlockState>>,
}

/// What is known of a block.
#[derive(Debug)]
pub(crate) struct BlockState {
    grid: GridBlock,
    shared: Option<SharedCheck>,
}

/// A block, during a slice of it.
#[derive(Debug)]
pub(crate) struct CheckedBlock<'c> {
    /// `None` only when it is dropped.
    view: Option<KernelView<'static>>,
    paused: &'c Mutex<Paused>,
    /// The accesses of all blocks of the kernel.
    grid: &'c GridCheck,
    /// The locks of the memory that is about to be written.
    held: Option<Held<'c>>,
    /// Its number and what is known of it, once it has done something in this slice.
    state: Option<(u64, Box<BlockState>)>,
}

impl<'c> CheckedBlock<'c> {
    pub(crate) fn new(
        checker: &'static Checker,
        task: &TaskView,
        paused: &'c Mutex<Paused>,
        grid: &'c GridCheck,
    ) -> Self {
        let view = lock(paused).views.pop();
        let view = Some(view.unwrap_or_else(|| KernelView::new(checker, task.clone())));
        Self { view, paused, grid, held: None, state: None }
    }

    fn view(&mut self) -> &mut KernelView<'static> {
        self.view.as_mut().expect("only drop takes it")
    }
}

/// Returns what is known of a block.
#[inline]
fn state_of<'a>(
    state: &'a mut Option<(u64, Box<BlockState>)>,
    paused: &Mutex<Paused>,
    number: u64,
) -> Option<&'a mut BlockState> {
    if state.is_none() {
        *state = lock(paused).blocks.remove(&number).map(|known| (number, known));
    }
    state.as_mut().map(|(_, known)| &mut **known)
}

impl Drop for CheckedBlock<'_> {
    fn drop(&mut self) {
        let mut view = self.view.take();
        view.iter_mut().for_each(KernelView::flush);
        let mut paused = lock(self.paused);
        paused.views.extend(view);
        if let Some((number, state)) = self.state.take() {
            paused.blocks.insert(number, state);
        }
    }
}

impl Observer for CheckedBlock<'_> {
    fn start(&mut self, number: u64, threads: u32, shared_bytes: u64) {
        let ended = lock(self.paused).ended.pop();
        let state = match ended {
            Some(mut state) => {
                self.grid.start_again(&mut state.grid, number);
                state
            }
            None => {
                let shared = (shared_bytes > 0).then(|| SharedCheck::new(shared_bytes, threads));
                Box::new(BlockState { grid: self.grid.start(number, threads), shared })
            }
        };
        self.state = Some((number, state));
    }

    fn end(&mut self, number: u64) {
        state_of(&mut self.state, self.paused, number);
        if let Some((_, mut state)) = self.state.take() {
            // The next block starts after all that this one has done.
            state.shared.iter_mut().for_each(SharedCheck::restart);
            lock(self.paused).ended.push(state);
        }
    }

    fn before_write(&mut self, access: &WarpAccess<'_>) {
        // A thread takes these locks only while it holds none of them.
        self.held = None;
        let access = &converted(access).with_range();
        self.held = self.grid.may_watch(access).then(|| self.grid.hold(access));
    }

    fn global(&mut self, access: &WarpAccess<'_>) {
        let access = &converted(access).with_range();
        let held = self.held.take().filter(|_| access.kind != access::AccessKind::Read);
        if held.is_some() || self.grid.may_watch(access) {
            let Some(state) = state_of(&mut self.state, self.paused, access.block) else { return };
            if let Some(race) = self.grid.access(&mut state.grid, access, held) {
                self.view().report_global_race(&race);
            }
        }
        self.view().access(access);
    }

    fn shared(&mut self, access: &WarpAccess<'_>) {
        let state = state_of(&mut self.state, self.paused, access.place.block);
        let Some(check) = state.and_then(|state| state.shared.as_mut()) else { return };
        let access = &converted(access).with_range();
        let (unwritten, race) = (check.unwritten(access), check.access(access));
        if let Some(read) = unwritten {
            self.view().report_unwritten_read(&read);
        }
        if let Some(race) = race {
            self.view().report_shared_race(&race);
        }
    }

    fn shared_words(&mut self, read: &WordsRead) {
        let WordsRead { place, ordering, first, distance } = *read;
        let state = state_of(&mut self.state, self.paused, place.block);
        let Some(shared) = state.and_then(|state| state.shared.as_mut()) else { return };
        let instruction = Instruction { function: place.function, line: place.line };
        if ordering.scope.is_some() || !shared.note_read(place.warp, instruction, first, distance) {
            self.shared(&WarpAccess {
                place,
                kind: AccessKind::Read,
                ordering,
                is_async: false,
                bytes: 4,
                addresses: &read.addresses(),
                lanes: u32::MAX,
                unchanged: 0,
                is_range: false,
            });
        }
    }

    fn fence(&mut self, place: Place, _lanes: u32, scope: Scope) {
        if scope == Scope::System {
            // Another process may see what the kernel writes next.
            let epoch = self.view().epoch();
            shared_frees::publish(epoch);
        }
        self.view().fence();
        let scope = if scope == Scope::Block { FenceScope::Block } else { FenceScope::Device };
        let Some(state) = state_of(&mut self.state, self.paused, place.block) else { return };
        self.grid.fence(&mut state.grid, scope);
        if let Some(check) = &mut state.shared {
            check.synchronize();
        }
    }

    fn warp_sync(&mut self, place: Place, _lanes: u32) {
        let Some(state) = state_of(&mut self.state, self.paused, place.block) else { return };
        self.grid.synchronize_warp(&mut state.grid, place.warp);
        if let Some(check) = &mut state.shared {
            check.synchronize_warp(place.warp);
        }
    }

    fn barrier(&mut self, place: Place, _id: u32, _threads: Option<u32>) {
        let Some(state) = state_of(&mut self.state, self.paused, place.block) else { return };
        self.grid.synchronize(&mut state.grid);
        if let Some(check) = &mut state.shared {
            check.synchronize();
        }
    }

    fn diverged_barrier(&mut self, barrier: &DivergedBarrier) {
        let at = |WarpLanes { place, lanes }: WarpLanes| {
            Spot::new(place.line, place.block, place.warp * LANES as u32 + lanes.trailing_zeros())
        };
        self.view().report_divergence(at(barrier.arrived), at(barrier.missing), barrier.has_ended);
    }
}

fn converted<'a>(access: &WarpAccess<'a>) -> access::WarpAccess<'a> {
    let Place { block, warp, function, line, .. } = access.place;
    access::WarpAccess {
        block,
        warp,
        instruction: Instruction { function, line },
        kind: match access.kind {
            AccessKind::Read => access::AccessKind::Read,
            AccessKind::Write => access::AccessKind::Write,
            AccessKind::Atomic => access::AccessKind::Atomic,
        },
        is_strong: access.ordering.scope.is_some(),
        is_ordering: access.ordering.acquires || access.ordering.releases,
        is_async: access.is_async,
        bytes: access.bytes,
        addresses: access.addresses,
        lanes: access.lanes,
        unchanged: access.unchanged,
        is_range: access.is_range,
    }
}
