//! Host tasks: functions of the program that access device memory in the order of a stream, as kernels do.

use crate::common;

use std::ffi::c_void;

use common::{Context, Gate, at, child};
use freehold_driver::cuda::extension::{self, Extension, HOST_READ, HOST_WRITE, HostAccess};
use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUresult, CUstream, CUstreamCaptureMode, capture, fill, graph, stream,
};

fn extension(own: &Context) -> Extension {
    extension::find(&own.api).expect("the software driver has it")
}

/// A task that adds one to a byte.
unsafe extern "C" fn increment(view: *mut c_void) {
    // SAFETY: `data` is the view of a byte that the task lists, as `increment_in` passes it.
    let byte = unsafe { &mut *view.cast::<u8>() };
    *byte = byte.wrapping_add(1);
}

fn access(start: CUdeviceptr, bytes: u64, kind: u32) -> HostAccess {
    HostAccess { start: start.0, bytes, kind, pad: 0 }
}

fn increment_in(own: &Context, stream: CUstream, byte: CUdeviceptr) -> CUresult {
    let view = extension(own).host_view(byte.0, 1)?;
    let accesses = [access(byte, 1, HOST_READ | HOST_WRITE)];
    // SAFETY: the task accesses the byte that it lists, and the memory outlives the stream's work.
    unsafe { extension(own).launch_host(stream, c"increment", increment, view, &accesses) }
}

#[test]
fn a_host_task_runs_after_the_work_before_it_and_does_not_keep_the_host() {
    let own = Context::create();
    let (memory, stream) = (own.block(64), own.stream());
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    gate.shut_during(|| {
        fill::d8_async(&own.api, memory, 7, 64, stream).unwrap();
        increment_in(&own, stream, at(memory, 3)).unwrap();
    });
    gate.opened_during(|| own.finish(stream));
    assert_eq!(own.read(memory, 5), [7, 7, 7, 8, 7]);
}

#[test]
fn a_captured_host_task_runs_at_each_launch_of_its_graph() {
    let own = Context::create();
    let (memory, stream) = (own.block(64), own.stream());
    own.write(memory, &[0; 64]);
    capture::begin(&own.api, stream, CUstreamCaptureMode::RELAXED).unwrap();
    increment_in(&own, stream, memory).unwrap();
    let graph = capture::end(&own.api, stream).unwrap();
    let exec = graph::instantiate(&own.api, graph, 0).unwrap();
    for _ in 0..3 {
        // SAFETY: the task accesses memory that outlives the launch.
        unsafe { graph::launch(&own.api, exec, stream) }.unwrap();
    }
    own.finish(stream);
    assert_eq!(own.read(memory, 1), [3]);
}

#[test]
fn a_host_task_lists_ranges_that_lie_in_one_block() {
    let own = Context::create();
    let (memory, stream) = (own.block(4096), own.stream());
    let launch = |accesses: &[HostAccess]| {
        // SAFETY: the call is refused, or the task does nothing.
        unsafe { extension(&own).launch_host(stream, c"nothing", nothing, std::ptr::null_mut(), accesses) }
    };
    assert_eq!(launch(&[]), Ok(()));
    assert_eq!(launch(&[access(memory, 4096, HOST_READ)]), Ok(()));
    for wrong in [
        access(memory, 4097, HOST_READ),
        access(memory, u64::MAX, HOST_WRITE),
        access(CUdeviceptr(64), 1, HOST_READ),
        access(memory, 1, 0),
        access(memory, 1, 4),
    ] {
        assert_eq!(launch(&[access(memory, 1, HOST_READ), wrong]), Err(CUerror::INVALID_VALUE), "{wrong:?}");
    }
    assert_eq!(extension(&own).host_view(memory.0, 4097), Err(CUerror::INVALID_VALUE));
    own.finish(stream);
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

#[test]
fn a_host_task_whose_memory_was_unmapped_does_not_run_and_faults() {
    child::run_in_child("a_host_task_whose_memory_was_unmapped_does_not_run_and_faults", || {
        let own = Context::create();
        let (start, stream) = (own.addresses(1), own.stream());
        own.map(start, own.chunk());
        let gate = Gate::closed(&own);
        gate.hold(&own.api, stream);
        increment_in(&own, stream, start).unwrap();
        own.unmap(start, 1);
        gate.open();
        let end = stream::synchronize(&own.api, stream).map_err(|error| error.code);
        assert_eq!(end, Err(CUerror::ILLEGAL_ADDRESS));
    });
}
