//! Code: images, what they become in a context, and what can be asked of a kernel.

pub(crate) mod function;
pub(crate) mod image;
pub(crate) mod jit;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod loader;
pub(crate) mod module;
pub(crate) mod occupancy;
