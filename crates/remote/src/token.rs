//! The token that clients show. Knows nothing of where it is kept but that it is a file's text or a variable's.

use std::fmt;

use subtle::ConstantTimeEq;

/// Fewer letters could be tried one after the other.
const LENGTH_MIN: usize = 16;

/// A secret that clients and server share. It is not printed.
#[derive(Clone)]
pub struct Token(String);

/// Why a text is no token.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("a token has at least {LENGTH_MIN} letters, and this has {letters}: make one with `openssl rand -hex 32`")]
    TooShort { letters: usize },
    #[error("a token has no spaces and only visible ASCII letters: make one with `openssl rand -hex 32`")]
    InvalidCharacter,
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Token {
    /// Reads a token: the text without what is white around it.
    ///
    /// # Errors
    /// [`TokenError::TooShort`], [`TokenError::InvalidCharacter`].
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.len() < LENGTH_MIN {
            return Err(TokenError::TooShort { letters: text.len() });
        }
        if !text.bytes().all(|letter| letter.is_ascii_graphic()) {
            return Err(TokenError::InvalidCharacter);
        }
        Ok(Self(text.to_owned()))
    }

    /// The text, for whoever is started with it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What a client sends.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether a client sent this token, in a time that says nothing of how much of it was right.
    pub(crate) fn matches_header(&self, header: &[u8]) -> bool {
        header.strip_prefix(b"Bearer ").is_some_and(|sent| self.0.as_bytes().ct_eq(sent).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_alone_is_let_in() {
        let token = Token::parse(" 0123456789abcdef\n").unwrap();
        assert!(token.matches_header(b"Bearer 0123456789abcdef"));
        for wrong in ["0123456789abcdef", "Bearer 0123456789abcdeF", "Bearer 0123456789abcdef0", "Bearer ", ""] {
            assert!(!token.matches_header(wrong.as_bytes()), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_easily_guessed_is_no_token() {
        assert_eq!(Token::parse("secret\n").unwrap_err(), TokenError::TooShort { letters: 6 });
        assert_eq!(Token::parse("0123456789 abcdef").unwrap_err(), TokenError::InvalidCharacter);
    }

    #[test]
    fn a_token_is_not_printed() {
        assert_eq!(format!("{:?}", Token::parse("0123456789abcdef").unwrap()), "Token");
    }
}
