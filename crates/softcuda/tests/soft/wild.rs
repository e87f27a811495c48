//! Arguments that no program should pass, on the software driver: an error code for each, no crash, no hang.

use crate::common;

use std::ffi::c_void;

use common::api_calls::{self, Good, Ones, Scratch, Source, Zeros};
use common::kernels::TEXT;
use common::{Context, Refused, child, driver, untouched};
use freehold_driver::cuda::launch::{self, LaunchConfig};
use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{
    Api, CUDA_MEMCPY2D, CUcontext, CUdeviceptr, CUerror, CUevent, CUfunc_cache, CUfunction, CUfunction_attribute,
    CUkernel, CUlibrary, CUmemoryPool, CUmemorytype, CUmodule, CUresult, CUsharedconfig, CUstream,
    CUstreamBatchMemOpParams, Function, context, copy, event, fill, function, kernel, library, memory, module,
    occupancy, pool, stream,
};

/// Returns the functions that accept the arguments of the source, each called with the context current.
fn accepted(own: &Context, source: &mut dyn Source) -> Vec<&'static str> {
    let taken = Function::ALL.iter().filter(|&&function| {
        own.enter();
        api_calls::call(&own.api, function, source).is_ok()
    });
    let names = taken.map(|function| function.name()).collect();
    own.enter();
    names
}

#[test]
fn zeros_are_refused_where_they_name_nothing() {
    child::run_in_child("zeros_are_refused_where_they_name_nothing", || {
        let own = Context::create();
        let wanted = "cuInit cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2 cuCtxPopCurrent_v2 cuCtxSetCurrent \
                      cuCtxSetFlags cuCtxSynchronize cuCtxSynchronize_v2 cuCtxSetLimit cuCtxSetCacheConfig \
                      cuCtxSetSharedMemConfig cuCtxResetPersistingL2Cache cuCtxGetStreamPriorityRange \
                      cuMemFree_v2 cuMemFreeHost cuMemcpy cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpyAsync \
                      cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemsetD8_v2 cuMemsetD16_v2 \
                      cuMemsetD32_v2 cuMemsetD2D8_v2 cuMemsetD2D16_v2 cuMemsetD2D32_v2 cuMemsetD8Async \
                      cuMemsetD16Async cuMemsetD32Async cuMemsetD2D8Async cuMemsetD2D16Async cuMemsetD2D32Async \
                      cuStreamQuery cuStreamSynchronize cuStreamCopyAttributes cuDeviceGraphMemTrim cuStreamBatchMemOp_v2 \
                      cuMemFreeAsync cuProfilerStart cuProfilerStop";
        assert_eq!(accepted(&own, &mut Zeros), wanted.split_whitespace().collect::<Vec<_>>());
    });
}

#[test]
fn numbers_of_all_ones_are_refused_everywhere() {
    child::run_in_child("numbers_of_all_ones_are_refused_everywhere", || {
        let own = Context::create();
        let wanted = ["cuCtxSynchronize", "cuCtxResetPersistingL2Cache", "cuProfilerStart", "cuProfilerStop"];
        assert_eq!(accepted(&own, &mut Ones), wanted);
        assert_eq!(context::synchronize(&own.api), Ok(()));
    });
}

#[test]
fn every_function_can_be_called_before_the_driver_is_initialized() {
    child::run_in_child("every_function_can_be_called_before_the_driver_is_initialized", || {
        let (api, _) = untouched();
        let api = Api { cuInit: refuse_init, ..api };
        let answers = api_calls::call_all(&api, &mut Good { scratch: Scratch::new() });
        let others = answers.into_iter().filter(|(_, code)| *code != Err(CUerror::NOT_INITIALIZED));
        let spared = ["cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString", "cuGetProcAddress_v2"];
        assert_eq!(others.map(|(function, _)| function.name()).collect::<Vec<_>>(), spared);
    });
}

