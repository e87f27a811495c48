//! Finds races and memory errors of CUDA programs.
//!
//! Work of streams, and the host, are tasks. A vector clock of each task says which tasks happen before it. For every byte of
//! device memory, the last write and the reads since then are kept; two accesses of which neither happens before the other, and
//! at least one is a write, are a race. It is found whether or not the two were executed in the wrong order.
//!
//! # Modules, lowest layer first
//!
//! - [`finding`]: what is reported, and its form in the file of findings.
//! - [`block`]: races of the threads of a block on its shared memory.
//! - [`grid`]: races of the threads of a kernel on global memory.

#![warn(missing_docs)]

pub mod block;
pub mod finding;
pub mod grid;

pub use finding::{Access, Finding, Frame, Kind, Location, Memory, Position};
