//! The token that clients present. The caller reads it from a file or a variable.

use std::fmt;

use subtle::ConstantTimeEq;

/// A shorter one could be guessed.
const LENGTH_MIN: usize = 16;

/// A secret that clients and server share. It is never printed.
#[derive(Clone)]
pub struct Token(String);

/// Why a text is not a token.
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant describes it")]
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error(
        "a token of length {letters}: expected at least {LENGTH_MIN} characters; create one with `openssl rand -hex 32`"
    )]
    TooShort { letters: usize },
    #[error("the token contains a character other than visible ASCII: create one with `openssl rand -hex 32`")]
    InvalidCharacter,
}

/// Same as `Display`, so that `unwrap` and a `main` that returns the error print the message.
impl fmt::Debug for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Token {
    /// Parses a token. Surrounding white space is removed.
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

    /// Returns the text, to be passed to another process.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The header value that a client sends.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether a client sent this token. Takes the same time however much of it is right.
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
    fn a_token_that_is_easily_guessed_is_refused() {
        assert_eq!(Token::parse("secret\n").unwrap_err(), TokenError::TooShort { letters: 6 });
        let said = "a token of length 1: expected at least 16 characters; create one with `openssl rand -hex 32`";
        assert_eq!(Token::parse("a").unwrap_err().to_string(), said);
        assert_eq!(Token::parse("0123456789 abcdef").unwrap_err(), TokenError::InvalidCharacter);
    }

    #[test]
    fn a_token_is_not_printed() {
        assert_eq!(format!("{:?}", Token::parse("0123456789abcdef").unwrap()), "Token");
    }
}
