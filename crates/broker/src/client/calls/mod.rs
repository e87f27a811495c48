//! Calls: kernels that a worker of the broker runs for this process, on memory that it has leased. This process needs
//! no device for that, and a faulting kernel ends only the worker.
//!
//! A call goes into a ring that tenant and worker share, and completes when the worker's stream writes a semaphore. So
//! neither a call nor the wait for it involves the system or the broker while both sides spin.

mod caller;
mod modules;
mod named_lease;

pub use caller::{Call, Caller, Launch};
pub use named_lease::NamedLease;
