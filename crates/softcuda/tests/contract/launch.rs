//! Launches: rejected parameters, argument passing, and the order of kernels.

use crate::common;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use common::kernels::pointers;
use common::{Context, Gate, Refused, at, until};
use freehold_driver::cuda::launch::{self, LaunchConfig};
use freehold_driver::cuda::{
    CUerror, CUfunction, CUfunction_attribute, CUlaunchAttribute, CUlaunchAttributeID, CUstream, context, copy, event,
    fill, function, launch_param, stream,
};

const fn shape(grid: [u32; 3], block: [u32; 3]) -> LaunchConfig {
    LaunchConfig { grid, block, shared_bytes: 0 }
}

#[test]
fn every_thread_of_a_grid_runs() {
    let own = Context::create();
    let (store, to) = (own.kernel(c"store"), own.block(4 * 1000 * 96));
    own.run(store, LaunchConfig::linear(1000, 96), CUstream::NULL, &[to.0.into(), 100u32.into()]).unwrap();
    let words = own.read(to, 4 * 1000 * 96);
    for (index, word) in words.chunks_exact(4).enumerate() {
        assert_eq!(word, (100 + index as u32).to_le_bytes());
    }
}

#[test]
fn a_launch_without_blocks_or_threads_is_an_invalid_value() {
    let own = Context::create();
    let nothing = own.kernel(c"nothing");
    for wrong in 0..6 {
        let mut counts = [1; 6];
        counts[wrong] = 0;
        let [a, b, c, d, e, f] = counts;
        let answer = own.run(nothing, shape([a, b, c], [d, e, f]), CUstream::NULL, &[]);
        assert_eq!(answer.code(), CUerror::INVALID_VALUE, "{counts:?}");
    }
}

#[test]
fn a_launch_beyond_what_the_device_or_the_kernel_allows_is_an_invalid_value() {
    let own = Context::create();
    let loaded = own.module();
    let nothing = own.function(loaded, c"nothing");
    let refused = |function, shape: LaunchConfig| {
        assert_eq!(own.run(function, shape, CUstream::NULL, &[]).code(), CUerror::INVALID_VALUE, "{shape:?}");
    };
    refused(nothing, LaunchConfig::linear(1, 1025));
    refused(nothing, shape([1, 1, 1], [32, 33, 1]));
    refused(nothing, shape([1, 1, 1], [1, 1, 65]));
    refused(nothing, shape([1, 65536, 1], [1, 1, 1]));
    refused(nothing, shape([1, 1, 65536], [1, 1, 1]));
    refused(nothing, shape([0x8000_0000, 1, 1], [1, 1, 1]));
    refused(own.function(loaded, c"bounded"), LaunchConfig::linear(1, 65));
    refused(own.function(loaded, c"required"), LaunchConfig::linear(1, 64));
    let allowed = |function, shape: LaunchConfig| own.run(function, shape, CUstream::NULL, &[]).unwrap();
    allowed(nothing, LaunchConfig::linear(1, 1024));
    allowed(nothing, shape([1, 1, 1], [16, 1, 64]));
    allowed(own.function(loaded, c"bounded"), LaunchConfig::linear(1, 64));
    allowed(own.function(loaded, c"required"), shape([1, 1, 1], [32, 2, 1]));
    own.finish(CUstream::NULL);
}

#[test]
fn dynamic_shared_memory_beyond_48_kib_is_asked_for_before() {
    let own = Context::create();
    let sharing = own.kernel(c"sharing");
    let with = |shared_bytes| LaunchConfig { shared_bytes, ..LaunchConfig::linear(1, 1) };
    own.run(sharing, with(47 << 10), CUstream::NULL, &[]).unwrap();
    assert_eq!(own.run(sharing, with((47 << 10) + 1), CUstream::NULL, &[]).code(), CUerror::INVALID_VALUE);
    let at = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    function::set_attribute(&own.api, sharing, at, 100 << 10).unwrap();
    own.run(sharing, with(100 << 10), CUstream::NULL, &[]).unwrap();
    assert_eq!(own.run(sharing, with((100 << 10) + 1), CUstream::NULL, &[]).code(), CUerror::INVALID_VALUE);
    own.finish(CUstream::NULL);
}

#[test]
fn a_null_function_is_an_invalid_handle() {
    let own = Context::create();
    assert_eq!(
        own.run(CUfunction::NULL, LaunchConfig::linear(1, 1), CUstream::NULL, &[]).code(),
        CUerror::INVALID_HANDLE
    );
}

