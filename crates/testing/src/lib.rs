//! What the tests of all crates share: effort, seeds, reports, processes, and programs that must not compile.
//!
//! | variable | meaning |
//! |---|---|
//! | `FREEHOLD_EFFORT` | `quick` (the default), `moderate` or `soak`: how many seeds, kills, messages and steps |
//! | `FREEHOLD_SEED` | the only seed to run: replays a failure |
//!
//! `cargo xtask check`, `test` and `soak` set the effort. No other variable or constant decides how long a test runs.
//!
//! # Modules, lowest layer first
//!
//! - `random`: [`Random`], numbers that follow from a seed. Tests that need shrinking use proptest.
//! - `effort`: [`Effort`], [`at_effort`], [`seed`], [`seeds`], [`HANG_TIMEOUT`], and [`report_covered`], whose counts `soak`
//!   adds up.
//! - [`child`]: a test binary that starts itself again for one test, in a process that the test may ruin.
//! - [`process`]: a folder and a machine for the processes of one test, and how to find, await, stop and kill them.
//! - [`misuse`]: programs that must not compile, with the error that each must get.
//! - `source`: which bytes of a Rust file are code, for the two below.
//! - `imports`: the test that the modules of a crate import each other only downward, layer by layer.
//! - `api`: the tests of `crates/*/api.txt` and of the list in `docs/unsafe.md`. They read the sources of all crates.
//!
//! # Invariants
//!
//! - A random test prints its seed in the form `FREEHOLD_SEED=N`, which a shell takes and `cargo xtask` finds.
//! - Seeds are fixed below `soak` effort and fresh at `soak`.
//! - This crate depends on no other crate of Freehold, and only tests depend on it.

#[cfg(test)]
mod api;
pub mod child;
mod effort;
#[cfg(test)]
mod imports;
pub mod misuse;
pub mod process;
mod random;
#[cfg(test)]
mod source;

pub use child::command_for_test;
pub use effort::{Effort, HANG_TIMEOUT, at_effort, env_seed, print_seed, report_covered, seed, seeds};
pub use random::Random;
