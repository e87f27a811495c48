//! The public handles and their operations.

pub(crate) mod arena;
pub(crate) mod arguments;
pub(crate) mod block;
mod context;
mod copy;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod external_access;
mod fill;
pub mod foreign;
pub(crate) mod host_memory;
pub(crate) mod image;
pub(crate) mod imported;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod module;
pub mod open;
mod peer_copy;
pub(crate) mod semaphores;
mod sleep;
pub(crate) mod stream;
#[cfg(feature = "timeline")]
pub mod timeline;
pub(crate) mod vector;
pub(crate) mod view;
