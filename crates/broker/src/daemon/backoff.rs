//! Exponential backoff between retries. Nothing sleeps: the event loop asks how much of the delay is left.

use std::time::{Duration, Instant};

const DELAY_MIN: Duration = Duration::from_millis(10);
const DELAY_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    until: Option<Instant>,
    next: Duration,
}

impl Backoff {
    pub(super) const NONE: Self = Self { until: None, next: DELAY_MIN };

    /// Records a failure: the next delay is twice as long.
    pub(super) fn start(&mut self, now: Instant) {
        self.until = Some(now + self.next);
        self.next = (self.next * 2).min(DELAY_MAX);
    }

    /// Records a success.
    pub(super) fn reset(&mut self) {
        *self = Self::NONE;
    }

    pub(super) fn has_elapsed(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// How much of the delay is left. `None` if it is over.
    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        self.until.filter(|&until| until > now).map(|until| until - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_twice_as_long_up_to_two_seconds() {
        let now = Instant::now();
        let mut backoff = Backoff::NONE;
        assert!(backoff.has_elapsed(now));
        let delays: Vec<u128> = (0..10)
            .map(|_| {
                backoff.start(now);
                backoff.remaining(now).unwrap().as_millis()
            })
            .collect();
        assert_eq!(delays, [10, 20, 40, 80, 160, 320, 640, 1280, 2000, 2000]);
        assert!(!backoff.has_elapsed(now + Duration::from_millis(1999)));
        assert!(backoff.has_elapsed(now + Duration::from_secs(2)));
        backoff.reset();
        backoff.start(now);
        assert_eq!(backoff.remaining(now), Some(Duration::from_millis(10)));
    }
}
