//! What a worker tells while it computes: a line of JSON for each note. The parent keeps them, also of one that is killed.

use serde::{Deserialize, Serialize};

/// What happened to a worker, and what memory it had then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// By the machine's clock, which all processes share.
    pub at_ns: u64,
    pub worker: u32,
    pub process: u32,
    pub epoch: u32,
    pub event: Event,
    /// What it uses of the device's memory beyond the domain.
    pub live_bytes: u64,
    /// What the driver has given it.
    pub reserved_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Its device is open: times in its trace count from here.
    Opened,
    /// It has leased the domain.
    Leased,
    /// So many tiles are refined from this epoch on.
    Refined { tiles: u32 },
    /// It was killed, which the parent notes.
    Killed,
    /// All its epochs are done.
    Ended {
        copied_bytes: u64,
        /// Epochs before which the device had nothing left to do.
        idle_epochs: u32,
    },
}

/// The time by the machine's clock.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
