//! Reads a log of any known kind, recognized by its content, not by its name.
//!
//! Pure: bytes in, operations out. Each kind has its own module.

use std::fmt;

use serde::Serialize;

use super::history::{History, HistoryBuilder};
use super::snapshot::SnapshotError;
use super::{rmm, snapshot, timeline, workload};

/// The most streams that are replayed, each on a device stream.
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
            Self::Timeline => "a Freehold timeline",
            Self::Rmm => "an RMM log",
            Self::Snapshot => "a PyTorch memory snapshot",
            Self::Workload => "a workload",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) kind: Kind,
    pub(super) history: History,
}

/// Why a file cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    #[error("the file is empty: {KNOWN}")]
    Empty,
    #[error("unknown format: {KNOWN}")]
    Unknown,
    #[error("a Freehold timeline that ends before its first event")]
    CutTimeline,
    #[error("PyTorch memory snapshot: {0}")]
    Snapshot(#[from] SnapshotError),
    #[error("{kind} without allocations: nothing to replay")]
    NothingToReplay { kind: Kind },
    #[error("{kind} with {streams} streams: expected at most {STREAMS_MAX}")]
    TooManyStreams { kind: Kind, streams: u32 },
}

const KNOWN: &str = "expected a timeline recorded by Freehold, RMM's CSV log, a PyTorch memory snapshot (pickle or JSON), or a \
                     workload (`# NAME`, then lines `a ID BYTES STREAM`, `f ID STREAM`, `u ID STREAM`)";

pub(super) fn read(bytes: &[u8]) -> Result<Log, LogError> {
    let (kind, builder) = detect(bytes)?;
    let history = builder.finish();
    if history.ops.is_empty() {
        return Err(match (kind, history.oddities.unreadable) {
            (_, 0) | (Kind::Rmm, _) => LogError::NothingToReplay { kind },
            (Kind::Timeline, 1) if timeline::has_beginning(bytes) => LogError::CutTimeline,
            // Only its first byte made it look like this kind.
            _ => LogError::Unknown,
        });
    }
    if history.streams > STREAMS_MAX {
        return Err(LogError::TooManyStreams { kind, streams: history.streams });
    }
    Ok(Log { kind, history })
}

fn detect(bytes: &[u8]) -> Result<(Kind, HistoryBuilder), LogError> {
    // Every pickle of protocol 2 and later begins with these two bytes.
    if let [0x80, 2..=5, ..] = bytes {
        return Ok((Kind::Snapshot, snapshot::read_pickle(bytes)?));
    }
    // Invalid UTF-8 affects only its own line.
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

/// Returns whether a line contains no bytes that only files of other kinds have.
fn is_text(line: &str) -> bool {
    !line.contains(|c: char| c == char::REPLACEMENT_CHARACTER || c.is_control() && c != '\t')
}

#[cfg(test)]
mod tests;
