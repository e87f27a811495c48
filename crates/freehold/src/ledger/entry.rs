//! The words of the ledger: what is entered, and what it answers. Knows nothing of how entries are kept or found.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// A context of a device, numbered by whoever keeps the ledger. The primary one is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(pub u32);

/// A stream, numbered by whoever keeps the ledger.
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

/// One ownership of one block. It ends when the block is reused or forgotten, even where the address comes again.
///
/// A generation is one of 2^32, after which an id that was kept for so long would be taken for a live one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl BlockId {
    /// The ownership of a block that the pool knows and the ledger does not. The ledger has fewer than 2^31 blocks.
    pub(crate) fn of_pool(record: u32, generation: u32) -> Self {
        Self { index: record | 1 << 31, generation }
    }
}

/// A point in a stream that can be asked whether it has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence {
    /// The stream.
    pub stream: StreamId,
    /// The place among its work; the first is 1.
    pub seq: u64,
}

/// Whose memory an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ours, to be released.
    Own,
    /// Memory of others in this process, entered so that it can be told apart, and released where it was allocated.
    Adopted,
    /// Another process's, to be closed and not released.
    Imported,
}

/// Where an owned block stands on its way to be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Somebody has it.
    Owned,
    /// Given up by its owner while as many fences have not passed.
    Released {
        /// How many.
        waiting_for: u32,
    },
    /// Nobody has it, and nothing uses it.
    Free,
}

/// A block to be entered.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The first address.
    pub base: u64,
    /// What the owner asked for: addresses beyond are nobody's.
    pub bytes: u64,
    /// What the driver gave, at least `bytes`: no other block lies there.
    pub capacity_bytes: u64,
    /// The context that it lives in.
    pub context: ContextId,
    /// The stream that it was allocated in, where there was one.
    pub stream: Option<StreamId>,
    /// The process that made it; 0 of imported memory where that is not known.
    pub process: u32,
    /// Whose it is.
    pub kind: Kind,
    /// Its name, if it was given one.
    pub tag: Option<Arc<str>>,
    /// The line of the program that asked for it.
    pub allocated_at: &'static Location<'static>,
}

/// Who owns a block. Of a free block: who did.
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
    /// What the owner asked for.
    pub bytes: u64,
    /// The context that it lives in.
    pub context: ContextId,
    /// The stream that it was allocated in, where there was one.
    pub stream: Option<StreamId>,
    /// As of [`Entry`].
    pub process: u32,
    /// Whose it is.
    pub kind: Kind,
    /// Its name, if it was given one.
    pub tag: Option<Arc<str>>,
    /// The line of the program that asked for it.
    pub allocated_at: &'static Location<'static>,
    /// Where it stands on its way to be used again.
    pub state: State,
    /// Which ownership this is: no other has the same.
    pub block: BlockId,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.base)?;
        if let Some(tag) = &self.tag {
            write!(f, " ({tag})")?;
        }
        write!(f, ", allocated at {}:{}", self.allocated_at.file(), self.allocated_at.line())
    }
}

/// How an owner gives a block up.
#[derive(Clone, Debug)]
pub struct Release {
    /// What has to pass before the block is free.
    pub fences: Vec<Fence>,
    /// A drop knows no line.
    pub released_at: Option<&'static Location<'static>>,
    /// Since the device was opened.
    pub when: Duration,
}

/// How the memory of a block went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It was given back to whom it came from.
    GivenBack,
    /// Its context was destroyed, so long after the device was opened.
    ContextDestroyed(Duration),
}

/// How much memory there is in each state. Memory of others, adopted or imported, is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerStats {
    /// Blocks that somebody has.
    pub owned_blocks: u64,
    /// What the owners asked for.
    pub owned_bytes: u64,
    /// Blocks whose fences have not all passed.
    pub released_blocks: u64,
    /// What the owners had asked for.
    pub released_bytes: u64,
    /// Blocks that nobody has.
    pub free_blocks: u64,
    /// What the driver gave: nobody asks for anything of a free block.
    pub free_bytes: u64,
    /// What the driver gave for all of these blocks, in any state.
    pub held_bytes: u64,
}
