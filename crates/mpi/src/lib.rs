//! Device buffers through MPI: blocks and parts of them, sent and received in the order of their uses.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = freehold::open()?;
//! let world = freehold_mpi::World::new(&device)?; // mpirun -n 2
//! let stream = device.new_stream()?;
//! let mut x = stream.zeros::<f32>(1000)?;
//! if world.rank() == 0 {
//!     world.isend(&stream, &x, 1, 7)?.wait()?; // starts when the zeros are written
//! } else {
//!     let message = world.irecv(&stream, &mut x, 0, 7)?;
//!     stream.fill_bytes(&mut x, 1)?; // returns at once; the device waits for the message
//!     assert_eq!(message.wait()?.len::<f32>(), 1000);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! |---|---|
//! | start, and see which path transfers take | [`World::new`], [`World::path_choice`] |
//! | send and receive | [`World::send`], [`World::recv`], [`World::isend`], [`World::irecv`], [`Request`] |
//! | collective calls | [`World::broadcast`], [`World::allreduce`], [`World::gather`], [`World::alltoall`], [`World::barrier`] |
//! | halo exchange | [`World::exchange`], [`Rows`], [`Edge`] |
//! | one-sided access | [`World::window`], [`Window::open`], [`Epoch::put`], [`Epoch::get`] |
//! | errors of transfers whose requests were dropped | [`World::drop_errors`] |
//!
//! # Modules, lowest layer first
//!
//! - `op`, `error`, `element`, `raw` (every MPI call), `settings` (the environment).
//! - `staging`: copy streams and pinned buffers. `liveness`: which ranks of this machine have died.
//! - `probe`, `probe_child`, `path`: whether MPI takes device memory, tried in processes that may crash, and the path
//!   that all ranks use.
//! - `node_peers`: memory that ranks of one machine share. `world_inner`: the state that all transfers share.
//! - `transfer`: messages as state machines that advance when polled: `send`, `receive`, `envelope`, `chunks`,
//!   `shared`, `control`.
//! - `request`, `progress`: the handle that a caller holds, and the thread that polls transfers that no caller waits
//!   for.
//! - `world`, `collective`, `halo`, `window`: the public calls. Below `world` is `collective/chunked`, a collective
//!   call in chunks.
//!
//! A message is sent directly from device memory, through memory that both ranks have mapped, or through pinned
//! buffers. `isend` lends the block to the transfer (`Stream::lend`): later uses wait for the transfer on the device.
//! `docs/mpi.md` has the rules.
//!
//! # Invariants
//!
//! - A transfer never blocks; the caller that polls it decides whether to wait.
//! - Messages to one rank, receives that could match one message, and collective calls are posted in the order of the
//!   calls.
//! - A successful transfer returns its block only when no part of it is in flight. After a failure, pinned buffers that
//!   MPI may still use are never reused.
//! - A receiver accepts a long message only when its block is ready, so a message with buffers never waits for one
//!   without.

mod collective;
mod element;
mod error;
mod halo;
mod liveness;
mod node_peers;
mod op;
mod path;
mod probe;
mod probe_child;
mod progress;
mod raw;
mod request;
mod settings;
mod staging;
mod transfer;
mod window;
mod world;
mod world_inner;

pub use element::Element;
pub use error::{Error, Result, TransferError};
pub use halo::{Edge, Exchange, Rows};
pub use op::Op;
pub use path::PathChoice;
#[doc(hidden)]
pub use probe::{Attempt, AttemptOutcome, Probe};
#[doc(hidden)]
pub use probe_child::{ProbeKind, run as try_here};
pub use raw::Threads;
pub use request::Request;
pub use settings::{PATH_VARIABLE, Path};
pub use transfer::Received;
pub use window::{Epoch, Window};
pub use world::{ANY, World};

/// Returns the name and version of the MPI library.
pub fn library() -> String {
    raw::library_name()
}

/// Probes again whether the MPI library accepts this device's memory. In a rank, it probes with the environment of the
/// run.
///
/// # Errors
/// The driver's error if it cannot name the device.
#[doc(hidden)]
pub fn probe(device: &freehold::Device) -> Result<Probe> {
    probe::run_probe(device)
}

/// Compiles the program on the page about MPI as a test.
#[cfg(doctest)]
mod doc_pages {
    #[doc = include_str!("../../freehold/tests/newcomer/program/src/mpi.md")]
    mod mpi {}
}
