//! Why the lab could not run.

use std::io;

use freehold::open::OpenError;
use freehold_lab::{ReferenceError, RunError, TraceError};

/// Why the lab could not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum LabError {
    #[error(transparent)]
    Device(#[from] OpenError),
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Runtime(#[from] super::runtime_library::RuntimeError),
    #[error("--runtime does not work with OpenCL: omit it, or choose a CUDA device")]
    RuntimeOfOpenCl,
    #[error(
        "a record of a GPU needs NVIDIA's CUDA runtime, but the dynamic linker finds no libcudart.so.13: give --runtime, or omit 7"
    )]
    NoRuntimeToRecord,
    #[error("no experiment has the id {text:?}: {hint}")]
    UnknownId { text: String, hint: String },
    #[error("no experiment has the id {text:?} on this device: OpenCL experiments need --device opencl")]
    OfOpenCl { text: String },
    #[error(
        "no answers of the OpenCL platform {platform:?} are built in: record them with --record FILE, or give --reference FILE"
    )]
    NeverRecorded { platform: String },
    #[error("--trace does not work with OpenCL: omit it, or choose a CUDA device")]
    Untraceable,
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("failed to print the answers: {0}")]
    Print(io::Error),
}
