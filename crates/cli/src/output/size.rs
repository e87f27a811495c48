//! Sizes such as `8GiB`, `512MiB`, `4096`.

/// Parses a size: digits, and a unit of powers of 1024 (`KiB`, `MiB`, `GiB`, `TiB`) or of 1000 (`kB`, `MB`, `GB`,
/// `TB`).
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        "kB" => 1000,
        "MB" => 1000 * 1000,
        "GB" => 1000 * 1000 * 1000,
        "TB" => 1000 * 1000 * 1000 * 1000,
        _ => return Err(format!("expected a number and a unit such as 8GiB, found {text:?}")),
    };
    let number: u64 =
        number.parse().map_err(|_| format!("expected a number and a unit such as 8GiB, found {text:?}"))?;
    number.checked_mul(factor).ok_or_else(|| format!("{text:?} overflows u64"))
}

/// Formats a size in the largest unit that it fills.
pub(crate) fn format(bytes: u64) -> String {
    match unit(bytes) {
        (_, "B") => format!("{bytes} B"),
        (unit_bytes, name) => format!("{:.1} {name}", bytes as f64 / unit_bytes),
    }
}

/// Returns the largest unit that a size fills, and its name.
pub(crate) fn unit(bytes: u64) -> (f64, &'static str) {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = ((63 - bytes.max(1).leading_zeros() as usize) / 10).min(UNITS.len() - 1);
    (f64::powi(1024.0, unit as i32), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        let sizes = ["0", "4096", "8GiB", "8 GiB", "1K", "2MB"].map(|text| parse(text).unwrap());
        assert_eq!(sizes, [0, 4096, 8 << 30, 8 << 30, 1024, 2_000_000]);
    }

    #[test]
    fn an_invalid_size_is_one_sentence() {
        for text in ["", "GiB", "8 gigs", "-1", "1.5GiB"] {
            assert_eq!(parse(text).unwrap_err(), format!("expected a number and a unit such as 8GiB, found {text:?}"));
        }
        assert_eq!(parse("99999999TiB").unwrap_err(), "\"99999999TiB\" overflows u64");
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_they_fill() {
        assert_eq!([0, 1023, 1024, 3 << 29, 8 << 40].map(format), ["0 B", "1023 B", "1.0 KiB", "1.5 GiB", "8.0 TiB"]);
    }
}
