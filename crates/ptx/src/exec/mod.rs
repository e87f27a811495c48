//! Execution: thread blocks, warps, lanes.

mod access;
mod alu;
mod atomic;
mod barrier;
mod block;
mod block_state;
mod builtin;
mod bulk;
mod call;
mod cluster;
mod cluster_state;
mod cursor;
#[cfg(test)]
mod differential;
mod divergence;
mod engine;
mod float;
mod frame;
mod grid;
mod group_matrix;
mod lanes;
mod launch;
mod level;
mod levels;
mod map;
mod matrix;
mod observe;
mod pattern;
mod print;
mod run;
mod run_barrier;
mod run_cluster;
mod sparse;
mod step;
mod step_memory;
mod step_rows;
mod tensor_box;
mod texture;
mod warp;

pub use grid::{Grid, ThreadBlock};
pub use launch::{Launch, Progress, Slice};
