//! The library's contract on any device: `FREEHOLD_DEVICE` selects it (`soft`, `cuda`, `opencl`). Nothing here knows a
//! driver except the rig, which blocks work.

mod rig;

mod arena;
mod blocks;
mod lent;
mod modules;
mod order;
mod pool;
mod release;
mod streams;
mod vectors;
