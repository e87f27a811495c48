//! The socket through which a process exports its blocks.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;

/// What a server says of each chunk, with its descriptor.
pub(super) const REPLY_BYTES: usize = 24;

/// Returns the address of a process's socket.
pub(super) fn socket_address(process: u32, secret: u64) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("freehold-block-{process}-{secret:016x}"))
}
