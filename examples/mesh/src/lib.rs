//! A heat solver with adaptive refinement, in several processes: every part of Freehold in one program that is short enough
//! to read.
//!
//! `freehold demo` runs it; `freehold demo --remote` and `mpirun -n 4 freehold demo --mpi` compute the same field. The domain
//! is a square of cells in two generations, published at a broker. Each worker leases it in place and owns some rows of
//! tiles. An epoch of up to 8 steps reads one generation and writes the other. A tile of 32 × 32 cells with steep gradients
//! is refined: its cells are computed at twice the resolution, in a vector of the worker that grows and shrinks in place. See
//! `README.md`.
//!
//! # Modules, lowest layer first
//!
//! - [`plan`]: what is computed, from four numbers. Pure.
//! - [`strip`]: rows of tiles on a device: kernels, refined cells, one epoch. It knows no processes and no neighbours.
//! - [`notes`]: what a worker reports, one line of JSON each.
//! - [`worker`]: a process that leases the domain and computes its rows.
//! - [`parent`]: publishes the domain, starts the workers, kills one, replaces it, and reads the field.
//! - [`anywhere`]: the same solver on a `Gpu` that may be local, at a broker or on another machine.
//!
//! `kernels/mesh.cu` has the kernels; `cargo xtask kernels` compiles them to `mesh.ptx`.
//!
//! # Invariants
//!
//! - A tile after an epoch is a function of the previous generation alone, and every rounding in the kernels is explicit. So
//!   the field does not depend on the number of workers, on kills or on the device, to the last bit.
//! - Two neighbours are never more than one epoch apart: streams write and await words in shared memory.
//! - A replacement starts where its predecessor's word is, after that process has ended.
//! - No call of a worker waits for the device before its last epoch is submitted: the host polls words in shared memory.

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

/// The SHA-256 of a field, in hexadecimal: equal for equal bits.
pub fn digest(field: &[f32]) -> String {
    Sha256::digest(field.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Indexes of the semaphores that show the progress, in memory that all processes of a run share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    pub(crate) workers: u32,
}

impl Words {
    /// Epochs that a worker has finished.
    pub(crate) fn done(self, worker: u32) -> usize {
        worker as usize
    }

    /// Flag passes of a worker whose result can be read: which of its tiles are steep.
    pub(crate) fn looked(self, worker: u32) -> usize {
        (self.workers + worker) as usize
    }

    /// 1 when the victim has been killed: until then no worker finishes.
    pub(crate) fn struck(self) -> usize {
        2 * self.workers as usize
    }

    pub(crate) fn count(self) -> usize {
        2 * self.workers as usize + 1
    }

    /// Creates the memory, sealed against shrinking.
    pub(crate) fn make(self) -> io::Result<OwnedFd> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        let descriptor = memfd_create("mesh", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, self.count() as u64 * 8)?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK)?;
        Ok(descriptor)
    }
}