#[test]
fn every_function_can_be_called_without_a_context() {
    child::run_in_child("every_function_can_be_called_without_a_context", || {
        let (api, device) = driver();
        let mut good = Good { scratch: Scratch::new() };
        for &function in Function::ALL {
            let answer = api_calls::call(&api, function, &mut good);
            // The real driver returns this code for a descriptor that it did not create.
            let imports = [Function::cuMemImportFromShareableHandle, Function::cuMemPoolImportFromShareableHandle];
            assert!(answer != Err(CUerror::UNKNOWN) || imports.contains(&function), "{function}");
            context::set_current(&api, CUcontext::NULL).unwrap();
        }
        assert_eq!(context::destroy(&api, context::create(&api, device, 0).unwrap()), Ok(()));
    });
}

#[test]
fn every_function_can_be_called_with_good_pointers_to_zeros() {
    child::run_in_child("every_function_can_be_called_with_good_pointers_to_zeros", || {
        let own = Context::create();
        let taken = accepted(&own, &mut Good { scratch: Scratch::new() });
        for name in ["cuMemAlloc_v2", "cuStreamCreate", "cuEventCreate", "cuMemAllocAsync", "cuLaunchHostFunc"] {
            assert!(taken.contains(&name), "{name} is good with good arguments");
        }
    });
}

unsafe extern "C" fn refuse_init(_: u32) -> CUresult {
    Err(CUerror::NOT_INITIALIZED)
}

/// Returns the codes of all functions that take a stream, for this one.
fn stream_codes(own: &Context, stream: CUstream) -> Vec<CUerror> {
    let (api, block) = (&own.api, own.block(512));
    let pinned = own.pinned(512);
    let nothing = std::ptr::null_mut();
    unsafe extern "C" fn no_work(_: *mut c_void) {}
    unsafe extern "C" fn no_callback(_: CUstream, _: CUresult, _: *mut c_void) {}
    let made = event::create(api, 0).unwrap();
    vec![
        stream::query(api, stream).code(),
        stream::synchronize(api, stream).code(),
        stream::priority(api, stream).code(),
        stream::flags(api, stream).code(),
        stream::id(api, stream).code(),
        stream::context(api, stream).code(),
        stream::capture_status(api, stream).code(),
        stream::wait_event(api, stream, made, 0).code(),
        event::record(api, made, stream).code(),
        stream::write_value_32(api, stream, block, 0, 0).code(),
        stream::wait_value_64(api, stream, block, 0, 0).code(),
        stream::batch_mem_op(api, stream, &mut [CUstreamBatchMemOpParams::default()], 0).code(),
        fill::d8_async(api, block, 0, 1, stream).code(),
        fill::rectangle_d32_async(api, block, 4, 0, 1, 1, stream).code(),
        copy::device_to_device_async(api, block, block, 0, stream).code(),
        // SAFETY: the copy is refused.
        unsafe { copy::host_to_device_async(api, block, pinned.pointer(), 4, stream) }.code(),
        memory::alloc_async(api, 512, stream).code(),
        memory::free_async(api, block, stream).code(),
        // SAFETY: the function does nothing.
        unsafe { stream::launch_host(api, stream, no_work, nothing) }.code(),
        // SAFETY: the function does nothing.
        unsafe { stream::add_callback(api, stream, no_callback, nothing, 0) }.code(),
        stream::destroy(api, stream).code(),
    ]
}

#[test]
fn dead_foreign_and_wild_streams_are_invalid_handles() {
    child::run_in_child("dead_foreign_and_wild_streams_are_invalid_handles", || {
        let own = Context::create();
        let dead = own.stream();
        stream::destroy(&own.api, dead).unwrap();
        let event = event::create(&own.api, 0).unwrap();
        for stream in [dead, CUstream(event.0), CUstream(own.handle.0), CUstream(0xdead_beef), CUstream(usize::MAX)] {
            assert_eq!(common::same(&stream_codes(&own, stream)), CUerror::INVALID_HANDLE, "{stream:?}");
        }
    });
}

