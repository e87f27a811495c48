//! The checker of programs whose kernels run on a GPU: it sees only calls of the driver API.
//!
//! Work is checked when the program submits it. Copies and fills state which bytes they access. A kernel uses the blocks that its
//! arguments point into, but whether it reads or writes is unknown. State is kept per block and stream, so it does not grow with
//! the work.

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
