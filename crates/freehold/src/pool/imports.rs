//! The parts of the library that heaps use. `tests/it/pool_heaps_loom.rs` substitutes its own types under the same
//! names.

pub(super) use freehold_driver::CallError;

pub(super) use crate::base::sync_point::{self, SyncPoint};
pub(super) use crate::ledger::{ContextId, Fence, StreamId};
pub(super) use crate::ordering::stream_state::StreamState;
