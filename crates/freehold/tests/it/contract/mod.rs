//! The library's contract on any device: `FREEHOLD_DEVICE` says which (`soft`, `cuda`, `opencl`). Nothing here knows a driver but
//! the rig, which holds work up.

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