#[test]
fn a_function_of_another_context_is_an_invalid_handle() {
    let own = Context::create();
    let nothing = own.kernel(c"nothing");
    let other = own.another();
    assert_eq!(other.run(nothing, LaunchConfig::linear(1, 1), CUstream::NULL, &[]).code(), CUerror::INVALID_HANDLE);
    drop(other);
    own.enter();
    own.run(nothing, LaunchConfig::linear(1, 1), CUstream::NULL, &[]).unwrap();
}

#[test]
fn arguments_come_from_one_buffer_as_well() {
    let own = Context::create();
    let (widths, to) = (own.kernel(c"widths"), own.block(4));
    // Of each argument only the width of its parameter counts.
    let arguments = [0x1c8u32.into(), to.0.into(), 0x1_0001u32.into(), 1000u32.into()];
    own.run(widths, LaunchConfig::linear(1, 1), CUstream::NULL, &arguments).unwrap();
    assert_eq!(own.read(to, 4), 1201u32.to_le_bytes());

    let parameters: Vec<_> = (0..4).map(|index| function::parameter(&own.api, widths, index).unwrap()).collect();
    let places: Vec<_> = parameters.iter().map(|parameter| (parameter.offset, parameter.bytes)).collect();
    assert_eq!(places, [(0, 1), (8, 8), (16, 2), (20, 4)]);
    assert_eq!(function::parameter(&own.api, widths, 4).code(), CUerror::INVALID_VALUE);

    let mut buffer = [0u8; 24];
    buffer[0] = 1;
    buffer[8..16].copy_from_slice(&to.0.to_le_bytes());
    buffer[16] = 2;
    buffer[20] = 3;
    let launch_with = |size: usize| {
        let mut size = size;
        let mut extra: [*mut c_void; 5] = [
            launch_param::BUFFER_POINTER as *mut c_void,
            buffer.as_ptr().cast_mut().cast(),
            launch_param::BUFFER_SIZE as *mut c_void,
            std::ptr::from_mut(&mut size).cast(),
            launch_param::END as *mut c_void,
        ];
        // SAFETY: the list is as C wants it, and the buffer holds the arguments where the kernel has them.
        unsafe {
            launch::raw(&own.api, widths, LaunchConfig::linear(1, 1), CUstream::NULL, null_mut(), extra.as_mut_ptr())
        }
    };
    launch_with(24).unwrap();
    assert_eq!(own.read(to, 4), 6u32.to_le_bytes());
    assert_eq!(launch_with(32).code(), CUerror::LAUNCH_OUT_OF_RESOURCES);
}

#[test]
fn arguments_in_two_ways_at_once_are_an_invalid_value() {
    let own = Context::create();
    let (store, to) = (own.kernel(c"store"), own.block(4));
    let mut arguments = [to.0.into(), 1u32.into()];
    let mut parameters = pointers(&mut arguments);
    let (mut buffer, mut length) = ([0u8; 12], 12usize);
    let mut both: [*mut c_void; 5] = [
        launch_param::BUFFER_POINTER as *mut c_void,
        buffer.as_mut_ptr().cast(),
        launch_param::BUFFER_SIZE as *mut c_void,
        (&raw mut length).cast(),
        launch_param::END as *mut c_void,
    ];
    let mut nothing: [*mut c_void; 1] = [launch_param::END as *mut c_void];
    let mut launch_with = |extra: &mut [*mut c_void]| {
        // SAFETY: both lists are good.
        unsafe {
            launch::raw(
                &own.api,
                store,
                LaunchConfig::linear(1, 1),
                CUstream::NULL,
                parameters.as_mut_ptr(),
                extra.as_mut_ptr(),
            )
        }
    };
    assert_eq!(launch_with(&mut both).code(), CUerror::INVALID_VALUE);
    launch_with(&mut nothing).expect("an empty list says nothing");
}

#[test]
fn kernels_of_one_stream_run_in_order_with_its_other_work() {
    let own = Context::create();
    let (loaded, stream, block) = (own.module(), own.stream(), own.block(4));
    let multiply = own.function(loaded, c"multiply");
    let counter = freehold_driver::cuda::module::global(&own.api, loaded, c"counter").unwrap().base;
    fill::d32_async(&own.api, counter, 1, 1, stream).unwrap();
    for _ in 0..10 {
        own.run(multiply, LaunchConfig::linear(1, 1), stream, &[]).unwrap();
    }
    copy::device_to_device_async(&own.api, block, counter, 4, stream).unwrap();
    own.finish(stream);
    assert_eq!(own.read(block, 4), 59049u32.to_le_bytes());
}

