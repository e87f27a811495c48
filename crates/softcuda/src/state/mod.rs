//! All that the driver knows in one process.

pub(crate) mod driver_state;
pub(crate) mod lifecycle;
