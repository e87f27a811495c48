//! Fills.

#![allow(non_snake_case, reason = "named as C names the functions")]

use freehold_check::BlockKind;
use freehold_check::calls::{Access, CallEffect, Item, Rows};
use freehold_driver::cuda::{Api, CUdeviceptr, CUresult, CUstream};

use crate::calls::wrap::{Call, wrappers};

/// Returns what a fill of `height` rows of `width` bytes writes.
pub(in crate::calls) fn write(to: CUdeviceptr, pitch: usize, width: usize, height: usize) -> Option<Access> {
    if width == 0 || height == 0 {
        return None;
    }
    let rows = Rows::of_rectangle(to.0, width as u64, pitch as u64, height as u64);
    Some(Access { effect: CallEffect::Write, rows })
}

/// Tells the checker of a fill.
fn filled(call: Call, access: Option<Access>, to: CUdeviceptr, stream: Option<CUstream>, result: CUresult) -> CUresult {
    call.noted(result)?;
    let Some(access) = access else { return Ok(()) };
    // A fill of a device's memory does not wait.
    let is_of_host = || matches!(call.calls.checker.memory_kind(to.0), Some(BlockKind::Host | BlockKind::Defined));
    let item = Item { kernel: None, module: None, accesses: &[access], arguments: &[], is_of_graph: false };
    call.submit(stream.unwrap_or(CUstream::NULL), &[item], stream.is_none() && is_of_host());
    Ok(())
}

wrappers! {
    fn cuMemsetD8_v2["_ptds"](call, to: CUdeviceptr, value: u8, count: usize) {
        // SAFETY: the conditions are the same.
        filled(call, write(to, 0, count, 1), to, None, unsafe { (call.api.cuMemsetD8_v2)(to, value, count) })
    }

    fn cuMemsetD16_v2["_ptds"](call, to: CUdeviceptr, value: u16, count: usize) {
        // SAFETY: the conditions are the same.
        filled(call, write(to, 0, 2 * count, 1), to, None, unsafe { (call.api.cuMemsetD16_v2)(to, value, count) })
    }

    fn cuMemsetD32_v2["_ptds"](call, to: CUdeviceptr, value: u32, count: usize) {
        // SAFETY: the conditions are the same.
        filled(call, write(to, 0, 4 * count, 1), to, None, unsafe { (call.api.cuMemsetD32_v2)(to, value, count) })
    }

    fn cuMemsetD2D8_v2["_ptds"](call, to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemsetD2D8_v2)(to, pitch, value, width, height) };
        filled(call, write(to, pitch, width, height), to, None, result)
    }

    fn cuMemsetD2D16_v2["_ptds"](call, to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemsetD2D16_v2)(to, pitch, value, width, height) };
        filled(call, write(to, pitch, 2 * width, height), to, None, result)
    }

    fn cuMemsetD2D32_v2["_ptds"](call, to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemsetD2D32_v2)(to, pitch, value, width, height) };
        filled(call, write(to, pitch, 4 * width, height), to, None, result)
    }

    fn cuMemsetD8Async["_ptsz"](call, to: CUdeviceptr, value: u8, count: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemsetD8Async)(to, value, count, stream) };
        filled(call, write(to, 0, count, 1), to, Some(stream), result)
    }

    fn cuMemsetD16Async["_ptsz"](call, to: CUdeviceptr, value: u16, count: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemsetD16Async)(to, value, count, stream) };
        filled(call, write(to, 0, 2 * count, 1), to, Some(stream), result)
    }

    fn cuMemsetD32Async["_ptsz"](call, to: CUdeviceptr, value: u32, count: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemsetD32Async)(to, value, count, stream) };
        filled(call, write(to, 0, 4 * count, 1), to, Some(stream), result)
    }

    fn cuMemsetD2D8Async["_ptsz"](call, to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemsetD2D8Async)(to, pitch, value, width, height, stream) };
        filled(call, write(to, pitch, width, height), to, Some(stream), result)
    }

    fn cuMemsetD2D16Async["_ptsz"](call, to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemsetD2D16Async)(to, pitch, value, width, height, stream) };
        filled(call, write(to, pitch, 2 * width, height), to, Some(stream), result)
    }

    fn cuMemsetD2D32Async["_ptsz"](call, to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemsetD2D32Async)(to, pitch, value, width, height, stream) };
        filled(call, write(to, pitch, 4 * width, height), to, Some(stream), result)
    }
}
