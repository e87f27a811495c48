//! Destroyed contexts, with their streams and their memory.

use super::checker::{Awaited, CallChecker};

/// A context that a call may destroy, and what belonged to it when the call began. Another thread may get its handle, and the addresses
/// of its blocks, before the call returns.
#[derive(Debug)]
pub struct EndingContext {
    context: u64,
    awaited: Awaited,
    /// The last call of the host before.
    host_seq: u64,
    /// How many streams were known.
    stream_count: usize,
}

impl CallChecker {
    /// Notes what belongs to a context, before a call that may destroy it.
    pub fn begin_context_end(&self, context: u64) -> EndingContext {
        let state = self.state();
        let awaited = Awaited(state.order.points_of(context));
        let (host_seq, stream_count) = (state.order.host_seq(), state.order.stream_count());
        EndingContext { context, awaited, host_seq, stream_count }
    }

    /// Notes that a context was destroyed: its work has ended, and its streams and memory are gone.
    pub fn finish_context_end(&self, ending: &EndingContext) {
        self.observe(&ending.awaited);
        let mut state = self.state();
        state.memory.forget_context(ending.context, ending.host_seq);
        if state.order.remove_context(ending.context, ending.stream_count) {
            state.forget_dead_streams();
        }
    }
}
