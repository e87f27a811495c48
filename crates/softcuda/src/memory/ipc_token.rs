//! Tokens of 64 bytes, by which processes tell each other of memory and events.
//!
//! A token names a descriptor of the process that made it. It is opened through that process's table of descriptors in
//! `/proc`, which the kernel allows processes of the same user, and the inode tells whether it is still the same file.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::process;

use freehold_driver::cuda::CUerror;
use rustix::fs::{Mode, OFlags, fstat, open, stat};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::backing::{Backing, ShareHeader, ShareKind, with_fd_limit_raised};

const MAGIC: u64 = u64::from_le_bytes(*b"freetokn");

/// A name of shared memory, or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Token {
    magic: u64,
    kind: u32,
    /// The process that made it, and its descriptor.
    pub(crate) process: u32,
    fd: i32,
    pub(crate) device: u32,
    pub(crate) inode: u64,
    /// Where the block lies in the memory.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The number of the block in its process: the next one at the same place has another.
    pub(crate) id: u64,
    reserved: u64,
}

const _: () = assert!(size_of::<Token>() == 64);

impl Token {
    /// A block within shared memory of this process.
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

    /// The token that 64 bytes of the program's are, if they name something of this kind.
    pub(crate) fn from_bytes(bytes: [u8; 64], kind: ShareKind) -> Result<Self, CUerror> {
        let token: Self = zerocopy::transmute!(bytes);
        let fits = token.magic == MAGIC && token.kind == kind as u32;
        if fits { Ok(token) } else { Err(CUerror::INVALID_VALUE) }
    }

    /// The memory that the block lies in, and where.
    pub(crate) fn key(&self) -> (u64, u64) {
        (self.inode, self.offset)
    }

    pub(crate) fn is_own(&self) -> bool {
        self.process == process::id()
    }

    /// Whether the process that made it is there.
    pub(crate) fn is_exporter_alive(&self) -> bool {
        i32::try_from(self.process).ok().and_then(Pid::from_raw).is_some_and(is_process_alive)
    }

    /// The memory that it names, opened anew.
    pub(crate) fn open(&self) -> io::Result<(Backing, ShareHeader)> {
        let path = format!("/proc/{}/fd/{}", self.process, self.fd);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        // To open something else, a terminal or a pipe, can have consequences.
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

/// Whether a process is there. One that has ended is not, though it keeps its number until somebody waits for it.
pub(crate) fn is_process_alive(process: Pid) -> bool {
    if test_kill_process(process) == Err(Errno::SRCH) {
        return false;
    }
    let folder = format!("/proc/{process}");
    // The state follows the name, which may hold any character but ends with the last parenthesis.
    let has_ended = fs::read(format!("{folder}/stat")).is_ok_and(|stat| {
        let name_end = stat.iter().rposition(|&byte| byte == b')');
        name_end.is_some_and(|end| matches!(stat.get(end + 2), Some(b'Z' | b'X')))
    });
    // The first thread of a process may end before the others.
    let has_others = || fs::read_dir(format!("{folder}/task")).is_ok_and(|threads| threads.count() > 1);
    !has_ended || has_others()
}
