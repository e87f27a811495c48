//! The data types of the ledger: entries, owners and ids. Knows nothing of how entries are stored or found.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// A context of a device, numbered by the owner of the ledger. The primary context is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(pub u32);

/// A stream, numbered by the owner of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("the primary context"),
            number => write!(f, "context {number}"),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

/// One ownership of one block. It ends when the block is reused or forgotten, even if the address is reused.
///
/// Generations wrap after 2^32: an id kept for that long could be mistaken for a live one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl BlockId {
    /// The ownership of a block that the pool tracks instead of the ledger. The ledger has fewer than 2^31 blocks.
    pub(crate) fn of_pool(meta: u32, generation: u32) -> Self {
        Self { index: meta | 1 << 31, generation }
    }
}

/// A position in a stream that can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence {
    /// The stream.
    pub stream: StreamId,
    /// The position among its operations; the first is 1.
    pub seq: u64,
}

/// The owner of an entry's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The library's own, to be released.
    Own,
    /// Foreign memory in this process, recorded so that it can be identified, and released where it was allocated.
    Adopted,
    /// Another process's memory, to be closed and not released.
    Imported,
}

/// The state of a block between its allocation and its reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It has an owner.
    Owned,
    /// It has an owner, but no memory until [`Device::wake`](crate::Device::wake).
    Asleep,
    /// Released, and waiting for fences.
    Released {
        /// How many fences.
        waiting_for: u32,
    },
    /// It has no owner, and nothing uses it.
    Free,
}

/// A block to be recorded.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The first address.
    pub base: u64,
    /// The bytes that the owner requested: addresses beyond have no owner.
    pub bytes: u64,
    /// The bytes that the driver allocated, at least `bytes`: no other block lies there.
    pub capacity_bytes: u64,
    /// Its context.
    pub context: ContextId,
    /// The stream in which it was allocated, if any.
    pub stream: Option<StreamId>,
    /// The process that created it; 0 for imported memory if unknown.
    pub process: u32,
    /// Whose memory it is.
    pub kind: Kind,
    /// Its name, if it has one.
    pub tag: Option<Arc<str>>,
    /// The line of the program that allocated it.
    pub allocated_at: &'static Location<'static>,
}

/// The owner of a block. For a free block, the last owner.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let x = stream.alloc_tagged::<f32>(10, "weights")?;
/// let owner = device.owner_of(x.address()).expect("it is live");
/// assert_eq!((owner.bytes, owner.process), (40, std::process::id()));
/// println!("{owner}"); // 40 bytes at 0x..., (weights), allocated at src/main.rs:3
/// assert_eq!(owner.stream, Some(stream.id()));
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The first address.
    pub base: u64,
    /// The bytes that the owner requested.
    pub bytes: u64,
    /// Its context.
    pub context: ContextId,
    /// The stream in which it was allocated, if any.
    pub stream: Option<StreamId>,
    /// As in [`Entry`].
    pub process: u32,
    /// Whose memory it is.
    pub kind: Kind,
    /// Its name, if it has one.
    pub tag: Option<Arc<str>>,
    /// The line of the program that allocated it; `None` if it came from foreign code, such as C, which does not tell.
    pub allocated_at: Option<&'static Location<'static>>,
    /// Its state between allocation and reuse.
    pub state: State,
    /// Which ownership this is; the id is unique.
    pub block: BlockId,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.base)?;
        if let Some(tag) = &self.tag {
            write!(f, " ({tag})")?;
        }
        if self.state == State::Asleep {
            f.write_str(", asleep")?;
        }
        self.allocated_at.map_or(Ok(()), |at| write!(f, ", allocated at {}:{}", at.file(), at.line()))
    }
}

/// How an owner releases a block.
#[derive(Clone, Debug)]
pub struct Release {
    /// The fences that must be complete before the block is free.
    pub fences: Vec<Fence>,
    /// The line that released it; `None` for a drop.
    pub released_at: Option<&'static Location<'static>>,
    /// The time since the device was opened.
    pub when: Duration,
}

/// How the memory of a block ended.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// It was returned to its source.
    Returned,
    /// Its context was destroyed, this long after the device was opened.
    ContextDestroyed(Duration),
}

/// How much memory is in each state. Adopted and imported memory is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerStats {
    /// Blocks with an owner.
    pub owned_blocks: u64,
    /// The bytes that their owners requested.
    pub owned_bytes: u64,
    /// Blocks that wait for fences.
    pub released_blocks: u64,
    /// The bytes that their owners had requested.
    pub released_bytes: u64,
    /// Blocks without an owner.
    pub free_blocks: u64,
    /// The bytes that the driver allocated for them.
    pub free_bytes: u64,
    /// The bytes that the driver allocated for all of these blocks, in any state.
    pub held_bytes: u64,
}
