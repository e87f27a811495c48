//! Where C calls in, as far as a call can be read without the state of the driver.

pub(crate) mod args;
pub(crate) mod default_stream;
