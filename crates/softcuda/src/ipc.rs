//! What processes tell each other of memory and events: tokens of 64 bytes, and what they open.
//!
//! A token names a descriptor of the process that made it. Who opens it goes through that process's table of
//! descriptors, which the kernel lets processes of the same user do, and makes sure by the number of the file that it is
//! still the one that was meant.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard};

use freehold_driver::cuda::CUerror;
use rustix::fs::{Mode, OFlags, fstat, open, stat};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::device::Device;
use crate::memory::arena::HOST_READ_WRITE;
use crate::memory::backing::{Backing, ShareHeader, ShareKind, with_fd_limit_raised};
use crate::pool::Pool;
use crate::sync::lock;

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

/// Memory of another process, attached to addresses of a device until it is dropped.
#[derive(Debug)]
pub(crate) struct ImportedMapping {
    device: Arc<Device>,
    _memory: Arc<Backing>,
    /// The first address.
    start: u64,
    /// Where in the memory it begins, and how much of it is attached.
    offset: u64,
    bytes: u64,
}

impl ImportedMapping {
    /// Attaches the part of `memory` from `offset` on that holds `bytes`.
    pub(crate) fn new(device: &Arc<Device>, memory: Arc<Backing>, offset: u64, bytes: u64) -> Result<Self, CUerror> {
        const GRAIN: u64 = 4096;
        let first = offset - offset % GRAIN;
        let bytes = (offset + bytes - first).next_multiple_of(GRAIN);
        let start = device.memory.reserve(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        if device.memory.arena.attach(start, &memory, first, bytes, HOST_READ_WRITE).is_err() {
            device.memory.unreserve(start, bytes);
            return Err(CUerror::OUT_OF_MEMORY);
        }
        Ok(Self { device: Arc::clone(device), _memory: memory, start, offset: first, bytes })
    }

    /// Whether the block that a token names lies in it.
    pub(crate) fn contains(&self, token: &Token) -> bool {
        let end = token.offset.checked_add(token.bytes);
        let lies_within = token.offset >= self.offset && end.is_some_and(|end| end <= self.offset + self.bytes);
        token.bytes > 0 && lies_within && token.device as usize == self.device.ordinal
    }

    /// The address of what lies at `offset` of the memory.
    pub(crate) fn address(&self, offset: u64) -> u64 {
        self.start + (offset - self.offset)
    }
}

impl Drop for ImportedMapping {
    fn drop(&mut self) {
        self.device.memory.unreserve(self.start, self.bytes);
    }
}

/// A block of another process. Its memory stays attached until the last of those who share it is gone, work too.
#[derive(Debug)]
pub(crate) struct ImportedBlock {
    pub(crate) token: Token,
    /// The pool that it is of, if not of `cuMemAlloc`.
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) _mapping: Arc<ImportedMapping>,
}

/// What of other processes is open here.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    blocks: Mutex<Blocks>,
    /// Pools by their memory, and how often each was imported.
    pools: Mutex<BTreeMap<u64, (Arc<Pool>, usize)>>,
}

/// Blocks by their memory and their place in it.
type Blocks = BTreeMap<(u64, u64), ImportEntry>;

/// A block that is open.
#[derive(Debug, Clone)]
pub(crate) struct ImportEntry {
    pub(crate) address: u64,
    pub(crate) mapping: Arc<ImportedMapping>,
    /// The number of the context that it was opened in. Blocks of pools are of none.
    pub(crate) context: Option<u64>,
    pub(crate) open_count: usize,
}

impl Imports {
    pub(crate) fn blocks(&self) -> MutexGuard<'_, Blocks> {
        lock(&self.blocks)
    }

    /// Any block that lies in this memory.
    pub(crate) fn find_by_inode(blocks: &Blocks, inode: u64) -> Option<&ImportEntry> {
        blocks.range((inode, 0)..=(inode, u64::MAX)).next().map(|(_, import)| import)
    }

    /// Forgets a block.
    pub(crate) fn remove(&self, opened: &ImportedBlock) {
        self.blocks().remove(&opened.token.key());
    }

    /// Forgets the blocks of a context that ends.
    pub(crate) fn remove_context(&self, context_id: u64) {
        self.blocks().retain(|_, import| import.context != Some(context_id));
    }

    /// The pool with this memory, once more; or a new one.
    pub(crate) fn pool(&self, inode: u64, make: impl FnOnce() -> Arc<Pool>) -> Arc<Pool> {
        let mut pools = lock(&self.pools);
        let (pool, open_count) = pools.entry(inode).or_insert_with(|| (make(), 0));
        *open_count += 1;
        Arc::clone(pool)
    }

    /// Gives an imported pool back, and says whether it was for the last time.
    ///
    /// # Errors
    /// Blocks of it are open.
    pub(crate) fn release_pool(&self, inode: u64) -> Result<bool, CUerror> {
        if Self::find_by_inode(&self.blocks(), inode).is_some() {
            return Err(CUerror::INVALID_VALUE);
        }
        let mut pools = lock(&self.pools);
        let (_, open_count) = pools.get_mut(&inode).ok_or(CUerror::INVALID_VALUE)?;
        *open_count -= 1;
        let is_last = *open_count == 0;
        if is_last {
            pools.remove(&inode);
        }
        Ok(is_last)
    }
}
