//! gRPC calls of encoded messages. The gRPC library is generic over the messages of a call; here all calls have one
//! type of message, so that it is compiled once and not once for each call.

mod client;
mod codec;
mod methods;

pub use client::{Messages, RpcClient};
pub(crate) use codec::{ErasedCodec, Outgoing, decode};
pub use methods::Method;
pub(crate) use methods::{DOWNLOAD, SERVICE, UPLOAD, methods};
