//! A tenant's side: the connection to the broker.

mod link;

pub use link::{Given, Granted, Link, LinkError, Patience};
