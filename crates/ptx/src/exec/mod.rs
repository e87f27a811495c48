//! Execution: blocks, warps, lanes.

mod access;
mod alu;
mod barrier;
mod block;
mod builtin;
mod call;
mod float;
mod frame;
mod lanes;
mod print;
mod run;
mod warp;

pub(crate) use block::BlockState;
pub(crate) use builtin::Builtin;
