//! Finds races and memory errors of CUDA programs.
//!
//! Work of streams, and the host, are tasks. A vector clock of each task says which tasks happen before it. For every byte of
//! device memory, the last write and the reads since then are kept; two accesses of which neither happens before the other, and
//! at least one is a write, are a race. It is found whether or not the two were executed in the wrong order.
//!
//! # Modules, lowest layer first
//!
//! - [`finding`]: what is reported, and its form in the file of findings.
//! - [`sites`]: where the program made a call.
//! - [`clock`]: vector clocks.
//! - [`tasks`]: pieces of work, and what happens before each.
//! - `shadow`: the last accesses to every byte.
//! - [`block`]: races of the threads of a block on its shared memory.
//! - [`grid`]: races of the threads of a kernel on global memory.
//! - [`checker`]: receives what the program does, and writes findings.

#![warn(missing_docs)]

pub mod block;
pub mod checker;
pub mod clock;
pub mod finding;
pub mod grid;
mod shadow;
pub mod sites;
pub mod tasks;

pub use checker::{BlockKind, Checker, KernelView};
pub use clock::{Epoch, QueueId};
pub use finding::{Access, Finding, Frame, Kind, Location, Memory, Position};
pub use shadow::{AccessKind, Spot};
pub use tasks::{Kernel, Submission, TaskView};
