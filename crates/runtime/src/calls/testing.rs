//! A program under the checker, with a mock driver of the test.

use std::sync::{Arc, Mutex};

use freehold_check::calls::{Access, CallChecker, CallEffect, Item, LegacyOrder, Owner, Rows, StreamKey, StreamKind};
use freehold_check::{BlockKind, Kind};
use freehold_driver::cuda::{Api, CUstream};

use super::checked_process::Calls;
use super::lock::lock;
use super::wrap::Call;

pub(super) const FIRST: CUstream = CUstream(0x100);
pub(super) const SECOND: CUstream = CUstream(0x200);
const BLOCK: u64 = 0x10_0000;
const BYTES: u64 = 4096;

/// A program with a block, and with two streams that do not wait for the default stream.
pub(super) struct Program {
    pub(super) call: Call,
    found: Arc<Mutex<Vec<Kind>>>,
    works: usize,
}

/// Returns a driver without functions.
pub(super) fn no_driver() -> Api {
    // SAFETY: each function of the table only returns an error.
    unsafe { Api::from_symbols(|_| None) }.0
}

impl Program {
    pub(super) fn new(api: Api) -> Self {
        let found = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&found);
        let checker = CallChecker::new(move |finding| lock(&written).push(finding.kind));
        checker.allocate("alloc", Owner::Context(0), BLOCK, BYTES, BlockKind::Device);
        let kind = StreamKind { context: 0, order: LegacyOrder::NonBlocking };
        for stream in [FIRST, SECOND] {
            checker.create_stream(StreamKey::created(stream.0 as u64), kind);
        }
        let calls: &'static Calls = Box::leak(Box::new(Calls::new(checker, api, api)));
        Self { call: Call::of(calls, "call"), found, works: 0 }
    }

    /// Fills the block in a stream.
    pub(super) fn fill(&mut self, stream: CUstream) {
        self.works += 1;
        // All calls of a test are one place: their kernels differ.
        let kernel = Some(self.call.calls.checker.kernel(&self.works.to_string()));
        let accesses = &[Access { effect: CallEffect::Write, rows: Rows::range(BLOCK, BYTES) }];
        self.call.submit(stream, &[Item { kernel, module: None, accesses, arguments: &[], is_of_graph: false }], false);
    }

    /// Returns the kinds of what was found since the last time.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        std::mem::take(&mut *lock(&self.found))
    }
}
