//! What a caller is told who releases, or enters, what cannot be. Knows nothing of how entries are kept.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use super::entry::Owner;

/// Why an address cannot be released. All of these are the caller's mistakes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the sentence of a variant says what its numbers are")]
pub enum WrongRelease {
    /// The address lies within a block.
    #[error("{offset_bytes} bytes into {of}: release the block by its first address")]
    Interior { of: Box<Owner>, offset_bytes: u64 },
    /// The block was released before.
    #[error(
        "{}already released{}{}: release a block once",
        Span { base: *base, bytes: *bytes, offset_bytes: *offset_bytes, allocated_at },
        Place(*released_at),
        Moment(*when)
    )]
    AlreadyReleased {
        base: u64,
        bytes: u64,
        allocated_at: &'static Location<'static>,
        /// A drop knows no line.
        released_at: Option<&'static Location<'static>>,
        /// Since the device was opened. Unknown of a block that was given back and never released, and of most that were dropped:
        /// a drop asks no clock.
        when: Option<Duration>,
        offset_bytes: u64,
    },
    /// No block ever began there.
    #[error("nothing was allocated at {address:#x}: release only addresses that an allocation gave")]
    NeverAllocated { address: u64 },
    /// Memory of others, which was entered into the ledger.
    #[error("{of} is memory of others: release it where it was allocated")]
    Adopted { of: Box<Owner> },
    /// Memory of another process.
    #[error("{of} is imported{}: close it instead", Origin(of.process))]
    Imported { of: Box<Owner> },
    /// The block went with its context.
    #[error(
        "{}gone with their context{}: release blocks before their context is destroyed",
        Span { base: *base, bytes: *bytes, offset_bytes: *offset_bytes, allocated_at },
        Moment(Some(*when))
    )]
    ContextDestroyed {
        base: u64,
        bytes: u64,
        allocated_at: &'static Location<'static>,
        /// Since the device was opened.
        when: Duration,
        offset_bytes: u64,
    },
    /// Made by those who know of handles.
    #[error("{of} has an owner in this program: drop that, or let go of the block with `into_address` first")]
    Held { of: Box<Owner> },
    /// Made by those who know in which process they run.
    #[error("{address:#x} belongs to process {process}, of which this one is a fork: release it there")]
    ForkedChild { address: u64, process: u32 },
}

/// Why a span cannot be entered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the sentence of a variant says what its numbers are")]
pub enum NotEntered {
    /// Another entry lies there.
    #[error("{bytes} bytes at {base:#x} overlap {with}")]
    Overlap { base: u64, bytes: u64, with: Box<Owner> },
    /// It has no bytes.
    #[error("a block of no bytes at {base:#x} has no owner")]
    Empty { base: u64 },
    /// It ends beyond the last address.
    #[error("{bytes} bytes at {base:#x} end beyond all addresses")]
    BeyondAddresses { base: u64, bytes: u64 },
}

/// A block that is no longer there, as the subject of a sentence, with its verb.
struct Span<'a> {
    base: u64,
    bytes: u64,
    offset_bytes: u64,
    allocated_at: &'a Location<'a>,
}

impl fmt::Display for Span<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offset_bytes > 0 {
            write!(f, "{} bytes into a block that is gone: ", self.offset_bytes)?;
        }
        let (file, line) = (self.allocated_at.file(), self.allocated_at.line());
        write!(f, "{} bytes at {:#x}, allocated at {file}:{line}, are ", self.bytes, self.base)
    }
}

/// Where imported memory comes from, if that is known.
struct Origin(u32);

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " from process {}", self.0) }
    }
}

struct Place(Option<&'static Location<'static>>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |at| write!(f, " at {}:{}", at.file(), at.line()))
    }
}

struct Moment(Option<Duration>);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |when| write!(f, ", {:.6} s after the device was opened", when.as_secs_f64()))
    }
}