#[test]
fn a_stream_of_a_destroyed_context_is_refused() {
    child::run_in_child("a_stream_of_a_destroyed_context_is_refused", || {
        let own = Context::create();
        let ends = own.another();
        let stream = ends.stream();
        ends.destroy();
        let codes = stream_codes(&own, stream);
        assert_eq!(codes.len(), 21);
        let known = [CUerror::INVALID_HANDLE, CUerror::CONTEXT_IS_DESTROYED];
        assert!(codes.iter().all(|code| known.contains(code)), "{codes:?}");
    });
}

#[test]
fn dead_foreign_and_wild_events_are_invalid_handles() {
    child::run_in_child("dead_foreign_and_wild_events_are_invalid_handles", || {
        let own = Context::create();
        let (stream, dead) = (own.stream(), event::create(&own.api, 0).unwrap());
        event::destroy(&own.api, dead).unwrap();
        let good = event::create(&own.api, 0).unwrap();
        for event in [dead, CUevent(stream.0), CUevent(0), CUevent(1), CUevent(usize::MAX)] {
            let codes = [
                event::query(&own.api, event).code(),
                event::synchronize(&own.api, event).code(),
                event::record(&own.api, event, stream).code(),
                event::elapsed_ms(&own.api, good, event).code(),
                event::elapsed_ms(&own.api, event, good).code(),
                stream::wait_event(&own.api, stream, event, 0).code(),
                event::destroy(&own.api, event).code(),
            ];
            assert_eq!(common::same(&codes), CUerror::INVALID_HANDLE, "{event:?}");
        }
    });
}

#[test]
fn foreign_and_wild_contexts_are_invalid_contexts() {
    let own = Context::create();
    let (stream, block) = (own.stream(), own.block(512));
    for handle in [CUcontext(stream.0), CUcontext(1), CUcontext(0xdead_beef), CUcontext(usize::MAX)] {
        let codes = [
            context::destroy(&own.api, handle).code(),
            context::push_current(&own.api, handle).code(),
            context::set_current(&own.api, handle).code(),
            context::id(&own.api, handle).code(),
            context::api_version(&own.api, handle).code(),
            context::enable_peer_access(&own.api, handle, 0).code(),
            context::disable_peer_access(&own.api, handle).code(),
            copy::peer(&own.api, block, handle, block, own.handle, 1).code(),
            copy::peer(&own.api, block, own.handle, block, handle, 1).code(),
        ];
        assert_eq!(common::same(&codes), CUerror::INVALID_CONTEXT, "{handle:?}");
    }
}

#[test]
fn dead_foreign_and_wild_pools_are_invalid_values() {
    let own = Context::create();
    let stream = own.stream();
    for handle in [CUmemoryPool(0), CUmemoryPool(stream.0), CUmemoryPool(1), CUmemoryPool(usize::MAX)] {
        let codes = [
            memory::alloc_from_pool_async(&own.api, 512, handle, stream).code(),
            pool::destroy(&own.api, handle).code(),
            pool::trim(&own.api, handle, 0).code(),
            pool::used_bytes(&own.api, handle).code(),
            pool::set_release_threshold(&own.api, handle, 0).code(),
            pool::set_access(&own.api, handle, &[]).code(),
        ];
        assert_eq!(common::same(&codes), CUerror::INVALID_VALUE, "{handle:?}");
    }
}

