//! Work of other devices with the memory of a pool: their kernels and copies may use it.
//!
//! Before an event follows all work of the pool's context, a stream of that context waits for the work of all other primary
//! contexts. So the event follows that work, too.

use freehold_driver::cuda::{
    CUcontext, CUevent, CUresult, CUstream, CallError, context, event, event_flags, stream, stream_flags,
};

use crate::process::Process;

/// The flags of a wait for an event.
const WAIT_FLAGS: u32 = 0;

/// What makes a context wait for others.
pub(super) struct PeerWork {
    ordinal: i32,
    /// A stream of the pool's context.
    stream: CUstream,
    /// An event of each other context.
    events: Vec<(CUcontext, CUevent)>,
}

impl PeerWork {
    /// Prepares the current context, unless the process has no other device.
    pub(super) fn new(process: &Process, ordinal: i32) -> Result<Option<Self>, CallError> {
        if process.device_count() == 1 {
            return Ok(None);
        }
        let stream = stream::create(&process.api, stream_flags::NON_BLOCKING)?;
        Ok(Some(Self { ordinal, stream, events: Vec::new() }))
    }

    /// Makes the context wait for the work that was submitted to others.
    pub(super) fn wait(&mut self, process: &Process) -> CUresult {
        for other in process.primaries_except(self.ordinal) {
            let event = self.event_of(process, other)?;
            // SAFETY: neither the context nor its event is destroyed before `forget` is called with the context.
            unsafe { (process.api.cuCtxRecordEvent)(other, event) }?;
            // SAFETY: as above, and the stream is not destroyed while the pool is open.
            unsafe { (process.api.cuStreamWaitEvent)(self.stream, event, WAIT_FLAGS) }?;
        }
        Ok(())
    }

    fn event_of(&mut self, process: &Process, other: CUcontext) -> Result<CUevent, freehold_driver::cuda::CUerror> {
        if let Some((_, event)) = self.events.iter().find(|(context, _)| *context == other) {
            return Ok(*event);
        }
        let api = &process.api;
        context::push_current(api, other).map_err(|error| error.code)?;
        let made = event::create(api, event_flags::DISABLE_TIMING);
        context::pop_current(api).map_err(|error| error.code)?;
        let made = made.map_err(|error| error.code)?;
        self.events.push((other, made));
        Ok(made)
    }

    /// Forgets a context that is about to be destroyed with its events.
    pub(super) fn forget(&mut self, other: CUcontext) {
        self.events.retain(|(context, _)| *context != other);
    }
}
