//! What readers of Rust source share: which bytes of a file are code.

/// The text with spaces for what is a comment, a string or a character: brackets that are left are code.
pub(crate) fn blank_non_code(text: &str) -> Vec<u8> {
    let (bytes, mut code) = (text.as_bytes(), text.as_bytes().to_vec());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = if rest.starts_with(b"//") {
            at + rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            at + 2 + rest[2..].windows(2).position(|pair| pair == b"*/").map_or(rest.len() - 2, |end| end + 2)
        } else if let Some(hashes) = raw_string(bytes, at) {
            let close = [&b"\""[..], &b"#".repeat(hashes)].concat();
            let start = at + 2 + hashes;
            start
                + bytes[start..].windows(close.len()).position(|part| part == close).map_or(0, |end| end + close.len())
        } else if rest[0] == b'"' {
            at + quoted_len(rest, b'"')
        } else if rest[0] == b'\'' && (rest.get(1) == Some(&b'\\') || rest.get(2) == Some(&b'\'')) {
            at + quoted_len(rest, b'\'')
        } else {
            at += 1;
            continue;
        };
        code[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end.max(at + 1);
    }
    code
}

/// How many `#` a raw string has that begins here.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let is_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_') && bytes[at - 1] != b'b';
    if bytes[at] != b'r' || is_word {
        return None;
    }
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    (bytes.get(at + 1 + hashes) == Some(&b'"')).then_some(hashes)
}

/// How long a literal is that begins and ends with `mark`.
fn quoted_len(rest: &[u8], mark: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != mark {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}
