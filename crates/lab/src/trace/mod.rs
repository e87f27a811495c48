//! The trace of `--trace`: every driver call of every process of every experiment.
//!
//! The processes of one experiment add lines to one part, an in-memory file of the lab whose path they are given
//! (`record`). When the experiment has ended, the lab converts the part's lines to events (`merge`). `part` has the format of the lines.

mod merge;
mod part;
mod record;

pub use self::merge::{Trace, TraceError};
pub(crate) use self::part::{ExperimentTrace, Role};
pub(crate) use self::record::traced;
