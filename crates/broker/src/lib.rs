//! Device memory that outlives its process: a broker that makes and leases it, an fdstore that holds it when the broker dies, and
//! what tenants need to use it.

mod call_codec;
mod call_failure;
mod call_ring;
mod client;
mod daemon;
mod driver_thread;
mod fd_channel;
pub mod fdstore;
mod gpu;
mod journal;
mod name;
mod request_error;
mod ring;
mod role;
mod scrubber;
mod seqpacket;
mod shared_memory;
pub mod signals;
#[cfg(any(test, fuzzing))]
pub mod simulation;
pub mod socket_path;
#[forbid(unsafe_code)]
mod state;
pub mod wire;
mod worker;

pub use call_codec::{Argument, Content};
pub use client::{
    Answer, Broker, Call, CallError, Caller, Code, Error, ErrorOrigin, Executed, Given, Granted, Host, HostGuard,
    Kernel, Launch, Lease, Link, LinkError, ListedModule, MODULE_BYTES_MAX, Module, NamedLease, Result, SpinPolicy,
    StopReport,
};
pub use freehold::signature::{Kind, Parameter, Signature, kernels};
pub use gpu::{Buffer, Gpu, GpuBackend, GpuError, GpuKernel, GpuResult};
pub use name::{Name, NameError};
pub use role::{BrokerLimits, Config, DeviceInfo, Role, run_role};
pub use wire::{Access, Policy};

/// The pages of the book whose programs need this crate, which the tests compile.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/broker.md")]
    mod broker {}
    #[doc = include_str!("../../../docs/processes.md")]
    mod processes {}
}
