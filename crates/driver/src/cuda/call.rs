//! An error of a driver call, which names the call.

use super::api::Function;
use super::code::{CUerror, CUresult};

/// A call that the driver refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {code}")]
pub struct CallError {
    pub call: Function,
    pub code: CUerror,
}

/// The outcome of a driver call with the call's name on its error.
pub(crate) fn named(call: Function, result: CUresult) -> Result<(), CallError> {
    result.map_err(|code| CallError { call, code })
}
