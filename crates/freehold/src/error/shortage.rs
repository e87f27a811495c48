//! Why there was no memory: what was wanted, who has the rest, and what would help most cheaply.

use std::fmt;
use std::sync::Arc;

use crate::base::pool_stats::PoolStats;

/// How many names an explanation tells of.
const TAGS_TOLD: usize = 5;

/// What a request that was refused met.
///
/// ```
/// use freehold::{Error, Remedy};
///
/// let device = freehold::open()?;
/// device.set_budget(1 << 30);
/// let Err(Error::OutOfMemory(shortage)) = device.new_stream()?.alloc::<u8>(2 << 30) else { panic!("it is more than the budget") };
/// assert_eq!((shortage.wanted_bytes, shortage.remedy), (2 << 30, Remedy::RaiseBudget));
/// println!("{shortage}"); // who has what, and what would help
/// # Ok::<(), freehold::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// What was asked for.
    pub wanted_bytes: u64,
    /// What the pool has.
    pub stats: PoolStats,
    /// What is live under each name, the most first.
    pub live_by_tag: Vec<(Arc<str>, u64)>,
    /// The largest block that can be had now without waiting.
    pub largest_bytes: u64,
    /// What the pool may have; `u64::MAX` is without limit.
    pub budget_bytes: u64,
    /// What the driver has left.
    pub device_free_bytes: u64,
    /// What the device has in all.
    pub device_total_bytes: u64,
    /// What neither is free nor the pool's: other processes', and what else this one has.
    pub others_bytes: u64,
    /// What would help most cheaply.
    pub remedy: Remedy,
}

/// What would help, the cheapest first.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing does: it is more than the device has.
    AskForLess,
    /// Streams still use what was released: after a wait there is enough.
    Synchronize,
    /// The pool's budget is in the way.
    RaiseBudget,
    /// There is enough in all, in pieces between live blocks.
    ReleaseNeighbours,
    /// The pool's own live blocks.
    Release,
    /// Other processes have it.
    EndOthers,
}

impl Shortage {
    /// What would help most cheaply.
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
            "{} were asked for, and at most {} can be had: ",
            Bytes(self.wanted_bytes),
            Bytes(self.largest_bytes)
        )?;
        write!(f, "{} live in {owned_blocks} blocks", Bytes(owned_bytes))?;
        for (index, (tag, bytes)) in self.live_by_tag.iter().take(TAGS_TOLD).enumerate() {
            write!(f, "{} {tag} {}", if index == 0 { " (" } else { "," }, Bytes(*bytes))?;
        }
        if !self.live_by_tag.is_empty() {
            f.write_str(")")?;
        }
        write!(f, ", {} released and in use by streams, {} cached, ", Bytes(released_bytes), Bytes(cached_bytes))?;
        write!(f, "{} reserved by the pool", Bytes(reserved_bytes))?;
        if self.budget_bytes != u64::MAX {
            write!(f, " of {} that it may have", Bytes(self.budget_bytes))?;
        }
        write!(f, "; the device has {} free of {}, ", Bytes(self.device_free_bytes), Bytes(self.device_total_bytes))?;
        write!(f, "{} are others'; {}", Bytes(self.others_bytes), self.remedy)
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AskForLess => "ask for less than the device has",
            Self::Synchronize => "synchronise the device and ask again: then there is enough",
            Self::RaiseBudget => "raise the pool's budget",
            Self::ReleaseNeighbours => "release blocks between those that are free: in all there is enough",
            Self::Release => "release blocks",
            Self::EndOthers => "end other processes that have memory of the device",
        })
    }
}

/// A number of bytes as people read it.
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
