//! Device memory that outlives its process: a broker that makes and leases it, a keeper that holds it when the broker dies, and
//! what tenants need to use it.

mod cleaner;
mod client;
mod daemon;
mod journal;
pub mod keeper;
mod maker;
mod name;
mod part;
pub mod place;
mod post;
mod refusal;
mod ring;
mod shared;
pub mod signals;
mod socket;
#[forbid(unsafe_code)]
mod state;
#[cfg(any(test, fuzzing))]
pub mod trial;
pub mod wire;

pub use client::{
    Answer, Broker, Error, Given, Granted, Host, HostGuard, Lease, Link, LinkError, Lost, Patience, Result,
};
pub use name::{Name, NotAName};
pub use part::{Config, Part, Probed, Terms, play};
pub use wire::{Access, Policy};
