//! A failed call of any driver: the call's name, the code, and the kind of failure.

use std::fmt;

/// An error code of a driver: the number, and the name that the driver's headers give it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The driver's number for it.
    pub number: i64,
    /// `None` for a code of a newer driver.
    pub name: Option<&'static str>,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(f, "{name} ({})", self.number),
            None => write!(f, "error {}", self.number),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The meaning of a code, independent of the driver.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The device has not enough free memory or addresses.
    OutOfMemory,
    /// The device has failed: every later call of the process returns this code.
    Fault,
    /// The driver lacks the call.
    Unsupported,
    /// Anything else.
    Other,
}

/// A call that a driver refused.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {code}")]
pub struct CallError {
    /// The function, as the driver's headers name it.
    pub call: &'static str,
    /// The code that the driver returned.
    pub code: Code,
    /// The meaning of the code.
    pub kind: ErrorKind,
}

/// Prints the same text as `Display`, for `unwrap` and for a `main` that returns the error.
impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl CallError {
    /// Whether there was not enough memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.kind == ErrorKind::OutOfMemory
    }

    /// Returns whether every later call of the process fails too.
    pub fn is_sticky(&self) -> bool {
        self.kind == ErrorKind::Fault
    }

    /// Whether the driver does not have the call.
    pub fn is_unsupported(&self) -> bool {
        self.kind == ErrorKind::Unsupported
    }
}

/// Why an image was not loaded.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The image is invalid. `log` is the driver's message, if it gave one.
    #[error("{code}: {log}")]
    Image {
        /// The code that the driver returned.
        code: Code,
        /// The compiler's log.
        log: Box<str>,
    },
    /// Any other failure of the call.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl LoadError {
    /// Returns the code that the driver returned.
    pub fn code(&self) -> Code {
        match self {
            Self::Image { code, .. } => *code,
            Self::Call(error) => error.code,
        }
    }
}

/// Prints the same text as `Display`, for `unwrap` and for a `main` that returns the error.
impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
