//! Modules that depend on nothing else in the crate.

pub(crate) mod fork;
pub(crate) mod pool_stats;
pub mod signature;
pub(crate) mod sync_point;
#[forbid(unsafe_code)]
pub(crate) mod tags;
