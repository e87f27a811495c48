//! Deadlines of a worker: its exit and its heartbeat.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::protocol::types::Id;

/// How long a worker has to exit, and how much longer than a launch its heartbeat may be late.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// How long a worker has until its first heartbeat, before which it opens a device.
pub(super) const START: Duration = Duration::from_secs(30);

/// How often heartbeats are checked.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The last heartbeat count of a worker, and when it was first seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    pub(super) count: u32,
    pub(super) since: Instant,
}

impl Heartbeat {
    /// Records the heartbeat count. Returns whether the worker was silent for too long.
    pub(super) fn is_silent(&mut self, count: u32, now: Instant, patience: Duration) -> bool {
        let patience = if count == 0 { patience.max(START) } else { patience };
        let is_silent = count == self.count && now > self.since + patience;
        if count != self.count || is_silent {
            *self = Self { count, since: now };
        }
        is_silent
    }

    /// Leaves out time in which the broker did not look, because the machine stood still: so did the worker.
    pub(super) fn leave_out(&mut self, missed: Duration, now: Instant) {
        self.since = (self.since + missed).min(now);
    }
}

#[derive(Debug, Default)]
pub(super) struct Workers {
    /// When workers that serve no tenant are killed.
    pub(super) deadlines: BTreeMap<Id, Instant>,
    /// By worker.
    pub(super) heartbeats: BTreeMap<Id, Heartbeat>,
    pub(super) last_check: Option<Instant>,
}

impl Workers {
    /// Returns the time since the last check beyond the usual interval.
    pub(super) fn missed(&self, now: Instant) -> Duration {
        let since = self.last_check.map_or(Duration::ZERO, |checked| now.saturating_duration_since(checked));
        since.saturating_sub(CHECK_INTERVAL)
    }

    /// How long the event loop may sleep.
    pub(super) fn timeout(&self, now: Instant) -> Option<Duration> {
        let beat = self.last_check.filter(|_| !self.heartbeats.is_empty()).map(|looked| looked + CHECK_INTERVAL);
        let first = self.deadlines.values().copied().chain(beat).min();
        first.map(|first| first.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_not_silent_while_the_broker_stands_still() {
        let (begun, patience) = (Instant::now(), Duration::from_secs(3));
        let mut workers = Workers { last_check: Some(begun), ..Workers::default() };
        let mut beat = Heartbeat { count: 1, since: begun };
        let resumed = begun + Duration::from_secs(30);
        assert_eq!(workers.missed(begun + CHECK_INTERVAL), Duration::ZERO);
        beat.leave_out(workers.missed(resumed), resumed);
        assert!(!beat.is_silent(1, resumed, patience), "it stood still, too");
        workers.last_check = Some(resumed);
        assert!(beat.is_silent(1, resumed + patience, patience), "now it is silent");
        beat.leave_out(Duration::from_secs(3600), resumed);
        assert_eq!(beat.since, resumed, "silence never begins in the future");
    }

    #[test]
    fn a_worker_may_take_longer_to_start_than_between_two_beats() {
        let (begun, patience) = (Instant::now(), Duration::from_secs(3));
        let mut beat = Heartbeat { count: 0, since: begun };
        assert!(!beat.is_silent(0, begun + START, patience));
        assert!(beat.is_silent(0, begun + START + Duration::from_millis(1), patience), "no first heartbeat");
        let began = begun + 2 * START;
        assert!(!beat.is_silent(1, began, patience));
        assert!(!beat.is_silent(1, began + patience, patience));
        assert!(!beat.is_silent(2, began + patience, patience), "silence counts from when a heartbeat is seen");
        assert!(beat.is_silent(2, began + 2 * patience + Duration::from_millis(1), patience));
    }
}
