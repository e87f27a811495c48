//! The messages between the processes, as bytes, and the rings and sockets that carry them.

pub(crate) mod call_codec;
pub(crate) mod call_failure;
pub(crate) mod call_ring;
pub(crate) mod fd_channel;
pub(crate) mod message;
pub(crate) mod module_text;
pub(crate) mod name;
pub(crate) mod request_error;
pub(crate) mod ring;
pub(crate) mod scrub;
pub(crate) mod spin;
pub(crate) mod types;
pub(crate) mod worker_order;
