//! Streams, fences, and the uses of a block: they tell when work is complete, and what later work has to wait for.

#[forbid(unsafe_code)]
pub(crate) mod access_history;
#[forbid(unsafe_code)]
pub(crate) mod capture_gate;
pub(crate) mod context_state;
pub(crate) mod fence_words;
#[forbid(unsafe_code)]
pub(crate) mod poisoned;
mod stream_end;
#[forbid(unsafe_code)]
pub(crate) mod stream_origin;
pub(crate) mod stream_state;
pub(crate) mod streams;
pub(crate) mod transfer_slot;
