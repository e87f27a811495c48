//! Operations on many tables at once: creating and destroying a context, and completing a synchronization.

use std::sync::Arc;

use freehold_driver::cuda::{CUcontext, CUresult};

use super::driver_state::DriverState;
use crate::objects::context::Context;
use crate::objects::device::Device;
use crate::objects::pool::Pool;

impl DriverState {
    pub(crate) fn create_context(&self, device: &Arc<Device>, flags: u32, is_primary: bool) -> Arc<Context> {
        let id = self.space.next_id();
        let queue = self.engine.new_queue(true);
        let make = |handle| Arc::new(Context::new(CUcontext(handle), id, device, queue, flags, is_primary));
        self.contexts.insert_with(make).1
    }

    /// Destroys a context: waits for its work, then frees its memory and removes its streams and events.
    ///
    /// # Errors
    /// Another call has destroyed it, or is doing so.
    pub(crate) fn destroy_context(&self, context: &Context) -> CUresult {
        context.mark_destroyed()?;
        context.synchronize(&self.engine);
        self.contexts.remove(context.handle.0);
        context.flush_printf();
        self.space.free_spans_if(|span| span.context.as_ref().is_some_and(|owner| owner.id == context.id));
        self.arrays.remove_all(|array| array.context.id == context.id);
        self.mipmaps.remove_all(|mipmap| mipmap.context.id == context.id);
        self.space.textures.remove_all(|texture| texture.context_id == context.id);
        self.space.surfaces.remove_all(|surface| surface.context_id == context.id);
        self.imports.remove_context(context.id);
        self.code.remove_context(context);
        self.captures.drop_streams(&self.graphs, |stream| stream.context_id == context.id);
        self.streams.remove_all(|entry| context.is(&entry.context));
        self.events.remove_all(|event| context.is(&event.context));
        context.close_queues();
        Ok(())
    }

    /// Runs after a synchronization: prints the output of kernels, returns memory that pools need not keep to the
    /// device, and reports a fault.
    pub(crate) fn after_sync(&self, context: &Context) -> CUresult {
        context.flush_printf();
        context.device.trim_pools(Pool::retained_bytes);
        self.space.release_graph_memory();
        self.engine.check_fault()
    }
}
