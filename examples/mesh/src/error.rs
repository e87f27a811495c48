//! Why the field was not computed.

use std::fmt;
use std::io;

use freehold_broker::GpuError;

/// Why the field was not computed.
#[derive(thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Device(#[from] freehold::Error),
    #[error(transparent)]
    Broker(#[from] freehold_broker::Error),
    #[error(transparent)]
    Gpu(#[from] GpuError),
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error("worker {worker} exited early ({status}): its messages above say why")]
    Ended { worker: u32, status: std::process::ExitStatus },
}

/// Same as `Display`, so that `unwrap` and a `main` that returns the error print the message.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

pub type Result<T> = std::result::Result<T, Error>;
