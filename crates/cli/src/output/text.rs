//! Text on standard output, and numbers in it.

use std::io::{self, Write};

use serde::Serialize;

/// Prints text. A reader that closes the pipe early, as `head` does, is not a failure.
pub(crate) fn print(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Returns a report as one line.
pub(crate) fn json(report: &impl Serialize) -> String {
    serde_json::to_string(report).expect("a report holds numbers and strings") + "\n"
}

pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Formats a time with three significant digits.
pub(crate) fn format_ns(ns: f64) -> String {
    match ns {
        _ if ns < 99.95 => format!("{ns:.1} ns"),
        _ if ns < 999.5 => format!("{ns:.0} ns"),
        _ if ns < 99_950.0 => format!("{:.2} µs", ns / 1e3),
        _ if ns < 999_500.0 => format!("{:.0} µs", ns / 1e3),
        _ => format!("{:.1} ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_the_unit_that_fits() {
        assert_eq!(format_ns(7.25), "7.2 ns");
        assert_eq!(format_ns(640.0), "640 ns");
        assert_eq!(format_ns(1260.0), "1.26 µs");
        assert_eq!(format_ns(150_000.0), "150 µs");
        assert_eq!(format_ns(200_040_000.0), "200.0 ms");
    }

    #[test]
    fn one_has_no_plural() {
        assert_eq!([0, 1, 2].map(|number| count(number, "free")), ["0 frees", "1 free", "2 frees"]);
    }
}
