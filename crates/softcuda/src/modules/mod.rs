//! Code: images, the modules and libraries they are loaded as, and the attributes of kernels.

mod fatbin;
pub(crate) mod function;
pub(crate) mod image;
pub(crate) mod jit;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod loader;
pub(crate) mod module;
pub(crate) mod occupancy;
