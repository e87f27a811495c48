//! The recording of a device's timeline, and the file that it is written to.

#[cfg(not(feature = "timeline"))]
mod disabled;
#[cfg(feature = "timeline")]
mod log;
#[cfg(feature = "timeline")]
pub mod perfetto;
#[cfg(feature = "timeline")]
mod timeline;

#[cfg(not(feature = "timeline"))]
pub(crate) use self::disabled::{Allocation, Timeline};
#[cfg(feature = "timeline")]
pub(crate) use self::log::Allocation;
#[cfg(feature = "timeline")]
pub(crate) use self::timeline::Timeline;
