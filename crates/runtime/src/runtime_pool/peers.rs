//! Work of other devices that may use the memory of a pool. An event in each of the other primary contexts follows that work.

use freehold_driver::cuda::{Api, CUcontext, CUerror, CUevent, CUresult, context, event, event_flags};

use crate::process::Process;

/// Events after the work of all primary contexts but one.
#[derive(Default)]
pub(super) struct PeerEvents {
    events: Vec<(CUcontext, CUevent)>,
}

impl PeerEvents {
    /// Records the events, in all contexts that exist but that of the device with this ordinal.
    pub(super) fn record(&mut self, process: &Process, ordinal: i32) -> CUresult {
        if process.device_count() == 1 {
            return Ok(());
        }
        for other in process.primaries_except(ordinal) {
            let event = self.event_of(&process.api, other)?;
            // SAFETY: neither the context nor its event is destroyed before `forget` is called with the context.
            unsafe { (process.api.cuCtxRecordEvent)(other, event) }?;
        }
        Ok(())
    }

    fn event_of(&mut self, api: &Api, other: CUcontext) -> Result<CUevent, CUerror> {
        if let Some((_, event)) = self.events.iter().find(|(context, _)| *context == other) {
            return Ok(*event);
        }
        context::push_current(api, other).map_err(|error| error.code)?;
        let made = event::create(api, event_flags::DISABLE_TIMING).map_err(|error| error.code);
        context::pop_current(api).map_err(|error| error.code)?;
        made.inspect(|event| self.events.push((other, *event)))
    }

    /// Returns the events. One that was never recorded is complete.
    pub(super) fn all(&self) -> impl Iterator<Item = CUevent> {
        self.events.iter().map(|(_, event)| *event)
    }

    /// Forgets a context that is about to be destroyed with its events and its work.
    pub(super) fn forget(&mut self, other: CUcontext) {
        self.events.retain(|(context, _)| *context != other);
    }
}
