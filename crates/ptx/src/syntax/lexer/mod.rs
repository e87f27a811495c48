//! Splits a text into tokens. It knows the spelling of words, numbers and punctuation, and not their order.
//!
//! Blanks, comments, C preprocessor lines (`#line`) and lines of old debug information (`@@dwarf`) are skipped. Invalid
//! input becomes a token of the kind [`TokenKind::Bad`], so that a parser with lookahead reports errors in order.

mod number;
#[cfg(test)]
mod tests;

use super::tree::Position;

/// The kind of a token, with the value of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TokenKind {
    /// `add`, `%r1`, `$L__BB0_1`, `_`
    Word,
    /// `.global`, `.2d`, `.L1::no_allocate`: with its dot.
    Dotted,
    /// `unsigned` if a `U` follows or the value needs all 64 bits.
    Integer {
        value: u64,
        unsigned: bool,
    },
    /// The bits of `0f3f800000`.
    Single(u32),
    /// The bits of `0d3ff0000000000000`, or of a decimal number with a point or an exponent.
    Double(u64),
    /// With its quotes.
    Text,
    Punct(Punct),
    /// An invalid token, and why.
    Bad(&'static str),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Punct {
    Comma,
    Semicolon,
    Colon,
    Question,
    At,
    Equals,
    OpenParenthesis,
    CloseParenthesis,
    OpenBracket,
    CloseBracket,
    OpenBrace,
    CloseBrace,
    Plus,
    Minus,
    Star,
    Slash,
    Percent,
    Bang,
    Tilde,
    Ampersand,
    Bar,
    Caret,
    Less,
    Greater,
    LessEquals,
    GreaterEquals,
    EqualsEquals,
    BangEquals,
    AmpersandAmpersand,
    BarBar,
    LessLess,
    GreaterGreater,
}

