//! The broker for clients on other machines, over gRPC.
//!
//! [`RemoteServer`] is a process beside the broker, started by `freehold serve --listen`. It is a tenant of the broker for
//! each session and runs no kernels itself. [`Remote`] is the client; `proto/freehold.proto` describes the calls for clients
//! in other languages.
//!
//! # Modules, from bottom to top
//!
//! - [`proto`]: generated from `proto/`. `tests/generated.rs` compiles it without `protoc` and compares.
//! - `error`, `token`, `idle_timeout`: [`RemoteError`] (whose fault, and whether the call was executed), [`Token`], and
//!   connections that are closed when nothing moves in them.
//! - `client`: `connection` (connections and retries), `call_numbers`, `transfer`, `launches`.
//! - `server`, from the connection inwards: `listener` (accepts, until the token is shown), `framing` (limits before a
//!   request is decoded), `service` (what each call does), `session` (a tenant and its blocks), `idempotency`, `named_table`,
//!   `completed_set`, `upload`, `download`, `pinned_pool` (chunks between network and device), `launches` (modules and worker
//!   calls).
//! - [`baseline`]: plain gRPC, which `freehold bench remote` compares with.
//!
//! An upload is divided among the client's connections and sent in chunks with checksums. The server copies each chunk into
//! pinned memory and on to the device, while HTTP/2 flow control slows the client down. The reply comes when the device has
//! all of it.
//!
//! # Invariants
//!
//! - A call that changes something has a number. It is executed once per number, whether or not its connection survives;
//!   repeats wait for the same reply.
//! - An upload has one sender at a time. A client that resumes it is told how far it is, and earlier senders are ignored.
//! - A session ends when no call came for its idle timeout, never with a connection. If the server dies its sessions end;
//!   names stay.
//! - Nothing that waits for the device or the broker runs on the network threads. Connections, chunks, transfers, calls,
//!   modules, launches and sessions are limited, and one session gets only a part of each.
//! - Before the token is shown only headers and health checks are read.
//! - A status without `Failure` details did not come from this server: nothing says whether the call was executed.

#![warn(missing_docs)]

pub mod baseline;
mod client;
mod error;
mod idle_timeout;
mod server;
/// `proto/freehold.proto` as Rust, for clients that do not use [`Remote`].
#[allow(
    clippy::all,
    clippy::unwrap_used,
    missing_debug_implementations,
    missing_docs,
    unreachable_pub,
    reason = "it is generated"
)]
pub mod proto {
    include!("generated/freehold.v1.rs");

    /// The descriptors of the `.proto`, for the reflection service.
    pub(crate) const DESCRIPTORS: &[u8] = include_bytes!("generated/freehold.bin");
}
mod token;

pub use client::{Remote, RemoteArgument, RemoteBlock, RemoteCall, RemoteModule};
pub use error::{ErrorOrigin, Executed, RemoteError};
pub use proto::{Name as ListedName, Sums as RemoteStats};
pub use server::{Identity, RemoteServer, ServerLimits};
pub use token::{Token, TokenError};
pub use tonic::Code;

/// The longest chunk, in bytes. Other gRPC clients accept messages of up to 4 MiB by default.
pub const CHUNK_BYTES_MAX: usize = 2 << 20;

/// Bytes of one call that may be in flight before the other side has read any of them.
const WINDOW_BYTES: u32 = 8 << 20;

/// The page of the documentation whose program needs this crate; doctests compile it.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/remote.md")]
    mod remote {}
}
