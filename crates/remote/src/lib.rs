//! The broker for clients on other machines, over gRPC.
//!
//! [`RemoteServer`] is a process next to the broker, started by `freehold serve --listen`. It is a tenant of the broker
//! for each session and runs no kernels itself. [`Remote`] is the client; `proto/freehold.proto` describes the calls
//! for clients in other languages.
//!
//! # Modules, lowest layer first
//!
//! - [`proto`]: generated from `proto/`. `tests/generated.rs` compiles it without `protoc` and compares.
//! - `sync`, `convert`: a mutex that ignores poisoning, and conversions between enums of the broker and of [`proto`].
//! - `rpc`: [`RpcClient`], the list of calls, and one codec for all of them.
//! - `error`: [`RemoteError`] (whose fault, and whether the call was executed).
//! - `transport`: [`Token`], the lengths of chunks and windows, and connections with an idle timeout.
//! - `client`: `call_numbers`, `connection` (connections and retries), `remote` ([`Remote`] and its blocks),
//!   `transfer`, `launches`. It imports nothing from `server`, nor `server` from it.
//! - `server`: `limits`, `completed_set`, `named_table`, `pinned_pool` (chunks between network and device), `launches`
//!   (modules and worker calls), `idempotency`, `block`, `upload`, `session` (a tenant and its blocks), `download`,
//!   `listener` (accepts connections, and watches them until the token is presented), `service` (implements each call),
//!   `dispatch` (decodes each request and routes it to its call), `framing` (limits before a request is decoded).
//!
//! An upload is divided among the client's connections and sent in chunks with checksums. The server copies each chunk
//! into pinned memory and on to the device, while HTTP/2 flow control slows the client down. The reply comes when the
//! device has all of it.
//!
//! # Invariants
//!
//! - A call that changes something has a number. It is executed once per number, whether or not its connection
//!   survives; repeats wait for the same reply.
//! - An upload has one sender at a time. A client that resumes it gets the current offset, and earlier senders are
//!   ignored.
//! - A session ends when it receives no call for its idle timeout, never with a connection. If the server dies, its
//!   sessions end; names stay.
//! - Nothing that waits for the device or the broker runs on the network threads. Connections, chunks, transfers,
//!   calls, modules, launches and sessions are limited, and one session gets only a share of each.
//! - Before the token is presented only headers and health checks are read.
//! - A status without `Failure` details did not come from this server: whether the call was executed is unknown.

#![warn(missing_docs)]

mod client;
mod convert;
mod error;
/// `proto/freehold.proto` as Rust, for clients that do not use [`Remote`].
#[allow(
    clippy::all,
    clippy::unwrap_used,
    missing_debug_implementations,
    missing_docs,
    unreachable_pub,
    reason = "it is generated"
)]
pub mod proto;
mod rpc;
mod server;
mod sync;
mod transport;

pub use client::{Remote, RemoteArgument, RemoteBlock, RemoteBlockError, RemoteCall, RemoteModule};
pub use error::{ErrorOrigin, Executed, RemoteError};
pub use proto::{Name as ListedName, Stats as RemoteStats};
pub use rpc::{Messages, Method, RpcClient};
pub use server::{Identity, RemoteServer, ServerLimits};
pub use tonic::Code;
pub use transport::{CHUNK_BYTES_MAX, Token, TokenError};

/// The pages whose programs need this crate; doctests compile them.
#[cfg(doctest)]
mod docs_pages {
    #[doc = include_str!("../README.md")]
    mod crate_readme {}
    #[doc = include_str!("../../../docs/remote.md")]
    mod remote {}
}

/// The handles can be sent to other threads and shared with them.
const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Remote>();
    send_and_sync::<RemoteBlock>();
    send_and_sync::<RemoteBlockError>();
    send_and_sync::<RemoteError>();
    send_and_sync::<RemoteModule>();
    send_and_sync::<RemoteServer>();
    send_and_sync::<RpcClient>();
    send_and_sync::<Token>();
};
