//! Lengths that client and server share.

/// The longest chunk, in bytes. Other gRPC clients accept messages of up to 4 MiB by default.
pub const CHUNK_BYTES_MAX: usize = 2 << 20;

/// Bytes of one call that may be in flight before the other side has read any of them.
pub(crate) const WINDOW_BYTES: u32 = 8 << 20;
