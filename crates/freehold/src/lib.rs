//! GPU memory that has an owner.
//!
//! | to | here |
//! |---|---|
//! | choose the driver of an NVIDIA GPU or the software one | [`open::open`] |
//! | write what happened when to a file that Perfetto opens | [`timeline::perfetto::TraceFile`] |

pub mod open;
pub mod timeline;
