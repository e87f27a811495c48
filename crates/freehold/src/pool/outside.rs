//! What heaps know of the rest of the library. A test gives them other things of the same names
//! (`tests/it/pool_heaps_loom.rs`).

pub(super) use freehold_driver::CallError;

pub(super) use crate::base::sync_point::{self, SyncPoint};
pub(super) use crate::ledger::{ContextId, Fence, StreamId};
pub(super) use crate::ordering::stream_state::StreamState;
pub(super) use crate::ordering::streams::Streams;
