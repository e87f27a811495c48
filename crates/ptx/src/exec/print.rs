//! C's `printf` formats, in Rust.

/// The source of the values.
pub(super) trait ArgumentSource {
    /// Returns the next 4-byte value.
    fn word(&mut self) -> u32;
    /// Returns the next 8-byte value: also doubles and addresses.
    fn long(&mut self) -> u64;
    /// Returns the string at an address.
    fn text(&mut self, at: u64) -> Vec<u8>;
}

/// The maximum width of a padded field.
const WIDTH_MAX: usize = 4096;

#[derive(Debug, Default, Clone, Copy)]
struct FormatSpec {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    long: bool,
    short: u32,
}

/// Formats a string. Returns the text, and the number of values used.
pub(super) fn format(format: &[u8], source: &mut impl ArgumentSource) -> (Vec<u8>, u32) {
    let mut out = Vec::with_capacity(format.len());
    let mut count = 0;
    let mut rest = format;
    while let Some(start) = rest.iter().position(|&byte| byte == b'%') {
        out.extend_from_slice(&rest[..start]);
        let (field, length) = parse_spec(&rest[start + 1..], source, &mut count);
        let Some(&conversion) = rest.get(start + 1 + length) else {
            out.extend_from_slice(&rest[start..]);
            return (out, count);
        };
        let end = start + 2 + length;
        if conversion == b'%' {
            out.push(b'%');
        } else if convert(conversion, field, source, &mut out) {
            count += 1;
        } else {
            out.extend_from_slice(&rest[start..end]);
        }
        rest = &rest[end..];
    }
    out.extend_from_slice(rest);
    (out, count)
}

/// Parses flags, width, precision and length. Returns them and their size in bytes.
fn parse_spec(text: &[u8], source: &mut impl ArgumentSource, count: &mut u32) -> (FormatSpec, usize) {
    let mut field = FormatSpec::default();
    let mut at = 0;
    let byte = |at: usize| text.get(at).copied().unwrap_or(0);
    loop {
        match byte(at) {
            b'-' => field.left = true,
            b'+' => field.plus = true,
            b' ' => field.space = true,
            b'#' => field.alternate = true,
            b'0' => field.zero = true,
            _ => break,
        }
        at += 1;
    }
    let mut number = |at: &mut usize| {
        if byte(*at) == b'*' {
            *at += 1;
            *count += 1;
            return source.word().cast_signed();
        }
        let mut value = 0i32;
        while byte(*at).is_ascii_digit() {
            value = value.saturating_mul(10).saturating_add(i32::from(byte(*at) - b'0'));
            *at += 1;
        }
        value
    };
    let width = number(&mut at);
    field.left |= width < 0;
    field.width = (width.unsigned_abs() as usize).min(WIDTH_MAX);
    if byte(at) == b'.' {
        at += 1;
        let precision = number(&mut at);
        field.precision = usize::try_from(precision).ok().map(|precision| precision.min(WIDTH_MAX));
    }
    loop {
        match byte(at) {
            b'l' | b'j' | b'z' | b't' | b'L' | b'q' => field.long = true,
            b'h' => field.short += 1,
            _ => return (field, at),
        }
        at += 1;
    }
}

