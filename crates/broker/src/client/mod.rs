//! A tenant's side: the connection to the broker, and leases that are used like blocks.

mod host;
mod leaver;
mod link;
mod lock;
mod tenant;

pub use host::{Host, HostGuard};
pub use link::{Answer, Given, Granted, Link, LinkError, Lost, Patience};
pub use tenant::{Broker, Error, Lease, Result};
