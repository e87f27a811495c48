//! gRPC calls of encoded messages. The gRPC library is generic over the messages of a call; here all calls use one
//! message type, so it is compiled once and not once per call.

mod client;
mod codec;
mod methods;

pub use client::{Messages, RpcClient};
pub(crate) use codec::{ErasedCodec, Outgoing, decode};
pub use methods::Method;
pub(crate) use methods::{DOWNLOAD, SERVICE, UPLOAD, methods};
