//! What is wrong with a text, and where.

use std::fmt;

use crate::syntax::tree::Position;

/// The first mistake of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub at: Position,
    pub kind: ErrorKind,
    /// What is wrong: lower case, no full stop.
    pub message: String,
    /// The instruction as it stands in the text, where the mistake is in one; else empty.
    pub instruction: String,
}

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The text breaks the rules of the language.
    Syntax,
    /// The text keeps the rules of the language and means nothing: an unknown name, a wrong type or operand.
    Semantic,
    /// It is PTX, and not supported here.
    Unsupported,
    /// A version or a target beyond what is supported.
    Version,
}

impl Error {
    pub(crate) fn new(at: Position, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { at, kind, message: message.into(), instruction: String::new() }
    }

    pub(crate) fn syntax(at: Position, message: impl Into<String>) -> Self {
        Self::new(at, ErrorKind::Syntax, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.at.line, self.at.column, self.message)?;
        if !self.instruction.is_empty() {
            write!(f, ": {}", self.instruction)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
