//! Host memory that is registered with the driver, and unregistered after the last work with it.

use std::sync::Arc;

use freehold_driver::HostRegistration;

use crate::device::context::Context;
use crate::device::deferred::Deferred;
use crate::device::device_inner::DeviceInner;
use crate::device::pinned::{Pinned, Stopped};
use crate::error::Result;
use crate::ledger::Fence;
use crate::ordering::context_state::ContextState;

impl Pinned {
    /// Registers the memory for streams of all contexts, and returns its device address. After an error it is unmapped,
    /// or will be.
    pub(crate) fn register(
        self,
        by: &dyn HostRegistration,
        device: &DeviceInner,
        context_state: &Arc<ContextState>,
    ) -> Result<u64> {
        // SAFETY: the mapping stays until it is unregistered; only atomics refer to it.
        if let Err(error) = unsafe { by.register(self.start, self.mapped_bytes) } {
            // SAFETY: the driver has not taken the memory, and nothing else uses it.
            unsafe { self.unmap() };
            return Err(device.failed(error));
        }
        by.device_address(self.start).map_err(|error| {
            device.defer(Deferred::Unregister {
                stopped: Stopped { pinned: self, context_state: context_state.clone(), fences: Vec::new() },
            });
            device.failed(error)
        })
    }

    /// Unregisters the memory after the last work with it. Its owner is being dropped, and submits no more work.
    pub(crate) fn stop(self, context: &Context, fences: Vec<Fence>) {
        let device = &context.inner.device;
        if device.is_good()
            && let Err(error) = device.record_fences(&fences)
        {
            // Without fences, it is unregistered when their streams are idle.
            device.note_drop_error(error);
        }
        let stopped = Stopped { pinned: self, context_state: context.inner.state.clone(), fences };
        device.defer(Deferred::Unregister { stopped });
        if device.is_good()
            && let Err(error) = device.run_deferred()
        {
            device.note_drop_error(error);
        }
    }
}
