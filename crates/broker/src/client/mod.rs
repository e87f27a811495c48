//! A tenant's side: the connection to the broker, and leases that are used like blocks.

mod link;
mod tenant;

pub use link::{Answer, Given, Granted, Link, LinkError, Patience};
pub use tenant::{Broker, Error, Lease, Result};
