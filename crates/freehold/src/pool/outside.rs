//! What lots know of the rest of the library. A test gives them other things of the same names
//! (`tests/it/pool_lots_loom.rs`).

pub(super) use freehold_driver::CallError;

pub(super) use crate::core::Core;
pub(super) use crate::ledger::{ContextId, Mark, StreamId};
pub(super) use crate::pause::{self, Point};
pub(super) use crate::track::Track;
