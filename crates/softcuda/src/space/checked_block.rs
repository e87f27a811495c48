//! Tells the checker what the threads of a block do.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use freehold_check::block::{self, BlockCheck, Site};
use freehold_check::grid::{FenceScope, GridCheck};
use freehold_check::{AccessKind, KernelView};
use freehold_ptx::{DivergedBarrier, LANES, Observer, Place, Scope, WarpAccess, WarpLanes};

use crate::base::sync::lock;

/// What is known of the shared memory of blocks that are paused, by their numbers.
pub(crate) type PausedBlocks = Mutex<HashMap<u64, BlockCheck>>;

/// A block, during a slice of it.
#[derive(Debug)]
pub(crate) struct CheckedBlock<'c> {
    view: KernelView<'c>,
    paused: &'c PausedBlocks,
    /// The accesses of all blocks of the kernel. Held during the slice, so that one block runs at a time.
    grid: MutexGuard<'c, GridCheck>,
    /// Its shared memory, once it was accessed in this slice.
    shared: Option<(u64, BlockCheck)>,
}

impl<'c> CheckedBlock<'c> {
    pub(crate) fn new(view: KernelView<'c>, paused: &'c PausedBlocks, grid: &'c Mutex<GridCheck>) -> Self {
        Self { view, paused, grid: lock(grid), shared: None }
    }

    /// Returns what is known of the shared memory of a block.
    fn shared_of(&mut self, number: u64) -> Option<&mut BlockCheck> {
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
        self.shared = (shared_bytes > 0).then(|| (number, BlockCheck::new(shared_bytes, threads)));
    }

    fn end(&mut self, number: u64) {
        self.grid.end(number);
        self.shared_of(number);
        self.shared = None;
    }

    fn global(&mut self, access: &WarpAccess<'_>) {
        if let Some(race) = self.grid.access(access.place.block, &converted(access)) {
            self.view.report_global_race(&race);
        }
        let is_strong = access.ordering.scope.is_some();
        let kind = match access.kind {
            // Which write it sees decides what it is ordered after.
            freehold_ptx::AccessKind::Read if is_strong => return,
            freehold_ptx::AccessKind::Read => AccessKind::Read,
            freehold_ptx::AccessKind::Write if is_strong => AccessKind::Atomic,
            freehold_ptx::AccessKind::Write => AccessKind::Write,
            freehold_ptx::AccessKind::Atomic => AccessKind::Atomic,
        };
        let Place { block, warp, line, .. } = access.place;
        let needs_value = access.kind == freehold_ptx::AccessKind::Atomic;
        self.view.access(
            kind,
            needs_value,
            (line, block, warp * LANES as u32),
            access.bytes,
            access.addresses,
            access.lanes,
        );
    }

    fn shared(&mut self, access: &WarpAccess<'_>) {
        let number = access.place.block;
        if let Some(race) = self.shared_of(number).and_then(|check| check.access(&converted(access))) {
            self.view.report_shared_race(number, &race);
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
            (place.line, place.block, place.warp * LANES as u32 + lanes.trailing_zeros())
        };
        self.view.report_divergence(at(barrier.arrived), at(barrier.missing), barrier.has_ended);
    }
}

fn converted<'a>(access: &WarpAccess<'a>) -> block::WarpAccess<'a> {
    let Place { warp, function, line, .. } = access.place;
    block::WarpAccess {
        warp,
        site: Site { function, line },
        kind: match access.kind {
            freehold_ptx::AccessKind::Read => block::AccessKind::Read,
            freehold_ptx::AccessKind::Write => block::AccessKind::Write,
            freehold_ptx::AccessKind::Atomic => block::AccessKind::Atomic,
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
