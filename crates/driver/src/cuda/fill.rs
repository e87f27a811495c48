//! Fills of device memory with one value. Counts and widths are in values, pitches in bytes. A fill with `_async` in
//! its name is enqueued in a stream.

use super::api::Api;
use super::call::{DriverError, call};
use super::types::{CUdeviceptr, CUstream};

/// Sets `count` bytes of memory.
pub fn d8(api: &Api, to: CUdeviceptr, value: u8, count: usize) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD8_v2(to, value, count)) }
}

/// Sets `count` 16-bit values.
pub fn d16(api: &Api, to: CUdeviceptr, value: u16, count: usize) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD16_v2(to, value, count)) }
}

/// Sets `count` 32-bit values.
pub fn d32(api: &Api, to: CUdeviceptr, value: u32, count: usize) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD32_v2(to, value, count)) }
}

/// Enqueues [`d8`] in a stream.
pub fn d8_async(api: &Api, to: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD8Async(to, value, count, stream)) }
}

/// Enqueues [`d16`] in a stream.
pub fn d16_async(api: &Api, to: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD16Async(to, value, count, stream)) }
}

/// Enqueues [`d32`] in a stream.
pub fn d32_async(api: &Api, to: CUdeviceptr, value: u32, count: usize, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD32Async(to, value, count, stream)) }
}

/// Sets `height` rows, `pitch_bytes` apart, of `width` bytes of memory.
pub fn rectangle_d8(
    api: &Api,
    to: CUdeviceptr,
    pitch_bytes: usize,
    value: u8,
    width: usize,
    height: usize,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD2D8_v2(to, pitch_bytes, value, width, height)) }
}

/// Sets `height` rows, `pitch_bytes` apart, of `width` 16-bit values.
pub fn rectangle_d16(
    api: &Api,
    to: CUdeviceptr,
    pitch_bytes: usize,
    value: u16,
    width: usize,
    height: usize,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD2D16_v2(to, pitch_bytes, value, width, height)) }
}

/// Sets `height` rows, `pitch_bytes` apart, of `width` 32-bit values.
pub fn rectangle_d32(
    api: &Api,
    to: CUdeviceptr,
    pitch_bytes: usize,
    value: u32,
    width: usize,
    height: usize,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD2D32_v2(to, pitch_bytes, value, width, height)) }
}

/// Enqueues [`rectangle_d8`] in a stream.
pub fn rectangle_d8_async(
    api: &Api,
    to: CUdeviceptr,
    pitch_bytes: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD2D8Async(to, pitch_bytes, value, width, height, stream)) }
}

/// Enqueues [`rectangle_d16`] in a stream.
pub fn rectangle_d16_async(
    api: &Api,
    to: CUdeviceptr,
    pitch_bytes: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD2D16Async(to, pitch_bytes, value, width, height, stream)) }
}

/// Enqueues [`rectangle_d32`] in a stream.
pub fn rectangle_d32_async(
    api: &Api,
    to: CUdeviceptr,
    pitch_bytes: usize,
    value: u32,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemsetD2D32Async(to, pitch_bytes, value, width, height, stream)) }
}
