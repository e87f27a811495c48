//! What processes tell each other of memory and events: tokens of 64 bytes, and what they open.
//!
//! A token names a descriptor of the process that made it. Who opens it goes through that process's table of
//! descriptors, which the kernel lets processes of the same user do, and makes sure by the number of the file that it is
//! still the one that was meant.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard};

use freehold_driver::cuda::CUerror;
use rustix::fs::{Mode, OFlags, fstat, open};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::device::Device;
use crate::memory::backing::{Backing, Content, Label, with_room_for_descriptors};
use crate::pool::Pool;
use crate::world::lock;

const MAGIC: u64 = u64::from_le_bytes(*b"freetokn");

/// A name of shared memory, or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Token {
    magic: u64,
    content: u32,
    /// The process that made it, and its descriptor.
    pub(crate) process: u32,
    descriptor: i32,
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
    pub(crate) fn new(content: Content, memory: &Backing, device: usize, offset: u64, bytes: u64, id: u64) -> Self {
        Self {
            magic: MAGIC,
            content: content as u32,
            process: process::id(),
            descriptor: memory.number(),
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

    /// The token that 64 bytes of the program's are, if they name something of this content.
    pub(crate) fn from_bytes(bytes: [u8; 64], content: Content) -> Result<Self, CUerror> {
        let token: Self = zerocopy::transmute!(bytes);
        let fits = token.magic == MAGIC && token.content == content as u32;
        if fits { Ok(token) } else { Err(CUerror::INVALID_VALUE) }
    }

    pub(crate) fn is_own(&self) -> bool {
        self.process == process::id()
    }

    /// The memory that it names, opened anew.
    pub(crate) fn open(&self) -> io::Result<(Backing, Label)> {
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file: OwnedFd = with_room_for_descriptors(|| open(&path, flags, Mode::empty()))?;
        if fstat(&file)?.st_ino != self.inode {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (memory, label) = Backing::adopt(file)?;
        let end = self.offset.checked_add(self.bytes);
        if self.bytes == 0 || end.is_none_or(|end| end > memory.bytes()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok((memory, label))
    }
}

/// A block of another process.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The pool that it is of, if not of `cuMemAlloc`.
    pub(crate) pool: Option<Arc<Pool>>,
    /// The addresses that were reserved for it, whole pages.
    pub(crate) pages: u64,
    pub(crate) pages_bytes: u64,
    /// What keeps the memory.
    _memory: Arc<Backing>,
}

impl Opened {
    /// Attaches a block that lies in `memory` to addresses of `device`, and says at which it starts.
    pub(crate) fn attach(
        device: &Device,
        token: Token,
        memory: Arc<Backing>,
        pool: Option<Arc<Pool>>,
    ) -> Result<(u64, Self), CUerror> {
        const GRAIN: u64 = 4096;
        let first = token.offset - token.offset % GRAIN;
        let bytes = (token.offset + token.bytes - first).next_multiple_of(GRAIN);
        let pages = device.reserve(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        if device.arena.attach(pages, &memory, first, bytes).is_err() {
            device.unreserve(pages, bytes);
            return Err(CUerror::OUT_OF_MEMORY);
        }
        let opened = Self { pool, pages, pages_bytes: bytes, _memory: memory };
        Ok((pages + token.offset - first, opened))
    }

    /// Takes the memory away. Nothing may be at work on it any more.
    pub(crate) fn detach(&self, device: &Device) {
        device.unreserve(self.pages, self.pages_bytes);
    }
}

/// The blocks of other processes that are open here, and how often.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    /// By address of the block.
    open: Mutex<BTreeMap<u64, Import>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Import {
    pub(crate) token: Token,
    /// The number of the context that it was opened in.
    pub(crate) context: u64,
    pub(crate) times: usize,
}

impl Imports {
    pub(crate) fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Import>> {
        lock(&self.open)
    }
}
