//! The state that all handles of a device share, and the memory, streams and contexts behind them.

#[forbid(unsafe_code)]
pub(crate) mod by_address;
#[forbid(unsafe_code)]
pub(crate) mod context;
#[forbid(unsafe_code)]
pub(crate) mod deferred;
pub(crate) mod device_inner;
mod device_work;
#[forbid(unsafe_code)]
pub(crate) mod exported;
#[forbid(unsafe_code)]
pub(crate) mod make_room;
#[forbid(unsafe_code)]
pub(crate) mod memory_use;
#[forbid(unsafe_code)]
pub(crate) mod pending_unmap;
pub(crate) mod pinned;
pub(crate) mod raw_block;
mod registered;
mod run_deferred;
pub(crate) mod sleepers;
pub(crate) mod staging;
pub(crate) mod stream_inner;
mod unmap;
