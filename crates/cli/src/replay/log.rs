//! A log of any kind that is known, recognised by what it holds and not by its name.
//!
//! Pure: bytes in, operations out. Each kind has a file of its own that reads it.

use std::fmt;

use serde::Serialize;

use super::history::{History, HistoryBuilder};
use super::snapshot::SnapshotError;
use super::{rmm, snapshot, timeline, workload};

/// Streams of a log become streams of the device, which has room for so many.
const STREAMS_MAX: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Timeline,
    Rmm,
    Snapshot,
    Workload,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeline => "a timeline of Freehold",
            Self::Rmm => "a log of RMM",
            Self::Snapshot => "a memory snapshot of PyTorch",
            Self::Workload => "a workload",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) kind: Kind,
    pub(super) history: History,
}

/// Why a file is not replayed.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    #[error("it is empty; {KNOWN}")]
    Empty,
    #[error("it is not a recording; {KNOWN}")]
    Unknown,
    #[error("as a memory snapshot of PyTorch: {0}")]
    Snapshot(#[from] SnapshotError),
    #[error("{kind} without an allocation: there is nothing to replay")]
    NothingToReplay { kind: Kind },
    #[error("{kind} with {streams} streams: at most {STREAMS_MAX} are replayed")]
    TooManyStreams { kind: Kind, streams: u32 },
}

const KNOWN: &str = "replay reads a timeline that Freehold recorded, RMM's CSV log, a memory snapshot of PyTorch (its \
                     pickle or the same as JSON), and a workload (`# NAME`, then lines `a ID BYTES STREAM`, `f ID STREAM`, \
                     `u ID STREAM`)";

pub(super) fn read(bytes: &[u8]) -> Result<Log, LogError> {
    let (kind, builder) = detect(bytes)?;
    let history = builder.finish();
    if history.ops.is_empty() {
        // Its first byte alone made it one of that kind.
        let is_other = history.oddities.unreadable > 0;
        return Err(if is_other { LogError::Unknown } else { LogError::NothingToReplay { kind } });
    }
    if history.streams > STREAMS_MAX {
        return Err(LogError::TooManyStreams { kind, streams: history.streams });
    }
    Ok(Log { kind, history })
}

fn detect(bytes: &[u8]) -> Result<(Kind, HistoryBuilder), LogError> {
    // Every pickle of protocol 2 and later begins with these two.
    if let [0x80, 2..=5, ..] = bytes {
        return Ok((Kind::Snapshot, snapshot::read_pickle(bytes)?));
    }
    // A byte that is no text spoils its line and no other.
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let first = text.lines().next().ok_or(LogError::Empty)?;
    match text.as_bytes()[0] {
        b'[' => Ok((Kind::Timeline, timeline::read(text))),
        b'{' => Ok((Kind::Snapshot, snapshot::read_json(text)?)),
        b'#' if is_text(first) => Ok((Kind::Workload, workload::read(text))),
        _ if rmm::is_header(first) => Ok((Kind::Rmm, rmm::read(text))),
        _ => Err(LogError::Unknown),
    }
}

/// Whether a line holds nothing that only files of other kinds do.
fn is_text(line: &str) -> bool {
    !line.contains(|c: char| c == char::REPLACEMENT_CHARACTER || c.is_control() && c != '\t')
}

#[cfg(test)]
mod tests;
