//! The pool at its limits, which are near in these tests.

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
