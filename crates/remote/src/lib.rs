//! The broker for other machines. The **server** is a process beside the broker that serves it over gRPC: for each remote session it is
//! a tenant of the broker. [`Remote`] is the client. `proto/freehold.proto` is what they say to each other.

pub mod baseline;
mod client;
mod error;
mod idle_timeout;
mod server;
/// `proto/freehold.proto` as Rust, for who speaks to a server without [`Remote`].
#[allow(clippy::all, clippy::unwrap_used, missing_debug_implementations, unreachable_pub, reason = "it is generated")]
pub mod proto {
    include!("generated/freehold.v1.rs");

    /// The `.proto` as descriptors, for the reflection service.
    pub(crate) const DESCRIPTORS: &[u8] = include_bytes!("generated/freehold.bin");
}
mod token;

pub use client::{Remote, RemoteArgument, RemoteBlock, RemoteCall, RemoteModule};
pub use error::{ErrorOrigin, Executed, RemoteError};
pub use proto::{Name as ListedName, Sums as RemoteStats};
pub use server::{Identity, RemoteServer, ServerLimits};
pub use token::{Token, TokenError};
pub use tonic::Code;

/// The most bytes of a chunk: clients of other makes take messages of up to 4 MiB unless they are told otherwise.
pub const CHUNK_BYTES_MAX: usize = 2 << 20;

/// How much of one call may be on its way before the other side has read any of it.
const WINDOW_BYTES: u32 = 8 << 20;

/// The page of the book whose program needs this crate, which the tests compile.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/remote.md")]
    mod remote {}
}
