//! The recording of a device's timeline, and the file that it is written to.

mod allocation;
#[cfg(not(feature = "timeline"))]
mod disabled;
#[cfg(feature = "timeline")]
mod log;
#[cfg(feature = "timeline")]
pub mod perfetto;
#[cfg(feature = "timeline")]
mod timeline;

pub(crate) use self::allocation::Allocation;
#[cfg(not(feature = "timeline"))]
pub(crate) use self::disabled::Timeline;
#[cfg(feature = "timeline")]
pub(crate) use self::timeline::Timeline;
