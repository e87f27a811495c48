//! A task, and its number.

use std::sync::Arc;

use crate::clock::{Epoch, QueueId};
use crate::origin::Origin;

/// A task of the process. Zero is none. Records have three bits of it less, which is enough: no process begins so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(pub(crate) u64);

/// A task that has begun.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) epoch: Epoch,
    /// The number of the call that submitted it, in the order of the program.
    pub(crate) submitted: u64,
    pub(crate) origin: Arc<Origin>,
}

impl Task {
    /// What a task was that is dropped. Another thread has looked at the last record that named it just before.
    #[cold]
    pub(super) fn dropped() -> Self {
        let origin = Origin { function: "earlier work", launch: None, site: None, elsewhere: None };
        Self { epoch: Epoch { queue: QueueId::HOST, seq: 0 }, submitted: 0, origin: Arc::new(origin) }
    }
}