#[test]
fn lengths_that_overflow_an_address_are_invalid_values() {
    let own = Context::create();
    let (block, other) = (own.block(4096), own.block(4096));
    let refused = CUerror::INVALID_VALUE;
    for start in [block, CUdeviceptr(u64::MAX), CUdeviceptr(u64::MAX - 4095)] {
        for bytes in [usize::MAX, usize::MAX - 4095, 1 << 63] {
            assert_eq!(fill::d8(&own.api, start, 0, bytes).code(), refused);
            assert_eq!(copy::device_to_device(&own.api, other, start, bytes).code(), refused);
        }
    }
    let rectangle = |x, pitch, width, height| CUDA_MEMCPY2D {
        srcXInBytes: x,
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: block,
        srcPitch: pitch,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: other,
        dstPitch: pitch,
        WidthInBytes: width,
        Height: height,
        ..CUDA_MEMCPY2D::default()
    };
    let huge = 1 << 62;
    for [x, pitch, width, height] in [
        [usize::MAX, 64, 64, 4],
        [0, huge, 64, 8],
        [0, huge, huge, 8],
        [8, usize::MAX, 64, 2],
        [huge, huge, huge, huge],
    ] {
        // SAFETY: both sides are the device's.
        let copied = unsafe { copy::rectangle(&own.api, &rectangle(x, pitch, width, height)) };
        assert_eq!(copied.code(), refused);
    }
    assert_eq!(fill::rectangle_d8(&own.api, block, huge, 0, 4, 8).code(), refused);
    assert_eq!(memory::alloc_pitch(&own.api, usize::MAX, 2, 4).code(), refused);
    assert_eq!(memory::alloc_pitch(&own.api, huge, 16, 4).code(), refused);
}

#[test]
fn misaligned_room_for_an_answer_is_an_invalid_value() {
    let own = Context::create();
    let mut room = [0_u64; 2];
    let odd = room.as_mut_ptr().wrapping_byte_add(1);
    let (api, stream) = (&own.api, own.stream());
    let refused = Err(CUerror::INVALID_VALUE);
    // SAFETY: a misaligned pointer is refused unread.
    assert_eq!(unsafe { (api.cuMemAlloc_v2)(odd.cast(), 512) }, refused);
    // SAFETY: as above.
    assert_eq!(unsafe { (api.cuStreamCreate)(odd.cast(), 0) }, refused);
    // SAFETY: as above.
    assert_eq!(unsafe { (api.cuCtxCreate_v2)(odd.cast(), 0, own.device) }, refused);
    // SAFETY: as above.
    assert_eq!(unsafe { (api.cuStreamGetId)(stream, odd) }, refused);
    // SAFETY: as above.
    assert_eq!(unsafe { (api.cuMemcpy2D_v2)(odd.cast_const().cast()) }, refused);
    // SAFETY: as above.
    assert_eq!(unsafe { (api.cuStreamBatchMemOp_v2)(stream, 1, odd.cast(), 0) }, refused);
    assert_eq!(room, [0, 0]);
    assert_eq!(context::current(api), Ok(own.handle));
}

/// Returns the codes of all functions that take a module, for this one.
fn module_codes(own: &Context, loaded: CUmodule) -> Vec<CUerror> {
    let api = &own.api;
    vec![
        module::function(api, loaded, c"nothing").code(),
        module::function_count(api, loaded).code(),
        module::functions(api, loaded, 1).code(),
        module::global(api, loaded, c"counter").code(),
        module::unload(api, loaded).code(),
    ]
}

/// Returns the codes of all functions that take a function, for this one.
fn function_codes(own: &Context, wrong: CUfunction) -> Vec<CUerror> {
    let api = &own.api;
    let at = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    vec![
        function::attribute(api, wrong, at).code(),
        function::set_attribute(api, wrong, at, 1).code(),
        function::set_cache_config(api, wrong, CUfunc_cache::PREFER_L1).code(),
        function::set_shared_config(api, wrong, CUsharedconfig::DEFAULT_BANK_SIZE).code(),
        function::module(api, wrong).code(),
        function::name(api, wrong).code(),
        function::parameter(api, wrong, 0).code(),
        function::loading_state(api, wrong).code(),
        function::load(api, wrong).code(),
        occupancy::blocks(api, wrong, 1, 0).code(),
        occupancy::shared_bytes(api, wrong, 1, 1).code(),
        own.run(wrong, LaunchConfig::linear(1, 1), CUstream::NULL, &[]).code(),
    ]
}

