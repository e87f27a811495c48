//! The notes of a worker while it computes, one line of JSON each. The parent keeps them, also those of a killed
//! worker.

use serde::{Deserialize, Serialize};

/// What happened to a worker, and its memory at that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// By the system's monotonic clock, which all processes share.
    pub at_ns: u64,
    pub worker: u32,
    pub process: u32,
    pub epoch: u32,
    pub event: Event,
    /// Device memory that it uses in addition to the domain.
    pub live_bytes: u64,
    /// Device memory that the driver has given it.
    pub reserved_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Its device is open: times in its trace count from here.
    Opened,
    /// It has leased the domain.
    Leased,
    /// This many tiles are refined from this epoch on.
    Refined { tiles: u32 },
    /// It was killed. Noted by the parent.
    Killed,
    /// All of its epochs are complete.
    Ended {
        copied_bytes: u64,
        /// Epochs before which the device was idle.
        idle_epochs: u32,
    },
}

/// The time by the system's clock.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
