//! Blocks that foreign code owns by their addresses: leaked to it, and taken back.

use std::any::Any;

use crate::device::device_inner::{DeviceInner, LeakedBlock};
use crate::device::raw_block::RawBlock;
use crate::device::stream_inner::StreamInner;
use crate::error::{Error, Result};
use crate::ledger::{ContextId, Fence, WrongRelease};
use crate::ordering::access_history::Access;

impl LeakedBlock for RawBlock {
    fn context(&self) -> ContextId {
        self.stream.context.id()
    }

    fn note_use(&self, fence: Fence) {
        self.history.note_unordered(fence, Access::Write);
    }
}

/// Leaks a block and returns its address.
pub(crate) fn leak_to_address(device: &DeviceInner, raw: RawBlock) -> u64 {
    let address = raw.address;
    let mut let_go = device.by_address();
    // A block that ended with its context has no owner, and its address may be reused. An empty one has no address.
    if address != 0 && !raw.stream.context.inner.is_closed() {
        let_go.insert(address, Box::new(raw));
    }
    address
}

/// Takes a block back by its address.
pub(crate) fn take_by_address(device: &DeviceInner, address: u64) -> Result<RawBlock> {
    if device.is_child() {
        return Err(WrongRelease::ForkedChild { address, process: device.process }.into());
    }
    device.check()?;
    device.releasable(address)?;
    let leaked = device.by_address().remove(&address);
    let leaked: Box<dyn Any> = leaked.ok_or_else(|| held(device, address))?;
    Ok(*leaked.downcast().expect("every leaked block is a raw block"))
}

/// Records a use of a leaked block.
pub(crate) fn note_use(device: &DeviceInner, address: u64, stream: &StreamInner) -> Result<()> {
    device.releasable(address)?;
    device.sleepers.check_awake(address)?;
    let seq = stream.state.count_work();
    if let Some(leaked) = device.by_address().get(&address) {
        leaked.note_use(Fence { stream: stream.state.id, seq });
        return Ok(());
    }
    Err(held(device, address))
}

/// Returns why a block that was not leaked cannot be released by its address. Another thread may have released it just
/// now.
fn held(device: &DeviceInner, address: u64) -> Error {
    match device.releasable(address) {
        Err(wrong) => wrong.into(),
        Ok(of) => WrongRelease::Held { of: Box::new(of) }.into(),
    }
}
