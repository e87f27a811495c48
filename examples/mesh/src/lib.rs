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
//! - `error`: why no field was computed. `progress`: the semaphores that show which epoch each worker has reached.
//! - [`plan`]: what is computed, from four numbers. Pure.
//! - [`strip`]: rows of tiles on a device: kernels, refined cells, one epoch. It knows no processes and no neighbours.
//! - [`notes`]: what a worker reports, one line of JSON each.
//! - [`worker`]: a process that leases the domain and computes its rows.
//! - [`parent`]: publishes the domain, starts the workers, kills one, replaces it, and reads the field.
//! - [`gpu_solver`]: the same solver on a `Gpu` that may be local, at a broker or on another machine.
//!
//! `kernels/mesh.cu` has the kernels; `cargo xtask kernels` compiles them to `mesh.ptx`.
//!
//! # Invariants
//!
//! - A tile after an epoch is a function of the previous generation alone, and every rounding in the kernels is explicit. So
//!   the field does not depend on the number of workers, on kills or on the device, to the last bit.
//! - Two neighbours are never more than one epoch apart: streams write and wait for semaphores in shared memory.
//! - A replacement starts where its predecessor stopped, after that process has ended.
//! - No call of a worker waits for the device before its last epoch is submitted: the host polls semaphores.

mod error;
pub mod gpu_solver;
pub mod notes;
pub mod parent;
pub mod plan;
mod progress;
pub mod strip;
pub mod worker;

use sha2::{Digest, Sha256};
use zerocopy::IntoBytes;

pub use error::{Error, Result};

/// The SHA-256 of a field, in hexadecimal: equal for equal bits.
pub fn digest(field: &[f32]) -> String {
    Sha256::digest(field.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
