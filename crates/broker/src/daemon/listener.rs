//! The socket that tenants connect to, and connections that have not sent a message yet.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Gid, Mode, chmod, chown};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen as start_listening, socket_with,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The most connections that have sent nothing yet. The oldest is closed first.
pub(super) const HANDSHAKES_MAX: usize = 64;

/// Connections that have sent nothing yet.
#[derive(Debug)]
pub(super) struct Handshakes {
    pub(super) last: u32,
    pub(super) waiting: BTreeMap<u32, OwnedFd>,
    /// Whether the listening socket is polled.
    pub(super) is_listening: bool,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self { last: 0, waiting: BTreeMap::new(), is_listening: true }
    }
}

/// Opens the socket that tenants connect to, for this user alone or also for the users of a group. A previous broker at
/// this path is gone: the fdstore has the lock.
pub(super) fn listen(path: &Path, group: Option<u32>) -> io::Result<OwnedFd> {
    unlink(path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let bound = bind(&listener, &SocketAddrUnix::new(path)?);
    rustix::process::umask(before);
    bound?;
    if let Some(group) = group {
        chown(path, None, Some(Gid::from_raw(group)))?;
        chmod(path, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP)?;
    }
    start_listening(&listener, 128)?;
    Ok(listener)
}

/// Removes the path if it is a socket, and leaves anything else that may be there by now.
pub(super) fn unlink(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        // It may be gone already.
        let _ = std::fs::remove_file(path);
    }
}

/// The id of the process at the other end.
pub(super) fn process_of(peer: rustix::net::UCred) -> u32 {
    peer.pid.as_raw_nonzero().get().cast_unsigned()
}

/// Returns a pidfd of the peer, which refers to that process even if its id is reused.
pub(super) fn peer_pidfd(socket: &OwnedFd, process: Pid) -> io::Result<OwnedFd> {
    let mut descriptor: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    const SO_PEERPIDFD: libc::c_int = 77;
    // SAFETY: `descriptor` has room for the descriptor that the call writes, and `bytes` is its size.
    let outcome = unsafe {
        libc::getsockopt(
            std::os::fd::AsRawFd::as_raw_fd(socket),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut bytes,
        )
    };
    if outcome == 0 {
        // SAFETY: the kernel created the descriptor for this call.
        return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    // Older kernels: the id may be reused by another process, if this one is gone.
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}
