//! Device buffers through MPI: blocks and parts of them, sent and received in the order of their uses.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = freehold::open()?;
//! let world = freehold_mpi::World::new(&device)?; // mpirun -n 2
//! let stream = device.stream()?;
//! let mut x = stream.zeros::<f32>(1000)?;
//! if world.rank() == 0 {
//!     world.isend(&stream, &x, 1, 7)?.wait()?; // goes when the zeros are there
//! } else {
//!     let message = world.irecv(&stream, &mut x, 0, 7)?;
//!     stream.fill_bytes(&mut x, 1)?; // returns at once; the device waits for the message
//!     assert_eq!(message.wait()?.len::<f32>(), 1000);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | to | here |
//! |---|---|
//! | begin, and know which path transfers take and why | [`World::new`], [`World::choice`] |
//! | send and receive | [`World::send`], [`World::recv`], [`World::sendrecv`], [`World::signal`] |
//! | the same without waiting | [`World::isend`], [`World::irecv`], [`Request`] |
//! | do what all ranks do together | [`World::broadcast`], [`World::reduce`], [`World::allreduce`], [`World::gather`], [`World::scatter`], [`World::alltoall`], [`World::barrier`] |
//! | exchange the edges of a field | [`World::exchange`], [`Rows`], [`Edge`] |
//! | write to other ranks' blocks and read from them | [`World::window`], [`Window::open`], [`Epoch::put`], [`Epoch::get`] |
//! | know what failed that nobody waited for | [`World::troubles`] |

mod collective;
mod element;
mod error;
mod halo;
mod liveness;
mod node_peers;
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

pub use element::{Element, Op};
pub use error::{Error, Result, TransferError};
pub use halo::{Edge, Exchange, Rows};
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

/// What the MPI library calls itself: its name and version.
pub fn library() -> String {
    raw::library_name()
}

/// Finds out anew whether the library takes memory of this device. Called by a rank, it tells what such a one finds.
///
/// # Errors
/// What the driver says to the question for the device's name.
#[doc(hidden)]
pub fn probe(device: &freehold::Device) -> Result<Probe> {
    probe::run_probe(device)
}

/// The page of the book whose program needs this crate, which the tests compile.
#[cfg(doctest)]
mod doc_pages {
    #[doc = include_str!("../../../docs/mpi.md")]
    mod mpi {}
}
