//! The program that the tests of recordings record.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use freehold::{Device, Grid, Image};

const KERNELS: &str = include_str!("../../../examples/kernels.ptx");

pub(crate) fn device() -> Device {
    let opened = crate::own::opened();
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    unsafe { Device::new(opened.api, opened.device) }.unwrap()
}

/// One block, used by two streams and released while they are on their way.
pub(crate) fn work(device: &Device) {
    let module = device.module(&Image::ptx(KERNELS).unwrap()).unwrap();
    let (scale, spend) = (crate::own::kernel(&module, "scale").unwrap(), crate::own::kernel(&module, "spend").unwrap());
    let (stream, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let mut x = stream.upload(&[1.0f32; 100]).unwrap();
    x.tag("weights");
    stream.launch(&scale, Grid::cover(100, 32), (&mut x, 2.0f32, 100u32)).unwrap();
    other.launch(&spend, Grid::line(1, 1), (2_000_000u64,)).unwrap();
    let mut copy = other.alloc_tagged::<f32>(100, "copy").unwrap();
    other.copy(&x, &mut copy).unwrap();
    drop(x);
    copy.close().unwrap();
    let again = other.alloc::<f32>(100).unwrap();
    drop(again);
}
