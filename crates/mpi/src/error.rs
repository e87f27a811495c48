//! The crate's errors, grouped by cause: the caller, another rank or the network, the system.

use std::fmt;

use crate::op::Op;

/// An error of a call.
#[derive(Clone, thiserror::Error)]
pub enum Error {
    // The caller's.
    #[error("invalid rank {rank}: expected 0 to {last}", last = .size - 1)]
    NoSuchRank { rank: i32, size: i32 },
    #[error("invalid tag {tag}: expected 0 to {tag_max}")]
    NoSuchTag { tag: i32, tag_max: i32 },
    #[error("FREEHOLD_MPI is '{value}': expected direct, shared or staged")]
    UnknownPath { value: String },
    #[error("{variable} is '{value}': expected {wanted}")]
    Misconfigured { variable: &'static str, value: String, wanted: &'static str },
    #[error("{what} has {elements} elements, expected {wanted}: pass a view of that length")]
    LengthMismatch { what: &'static str, elements: usize, wanted: usize },
    #[error("the root, rank {root}, must pass a block to {does}, and every other rank `None`")]
    NotRoot { root: i32, does: &'static str },
    #[error("{op} is not defined for {element}: expected an integer type")]
    UnsupportedOperation { op: Op, element: &'static str },
    #[error("MPI is already initialized: a process can create a `World` only once")]
    AlreadyInitialized,
    #[error("rows of {row} elements overlap at a pitch of {pitch}: the pitch must be at least the row length")]
    RowsOverlap { row: usize, pitch: usize },
    #[error("range {start}..{end} is outside the window of rank {rank}, which has {len} elements", end = .start.saturating_add(*.elements))]
    OutOfWindow { start: usize, elements: usize, rank: i32, len: usize },

    // Another rank's, or the network's.
    #[error("{0} failed: {message}", message = .0.message)]
    Transfer(Box<TransferError>),
    #[error(
        "a message{} from rank {source_rank} with tag {tag} does not fit into {capacity_bytes} bytes: receive into a larger \
        block, or send less", length(.bytes)
    )]
    Truncated {
        source_rank: i32,
        tag: i32,
        /// `None` if the library does not report the length.
        bytes: Option<u64>,
        capacity_bytes: u64,
    },
    #[error("{0} failed: rank {rank} has died", rank = .0.rank.unwrap_or(-1))]
    RankDied(Box<TransferError>),

    // The system's.
    #[error("the MPI library provides {provided}: MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE is required")]
    InsufficientThreadSupport { provided: &'static str },
    #[error("{call}: {message}")]
    Library { call: &'static str, message: Box<str> },
    #[error("failed to start the thread for transfers: {message}")]
    SpawnThread { message: Box<str> },
    #[error("the ranks disagree: {what}")]
    Disagreement { what: &'static str },
    #[error(transparent)]
    Device(#[from] freehold::Error),
}

/// Prints the message of `Display`, which `main` and `unwrap` then show.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A transfer that failed.
#[derive(Clone, Debug)]
pub struct TransferError {
    /// The operation: "sending", "receiving", "reducing".
    pub what: &'static str,
    /// The other rank. `None` if it is any rank, or all of them.
    pub rank: Option<i32>,
    /// `None` if it is any tag, or if the transfer has no tag.
    pub tag: Option<i32>,
    pub bytes: u64,
    /// The message of the MPI library or of the driver.
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

/// The result of a fallible call.
pub type Result<T> = std::result::Result<T, Error>;
