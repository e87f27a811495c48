//! Why a step of an experiment failed, and the names of codes in answers.

use std::io;

use freehold_driver::Code;
use freehold_driver::cuda::{CUerror, DriverError};

use super::runtime::functions::RuntimeError;

/// Why an experiment has no answer: one of its steps failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{} with {}", .0.call, error_name(.0.code))]
    Call(#[from] DriverError),
    #[error("{} with {}", .0.call, short_name(.0.code))]
    OpenCl(#[from] freehold_driver::CallError),
    #[error("the system: {0}")]
    System(#[from] io::Error),
    #[error("{} with {}", .0.call, .0.name)]
    Runtime(RuntimeError),
    #[error("the other process has ended")]
    Partner,
    #[error("a kernel that must fail: nothing reported it")]
    NoFault,
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

/// Formats a CUDA code as in answers.
pub fn error_name(code: CUerror) -> String {
    match code.name() {
        Some(name) => name.to_string_lossy().trim_start_matches("CUDA_ERROR_").to_owned(),
        None => format!("error {}", code.number()),
    }
}

/// Formats an OpenCL code as in answers.
pub(crate) fn short_name(code: Code) -> String {
    match code.name {
        Some(name) => name.trim_start_matches("CL_").to_owned(),
        None => format!("error {}", code.number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_without_a_name_is_its_number() {
        assert_eq!(error_name(CUerror::new(998).unwrap()), "error 998");
    }
}
