//! A tenant's side: the connection to the broker, and leases that are used like blocks.

mod calls;
mod host;
mod leaver;
mod link;
mod lock;
mod tenant;

pub use calls::{
    Blame, Call, CallError, Caller, Carried, Code, Kernel, Launch, ListedModule, MODULE_BYTES_MAX, Module, Named,
};
pub(crate) use calls::{digest, text_of};
pub use host::{Host, HostGuard};
pub use link::{Answer, Given, Granted, Link, LinkError, Lost, Patience};
pub use tenant::{Broker, Error, Lease, Result};
