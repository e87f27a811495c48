//! Device memory that outlives its process: a broker that makes and leases it, a keeper that holds it when the broker dies, and
//! what tenants need to use it.

mod calls;
mod cleaner;
mod client;
mod daemon;
mod gpu;
mod journal;
pub mod keeper;
mod maker;
mod name;
mod order;
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
mod trouble;
pub mod wire;
mod worker;

pub use client::{
    Answer, Blame, Broker, Call, CallError, Caller, Carried, Code, Error, Given, Granted, Host, HostGuard, Kernel,
    Launch, Lease, Link, LinkError, ListedModule, Lost, MODULE_BYTES_MAX, Module, Named, Patience, Result,
};
pub use freehold::signature::{Kind, Parameter, Signature, kernels};
pub use gpu::{Buffer, Gpu, GpuError, GpuKernel, GpuResult, Place};
pub use name::{Name, NotAName};
pub use order::{Argument, Content};
pub use part::{Config, Part, Probed, Terms, play};
pub use wire::{Access, Policy};

/// The pages of the book whose programs need this crate, which the tests compile.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/broker.md")]
    mod broker {}
    #[doc = include_str!("../../../docs/processes.md")]
    mod processes {}
}
