//! The state of the driver in one process.

pub(crate) mod driver_state;
pub(crate) mod lifecycle;