/// Writes one value. Returns `false` if the conversion does not exist.
fn convert(conversion: u8, field: FormatSpec, source: &mut impl ArgumentSource, out: &mut Vec<u8>) -> bool {
    let (sign, body, is_number) = match conversion {
        b'd' | b'i' => {
            let value = match (field.long, field.short) {
                (true, _) => source.long().cast_signed(),
                (_, 0) => i64::from(source.word().cast_signed()),
                (_, 1) => i64::from(source.word() as i16),
                _ => i64::from(source.word() as i8),
            };
            (sign_of(value < 0, field), digits(value.unsigned_abs(), 10, false, field.precision), true)
        }
        b'u' | b'x' | b'X' | b'o' => {
            let value = match (field.long, field.short) {
                (true, _) => source.long(),
                (_, 0) => u64::from(source.word()),
                (_, 1) => u64::from(source.word() as u16),
                _ => u64::from(source.word() as u8),
            };
            let (base, upper) = match conversion {
                b'u' => (10, false),
                b'o' => (8, false),
                other => (16, other == b'X'),
            };
            let prefix = match conversion {
                b'x' if field.alternate && value != 0 => "0x",
                b'X' if field.alternate && value != 0 => "0X",
                b'o' if field.alternate && value != 0 => "0",
                _ => "",
            };
            (prefix, digits(value, base, upper, field.precision), true)
        }
        b'p' => ("0x", digits(source.long(), 16, false, None), true),
        b'c' => {
            pad(out, field, "", &[source.word() as u8], false);
            return true;
        }
        b's' => {
            let at = source.long();
            let mut text = if at == 0 { b"(null)".to_vec() } else { source.text(at) };
            text.truncate(field.precision.unwrap_or(usize::MAX));
            pad(out, field, "", &text, false);
            return true;
        }
        b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
            let value = f64::from_bits(source.long());
            let mut body = float(value.abs(), conversion.to_ascii_lowercase(), field);
            if conversion.is_ascii_uppercase() {
                body.make_ascii_uppercase();
            }
            pad(out, field, sign_of(value.is_sign_negative(), field), body.as_bytes(), value.is_finite());
            return true;
        }
        _ => return false,
    };
    // The precision of an integer is its minimum number of digits, and then zeros do not fill the width.
    pad(out, field, sign, body.as_bytes(), is_number && field.precision.is_none());
    true
}

fn sign_of(negative: bool, field: FormatSpec) -> &'static str {
    match (negative, field.plus, field.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    }
}

fn pad(out: &mut Vec<u8>, field: FormatSpec, sign: &str, body: &[u8], zeros: bool) {
    let missing = field.width.saturating_sub(sign.len() + body.len());
    let zeros = zeros && field.zero && !field.left;
    if !field.left && !zeros {
        out.resize(out.len() + missing, b' ');
    }
    out.extend_from_slice(sign.as_bytes());
    if zeros {
        out.resize(out.len() + missing, b'0');
    }
    out.extend_from_slice(body);
    if field.left {
        out.resize(out.len() + missing, b' ');
    }
}

fn digits(value: u64, base: u64, upper: bool, precision: Option<usize>) -> String {
    if value == 0 && precision == Some(0) {
        return String::new();
    }
    let text = match (base, upper) {
        (8, _) => format!("{value:o}"),
        (16, false) => format!("{value:x}"),
        (16, true) => format!("{value:X}"),
        _ => value.to_string(),
    };
    let missing = precision.unwrap_or(0).saturating_sub(text.len());
    "0".repeat(missing) + &text
}

/// Formats a number that is not negative.
fn float(value: f64, conversion: u8, field: FormatSpec) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return "inf".to_owned();
    }
    let precision = field.precision.unwrap_or(6);
    match conversion {
        b'f' => with_point(format!("{value:.precision$}"), field),
        b'e' => exponential(value, precision, field),
        b'g' => {
            let precision = precision.max(1);
            // The exponent of the number after rounding to this many digits.
            let rounded = format!("{value:.*e}", precision - 1);
            let exponent: i32 = rounded.split('e').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
            let text = if exponent < -4 || exponent >= precision as i32 {
                exponential(value, precision - 1, field)
            } else {
                format!("{value:.*}", (precision as i32 - 1 - exponent).max(0) as usize)
            };
            if field.alternate { text } else { without_zeros(&text) }
        }
        _ => hexadecimal(value, field.precision),
    }
}

fn with_point(text: String, field: FormatSpec) -> String {
    if field.alternate && !text.contains('.') { text + "." } else { text }
}

fn exponential(value: f64, precision: usize, field: FormatSpec) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", with_point(mantissa.to_owned(), field), exponent.abs())
}

/// Removes the zeros at the end of the fraction.
fn without_zeros(text: &str) -> String {
    let (mantissa, exponent) =
        text.split_once('e').map_or((text, None), |(mantissa, exponent)| (mantissa, Some(exponent)));
    let mantissa = match mantissa.contains('.') {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa,
    };
    exponent.map_or_else(|| mantissa.to_owned(), |exponent| format!("{mantissa}e{exponent}"))
}

