//! The C side of calls: arguments are converted and checked here without the driver's state.

pub(crate) mod args;
pub(crate) mod default_stream;
