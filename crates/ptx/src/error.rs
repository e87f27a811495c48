//! Errors in a PTX text, with their position.

use std::fmt;

/// A position in the text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// In bytes.
    pub column: u32,
}

/// The first error in a text.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Where it is.
    pub at: Position,
    /// What kind of mistake it is.
    pub kind: ErrorKind,
    /// The message: lower case, no full stop.
    pub message: String,
    /// The instruction as written, if the error is in one; otherwise empty.
    pub instruction: String,
}

/// The kind of an error.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The text violates the grammar.
    Syntax,
    /// The text is grammatical but meaningless: an unknown name, a wrong type or operand.
    Semantic,
    /// Valid PTX that is not supported here.
    Unsupported,
    /// A version or a target newer than the supported ones.
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
