//! Tells the checker what the threads of a block do.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use freehold_check::access::{self, Instruction};
use freehold_check::grid::{FenceScope, GridCheck};
use freehold_check::shared::SharedCheck;
use freehold_check::{KernelView, Spot};
use freehold_ptx::{AccessKind, DivergedBarrier, LANES, Observer, Place, Scope, WarpAccess, WarpLanes};

use crate::base::sync::lock;

/// What is known of the shared memory of blocks that are paused, by their numbers.
pub(crate) type PausedBlocks = Mutex<HashMap<u64, SharedCheck>>;

/// A block, during a slice of it.
#[derive(Debug)]
pub(crate) struct CheckedBlock<'c> {
    view: KernelView<'c>,
    paused: &'c PausedBlocks,
    /// The accesses of all blocks of the kernel. Held during the slice, so that one block runs at a time.
    grid: MutexGuard<'c, GridCheck>,
    /// Its shared memory, once it was accessed in this slice.
    shared: Option<(u64, SharedCheck)>,
}

impl<'c> CheckedBlock<'c> {
    pub(crate) fn new(view: KernelView<'c>, paused: &'c PausedBlocks, grid: &'c Mutex<GridCheck>) -> Self {
        Self { view, paused, grid: lock(grid), shared: None }
    }

    /// Returns what is known of the shared memory of a block.
    fn shared_of(&mut self, number: u64) -> Option<&mut SharedCheck> {
        if self.shared.is_none() {
            self.shared = lock(self.paused).remove(&number).map(|check| (number, check));
        }
        self.shared.as_mut().map(|(_, check)| check)
    }
}

impl Drop for CheckedBlock<'_> {
    fn drop(&mut self) {
        if let Some((number, check)) = self.shared.take() {
            lock(self.paused).insert(number, check);
        }
    }
}

impl Observer for CheckedBlock<'_> {
    fn start(&mut self, number: u64, threads: u32, shared_bytes: u64) {
        self.grid.start(number, threads);
        self.shared = (shared_bytes > 0).then(|| (number, SharedCheck::new(shared_bytes, threads)));
    }

    fn end(&mut self, number: u64) {
        self.grid.end(number);
        self.shared_of(number);
        self.shared = None;
    }

    fn global(&mut self, access: &WarpAccess<'_>) {
        let access = &converted(access);
        if let Some(race) = self.grid.access(access) {
            self.view.report_global_race(&race);
        }
        self.view.access(access);
    }

    fn shared(&mut self, access: &WarpAccess<'_>) {
        let number = access.place.block;
        if let Some(race) = self.shared_of(number).and_then(|check| check.access(&converted(access))) {
            self.view.report_shared_race(&race);
        }
    }

    fn fence(&mut self, place: Place, _lanes: u32, scope: Scope) {
        let scope = if scope == Scope::Block { FenceScope::Block } else { FenceScope::Device };
        self.grid.fence(place.block, scope);
        if let Some(check) = self.shared_of(place.block) {
            check.synchronize();
        }
    }

    fn warp_sync(&mut self, place: Place, _lanes: u32) {
        self.grid.synchronize_warp(place.block, place.warp);
        if let Some(check) = self.shared_of(place.block) {
            check.synchronize_warp(place.warp);
        }
    }

    fn barrier(&mut self, place: Place, _id: u32, _threads: Option<u32>) {
        self.grid.synchronize(place.block);
        if let Some(check) = self.shared_of(place.block) {
            check.synchronize();
        }
    }

    fn diverged_barrier(&mut self, barrier: &DivergedBarrier) {
        let at = |WarpLanes { place, lanes }: WarpLanes| {
            Spot::new(place.line, place.block, place.warp * LANES as u32 + lanes.trailing_zeros())
        };
        self.view.report_divergence(at(barrier.arrived), at(barrier.missing), barrier.has_ended);
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
    }
}
