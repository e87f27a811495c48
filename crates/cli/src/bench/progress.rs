//! Progress on standard error if that is a terminal: which measurement is running.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Counts `count` measurements.
    pub(super) fn new(count: usize) -> Self {
        if !io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let style = ProgressStyle::with_template("{pos}/{len} {wide_msg}").expect("the template is well formed");
        let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr()).with_style(style);
        Self { bar }
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
