//! The pool at its limits, which are near in these tests, and what it counts.

use crate::device::Device;
use crate::error::Error;
use crate::pool::Totals;

#[test]
fn a_block_too_many_is_refused_and_one_that_was_released_is_handed_out_again() {
    let opened = crate::open::open(None).unwrap();
    let device = Device::new(opened.api, opened.device).unwrap();
    let stream = device.stream().unwrap();
    let mut blocks = Vec::new();
    let refused = loop {
        match stream.alloc::<u8>(1) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooManyBlocks { blocks_max: 131_072 }), "{refused}");
    assert!(blocks.len() > 110_000, "{} blocks", blocks.len());
    // Nor one that is longer than the classes, when the last records are used.
    let mut longer = Vec::new();
    let refused = loop {
        match stream.alloc::<u8>(100 << 10) {
            Ok(block) => longer.push(block),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooManyBlocks { blocks_max: 131_072 }), "{refused}");
    assert!(longer.len() <= 64, "{} blocks", longer.len());
    drop(longer);
    blocks.pop();
    blocks.push(stream.alloc::<u8>(1).unwrap());
    drop(blocks);
    device.synchronize().unwrap();
    device.trim().unwrap();
    assert_eq!(device.totals(), Totals::default());
}

#[test]
fn totals_of_a_moment_in_which_a_release_is_seen_before_its_allocation_are_nothing_and_not_all() {
    let opened = crate::open::open(None).unwrap();
    let device = Device::new(opened.api, opened.device).unwrap();
    let (stream, core) = (device.stream().unwrap(), &device.primary.inner.core);
    let reserved_bytes = device.totals().reserved_bytes;
    let lot = core.pool.lot_of(&stream.home.track);
    lot.counts.take_shared(100);
    let expected = Totals { cached_bytes: reserved_bytes, reserved_bytes, ..Totals::default() };
    assert_eq!(device.totals(), expected);
    lot.counts.hand_shared(100);
    assert_eq!(device.totals(), expected);
    lot.counts.hand_shared(30);
    assert_eq!((device.totals().owned_blocks, device.totals().owned_bytes), (1, 30));
    lot.counts.take_shared(30);
}
