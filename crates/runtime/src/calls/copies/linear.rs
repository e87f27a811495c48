//! Copies of one range.

#![allow(non_snake_case, reason = "named as C names the functions")]

use std::ffi::c_void;

use freehold_driver::cuda::{Api, CUarray, CUcontext, CUdeviceptr, CUresult, CUstream};

use super::{Copy, End, Mode, Role, copied, copied_between};
use crate::calls::wrap::{Call, wrappers};

fn sync(call: Call, from: (Role, u64), to: (Role, u64), bytes: usize, result: CUresult) -> CUresult {
    copied(call, &Copy::linear(from, to, bytes), CUstream::NULL, Mode::Sync, result)
}

fn array_copy(from: End, to: End, bytes: usize) -> Copy {
    Copy { from, to, bytes: bytes as u64 }
}

wrappers! {
    fn cuMemcpy["_ptds"](call, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpy)(to, from, bytes) };
        sync(call, (Role::Any, from.0), (Role::Any, to.0), bytes, result)
    }

    fn cuMemcpyPeer["_ptds"](call, to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyPeer)(to, to_context, from, from_context, bytes) };
        let copy = Copy::linear((Role::Device, from.0), (Role::Device, to.0), bytes);
        copied_between(call, &copy, result)
    }

    fn cuMemcpyHtoD_v2["_ptds"](call, to: CUdeviceptr, from: *const c_void, bytes: usize) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyHtoD_v2)(to, from, bytes) };
        sync(call, (Role::Host, from as u64), (Role::Device, to.0), bytes, result)
    }

    fn cuMemcpyDtoH_v2["_ptds"](call, to: *mut c_void, from: CUdeviceptr, bytes: usize) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyDtoH_v2)(to, from, bytes) };
        sync(call, (Role::Device, from.0), (Role::Host, to as u64), bytes, result)
    }

    fn cuMemcpyDtoD_v2["_ptds"](call, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyDtoD_v2)(to, from, bytes) };
        sync(call, (Role::Device, from.0), (Role::Device, to.0), bytes, result)
    }

    fn cuMemcpyAsync["_ptsz"](call, to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyAsync)(to, from, bytes, stream) };
        copied(call, &Copy::linear((Role::Any, from.0), (Role::Any, to.0), bytes), stream, Mode::Async, result)
    }

    fn cuMemcpyPeerAsync["_ptsz"](call, to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyPeerAsync)(to, to_context, from, from_context, bytes, stream) };
        copied(call, &Copy::linear((Role::Device, from.0), (Role::Device, to.0), bytes), stream, Mode::Async, result)
    }

    fn cuMemcpyHtoDAsync_v2["_ptsz"](call, to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyHtoDAsync_v2)(to, from, bytes, stream) };
        copied(call, &Copy::linear((Role::Host, from as u64), (Role::Device, to.0), bytes), stream, Mode::Async, result)
    }

    fn cuMemcpyDtoHAsync_v2["_ptsz"](call, to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyDtoHAsync_v2)(to, from, bytes, stream) };
        copied(call, &Copy::linear((Role::Device, from.0), (Role::Host, to as u64), bytes), stream, Mode::Async, result)
    }

    fn cuMemcpyDtoDAsync_v2["_ptsz"](call, to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyDtoDAsync_v2)(to, from, bytes, stream) };
        copied(call, &Copy::linear((Role::Device, from.0), (Role::Device, to.0), bytes), stream, Mode::Async, result)
    }

    fn cuMemcpyHtoAAsync_v2["_ptsz"](call, to: CUarray, to_offset: usize, from: *const c_void, bytes: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyHtoAAsync_v2)(to, to_offset, from, bytes, stream) };
        let copy = array_copy(End::linear(Role::Host, from as u64, bytes), End::Array, bytes);
        copied(call, &copy, stream, Mode::Async, result)
    }

    fn cuMemcpyAtoHAsync_v2["_ptsz"](call, to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyAtoHAsync_v2)(to, from, from_offset, bytes, stream) };
        let copy = array_copy(End::Array, End::linear(Role::Host, to as u64, bytes), bytes);
        copied(call, &copy, stream, Mode::Async, result)
    }

    fn cuMemcpyDtoA_v2["_ptds"](call, to: CUarray, to_offset: usize, from: CUdeviceptr, bytes: usize) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyDtoA_v2)(to, to_offset, from, bytes) };
        let copy = array_copy(End::linear(Role::Device, from.0, bytes), End::Array, bytes);
        copied(call, &copy, CUstream::NULL, Mode::Sync, result)
    }

    fn cuMemcpyAtoD_v2["_ptds"](call, to: CUdeviceptr, from: CUarray, from_offset: usize, bytes: usize) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyAtoD_v2)(to, from, from_offset, bytes) };
        let copy = array_copy(End::Array, End::linear(Role::Device, to.0, bytes), bytes);
        copied(call, &copy, CUstream::NULL, Mode::Sync, result)
    }

    fn cuMemcpyAtoH_v2["_ptds"](call, to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpyAtoH_v2)(to, from, from_offset, bytes) };
        let copy = array_copy(End::Array, End::linear(Role::Host, to as u64, bytes), bytes);
        copied(call, &copy, CUstream::NULL, Mode::Sync, result)
    }
}
