//! A vector that grows from 1 GiB to 2 GiB: with memory that the driver creates, and with memory that the pool has
//! cached.

use freehold::{Device, DeviceVec};

use super::super::stats::timed;
use crate::bench::error::Result;

/// The vector's size, and the size by which it grows.
const HALF_BYTES: usize = 1 << 30;

/// The reserved address range: large enough for every growth.
const ROOM_BYTES: usize = 4 << 30;

/// The time of each growth.
pub(super) struct Growths {
    /// With memory that the driver creates.
    pub(super) cold_ns: Vec<f64>,
    /// With memory that the pool has cached.
    pub(super) kept_ns: Vec<f64>,
}

/// Grows a vector `repetitions` times in both ways. Nothing is pending.
pub(super) fn growths(device: &Device, repetitions: usize) -> Result<Growths> {
    let stream = device.new_stream()?;
    let mut vector = DeviceVec::<u8>::with_max_len(&stream, ROOM_BYTES)?;
    vector.reserve(&stream, HALF_BYTES)?;
    vector.resize(&stream, HALF_BYTES, 0)?;
    stream.synchronize()?;
    let mut grow = || -> Result<f64> {
        let (grown, time) = timed(|| vector.reserve(&stream, HALF_BYTES));
        grown?;
        vector.shrink_to_fit()?;
        device.tidy()?;
        Ok(time)
    };
    let mut growths = Growths { cold_ns: Vec::new(), kept_ns: Vec::new() };
    for _ in 0..repetitions {
        device.trim()?;
        growths.cold_ns.push(grow()?);
        growths.kept_ns.push(grow()?);
    }
    drop(vector);
    device.synchronize()?;
    device.trim()?;
    Ok(growths)
}
