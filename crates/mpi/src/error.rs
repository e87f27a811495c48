//! What can go wrong, sorted by whose fault it is.

use std::fmt;

use crate::element::Op;

/// Why something was not done.
#[derive(Clone, thiserror::Error)]
pub enum Error {
    // The caller's.
    #[error("rank {rank} is none of {size}; the first is 0")]
    NoSuchRank { rank: i32, size: i32 },
    #[error("tag {tag} is none: tags go from 0 to {tag_max}")]
    NoSuchTag { tag: i32, tag_max: i32 },
    #[error("FREEHOLD_MPI is '{value}', but should be direct, shared or staged")]
    UnknownPath { value: String },
    #[error("{variable} is '{value}', but should be {wanted}")]
    Misconfigured { variable: &'static str, value: String, wanted: &'static str },
    #[error("{what} has {elements} elements, and {wanted} are needed: take a view of as many")]
    LengthMismatch { what: &'static str, elements: usize, wanted: usize },
    #[error("only the root, rank {root}, {does} the whole: give it a block there, and none elsewhere")]
    NotRoot { root: i32, does: &'static str },
    #[error("{op} is no operation on {element}: bits are of whole numbers")]
    UnsupportedOperation { op: Op, element: &'static str },
    #[error("MPI was initialised before: there is one World in a process, and it cannot be made again")]
    AlreadyInitialized,
    #[error("rows of {row} elements, {pitch} apart, overlap: the pitch is at least the row")]
    RowsOverlap { row: usize, pitch: usize },
    #[error("{elements} elements from {start} on are no part of the window of rank {rank}, which has {len}")]
    OutOfWindow { start: usize, elements: usize, rank: i32, len: usize },

    // Another rank's, or the network's.
    #[error("{0} failed: {message}", message = .0.message)]
    Transfer(Box<TransferError>),
    #[error(
        "a message{} from rank {source_rank} with tag {tag} does not fit into {capacity_bytes} bytes: receive into as many, or \
        send fewer", length(.bytes)
    )]
    Truncated {
        source_rank: i32,
        tag: i32,
        /// Unless the library does not tell.
        bytes: Option<u64>,
        capacity_bytes: u64,
    },
    #[error("{0} failed: rank {rank} has died", rank = .0.rank.unwrap_or(-1))]
    RankDied(Box<TransferError>),

    // The system's.
    #[error(
        "the MPI library lets only one thread call it ({provided}): one that lets threads take turns \
         (MPI_THREAD_SERIALIZED) is needed"
    )]
    InsufficientThreadSupport { provided: &'static str },
    #[error("{call}: {message}")]
    Library { call: &'static str, message: Box<str> },
    #[error("the thread for transfers does not start: {message}")]
    SpawnThread { message: Box<str> },
    #[error("the ranks do not agree: {what}")]
    Disagreement { what: &'static str },
    #[error(transparent)]
    Device(#[from] freehold::Error),
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A transfer that was not made.
#[derive(Clone, Debug)]
pub struct TransferError {
    /// In words: "sending", "receiving", "reducing".
    pub what: &'static str,
    /// The other rank, unless it was any, or all.
    pub rank: Option<i32>,
    /// Unless it was any, or the transfer has none.
    pub tag: Option<i32>,
    pub bytes: u64,
    /// What the library, or the driver, said.
    pub message: Box<str>,
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, rank, tag, bytes, .. } = self;
        write!(f, "{what} {bytes} bytes")?;
        match rank {
            Some(rank) => write!(f, ", rank {rank}")?,
            None => write!(f, ", any rank")?,
        }
        match tag {
            Some(tag) => write!(f, ", tag {tag}"),
            None => Ok(()),
        }
    }
}

fn length(bytes: &Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"))
}

/// What a call that can fail returns.
pub type Result<T> = std::result::Result<T, Error>;
