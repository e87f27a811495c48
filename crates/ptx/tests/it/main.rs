//! PTX text in, results out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bounds;
mod cluster;
mod common;
mod diagnostics;
mod edge_cases;
mod execution;
mod im2col;
mod matrix;
mod observer;
mod refusals;
mod sparse;
mod texture;
mod video;
mod wide;
