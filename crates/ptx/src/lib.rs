//! PTX text to a program, and its execution in warps of 32 lanes.
//!
//! [`Unit::compile`] compiles one text. [`Image::link`] joins several, [`Image::relocate`] gives their variables
//! addresses, and the result is a [`Program`]. A [`Grid`] is one launch of a kernel of it. The caller runs each
//! [`ThreadBlock`] with [`ThreadBlock::run`], a [`Slice`] of instructions at a time, on any thread and in any order.
//!
//! Everything but [`syntax`] and [`Error`] is the feature `interpreter`, which is on by default.
//!
//! # Modules, lowest layer first
//!
//! - `error`, `fault`, `texture`, `observer`, `memory`: mistakes in a text, faults of a kernel, the arithmetic of
//!   [`Texture`], [`Observer`], which watches accesses, and [`Memory`], the trait for everything outside a thread
//!   block.
//! - `arith`: the arithmetic of instructions, as pure functions on bits. `arith/hardware` compares them with an H200.
//! - [`syntax`]: text to tokens to a tree that borrows the text. It knows no instruction.
//! - `ir`: the instructions. Their operands are slots of three register files (32 bits, 64 bits, predicates).
//!   `ir/provenance` finds which launch arguments an address comes from; `bounds` checks accesses against the memory
//!   blocks behind them. `ir/liveness` finds where the value of a register is still needed, and which registers a new thread block
//!   must find zeroed; `ir/slots` lets those that are never needed together share a slot.
//! - `lower`: tree to program, a file for each family of instructions. Text that has no meaning is rejected here, with
//!   line and column. `lower/rules` refuses what has a meaning, but not for NVIDIA's assembler.
//! - `image`: linking and relocation.
//! - `exec`: `block` runs the warps of a thread block in turn, `warp` groups lanes. `step` executes frequent
//!   instructions from the compact form of `ir/step`, `step_rows` computes for all lanes, `step_memory` and `pattern`
//!   make their plain accesses, and `levels` compiles that loop for AVX2, for AVX-512 and for any processor (`level` is the trait that each implements);
//!   `engine` chooses one. Every other instruction is executed by `run`, which handles control flow: `alu` and `float`
//!   compute all lanes at once, `access` and `atomic` access memory, `texture` samples, `barrier` and `run_barrier`
//!   implement `bar` and `mbarrier`, `observe` and `divergence` notify the [`Observer`], `call`, `builtin` and `print`
//!   handle functions, and `launch` and `grid` have the public types of a launch.
//!
//! # Divergence
//!
//! A warp is a list of groups: lanes at one instruction of one call frame. A divergent branch makes a second group. The
//! group deepest in calls, then earliest in the code, runs first, so that the others meet it there; groups at the same
//! position become one. A group that was ready and did not run for a while is run first, so that a lane that spins for
//! another makes progress. Lanes that wait at a barrier are a group that is not ready; no host thread blocks.
//!
//! # Invariants
//!
//! - No `unsafe` outside `exec/levels` and the registers of `exec/step`, no I/O, no threads and no clock: the caller
//!   passes the time with each slice.
//! - A thread block is run by one host thread at a time and owns its state, so it can stop after any slice.
//! - No text causes a panic or a hang, and memory stays proportional to its length (`fuzz/targets`).
//! - A launch needs the memory of the blocks that run, however many its grid has: a block starts in the memory of one
//!   that has ended (`tests/memory.rs`).
//! - An operand is always a slot: constants, variable addresses and special registers are slots that are filled when a
//!   frame is made.
//! - Addresses of shared, local and parameter memory lie above every host address, so a generic address tells its
//!   space.

#![warn(missing_docs)]
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "interpreter")]
mod arith;
#[cfg(feature = "interpreter")]
mod bounds;
mod error;
#[cfg(feature = "interpreter")]
mod exec;
#[cfg(feature = "interpreter")]
mod fault;
#[cfg(feature = "interpreter")]
mod image;
#[cfg(feature = "interpreter")]
mod ir;
#[cfg(feature = "interpreter")]
mod lower;
#[cfg(feature = "interpreter")]
mod memory;
#[cfg(feature = "interpreter")]
mod observer;
pub mod syntax;
#[cfg(feature = "interpreter")]
mod tensor_map;
#[cfg(feature = "interpreter")]
mod texture;

#[cfg(feature = "interpreter")]
pub use bounds::{Access, Extent, Pointer};
pub use error::{Error, ErrorKind};
#[cfg(feature = "interpreter")]
pub use exec::{Grid, Launch, Progress, Slice, ThreadBlock};
#[cfg(feature = "interpreter")]
pub use fault::{Fault, FaultKind, SourceLine};
#[cfg(feature = "interpreter")]
pub use image::{GlobalVariable, Image, KernelSources, LinkError, Program, Unit};
#[cfg(feature = "interpreter")]
pub use ir::{Kernel, KernelParameter};
#[cfg(feature = "interpreter")]
pub use memory::{Memory, OutOfBounds, Width};
#[cfg(feature = "interpreter")]
pub use observer::{
    AccessKind, DivergedBarrier, LANES, Observer, Ordering, Place, Scope, WarpAccess, WarpLanes, WordsRead,
};
#[cfg(feature = "interpreter")]
pub use tensor_map::{Columns, Dimension, Element, PIXELS_MAX, RANK_MAX, Swizzle, TensorMap};
#[cfg(feature = "interpreter")]
pub use texture::{AddressMode, Channel, Filter, Format, ReadMode, Sampling, Surface, Texels, Texture};

/// The handles can be sent to other threads and shared with them.
const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Error>();
    #[cfg(feature = "interpreter")]
    send_and_sync::<Fault>();
    #[cfg(feature = "interpreter")]
    send_and_sync::<Image>();
    #[cfg(feature = "interpreter")]
    send_and_sync::<Kernel>();
    #[cfg(feature = "interpreter")]
    send_and_sync::<LinkError>();
    #[cfg(feature = "interpreter")]
    send_and_sync::<Program>();
    #[cfg(feature = "interpreter")]
    send_and_sync::<Unit>();
};
