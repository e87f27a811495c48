//! A connection to the broker, without a device.

mod batch;
mod connection;
mod handshake;
mod stop;
mod worker;

pub(super) use connection::LIVENESS_INTERVAL;
pub use connection::{Answer, Given, Granted, Link, LinkError, SpinPolicy};
pub use stop::StopReport;
