//! Finds races and memory errors of CUDA programs.
//!
//! Work of streams, and the host, are tasks. A vector clock of each task says which tasks happen before it. For every byte of
//! device memory, the last write and the reads since then are kept; two accesses of which neither happens before the other, and
//! at least one is a write, are a race. It is found whether or not the two were executed in the wrong order.
//!
//! # Modules, lowest layer first
//!
//! - [`finding`]: what is reported, and its form in the file of findings.
//! - [`shared_frees`]: frees of memory by the process that owns it.
//! - [`sites`]: where the program made a call.
//! - [`clock`]: vector clocks.
//! - [`access`]: accesses of the threads of a kernel.
//! - [`origin`]: where the program submitted a piece of work.
//! - [`tasks`]: pieces of work, and what happens before each.
//! - `shadow`: the last accesses to every byte.
//! - `pending`: accesses of warps that go on where others end.
//! - `ages`: which of the freed blocks is forgotten first.
//! - `blocks`: the memory that the program has allocated.
//! - `empty_parts`: blocks without bytes that pools hand out.
//! - `words`: the last accesses of the threads of a kernel to words and bytes.
//! - [`shared`]: races of the threads of a block on its shared memory.
//! - [`grid`]: races of the threads of a kernel on global memory.
//! - `report`: writes each finding once.
//! - `wording`: what is said about two accesses that conflict.
//! - `wrong_free`: what is wrong with a free that is refused.
//! - `conflict`: two accesses, and what kind of error they are.
//! - [`checker`]: receives what the program does.
//! - [`kernel_view`]: receives what the threads of a kernel do.
//! - [`calls`]: the checker of programs whose kernels run on a GPU, which sees calls only.

#![warn(missing_docs)]

pub mod access;
mod ages;
mod blocks;
pub mod calls;
pub mod checker;
pub mod clock;
mod conflict;
mod empty_parts;
pub mod finding;
pub mod grid;
pub mod kernel_view;
pub mod origin;
mod pending;
mod report;
mod shadow;
pub mod shared;
pub mod shared_frees;
pub mod sites;
pub mod tasks;
mod wording;
mod words;
mod wrong_free;

pub use access::Spot;
pub use blocks::BlockKind;
pub use checker::{Checker, KernelFault};
pub use clock::{Epoch, QueueId};
pub use finding::{Access, Finding, Frame, Kind, LEAKS_UNKNOWN, Location, Memory, Position, STARTED};
pub use kernel_view::KernelView;
pub use origin::{Kernel, Launch};
pub use shadow::Effect;
pub use tasks::{Submission, TaskView};

/// The handles can be sent to other threads and shared with them.
const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<calls::CallChecker>();
    send_and_sync::<Checker>();
    send_and_sync::<Finding>();
    send_and_sync::<KernelFault>();
    send_and_sync::<KernelView<'_>>();
    send_and_sync::<shared::SharedCheck>();
};