/// Returns the codes of all functions that take a library or a kernel, for these.
fn library_codes(own: &Context, wrong: CUlibrary, kernel: CUkernel) -> Vec<CUerror> {
    let api = &own.api;
    let at = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    vec![
        library::kernel(api, wrong, c"nothing").code(),
        library::kernel_count(api, wrong).code(),
        library::kernels(api, wrong, 1).code(),
        library::module(api, wrong).code(),
        library::global(api, wrong, c"counter").code(),
        library::managed(api, wrong, c"counter").code(),
        library::unload(api, wrong).code(),
        kernel::function(api, kernel).code(),
        kernel::library(api, kernel).code(),
        kernel::attribute(api, kernel, at, own.device).code(),
        kernel::set_attribute(api, kernel, at, 1, own.device).code(),
        kernel::name(api, kernel).code(),
        kernel::parameter(api, kernel, 0).code(),
    ]
}

#[test]
fn dead_foreign_and_wild_modules_and_functions_are_invalid_handles() {
    child::run_in_child("dead_foreign_and_wild_modules_and_functions_are_invalid_handles", || {
        let own = Context::create();
        let dead = own.module();
        let dead_function = own.function(dead, c"nothing");
        module::unload(&own.api, dead).unwrap();
        let ends = own.another();
        let ended = ends.module();
        let ended_function = ends.function(ended, c"nothing");
        ends.destroy();
        own.enter();
        let wild = [0, own.handle.0, 0xdead_beef, usize::MAX];
        let modules = [dead, ended, CUmodule(dead_function.0)].into_iter().chain(wild.map(CUmodule));
        for module in modules {
            assert_eq!(common::same(&module_codes(&own, module)), CUerror::INVALID_HANDLE, "{module:?}");
        }
        let functions = [dead_function, ended_function, CUfunction(dead.0)].into_iter().chain(wild.map(CUfunction));
        for function in functions {
            assert_eq!(common::same(&function_codes(&own, function)), CUerror::INVALID_HANDLE, "{function:?}");
        }
    });
}

#[test]
fn dead_foreign_and_wild_libraries_and_kernels_are_invalid_handles() {
    child::run_in_child("dead_foreign_and_wild_libraries_and_kernels_are_invalid_handles", || {
        let own = Context::create();
        // SAFETY: the text ends in a NUL, and there are no options.
        let dead = unsafe { library::load(&own.api, TEXT.as_ptr().cast(), &mut Options::new()) }.unwrap();
        let dead_kernel = library::kernel(&own.api, dead, c"nothing").unwrap();
        library::unload(&own.api, dead).unwrap();
        let wild = [0, own.handle.0, 0xdead_beef, usize::MAX].map(|handle| (CUlibrary(handle), CUkernel(handle)));
        let swapped = (CUlibrary(dead_kernel.0), CUkernel(dead.0));
        for (library, kernel) in [(dead, dead_kernel), swapped].into_iter().chain(wild) {
            let codes = library_codes(&own, library, kernel);
            assert_eq!(common::same(&codes), CUerror::INVALID_HANDLE, "{library:?} {kernel:?}");
        }
    });
}

#[test]
fn arguments_at_wild_addresses_are_invalid_values() {
    child::run_in_child("arguments_at_wild_addresses_are_invalid_values", || {
        let own = Context::create();
        let store = own.kernel(c"store");
        let nowhere = std::ptr::without_provenance_mut(8);
        for mut list in [[nowhere, nowhere], [std::ptr::null_mut(); 2]] {
            // SAFETY: the software driver reads arguments through the kernel, which answers for what is not there.
            let answer =
                unsafe { launch::kernel(&own.api, store, LaunchConfig::linear(1, 1), CUstream::NULL, &mut list) };
            assert_eq!(answer.code(), CUerror::INVALID_VALUE);
        }
        for list in [0, 8, 9].map(std::ptr::without_provenance_mut) {
            // SAFETY: as above.
            let answer = unsafe {
                launch::raw(&own.api, store, LaunchConfig::linear(1, 1), CUstream::NULL, list, std::ptr::null_mut())
            };
            assert_eq!(answer.code(), CUerror::INVALID_VALUE);
        }
    });
}
