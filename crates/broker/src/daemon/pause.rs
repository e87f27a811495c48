//! When something that failed is tried again: each time later. Nobody sleeps for it.

use std::time::{Duration, Instant};

const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    until: Option<Instant>,
    next: Duration,
}

impl Pause {
    pub(super) const NONE: Self = Self { until: None, next: SHORTEST };

    /// It failed.
    pub(super) fn begin(&mut self, now: Instant) {
        self.until = Some(now + self.next);
        self.next = (self.next * 2).min(LONGEST);
    }

    /// It works.
    pub(super) fn forget(&mut self) {
        *self = Self::NONE;
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// How long it still lasts. Nothing where it is over.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.until.filter(|&until| until > now).map(|until| until - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_twice_as_long_up_to_two_seconds() {
        let now = Instant::now();
        let mut pause = Pause::NONE;
        assert!(pause.is_over(now));
        let pauses: Vec<u128> = (0..10)
            .map(|_| {
                pause.begin(now);
                pause.left(now).unwrap().as_millis()
            })
            .collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1280, 2000, 2000]);
        assert!(!pause.is_over(now + Duration::from_millis(1999)));
        assert!(pause.is_over(now + Duration::from_secs(2)));
        pause.forget();
        pause.begin(now);
        assert_eq!(pause.left(now), Some(Duration::from_millis(10)));
    }
}
