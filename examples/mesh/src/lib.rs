#![doc = include_str!("../README.md")]

pub mod anywhere;
pub mod notes;
pub mod parent;
pub mod plan;
pub mod strip;
pub mod worker;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use freehold_broker::GpuError;
use sha2::{Digest, Sha256};
use zerocopy::IntoBytes;

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
    #[error("worker {worker} ended before its time ({status}): what it says above is why")]
    Ended { worker: u32, status: std::process::ExitStatus },
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
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

/// What names a field: the same for two of the same bits, and for no others.
pub fn digest(field: &[f32]) -> String {
    Sha256::digest(field.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The words that say how far everybody is, in memory that all processes of a run share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    pub(crate) workers: u32,
}

impl Words {
    /// Epochs that a worker has finished.
    pub(crate) fn done(self, worker: u32) -> usize {
        worker as usize
    }

    /// Looks of a worker, at which of its tiles are steep, that can be read.
    pub(crate) fn looked(self, worker: u32) -> usize {
        (self.workers + worker) as usize
    }

    /// 1 when whoever is to be killed is dead: until then nobody comes to the end.
    pub(crate) fn struck(self) -> usize {
        2 * self.workers as usize
    }

    pub(crate) fn count(self) -> usize {
        2 * self.workers as usize + 1
    }

    /// Memory for them, which cannot become shorter.
    pub(crate) fn make(self) -> io::Result<OwnedFd> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        let descriptor = memfd_create("mesh", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, self.count() as u64 * 8)?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK)?;
        Ok(descriptor)
    }
}
