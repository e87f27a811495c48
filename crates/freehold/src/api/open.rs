//! Opening a device: NVIDIA's driver, the software driver, or OpenCL. The only module that knows that there are
//! several.
//!
//! A selector comes from the caller, or else from `FREEHOLD_DEVICE`. Without one, the device is NVIDIA's GPU if there
//! is one, and the software device otherwise.

mod choice;
mod devices;
pub(crate) mod foreign_pools;
pub mod list;
#[cfg(feature = "opencl")]
pub mod opencl;
mod selector;
mod soft;

#[cfg(test)]
pub(crate) use self::choice::opened;
pub use self::choice::{Kind, Opened, Target, open, target, untouched};
pub use self::devices::device;
pub use self::foreign_pools::{
    announce_captures, end_foreign_pool, foreign_pool, foreign_pool_on, known_foreign_pool, known_foreign_pools,
};
pub use self::selector::VARIABLE;
pub use crate::error::open_error::{Absence, OpenError, STREAMS_VARIABLE};
