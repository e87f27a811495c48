//! Progress on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// The template for steps with a text each.
pub(crate) const STEPS: &str = "{pos}/{len} {wide_msg}";

/// # Panics
/// If the template is not one of `indicatif`.
pub(crate) fn bar(count: u64, template: &str) -> ProgressBar {
    ProgressBar::new(count).with_style(ProgressStyle::with_template(template).expect("the template is valid"))
}
