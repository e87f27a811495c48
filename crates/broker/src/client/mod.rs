//! The tenant's side: the connection to the broker, leases that are used like blocks, and calls to workers.

mod broker;
mod call_error;
mod calls;
mod host;
mod kernel;
mod link;
mod robust_lock;
mod session;
mod unmapper;

pub use broker::{Broker, Error, Lease, LeaseError, Result};
pub use call_error::{CallError, Code, ErrorOrigin, Executed};
pub use calls::{Call, Caller, Launch, NamedLease};
pub use host::{Host, HostGuard};
pub use kernel::{Kernel, ListedModule, Module};
pub use link::{Answer, Given, Granted, Link, LinkError, SpinPolicy, StopReport};
