//! The state of the broker: tenants, segments, blocks, leases and names. Pure: a message goes in, effects come out, and
//! the daemon executes them. It uses no clock, no descriptor and no driver.
//!
//! A segment is device memory with a descriptor. A block is a range of a segment, and lives as long as a lease or a
//! name refers to it. When the last one ends, tenants unmap the segment, and it is zeroed before another tenant gets
//! it.

mod accounting;
mod counts;
mod fences;
mod free_list;
mod limits;
mod memory;
mod modules;
mod names;
pub(crate) mod record;
mod requests;
pub(crate) mod slot_map;
mod store;
mod tenants;
#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used, reason = "as in any test")]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzzing uses only a part"))]
pub(crate) mod tests;
mod transfers;
mod types;
mod workers;

pub(crate) use self::limits::Limits;
pub(crate) use self::store::State;
pub(crate) use self::types::{Effect, Environment, Peer, Resource};
