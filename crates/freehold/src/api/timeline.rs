//! What happened when: every allocation, use, release, reuse, load and unload, with the time at which it was asked for and
//! the time at which it took effect.
//!
//! A recording is events of the crate `tracing` (target `freehold::timeline`), and a file that Perfetto opens, if one is
//! named. While none is made, all that it costs is a look at one flag.

pub use crate::trace::perfetto;
pub use crate::trace::timeline::Recording;
