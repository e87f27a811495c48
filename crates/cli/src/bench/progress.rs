//! Progress on standard error: which measurement is running.

use indicatif::ProgressBar;

use crate::output::progress;

pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Counts `count` measurements.
    pub(super) fn new(count: usize) -> Self {
        Self { bar: progress::bar(count as u64, progress::STEPS) }
    }

    /// Runs one of them.
    pub(super) fn step<R>(&self, what: &'static str, measure: impl FnOnce() -> R) -> R {
        self.bar.set_message(what);
        let measured = measure();
        self.bar.inc(1);
        measured
    }

    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
