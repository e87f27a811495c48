//! Why an allocation failed: what was requested, what uses the memory, and the cheapest remedy.

use std::fmt;
use std::sync::Arc;

use crate::base::pool_stats::PoolStats;

/// How many names an explanation lists.
const TAGS_TOLD: usize = 5;

/// The state of the memory when an allocation failed.
///
/// ```
/// use freehold::{Error, Remedy};
///
/// let device = freehold::open()?;
/// device.set_budget(1 << 30);
/// let Err(Error::OutOfMemory(shortage)) = device.new_stream()?.alloc::<u8>(2 << 30) else { panic!("it exceeds the budget") };
/// assert_eq!((shortage.wanted_bytes, shortage.remedy), (2 << 30, Remedy::RaiseBudget));
/// println!("{shortage}"); // what uses the memory, and what would help
/// # Ok::<(), freehold::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The bytes requested.
    pub wanted_bytes: u64,
    /// The pool's statistics.
    pub stats: PoolStats,
    /// The live bytes under each name, the largest first.
    pub live_by_tag: Vec<(Arc<str>, u64)>,
    /// The largest block that can be allocated now without waiting.
    pub largest_bytes: u64,
    /// The pool's budget; `u64::MAX` means no limit.
    pub budget_bytes: u64,
    /// The bytes that the driver has free.
    pub device_free_bytes: u64,
    /// The device's total memory.
    pub device_total_bytes: u64,
    /// Memory that is neither free nor the pool's: that of other processes, and this process's other memory.
    pub others_bytes: u64,
    /// The cheapest remedy.
    pub remedy: Remedy,
}

/// What would help, the cheapest first.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing: the device does not have that much memory.
    AskForLess,
    /// Streams still use released memory: there is enough once they are done.
    Synchronize,
    /// The pool's budget is too small.
    RaiseBudget,
    /// There is enough in total, but it is split into ranges between live blocks.
    ReleaseNeighbours,
    /// The pool's own live blocks use the memory.
    Release,
    /// Other processes use the memory.
    EndOthers,
}

impl Shortage {
    /// Returns the cheapest remedy.
    pub(crate) fn cheapest(&self) -> Remedy {
        let idle_bytes = self.device_free_bytes + self.stats.cached_bytes;
        if self.wanted_bytes > self.device_total_bytes {
            return Remedy::AskForLess;
        }
        if self.wanted_bytes > self.budget_bytes || self.wanted_bytes <= idle_bytes && self.is_at_budget() {
            return Remedy::RaiseBudget;
        }
        if self.wanted_bytes <= idle_bytes + self.stats.released_bytes && self.stats.released_bytes > 0 {
            return Remedy::Synchronize;
        }
        if self.wanted_bytes <= idle_bytes {
            return Remedy::ReleaseNeighbours;
        }
        if self.wanted_bytes <= idle_bytes + self.stats.released_bytes + self.stats.owned_bytes {
            return Remedy::Release;
        }
        Remedy::EndOthers
    }

    fn is_at_budget(&self) -> bool {
        self.stats.reserved_bytes.saturating_add(self.wanted_bytes) > self.budget_bytes
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PoolStats { owned_blocks, owned_bytes, released_bytes, cached_bytes, reserved_bytes, .. } = self.stats;
        write!(
            f,
            "out of memory: {} requested, at most {} available: ",
            Bytes(self.wanted_bytes),
            Bytes(self.largest_bytes)
        )?;
        let blocks = if owned_blocks == 1 { "block" } else { "blocks" };
        write!(f, "{} live in {owned_blocks} {blocks}", Bytes(owned_bytes))?;
        for (index, (tag, bytes)) in self.live_by_tag.iter().take(TAGS_TOLD).enumerate() {
            write!(f, "{} {tag} {}", if index == 0 { " (" } else { "," }, Bytes(*bytes))?;
        }
        if !self.live_by_tag.is_empty() {
            f.write_str(")")?;
        }
        write!(f, ", {} released and in use by streams, {} cached, ", Bytes(released_bytes), Bytes(cached_bytes))?;
        write!(f, "{} reserved by the pool", Bytes(reserved_bytes))?;
        if self.budget_bytes != u64::MAX {
            write!(f, " of its budget of {}", Bytes(self.budget_bytes))?;
        }
        write!(f, "; the device has {} free of {}, ", Bytes(self.device_free_bytes), Bytes(self.device_total_bytes))?;
        write!(f, "{} used by others; {}", Bytes(self.others_bytes), self.remedy)
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AskForLess => "request less than the device has",
            Self::Synchronize => "synchronize the device and try again: then there is enough",
            Self::RaiseBudget => "raise the pool's budget",
            Self::ReleaseNeighbours => "release blocks between the free ranges: there is enough memory in total",
            Self::Release => "release blocks",
            Self::EndOthers => "end other processes that use the device's memory",
        })
    }
}

/// A number of bytes, formatted for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|&(unit, _)| self.0 >= unit) {
            Some((unit, name)) => write!(f, "{:.1} {name}", self.0 as f64 / unit as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}
