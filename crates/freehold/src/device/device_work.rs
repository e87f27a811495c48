//! What the pool asks of the work on a device.

use freehold_driver::CallError;

use crate::device::device_inner::DeviceInner;
use crate::ledger::{Fence, StreamId};
use crate::ordering::stream_state::StreamState;
use crate::pool::DeviceWork;

type Result<T> = std::result::Result<T, CallError>;

impl DeviceWork for DeviceInner {
    fn is_complete(&self, fence: Fence) -> bool {
        self.streams.is_complete(fence)
    }

    fn is_idle(&self) -> bool {
        self.streams.is_all_idle()
    }

    fn refresh(&self) -> Result<()> {
        self.streams.refresh()
    }

    fn query(&self) -> Result<()> {
        self.streams.query()
    }

    fn record_fences(&self, fences: &[Fence]) -> Result<()> {
        self.streams.record_fences(fences)
    }

    fn record_fences_coalesced(&self, fences: &[Fence]) -> Result<()> {
        self.streams.record_fences_coalesced(fences)
    }

    fn can_wait(&self, stream: &StreamState, other: StreamId) -> Result<bool> {
        self.streams.get(other).map_or(Ok(false), |other| stream.can_wait_for(&other))
    }

    fn wait_for(&self, stream: &StreamState, fence: Fence) -> Result<()> {
        // A stream that was forgotten has completed everything.
        self.streams.get(fence.stream).map_or(Ok(()), |other| stream.wait_for(&other, fence.seq).map(drop))
    }

    fn when_idle(&self, call: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        self.streams.with_idle_device(call)
    }

    fn unmap_completed(&self) -> Result<bool> {
        let leaving = self.deferred.unmaps();
        let unmapped = leaving.iter().try_for_each(|leaving| leaving.attempt(self).map(drop));
        self.deferred.forget_unmapped();
        unmapped?;
        Ok(!leaving.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use crate::api::device::Device;
    use crate::api::vector::DeviceVec;
    use crate::pool::DeviceWork;

    #[test]
    fn a_vector_that_gives_memory_back_again_and_again_waits_in_one_place() {
        let opened = crate::api::open::opened(None).unwrap();
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        let device = unsafe { Device::new(opened.api, opened.device) }.unwrap();
        let (stream, device) = (device.new_stream().unwrap(), &device.primary.inner.device);
        let mut vec = DeviceVec::<u8>::new(&stream).unwrap();
        for _ in 0..10 {
            vec.reserve(&stream, 4 << 20).unwrap();
            vec.shrink_to_fit().unwrap();
            assert!(device.unmap_completed().unwrap());
        }
        let waiting = device.deferred.len();
        assert!(waiting <= 1, "{waiting} wait");
    }
}
