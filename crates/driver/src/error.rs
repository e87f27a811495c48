//! A call that a driver refused, whichever driver it is: the call's name, the code, and what that means to who called.

use std::fmt;

/// What a driver answered instead of success: a number, and the name that the driver's headers give it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code {
    pub number: i64,
    /// Nothing for a code of a newer driver.
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

/// What a code means to who does not know the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is not so much memory, or there are not so many addresses.
    OutOfMemory,
    /// The device has failed: every call of the process answers with the code from now on.
    Fault,
    /// The driver does not have the call.
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
    pub code: Code,
    pub kind: ErrorKind,
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl CallError {
    pub fn is_out_of_memory(&self) -> bool {
        self.kind == ErrorKind::OutOfMemory
    }

    /// Whether every call fails from now on, until the process ends.
    pub fn is_sticky(&self) -> bool {
        self.kind == ErrorKind::Fault
    }

    pub fn is_unsupported(&self) -> bool {
        self.kind == ErrorKind::Unsupported
    }
}

/// Why an image was not loaded.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The image is at fault, and this is what the driver says of it, if anything.
    #[error("{code}: {log}")]
    Image { code: Code, log: Box<str> },
    #[error(transparent)]
    Call(#[from] CallError),
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
