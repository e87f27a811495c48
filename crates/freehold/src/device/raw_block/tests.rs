//! Blocks whose context is closed by another thread in the middle of a call on them.

use crate::api::device::Device;
use crate::base::sync_point::{self, SyncPoint};
use crate::error::Error;

const MIB: usize = 1 << 20;

fn device() -> Device {
    // SAFETY: the table is the device's alone.
    let opened = unsafe { crate::api::open::open(None) }.unwrap();
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    unsafe { Device::new(opened.api, opened.device) }.unwrap()
}

/// The bytes that are live under a name.
fn live_bytes(device: &Device, tag: &str) -> u64 {
    device.live_by_tag().into_iter().find(|(name, _)| &**name == tag).map_or(0, |(_, bytes)| bytes)
}

#[test]
fn a_block_whose_context_is_closed_while_it_is_resized_leaves_the_next_owners_place_whole() {
    for wanted in [4 * MIB, 12 * MIB] {
        let device = device();
        let context = device.new_context().unwrap();
        let stream = context.new_stream().unwrap();
        let next = device.new_stream().unwrap();
        let mut block = stream.alloc::<u8>(8 * MIB).unwrap();
        let address = block.address();
        let mut owned = None;
        let resized = sync_point::within(
            SyncPoint::Resize,
            || block.resize(&stream, wanted),
            || {
                // Nothing is pending, so the context is destroyed at once, and any stream may get its memory.
                context.close_with_blocks().unwrap();
                let there = next.alloc::<u8>(8 * MIB).unwrap();
                assert_eq!(there.address(), address, "the next owner has the same memory");
                owned = Some(there);
            },
        );
        assert!(matches!(resized, Err(Error::ContextClosed { .. })), "{resized:?}");
        let owned = owned.unwrap();
        assert_eq!(owned.owner().unwrap().bytes, 8 * MIB as u64);
        // Whatever else is handed out lies beside it.
        let others: Vec<_> = (0..4).map(|_| next.alloc::<u8>(2 * MIB).unwrap()).collect();
        for other in &others {
            let is_apart = other.address() + 2 * MIB as u64 <= address || other.address() >= address + 8 * MIB as u64;
            assert!(is_apart, "{:#x} lies in the 8 MiB at {address:#x}", other.address());
        }
        drop((owned, others, block));
        assert_eq!(device.stats().owned_bytes, 0);
    }
}

#[test]
fn a_block_whose_context_is_closed_while_it_is_allocated_is_closed_with_it() {
    let device = device();
    let context = device.new_context().unwrap();
    let (stream, next) = (context.new_stream().unwrap(), device.new_stream().unwrap());
    let block = sync_point::within(
        SyncPoint::Alloc,
        || stream.alloc_tagged::<u8>(MIB, "closed").unwrap(),
        || context.close_with_blocks().unwrap(),
    );
    assert_eq!(block.owner(), None);
    assert_eq!((device.live_by_tag(), device.stats().owned_bytes), (Vec::new(), 0));
    let owned = next.alloc_tagged::<u8>(MIB, "next").unwrap();
    assert!(matches!(next.download(&block), Err(Error::ContextClosed { .. })));
    drop(block);
    assert_eq!((live_bytes(&device, "next"), device.stats().owned_bytes), (MIB as u64, MIB as u64));
    drop(owned);
}

#[test]
fn a_block_whose_context_is_closed_while_it_is_renamed_counts_for_no_name() {
    let device = device();
    let context = device.new_context().unwrap();
    let block = context.new_stream().unwrap().alloc_tagged::<u8>(4096, "old").unwrap();
    sync_point::within(SyncPoint::Retag, || block.tag("new"), || context.close_with_blocks().unwrap());
    assert_eq!(device.live_by_tag(), []);
    drop(block);
    assert_eq!(device.live_by_tag(), []);
}

#[test]
fn a_block_that_moves_out_of_a_context_that_is_closed_keeps_counting_for_its_name() {
    let device = device();
    for (before, after) in [(4096, 8192), (100_000, 4096)] {
        let context = device.new_context().unwrap();
        let (stream, other) = (context.new_stream().unwrap(), device.new_stream().unwrap());
        let mut block = stream.alloc_tagged::<u8>(before, "moved").unwrap();
        // Another stream's use keeps a longer one from being cut where it lies.
        let lent = other.lend(&block).unwrap();
        let resized = sync_point::within(
            SyncPoint::LoseName,
            || block.resize(&other, after),
            || {
                context.clone().close_with_blocks().unwrap();
                assert_eq!(live_bytes(&device, "moved"), after.saturating_sub(before) as u64);
            },
        );
        assert!(matches!(resized, Ok(false)), "{resized:?}");
        assert_eq!(live_bytes(&device, "moved"), after as u64);
        lent.done();
        drop(block);
        assert_eq!(device.live_by_tag(), []);
    }
}
