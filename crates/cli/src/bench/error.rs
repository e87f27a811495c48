//! Why a benchmark measured nothing.

use std::io;

use freehold::open::OpenError;
use freehold_driver::cuda::DriverError;

use crate::allocators::Failure;
use crate::output::file::WriteError;

/// Why nothing was measured, or what was measured is not shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum BenchError {
    #[error(transparent)]
    Device(#[from] OpenError),
    #[error(transparent)]
    Library(#[from] freehold::Error),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    OpenCl(#[from] freehold_driver::CallError),
    #[error(
        "a kernel of {kernel_ms} ms ended before the calls measured next to it: run the benchmark on an idle machine"
    )]
    KernelEnded { kernel_ms: u64 },
    #[error("--svg works only with CUDA devices: omit it")]
    NoPicture,
    #[error("{0}")]
    Processes(String),
    #[error("failed to print the report: {0}")]
    Print(io::Error),
    #[error(transparent)]
    Allocator(#[from] Failure),
    #[error(transparent)]
    Unwritable(#[from] WriteError),
}

pub(super) type Result<T> = std::result::Result<T, BenchError>;

/// Returns the error of another process, or of what connects it.
pub(super) fn failed(what: &str, error: impl std::fmt::Display) -> BenchError {
    BenchError::Processes(format!("{what}: {error}"))
}
