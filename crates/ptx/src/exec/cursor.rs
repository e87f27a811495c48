//! The position of a group while it executes steps, and why it stops.

use crate::ir::Code;

/// Where a group is in its code.
#[derive(Debug)]
pub(super) struct Cursor<'c> {
    pub(super) code: &'c Code,
    pub(super) position: u32,
    /// The lanes of the group.
    pub(super) lanes: u32,
    /// The instructions of the warp so far.
    pub(super) time: u64,
    /// A branch or label from this time on ends the turn of the group.
    pub(super) limit: u64,
    /// A branch or label to this position or one after it ends the turn of the group: another one is there.
    pub(super) horizon: u32,
}

/// Why no more steps were executed.
#[derive(Debug)]
pub(super) enum Exit {
    /// The instruction at the position has been counted, and is to be executed for these lanes.
    Other { active: u32 },
    /// The position is that of the next instruction.
    Boundary,
}
