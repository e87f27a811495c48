//! A failed driver call: the error names the call.

use super::api::Function;
use super::code::{CUerror, CUresult};
use crate::error::{self, ErrorKind};
use std::fmt;

/// A call that the driver refused.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {code}")]
pub struct DriverError {
    /// The function.
    pub call: Function,
    /// The code that it returned.
    pub code: CUerror,
}

/// Prints the same text as `Display`, for `unwrap` and for a `main` that returns the error.
impl fmt::Debug for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<DriverError> for error::CallError {
    fn from(DriverError { call, code }: DriverError) -> Self {
        let meaning = match code {
            CUerror::OUT_OF_MEMORY => ErrorKind::OutOfMemory,
            CUerror::NOT_SUPPORTED => ErrorKind::Unsupported,
            code if code.is_sticky() => ErrorKind::Fault,
            _ => ErrorKind::Other,
        };
        Self { call: call.name(), code: code.into(), kind: meaning }
    }
}

/// Adds the call's name to the error.
pub(crate) fn check(call: Function, result: CUresult) -> Result<(), DriverError> {
    result.map_err(|code| DriverError { call, code })
}

/// Turns the outcome of a query into a `bool`: `NOT_READY` is `false`, not an error.
pub(crate) fn ready(outcome: Result<(), DriverError>) -> Result<bool, DriverError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(DriverError { code: CUerror::NOT_READY, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// `call!(api.cuInit(flags))` calls the function of the table and puts its name on the error, so that the two always
/// match. It is as unsafe as the function: the `unsafe` block and its proof are at the call site.
macro_rules! call {
    ($api:ident.$name:ident($($argument:expr),*)) => {
        $crate::cuda::call::check($crate::cuda::api::Function::$name, ($api.$name)($($argument),*))
    };
}

pub(crate) use call;
