//! Finds races and memory errors of CUDA programs.
//!
//! A vector-clock race detector. Work of streams and of the host are tasks, and the vector clock of a task says which tasks
//! happen before it. For every byte of device memory, the last write and the reads since then are kept. Two accesses, at least
//! one of them a write, race if neither happens before the other. The order in which they were executed does not matter.
//!
//! # Modules, lowest layer first
//!
//! - [`finding`]: findings, and their format in the file.
//! - [`shared_frees`]: frees of memory by the process that owns it.
//! - [`sites`]: call stacks of the program's calls.
//! - [`clock`]: vector clocks.
//! - [`access`]: accesses of the threads of a kernel.
//! - [`origin`]: where the program submitted a piece of work.
//! - [`tasks`]: pieces of work, and their happens-before order.
//! - `shadow`: the last accesses to every byte.
//! - `pending`: merges adjacent accesses of warps before they are recorded.
//! - `ages`: which of the freed blocks is forgotten first.
//! - `blocks`: the memory that the program has allocated.
//! - `empty_parts`: blocks without bytes that pools hand out.
//! - `words`: the last accesses of the threads of a kernel to words and bytes.
//! - [`shared`]: races of the threads of a block on its shared memory.
//! - [`grid`]: races of the threads of a kernel on global memory.
//! - `report`: writes each finding once.
//! - `wording`: the text about two conflicting accesses.
//! - `wrong_free`: the error of a refused free.
//! - `conflict`: the kind of error of two accesses.
//! - [`checker`]: receives the events of the program.
//! - [`kernel_view`]: receives the accesses of the threads of a kernel.
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