#[test]
fn a_kernel_waits_for_what_the_host_writes_and_the_host_sees_what_it_wrote() {
    let own = Context::create();
    let (wait, words, stream) = (own.kernel(c"wait"), own.pinned(4096), own.stream());
    words.fill(0);
    let (word, done) = (words.address(), at(words.address(), 4));
    own.run(wait, LaunchConfig::linear(3, 1), stream, &[word.0.into(), done.0.into()]).unwrap();
    assert_eq!(stream::query(&own.api, stream), Ok(false));
    assert_eq!(words.word(1), 0);
    words.words()[0].store(1, Ordering::SeqCst);
    until(|| words.word(1) == 3);
    own.finish(stream);
}

#[test]
fn kernels_of_two_streams_run_at_once() {
    let own = Context::create();
    let (meet, words) = (own.kernel(c"meet"), own.block(8));
    own.write(words, &[0; 8]);
    let (one, two) = (own.stream(), own.stream());
    let (mine, yours) = (words.0, words.0 + 4);
    own.run(meet, LaunchConfig::linear(1, 1), one, &[mine.into(), yours.into()]).unwrap();
    own.run(meet, LaunchConfig::linear(1, 1), two, &[yours.into(), mine.into()]).unwrap();
    context::synchronize(&own.api).unwrap();
}

#[test]
fn the_blocks_of_a_cooperative_launch_may_wait_for_each_other() {
    let own = Context::create();
    let (gather, arrived) = (own.kernel(c"gather"), own.block(4));
    own.write(arrived, &[0; 4]);
    let mut arguments = [arrived.0.into()];
    // SAFETY: the argument is the one that the kernel has.
    unsafe {
        launch::cooperative(
            &own.api,
            gather,
            LaunchConfig::linear(132, 32),
            CUstream::NULL,
            &mut pointers(&mut arguments),
        )
    }
    .unwrap();
    assert_eq!(own.read(arrived, 4), (132u32 * 32).to_le_bytes());
}

#[test]
fn a_cooperative_launch_beyond_the_device_is_too_large() {
    let own = Context::create();
    let nothing = own.kernel(c"nothing");
    // SAFETY: the kernel has no parameters.
    let answer =
        unsafe { launch::cooperative(&own.api, nothing, LaunchConfig::linear(100_000, 32), CUstream::NULL, &mut []) };
    assert_eq!(answer.code(), CUerror::COOPERATIVE_LAUNCH_TOO_LARGE);
}

#[test]
fn attributes_of_a_launch_are_heeded() {
    let own = Context::create();
    let (gather, arrived) = (own.kernel(c"gather"), own.block(4));
    own.write(arrived, &[0; 4]);
    let with = |id, words, blocks| {
        let mut attributes = [CUlaunchAttribute::of_words(id, words)];
        let mut arguments = [arrived.0.into()];
        let (shape, mut arguments) = (LaunchConfig::linear(blocks, 1), pointers(&mut arguments));
        // SAFETY: the argument is the one that the kernel has.
        unsafe { launch::with_attributes(&own.api, gather, shape, CUstream::NULL, &mut attributes, &mut arguments) }
    };
    with(CUlaunchAttributeID::COOPERATIVE, [1, 0, 0], 64).unwrap();
    with(CUlaunchAttributeID::PRIORITY, [0, 0, 0], 1).unwrap();
    with(CUlaunchAttributeID::CLUSTER_DIMENSION, [1, 1, 1], 1).unwrap();
    own.finish(CUstream::NULL);
    let answer = with(CUlaunchAttributeID::COOPERATIVE, [1, 0, 0], 100_000);
    assert_eq!(answer.code(), CUerror::COOPERATIVE_LAUNCH_TOO_LARGE);
}

#[test]
fn an_event_after_a_kernel_passes_with_it() {
    let own = Context::create();
    let (store, to, stream, gate) = (own.kernel(c"store"), own.block(4), own.stream(), Gate::closed(&own));
    let event = event::create(&own.api, 0).unwrap();
    gate.hold(&own.api, stream);
    own.run(store, LaunchConfig::linear(1, 1), stream, &[to.0.into(), 3u32.into()]).unwrap();
    event::record(&own.api, event, stream).unwrap();
    assert_eq!(event::query(&own.api, event), Ok(false));
    gate.open();
    event::synchronize(&own.api, event).unwrap();
    assert_eq!(own.read(to, 4), 3u32.to_le_bytes());
}

#[test]
fn memory_freed_in_order_behind_a_kernel_is_the_kernels_until_then() {
    let own = Context::create();
    let (store, stream, gate) = (own.kernel(c"store"), own.stream(), Gate::closed(&own));
    let block = freehold_driver::cuda::memory::alloc_async(&own.api, 4096, stream).unwrap();
    gate.hold(&own.api, stream);
    own.run(store, LaunchConfig::linear(32, 32), stream, &[block.0.into(), 0u32.into()]).unwrap();
    freehold_driver::cuda::memory::free_async(&own.api, block, stream).unwrap();
    gate.open();
    own.finish(stream);
}
