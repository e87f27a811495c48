//! Blocks of the pool in other processes, by the 64 bytes of `cudaIpcMemHandle_t`.
//!
//! The driver's own handles name allocations of the driver, not parts of the pool's chunks. So a handle of a block of the pool
//! names this process and the block. A process that opens it connects to a socket in which a thread of this process listens,
//! gets a descriptor for each chunk that contains part of the block, and maps these chunks contiguously.
//!
//! The socket has a name in Linux's abstract namespace, and answers processes of the same user. The descriptors are closed once
//! the chunks are mapped; a mapping keeps its memory alive when this process ends, as the driver's does.

mod client;
mod handle;
mod server;
mod socket;

pub(crate) use client::{close, open};
pub(crate) use server::export;
