//! What all handles of a device share, and the memory, streams and contexts behind them.

pub(crate) mod context;
pub(crate) mod deferred;
pub(crate) mod device_inner;
pub(crate) mod pending_unmap;
pub(crate) mod pinned;
pub(crate) mod raw_block;
#[forbid(unsafe_code)]
pub(crate) mod sharing;
pub(crate) mod staging;
pub(crate) mod stream_inner;
