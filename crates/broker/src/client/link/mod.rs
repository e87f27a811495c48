//! A connection to the broker, without a device.

mod batch;
mod connection;
mod error;
mod handshake;
mod stop;
mod worker;

pub(super) use connection::LIVENESS_INTERVAL;
pub use connection::{Answer, Given, Granted, Link, SpinPolicy};
pub use error::LinkError;
pub use stop::StopReport;
