//! The spelling of numbers.

use super::{Lexer, TokenKind, is_word};

impl Lexer<'_> {
    /// Reads a number; the next byte is a digit, or a point followed by one.
    pub(super) fn number(&mut self) -> TokenKind {
        let kind = match (self.byte(0), self.byte(1)) {
            (b'0', b'x' | b'X') => self.integer(2, 16),
            (b'0', b'b' | b'B') => self.integer(2, 2),
            (b'0', b'f' | b'F') => match self.bits(8) {
                Some(bits) => TokenKind::Single(bits as u32),
                None => TokenKind::Bad("a single precision number has eight hexadecimal digits"),
            },
            (b'0', b'd' | b'D') => match self.bits(16) {
                Some(bits) => TokenKind::Double(bits),
                None => TokenKind::Bad("a double precision number has sixteen hexadecimal digits"),
            },
            _ if self.is_decimal_float() => self.float(),
            (b'0', b'0'..=b'9') => self.integer(1, 8),
            _ => self.integer(0, 10),
        };
        if is_word(self.byte(0)) {
            self.skip_word();
            return if let TokenKind::Bad(_) = kind {
                kind
            } else {
                TokenKind::Bad("a number is followed directly by a word")
            };
        }
        kind
    }

    /// Reads an integer of this base after a prefix of `prefix` bytes.
    fn integer(&mut self, prefix: usize, base: u32) -> TokenKind {
        self.next += prefix;
        let mut value = Some(0u64);
        let first = self.next;
        while let Some(digit) = char::from(self.byte(0)).to_digit(base) {
            let shifted = value.and_then(|value| value.checked_mul(u64::from(base)));
            value = shifted.and_then(|shifted| shifted.checked_add(u64::from(digit)));
            self.next += 1;
        }
        if self.next == first {
            return TokenKind::Bad("a number without a digit");
        }
        let suffix = self.byte(0) == b'U';
        self.next += usize::from(suffix);
        match value {
            Some(value) => TokenKind::Integer { value, unsigned: suffix || i64::try_from(value).is_err() },
            None => TokenKind::Bad("the number has more than 64 bits"),
        }
    }

    /// Reads exactly `digits` hexadecimal digits after a prefix of two bytes.
    fn bits(&mut self, digits: usize) -> Option<u64> {
        self.next += 2;
        let first = self.next;
        self.skip_word();
        let text = &self.text[first..self.next];
        let right = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        right.then(|| u64::from_str_radix(text, 16).ok()).flatten()
    }

    /// Returns whether the digits are followed by a point or an exponent.
    fn is_decimal_float(&self) -> bool {
        let mut offset = 0;
        while self.byte(offset).is_ascii_digit() {
            offset += 1;
        }
        match self.byte(offset) {
            b'.' => true,
            b'e' | b'E' => {
                let sign = usize::from(matches!(self.byte(offset + 1), b'+' | b'-'));
                self.byte(offset + 1 + sign).is_ascii_digit()
            }
            _ => false,
        }
    }

    fn float(&mut self) -> TokenKind {
        let first = self.next;
        self.skip_digits();
        if self.byte(0) == b'.' {
            self.next += 1;
            self.skip_digits();
        }
        if matches!(self.byte(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(1), b'+' | b'-'));
            if self.byte(1 + sign).is_ascii_digit() {
                self.next += 1 + sign;
                self.skip_digits();
            }
        }
        match self.text[first..self.next].parse::<f64>() {
            Ok(value) if value.is_finite() => TokenKind::Double(value.to_bits()),
            _ => TokenKind::Bad("the number is too large for double precision"),
        }
    }

    fn skip_digits(&mut self) {
        while self.byte(0).is_ascii_digit() {
            self.next += 1;
        }
    }
}
