//! Sizes such as `8GiB`, `1.5GiB`, `512MiB`, `4096`, and counts in a range.

use std::ops::RangeInclusive;

/// Parses a size: a number, and a unit of powers of 1024 (`KiB`, `K`) or of 1000 (`KB`), in any case.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("expected a number and a unit such as 8GiB, found {text:?}");
    let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
    let (number, unit) = text.split_at(text.find(|letter| !is_number(letter)).unwrap_or(text.len()));
    let unit = unit.trim_start().to_ascii_lowercase();
    let (prefix, base) = match unit.strip_suffix('b').unwrap_or(&unit) {
        "" => ("", 1),
        short if short.len() == 2 && short.ends_with('i') && unit.ends_with('b') => (&short[..1], 1024_u64),
        short if short.len() == 1 => (short, if unit.ends_with('b') { 1000 } else { 1024 }),
        _ => return Err(wrong()),
    };
    let power = if prefix.is_empty() { 0 } else { 1 + "kmgt".find(prefix).ok_or_else(wrong)? as u32 };
    let factor = base.pow(power);
    let overflows = || format!("{text:?} overflows u64");
    match number.parse::<u64>() {
        Ok(number) => number.checked_mul(factor).ok_or_else(overflows),
        Err(_) if number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty() => Err(overflows()),
        // A fraction of a unit. Less than a byte is cut off.
        Err(_) if factor > 1 => {
            let bytes = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
            if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(overflows()) }
        }
        Err(_) => Err(wrong()),
    }
}

/// Returns a parser of numbers in a range.
pub(crate) fn parse_count<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("expected a number from {} to {}, found {text:?}", range.start(), range.end()))
    }
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
        let sizes = ["8gib", "1g", "2kB", "7B", "1.5GiB", "0.5 t", ".5k"].map(|text| parse(text).unwrap());
        assert_eq!(sizes, [8 << 30, 1 << 30, 2000, 7, 3 << 29, 1 << 39, 512]);
    }

    #[test]
    fn an_invalid_size_is_one_sentence() {
        for text in ["", "GiB", "8 gigs", "-1", "1.5", "1.2.3GiB", ".GiB", "8i", "8iB", "8xiB", "8\u{e9}"] {
            assert_eq!(parse(text).unwrap_err(), format!("expected a number and a unit such as 8GiB, found {text:?}"));
        }
        for text in ["99999999TiB", "99999999.5TiB", "99999999999999999999"] {
            assert_eq!(parse(text).unwrap_err(), format!("{text:?} overflows u64"));
        }
    }

    #[test]
    fn a_count_outside_its_range_is_one_sentence() {
        let parse = parse_count::<u32>(1..=9);
        assert_eq!(["1", "9"].map(&parse), [Ok(1), Ok(9)]);
        for text in ["", "0", "10", "-1", "many", "1.5", "99999999999999999999"] {
            assert_eq!(parse(text).unwrap_err(), format!("expected a number from 1 to 9, found {text:?}"));
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_they_fill() {
        assert_eq!([0, 1023, 1024, 3 << 29, 8 << 40].map(format), ["0 B", "1023 B", "1.0 KiB", "1.5 GiB", "8.0 TiB"]);
    }
}