impl Punct {
    /// Returns its spelling.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Comma => ",",
            Self::Semicolon => ";",
            Self::Colon => ":",
            Self::Question => "?",
            Self::At => "@",
            Self::Equals => "=",
            Self::OpenParenthesis => "(",
            Self::CloseParenthesis => ")",
            Self::OpenBracket => "[",
            Self::CloseBracket => "]",
            Self::OpenBrace => "{",
            Self::CloseBrace => "}",
            Self::Plus => "+",
            Self::Minus => "-",
            Self::Star => "*",
            Self::Slash => "/",
            Self::Percent => "%",
            Self::Bang => "!",
            Self::Tilde => "~",
            Self::Ampersand => "&",
            Self::Bar => "|",
            Self::Caret => "^",
            Self::Less => "<",
            Self::Greater => ">",
            Self::LessEquals => "<=",
            Self::GreaterEquals => ">=",
            Self::EqualsEquals => "==",
            Self::BangEquals => "!=",
            Self::AmpersandAmpersand => "&&",
            Self::BarBar => "||",
            Self::LessLess => "<<",
            Self::GreaterGreater => ">>",
        }
    }

    /// Returns the longest punctuation that starts with these two bytes.
    fn from_bytes(first: u8, second: u8) -> Option<Self> {
        Some(match (first, second) {
            (b'<', b'=') => Self::LessEquals,
            (b'>', b'=') => Self::GreaterEquals,
            (b'=', b'=') => Self::EqualsEquals,
            (b'!', b'=') => Self::BangEquals,
            (b'&', b'&') => Self::AmpersandAmpersand,
            (b'|', b'|') => Self::BarBar,
            (b'<', b'<') => Self::LessLess,
            (b'>', b'>') => Self::GreaterGreater,
            (b',', _) => Self::Comma,
            (b';', _) => Self::Semicolon,
            (b':', _) => Self::Colon,
            (b'?', _) => Self::Question,
            (b'@', _) => Self::At,
            (b'=', _) => Self::Equals,
            (b'(', _) => Self::OpenParenthesis,
            (b')', _) => Self::CloseParenthesis,
            (b'[', _) => Self::OpenBracket,
            (b']', _) => Self::CloseBracket,
            (b'{', _) => Self::OpenBrace,
            (b'}', _) => Self::CloseBrace,
            (b'+', _) => Self::Plus,
            (b'-', _) => Self::Minus,
            (b'*', _) => Self::Star,
            (b'/', _) => Self::Slash,
            (b'%', _) => Self::Percent,
            (b'!', _) => Self::Bang,
            (b'~', _) => Self::Tilde,
            (b'&', _) => Self::Ampersand,
            (b'|', _) => Self::Bar,
            (b'^', _) => Self::Caret,
            (b'<', _) => Self::Less,
            (b'>', _) => Self::Greater,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    /// Offset of `text` in the whole text, in bytes.
    pub(super) start: usize,
    pub(super) at: Position,
}

impl Token<'_> {
    /// Returns the offset of the byte after it.
    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    /// Offset of the next byte.
    next: usize,
    line: u32,
    /// Offset of the first byte of the line.
    line_start: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, next: 0, line: 1, line_start: 0 }
    }

    /// Returns the next token; [`TokenKind::End`] forever at the end of the text.
    pub(super) fn token(&mut self) -> Token<'a> {
        if let Some(open_comment) = self.skip_blanks() {
            return open_comment;
        }
        let (start, at) = (self.next, self.position());
        let kind = match self.byte(0) {
            0 if self.next == self.text.len() => TokenKind::End,
            byte if byte.is_ascii_alphabetic() || byte == b'_' => self.word(),
            b'%' | b'$' if is_word(self.byte(1)) => self.word(),
            b'0'..=b'9' => self.number(),
            b'.' => self.dotted(),
            b'"' => self.quoted(),
            first => self.punct(first),
        };
        Token { kind, text: &self.text[start..self.next], start, at }
    }

    /// Returns the byte `offset` after the next one; zero beyond the end.
    fn byte(&self, offset: usize) -> u8 {
        self.text.as_bytes().get(self.next + offset).copied().unwrap_or(0)
    }

    /// Returns the position of the next byte.
    fn position(&self) -> Position {
        let column = u32::try_from(self.next - self.line_start + 1).unwrap_or(u32::MAX);
        Position { line: self.line, column }
    }

    /// Skips to the next token. Returns an unterminated comment as a token.
    fn skip_blanks(&mut self) -> Option<Token<'a>> {
        loop {
            match (self.byte(0), self.byte(1)) {
                (b'\n', _) => self.end_line(),
                (b' ' | b'\t' | b'\r', _) => self.next += 1,
                (b'/', b'/') => self.skip_line(),
                (b'#', _) if self.starts_line() => self.skip_line(),
                (b'@', b'@') if self.starts_line() => self.skip_line(),
                (b'/', b'*') => {
                    let (start, at) = (self.next, self.position());
                    if !self.skip_comment() {
                        let text = &self.text[start..];
                        return Some(Token { kind: TokenKind::Bad("the comment is never closed"), text, start, at });
                    }
                }
                _ => return None,
            }
        }
    }

    fn end_line(&mut self) {
        self.next += 1;
        self.line = self.line.saturating_add(1);
        self.line_start = self.next;
    }

    /// Skips to the end of the line.
    fn skip_line(&mut self) {
        let rest = &self.text[self.next..];
        self.next += rest.find('\n').unwrap_or(rest.len());
    }

    /// Returns whether only blanks precede the next byte in its line.
    fn starts_line(&self) -> bool {
        self.text[self.line_start..self.next].bytes().all(|byte| byte.is_ascii_whitespace())
    }

    /// Skips a comment; returns `false` if it is unterminated.
    fn skip_comment(&mut self) -> bool {
        self.next += 2;
        while self.next < self.text.len() {
            match (self.byte(0), self.byte(1)) {
                (b'*', b'/') => {
                    self.next += 2;
                    return true;
                }
                (b'\n', _) => self.end_line(),
                _ => self.next += 1,
            }
        }
        false
    }

    fn word(&mut self) -> TokenKind {
        self.next += 1;
        self.skip_word();
        TokenKind::Word
    }

    fn skip_word(&mut self) {
        while is_word(self.byte(0)) {
            self.next += 1;
        }
    }

    /// Reads a dot and its word, or a number that starts with its point.
    fn dotted(&mut self) -> TokenKind {
        match self.byte(1) {
            b'0'..=b'9' if self.is_fraction() => self.number(),
            byte if is_word(byte) => {
                self.next += 1;
                self.skip_word();
                while self.byte(0) == b':' && self.byte(1) == b':' && is_word(self.byte(2)) {
                    self.next += 2;
                    self.skip_word();
                }
                TokenKind::Dotted
            }
            _ => {
                self.next += 1;
                TokenKind::Bad("a dot without a word")
            }
        }
    }

    /// Returns whether the dot starts a number. After a word it does not, nor if letters follow: `.2d` is a modifier.
    fn is_fraction(&self) -> bool {
        let behind_word = self.next > 0 && is_word(self.text.as_bytes()[self.next - 1]);
        let mut offset = 1;
        while self.byte(offset).is_ascii_digit() {
            offset += 1;
        }
        !behind_word && (matches!(self.byte(offset), b'e' | b'E') || !is_word(self.byte(offset)))
    }

    /// Reads a string in quotes, to the next quotation mark: there is no escape, and it may span lines.
    fn quoted(&mut self) -> TokenKind {
        self.next += 1;
        loop {
            match self.byte(0) {
                b'"' => {
                    self.next += 1;
                    return TokenKind::Text;
                }
                b'\n' => self.end_line(),
                _ if self.next == self.text.len() => return TokenKind::Bad("the quotes are never closed"),
                _ => self.next += 1,
            }
        }
    }

    fn punct(&mut self, first: u8) -> TokenKind {
        let Some(punct) = Punct::from_bytes(first, self.byte(1)) else {
            // The whole character is skipped, so that the next token starts at a character boundary.
            self.next += self.text[self.next..].chars().next().map_or(1, char::len_utf8);
            return TokenKind::Bad("no PTX token starts with this character");
        };
        self.next += punct.text().len();
        TokenKind::Punct(punct)
    }
}

/// Returns whether a byte can be part of a word.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}
