//! What is visible at the calls of the driver API: the checker of programs whose kernels run on a GPU.
//!
//! Work is looked at when the program submits it. Copies and fills state which bytes they access. A kernel uses the blocks that its
//! arguments point into, in a way that is not known. All state is of blocks and streams, so that it does not grow with the work.

mod checker;
mod contexts;
mod describe;
mod history;
mod memory;
mod order;
mod submit;

pub use checker::{Awaited, CallChecker, FreeOrder, Freeing};
pub use contexts::EndingContext;
pub use describe::EXPORT_PREFIX;
pub use history::{CallEffect, Rows};
pub use memory::Owner;
pub use order::{LegacyOrder, StreamKey, StreamKind};
pub use submit::{Access, Argument, Item, KernelId};

#[cfg(test)]
mod tests;
