//! IPC tokens: 64 bytes by which one process names memory or an event for another.
//!
//! A token names a descriptor of the process that made it. The importer opens the file through `/proc/PID/fd`, which
//! the kernel allows to processes of the same user, and compares the inode to detect that the descriptor names another
//! file by now.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::process;

use freehold_driver::cuda::CUerror;
use rustix::fs::{Mode, OFlags, fstat, open, stat};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::base::shared_frees::SharedBlock;

use super::backing::{Backing, ShareHeader, ShareKind, with_fd_limit_raised};

const MAGIC: u64 = u64::from_le_bytes(*b"freetokn");

/// Names shared memory, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Token {
    magic: u64,
    kind: u32,
    /// The process that made the token, and its descriptor.
    pub(crate) process: u32,
    fd: i32,
    pub(crate) device: u32,
    pub(crate) inode: u64,
    /// Offset of the block in the memory.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The number of the block in its process, which differs from that of the next block at the same address.
    pub(crate) id: u64,
    reserved: u64,
}

const _: () = assert!(size_of::<Token>() == 64);

impl Token {
    /// Creates a token for a block within shared memory of this process.
    pub(crate) fn new(kind: ShareKind, memory: &Backing, device: usize, offset: u64, bytes: u64, id: u64) -> Self {
        Self {
            magic: MAGIC,
            kind: kind as u32,
            process: process::id(),
            fd: memory.raw_fd(),
            device: u32::try_from(device).expect("there are few devices"),
            inode: memory.inode(),
            offset,
            bytes,
            id,
            reserved: 0,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; 64] {
        zerocopy::transmute!(self)
    }

    /// Parses a token. Fails if it names an object of another kind.
    pub(crate) fn from_bytes(bytes: [u8; 64], kind: ShareKind) -> Result<Self, CUerror> {
        let token: Self = zerocopy::transmute!(bytes);
        let fits = token.magic == MAGIC && token.kind == kind as u32;
        if fits { Ok(token) } else { Err(CUerror::INVALID_VALUE) }
    }

    /// Returns the memory that the block lies in, and its offset there.
    pub(crate) fn key(&self) -> (u64, u64) {
        (self.inode, self.offset)
    }

    /// Returns what all processes call the block.
    pub(crate) fn block(&self) -> SharedBlock {
        (self.inode, self.offset, self.id)
    }

    pub(crate) fn is_own(&self) -> bool {
        self.process == process::id()
    }

    /// Returns whether the process that made the token is alive.
    pub(crate) fn is_exporter_alive(&self) -> bool {
        i32::try_from(self.process).ok().and_then(Pid::from_raw).is_some_and(is_process_alive)
    }

    /// Opens the memory that the token names.
    pub(crate) fn open(&self) -> io::Result<(Backing, ShareHeader)> {
        let path = format!("/proc/{}/fd/{}", self.process, self.fd);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        // Opening another file, such as a terminal or a pipe, can have side effects.
        if stat(&path)?.st_ino != self.inode {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file: OwnedFd = with_fd_limit_raised(|| open(&path, flags, Mode::empty()))?;
        if fstat(&file)?.st_ino != self.inode {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (memory, label) = Backing::import(file)?;
        let end = self.offset.checked_add(self.bytes);
        if self.bytes == 0 || end.is_none_or(|end| end > memory.bytes()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok((memory, label))
    }
}

/// Returns whether a process is alive. A zombie is not.
pub(crate) fn is_process_alive(process: Pid) -> bool {
    if test_kill_process(process) == Err(Errno::SRCH) {
        return false;
    }
    let folder = format!("/proc/{process}");
    // The state follows the name. The name may hold any character, but the last parenthesis ends it.
    let has_ended = fs::read(format!("{folder}/stat")).is_ok_and(|stat| {
        let name_end = stat.iter().rposition(|&byte| byte == b')');
        name_end.is_some_and(|end| matches!(stat.get(end + 2), Some(b'Z' | b'X')))
    });
    // The first thread of a process may end before the others.
    let has_others = || fs::read_dir(format!("{folder}/task")).is_ok_and(|threads| threads.count() > 1);
    !has_ended || has_others()
}
