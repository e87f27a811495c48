//! Copies from a block of another device.
//!
//! A fence counts the work of one device's streams, so a stream of the source device represents the copy there: it
//! waits for the writes that the copy has to follow; the destination stream waits for it and copies; then it waits for
//! the destination stream, which is recorded as a read of the block. Nothing waits on the host.

use std::sync::Arc;

use crate::api::stream::Stream;
use crate::device::memory_use::MemoryUse;
use crate::error::{Error, Result};

impl Stream {
    /// Whether memory belongs to another device than this stream.
    pub(crate) fn is_other_device(&self, used: &MemoryUse<'_>) -> bool {
        !Arc::ptr_eq(&used.context.inner.device, &self.inner.context.inner.device)
    }

    /// Copies all of `from`, which belongs to another device, to `to`, which has as many bytes.
    ///
    /// # Errors
    /// [`Error::OtherDevice`] if the devices do not belong to one driver that copies between them.
    pub(crate) fn copy_from_peer(&self, from: MemoryUse<'_>, to: MemoryUse<'_>) -> Result<()> {
        let inner = &self.inner.context.inner;
        inner.check()?;
        self.check_uncaptured()?;
        self.check_used(&[to])?;
        from.context.inner.check()?;
        let peer = from.context.inner.state.backend.peer_copies().map(|copies| copies.peer_context());
        let copies = inner.state.backend.peer_copies();
        let (Some(peer), Some(copies)) = (peer, copies) else { return Err(Error::OtherDevice { what: "a block" }) };
        if !copies.is_peer(peer) {
            return Err(Error::OtherDevice { what: "a block" });
        }
        let there = from.context.new_stream()?;
        there.put("copy to another device", &[from], |_, _| Ok(()))?;
        there.event()?.hold_up_peer(self)?;
        // The other context stays open until the copy is recorded there.
        let shared = from.context.inner.enter()?;
        self.put("copy from another device", &[to], |_, raw| {
            // SAFETY: both have that many bytes, which stay until the copy is complete: the reads of `from` that are
            // recorded below and the use of `to` keep them. The other context is open while its destroy lock is held.
            unsafe { copies.copy_from_peer(to.start, from.start, peer, to.bytes as usize, raw) }
        })?;
        drop(shared);
        let noted = self.event().and_then(|copied| copied.hold_up_peer(&there));
        let noted = noted.and_then(|()| there.put_ordered("copy to another device", &[from], |_, _| Ok(())));
        // If the other device cannot be told, nothing may use the block before the copy is over.
        noted.map(drop).or_else(|error| self.synchronize().and(Err(error)))
    }
}
