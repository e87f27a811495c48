//! Converts durations to `timespec`.

use std::time::Duration;

use rustix::fs::Timespec;

pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs().cast_signed(), tv_nsec: i64::from(duration.subsec_nanos()) }
}