/// Formats `%a`, with as many digits as the number needs or the precision states.
fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let bits = value.to_bits();
    let (raw, mut fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    let (mut lead, exponent) = match (raw, fraction) {
        (0, 0) => (0, 0),
        (0, _) => (0, -1022),
        _ => (1, raw - 1023),
    };
    if let Some(precision) = precision.filter(|&precision| precision < 13) {
        let dropped = 4 * (13 - precision as u32);
        let (unit, tie) = (1u64 << dropped, 1u64 << (dropped - 1));
        let rest = fraction & (unit - 1);
        fraction -= rest;
        let odd = if precision == 0 { lead & 1 == 1 } else { fraction & unit != 0 };
        if rest > tie || (rest == tie && odd) {
            fraction += unit;
        }
        lead += fraction >> 52;
        fraction &= (1 << 52) - 1;
    }
    let digits = format!("{fraction:013x}");
    let digits = match precision {
        None => digits.trim_end_matches('0').to_owned(),
        Some(precision) if precision <= 13 => digits[..precision].to_owned(),
        Some(precision) => digits + &"0".repeat(precision - 13),
    };
    let point = if digits.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("0x{lead}{point}{digits}p{sign}{}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Values<'v>(std::slice::Iter<'v, u64>);

    impl ArgumentSource for Values<'_> {
        fn word(&mut self) -> u32 {
            self.long() as u32
        }

        fn long(&mut self) -> u64 {
            *self.0.next().expect("the format uses more values than there are")
        }

        fn text(&mut self, at: u64) -> Vec<u8> {
            format!("text{at}").into_bytes()
        }
    }

    fn printed(text: &str, values: &[u64]) -> String {
        let (out, _) = format(text.as_bytes(), &mut Values(values.iter()));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers_are_padded_as_in_c() {
        assert_eq!(
            printed("[%d] [%5d] [%-5d] [%05d] [%+d] [% d]", &[7, 7, 7, 7, 7, 7]),
            "[7] [    7] [7    ] [00007] [+7] [ 7]"
        );
        assert_eq!(printed("%d %u", &[u64::MAX, u64::MAX]), "-1 4294967295");
        assert_eq!(printed("%lld %llu %lx", &[u64::MAX, u64::MAX, 255]), "-1 18446744073709551615 ff");
        assert_eq!(printed("%hhd %hd %hu", &[0x1ff, 0x1ffff, 0x1ffff]), "-1 -1 65535");
        assert_eq!(printed("%#x %#o %X %.3d %.0d|", &[255, 8, 255, 7, 0]), "0xff 010 FF 007 |");
        assert_eq!(printed("%05.3d|%*d|%-*d|", &[7, 4, 1, 4, 1]), "  007|   1|1   |");
    }

    #[test]
    fn floats_are_as_in_c() {
        let bits = |value: f64| value.to_bits();
        assert_eq!(
            printed("%f %.2f %8.3f|%-8.1f|", &[bits(1.5), bits(2.005), bits(-3.25), bits(9.96)]),
            "1.500000 2.00   -3.250|10.0    |"
        );
        assert_eq!(
            printed("%e %E %.0e", &[bits(12345.678), bits(0.00012), bits(5.0)]),
            "1.234568e+04 1.200000E-04 5e+00"
        );
        assert_eq!(
            printed("%g %g %g %g", &[bits(100000.0), bits(1e6), bits(1e-5), bits(0.1)]),
            "100000 1e+06 1e-05 0.1"
        );
        assert_eq!(printed("%g %G", &[bits(f64::NAN), bits(f64::NEG_INFINITY)]), "nan -INF");
        assert_eq!(printed("%a %.1a %a", &[bits(1.0), bits(1.97), bits(0.0)]), "0x1p+0 0x2.0p+0 0x0p+0");
    }

    #[test]
    fn texts_characters_and_percent_signs() {
        assert_eq!(printed("%s|%8s|%-8s|%.3s|%c%%", &[1, 2, 3, 4, 65]), "text1|   text2|text3   |tex|A%");
        assert_eq!(printed("%s %p", &[0, 0x1234]), "(null) 0x1234");
    }

    #[test]
    fn an_unknown_conversion_is_printed_verbatim() {
        assert_eq!(printed("%y 100%", &[]), "%y 100%");
    }
}
