//! Every call passes its arguments to its own function, in the order of C.
//!
//! The table here rejects everything and records the arguments that are numbers. Each call below passes every number as
//! its position among them, so what arrives is 1, 2, 3 and so on, unless two were swapped.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::os::fd::AsFd;
use std::ptr::null_mut;

use freehold_driver::cuda::*;

thread_local! {
    /// The numbers that the last call received.
    static NUMBERS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// An argument as a number; `None` for a pointer.
trait Argument {
    fn number(self) -> Option<u64>;
}

impl<T> Argument for *const T {
    fn number(self) -> Option<u64> {
        None
    }
}

impl<T> Argument for *mut T {
    fn number(self) -> Option<u64> {
        None
    }
}

impl<T> Argument for Option<T> {
    fn number(self) -> Option<u64> {
        None
    }
}

impl Argument for CUipcMemHandle {
    fn number(self) -> Option<u64> {
        None
    }
}

impl Argument for CUmemLocation {
    fn number(self) -> Option<u64> {
        Some(self.id as u64)
    }
}

impl Argument for CUipcEventHandle {
    fn number(self) -> Option<u64> {
        None
    }
}

macro_rules! numbers {
    ($($kind:ty: $number:expr;)*) => {
        $(impl Argument for $kind {
            fn number(self) -> Option<u64> {
                let number: fn($kind) -> u64 = $number;
                Some(number(self))
            }
        })*
    };
}

numbers! {
    u8: |it| it.into();
    u16: |it| it.into();
    u32: |it| it.into();
    u64: |it| it;
    usize: |it| it as u64;
    i32: |it| it as u64;
    CUdevice: |it| it.0 as u64;
    CUdeviceptr: |it| it.0;
    CUcontext: |it| it.0 as u64;
    CUstream: |it| it.0 as u64;
    CUevent: |it| it.0 as u64;
    CUmemoryPool: |it| it.0 as u64;
    CUdevice_attribute: |it| it.0.into();
    CUdevice_P2PAttribute: |it| it.0.into();
    CUpointer_attribute: |it| it.0.into();
    CUmemPool_attribute: |it| it.0.into();
    CUmemAllocationHandleType: |it| it.0.into();
    CUmemAllocationGranularity_flags: |it| it.0.into();
    CUmemGenericAllocationHandle: |it| it.0;
    CUlimit: |it| it.0.into();
    CUfunc_cache: |it| it.0.into();
    CUmodule: |it| it.0 as u64;
    CUfunction: |it| it.0 as u64;
    CUlibrary: |it| it.0 as u64;
    CUkernel: |it| it.0 as u64;
    CUlinkState: |it| it.0 as u64;
    CUlogsCallbackHandle: |it| it.0 as u64;
    CUfunction_attribute: |it| it.0.into();
    CUjitInputType: |it| it.0.into();
    CUsharedconfig: |it| it.0.into();
    CUgraph: |it| it.0 as u64;
    CUgraphExec: |it| it.0 as u64;
    CUgraphNode: |it| it.0 as u64;
    CUuserObject: |it| it.0 as u64;
    CUgraphMem_attribute: |it| it.0.into();
    CUarray: |it| it.0 as u64;
    CUmipmappedArray: |it| it.0 as u64;
    CUtexObject: |it| it.0 as u64;
    CUsurfObject: |it| it.0 as u64;
    CUlaunchAttributeID: |it| it.0.into();
    CUtensorMapDataType: |it| it.0.into();
    CUstreamCaptureMode: |it| it.0.into();
    CUmem_advise: |it| it.0.into();
    CUmem_range_attribute: |it| it.0.into();
}

macro_rules! refusing {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
        const REFUSING: Api = Api {
            // SAFETY: the functions dereference no pointer.
            contract: unsafe { DriverContract::new() },
            $($name: {
                unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                    let numbers: Vec<Option<u64>> = vec![$(Argument::number($argument)),*];
                    NUMBERS.set(numbers.into_iter().flatten().collect());
                    Err(CUerror::UNKNOWN)
                }
                $name
            },)*
        };
    };
}

freehold_driver::with_functions!(refusing);

/// Returns the function that was called, after checking its arguments.
fn called<T: std::fmt::Debug>(outcome: Result<T, DriverError>, numbers: &[u64]) -> Function {
    let error = outcome.expect_err("the table rejects everything");
    assert_eq!(error.code, CUerror::UNKNOWN);
    assert_eq!(NUMBERS.take(), numbers, "{}", error.call);
    error.call
}

/// Makes each call in turn, and checks that it arrives as the function beside it with the numbers 1 to the one given.
macro_rules! arrive {
    ($($function:ident $count:literal: $call:expr;)*) => {{
        let mut functions = Vec::new();
        $({
            let function = called($call, &[1, 2, 3, 4, 5, 6, 7, 8, 9][..$count]);
            assert_eq!(function, Function::$function);
            functions.push(function);
        })*
        functions
    }};
}

const API: &Api = &REFUSING;
const AT: fn(u64) -> CUdeviceptr = CUdeviceptr;
const NODE: fn(usize) -> CUgraphNode = CUgraphNode;

#[test]
fn every_function_of_the_list_is_called_by_one_call_with_its_arguments_in_order() {
    let mut functions = drivers();
    functions.extend(devices());
    functions.extend(contexts());
    functions.extend(memory_and_host());
    functions.extend(copies());
    functions.extend(fills());
    functions.extend(pointers());
    functions.extend(streams());
    functions.extend(events());
    functions.extend(pools());
    functions.extend(mappings());
    functions.extend(modules());
    functions.extend(libraries());
    functions.extend(kernels_and_functions());
    functions.extend(links());
    functions.extend(occupancies());
    functions.extend(launches());
    functions.extend(log_calls());
    functions.extend(captures_and_graphs());
    functions.extend(graph_structures());
    functions.extend(graph_nodes());
    functions.extend(executable_graphs());
    functions.extend(user_objects());
    functions.extend(managed_memory());
    functions.extend(arrays_and_textures());
    functions.sort();
    assert_eq!(functions, Function::ALL);
}

fn drivers() -> Vec<Function> {
    arrive! {
        cuInit 1: driver::init(API, 1);
        cuDriverGetVersion 0: driver::version(API);
        cuGetErrorName 1: driver::error_name(API, 1);
        cuGetErrorString 1: driver::error_string(API, 1);
        cuGetProcAddress_v2 2: driver::proc_address(API, c"cuInit", 1, 2);
    }
}

fn devices() -> Vec<Function> {
    let mut functions = arrive! {
        cuDeviceGet 1: device::at(API, 1);
        cuDeviceGetCount 0: device::count(API);
        cuDeviceGetUuid 1: device::uuid_v1(API, CUdevice(1));
        cuDeviceGetProperties 1: device::properties(API, CUdevice(1));
        cuDeviceGetUuid_v2 1: device::uuid(API, CUdevice(1));
        cuDeviceTotalMem_v2 1: device::total_bytes(API, CUdevice(1));
        cuDeviceGetAttribute 2: device::attribute(API, CUdevice(2), CUdevice_attribute(1));
        cuDeviceGetByPCIBusId 0: device::at_pci_bus_id(API, c"0000:19:00.0");
        cuDeviceCanAccessPeer 2: device::can_access_peer(API, CUdevice(1), CUdevice(2));
        cuDeviceGetP2PAttribute 3: device::p2p_attribute(API, CUdevice(2), CUdevice(3), CUdevice_P2PAttribute(1));
        cuDeviceGetDefaultMemPool 1: device::default_pool(API, CUdevice(1));
        cuDeviceGetMemPool 1: device::pool(API, CUdevice(1));
        cuDeviceSetMemPool 2: device::set_pool(API, CUdevice(1), CUmemoryPool(2));
        cuDeviceComputeCapability 1: device::compute_capability(API, CUdevice(1));
        cuDevicePrimaryCtxRetain 1: primary::retain(API, CUdevice(1));
        cuDevicePrimaryCtxRelease_v2 1: primary::release(API, CUdevice(1));
        cuDevicePrimaryCtxReset_v2 1: primary::reset(API, CUdevice(1));
        cuDevicePrimaryCtxGetState 1: primary::state(API, CUdevice(1));
        cuDevicePrimaryCtxSetFlags_v2 2: primary::set_flags(API, CUdevice(1), 2);
    };
    functions.push(called(device::name(API, CUdevice(1)), &[256, 1]));
    functions.push(called(device::pci_bus_id(API, CUdevice(1)), &[256, 1]));
    functions
}

fn contexts() -> Vec<Function> {
    let mut affinity = [CUexecAffinityParam { kind: 0, sm_count: 0 }];
    arrive! {
        cuCtxCreate_v2 2: context::create(API, CUdevice(2), 1);
        cuCtxCreate_v3 3: context::create_with_affinity(API, CUdevice(3), &mut affinity, 2);
        // SAFETY: no parameters are passed.
        cuCtxCreate_v4 2: unsafe { context::create_with_params(API, CUdevice(2), None, 1) };
        cuCtxAttach 1: context::attach(API, 1);
        cuCtxDetach 1: context::detach(API, CUcontext(1));
        cuCtxGetSharedMemConfig 0: context::shared_config(API);
        cuCtxSetSharedMemConfig 1: context::set_shared_config(API, CUsharedconfig(1));
        cuCtxResetPersistingL2Cache 0: context::reset_persisting_l2_cache(API);
        cuCtxDestroy_v2 1: context::destroy(API, CUcontext(1));
        cuCtxPushCurrent_v2 1: context::push_current(API, CUcontext(1));
        cuCtxPopCurrent_v2 0: context::pop_current(API);
        cuCtxSetCurrent 1: context::set_current(API, CUcontext(1));
        cuCtxGetCurrent 0: context::current(API);
        cuCtxGetDevice 0: context::device(API);
        cuCtxGetDevice_v2 1: context::device_of(API, CUcontext(1));
        cuCtxGetFlags 0: context::flags(API);
        cuCtxSetFlags 1: context::set_flags(API, 1);
        cuCtxGetId 1: context::id(API, CUcontext(1));
        cuCtxSynchronize 0: context::synchronize(API);
        cuCtxSynchronize_v2 1: context::synchronize_other(API, CUcontext(1));
        cuCtxRecordEvent 2: context::record_event(API, CUcontext(1), CUevent(2));
        cuCtxSetLimit 2: context::set_limit(API, CUlimit(1), 2);
        cuCtxGetLimit 1: context::limit(API, CUlimit(1));
        cuCtxGetCacheConfig 0: context::cache_config(API);
        cuCtxSetCacheConfig 1: context::set_cache_config(API, CUfunc_cache(1));
        cuCtxGetApiVersion 1: context::api_version(API, CUcontext(1));
        cuCtxGetStreamPriorityRange 0: context::stream_priorities(API);
        cuCtxEnablePeerAccess 2: context::enable_peer_access(API, CUcontext(1), 2);
        cuCtxDisablePeerAccess 1: context::disable_peer_access(API, CUcontext(1));
    }
}

fn memory_and_host() -> Vec<Function> {
    arrive! {
        cuMemGetInfo_v2 0: memory::info(API);
        cuMemAlloc_v2 1: memory::alloc(API, 1);
        cuMemAllocPitch_v2 3: memory::alloc_pitch(API, 1, 2, 3);
        cuMemFree_v2 1: memory::free(API, AT(1));
        cuMemGetAddressRange_v2 1: memory::range(API, AT(1));
        cuMemAllocManaged 2: memory::alloc_managed(API, 1, 2);
        cuMemAllocAsync 2: memory::alloc_async(API, 1, CUstream(2));
        cuMemFreeAsync 2: memory::free_async(API, AT(1), CUstream(2));
        cuMemAllocFromPoolAsync 3: memory::alloc_from_pool_async(API, 1, CUmemoryPool(2), CUstream(3));
        cuMemAllocHost_v2 1: host::alloc(API, 1);
        cuMemHostAlloc 2: host::alloc_with_flags(API, 1, 2);
        cuMemHostGetDevicePointer_v2 1: host::device_address(API, null_mut(), 1);
        cuMemHostGetFlags 0: host::flags(API, null_mut());
        // SAFETY: the table touches no memory.
        cuMemFreeHost 0: unsafe { host::free(API, null_mut()) };
        // SAFETY: the table touches no memory.
        cuMemHostRegister_v2 2: unsafe { host::register(API, null_mut(), 1, 2) };
        // SAFETY: the table touches no memory.
        cuMemHostUnregister 0: unsafe { host::unregister(API, null_mut()) };
    }
}

fn copies() -> Vec<Function> {
    let rectangle = CUDA_MEMCPY2D::default();
    let volume = CUDA_MEMCPY3D::default();
    let between = CUDA_MEMCPY3D_PEER::default();
    arrive! {
        // SAFETY: the table touches no memory.
        cuMemcpy 3: unsafe { copy::unified(API, AT(1), AT(2), 3) };
        // SAFETY: the table touches no memory.
        cuMemcpyAsync 4: unsafe { copy::unified_async(API, AT(1), AT(2), 3, CUstream(4)) };
        cuMemcpyPeer 5: copy::peer(API, AT(1), CUcontext(2), AT(3), CUcontext(4), 5);
        cuMemcpyPeerAsync 6: copy::peer_async(API, AT(1), CUcontext(2), AT(3), CUcontext(4), 5, CUstream(6));
        cuMemcpyHtoD_v2 2: copy::host_to_device(API, AT(1), &[0; 2]);
        cuMemcpyDtoH_v2 2: copy::device_to_host(API, &mut [0; 2], AT(1));
        cuMemcpyDtoD_v2 3: copy::device_to_device(API, AT(1), AT(2), 3);
        // SAFETY: the table touches no memory.
        cuMemcpyHtoDAsync_v2 3: unsafe { copy::host_to_device_async(API, AT(1), null_mut(), 2, CUstream(3)) };
        // SAFETY: the table touches no memory.
        cuMemcpyDtoHAsync_v2 3: unsafe { copy::device_to_host_async(API, null_mut(), AT(1), 2, CUstream(3)) };
        cuMemcpyDtoDAsync_v2 4: copy::device_to_device_async(API, AT(1), AT(2), 3, CUstream(4));
        // SAFETY: the table touches no memory.
        cuMemcpy2D_v2 0: unsafe { copy::rectangle(API, &rectangle) };
        // SAFETY: the table touches no memory.
        cuMemcpy2DUnaligned_v2 0: unsafe { copy::rectangle_unaligned(API, &rectangle) };
        // SAFETY: the table touches no memory.
        cuMemcpy2DAsync_v2 1: unsafe { copy::rectangle_async(API, &rectangle, CUstream(1)) };
        // SAFETY: the table touches no memory.
        cuMemcpy3D_v2 0: unsafe { copy::volume(API, &volume) };
        // SAFETY: the table touches no memory.
        cuMemcpy3DAsync_v2 1: unsafe { copy::volume_async(API, &volume, CUstream(1)) };
        // SAFETY: the table touches no memory.
        cuMemcpy3DPeer 0: unsafe { copy::volume_peer(API, &between) };
        // SAFETY: the table touches no memory.
        cuMemcpy3DPeerAsync 1: unsafe { copy::volume_peer_async(API, &between, CUstream(1)) };
    }
}

fn fills() -> Vec<Function> {
    arrive! {
        cuMemsetD8_v2 3: fill::d8(API, AT(1), 2, 3);
        cuMemsetD16_v2 3: fill::d16(API, AT(1), 2, 3);
        cuMemsetD32_v2 3: fill::d32(API, AT(1), 2, 3);
        cuMemsetD8Async 4: fill::d8_async(API, AT(1), 2, 3, CUstream(4));
        cuMemsetD16Async 4: fill::d16_async(API, AT(1), 2, 3, CUstream(4));
        cuMemsetD32Async 4: fill::d32_async(API, AT(1), 2, 3, CUstream(4));
        cuMemsetD2D8_v2 5: fill::rectangle_d8(API, AT(1), 2, 3, 4, 5);
        cuMemsetD2D16_v2 5: fill::rectangle_d16(API, AT(1), 2, 3, 4, 5);
        cuMemsetD2D32_v2 5: fill::rectangle_d32(API, AT(1), 2, 3, 4, 5);
        cuMemsetD2D8Async 6: fill::rectangle_d8_async(API, AT(1), 2, 3, 4, 5, CUstream(6));
        cuMemsetD2D16Async 6: fill::rectangle_d16_async(API, AT(1), 2, 3, 4, 5, CUstream(6));
        cuMemsetD2D32Async 6: fill::rectangle_d32_async(API, AT(1), 2, 3, 4, 5, CUstream(6));
    }
}

fn pointers() -> Vec<Function> {
    arrive! {
        cuPointerGetAttribute 2: pointer::attribute(API, AT(2), CUpointer_attribute(1));
        cuPointerSetAttribute 2: pointer::set_attribute(API, AT(2), CUpointer_attribute(1), 0);
        cuPointerGetAttributes 2: pointer::attributes(API, AT(2), [CUpointer_attribute(0)]);
    }
}

fn streams() -> Vec<Function> {
    unsafe extern "C" fn work(_: *mut c_void) {}
    unsafe extern "C" fn callback(_: CUstream, _: CUresult, _: *mut c_void) {}
    let mut operations = [CUstreamBatchMemOpParams::default(); 2];
    arrive! {
        cuStreamCreate 1: stream::create(API, 1);
        cuStreamCreateWithPriority 2: stream::create_with_priority(API, 1, 2);
        cuStreamGetPriority 1: stream::priority(API, CUstream(1));
        cuStreamGetFlags 1: stream::flags(API, CUstream(1));
        cuStreamGetId 1: stream::id(API, CUstream(1));
        cuStreamGetCtx_v2 1: stream::contexts(API, CUstream(1));
        cuStreamGetDevice 1: stream::device(API, CUstream(1));
        cuStreamGetCtx 1: stream::context(API, CUstream(1));
        cuStreamWaitEvent 3: stream::wait_event(API, CUstream(1), CUevent(2), 3);
        // SAFETY: the table makes no call back.
        cuStreamAddCallback 2: unsafe { stream::add_callback(API, CUstream(1), callback, null_mut(), 2) };
        cuStreamQuery 1: stream::query(API, CUstream(1));
        cuStreamSynchronize 1: stream::synchronize(API, CUstream(1));
        cuStreamDestroy_v2 1: stream::destroy(API, CUstream(1));
        cuStreamIsCapturing 1: stream::capture_status(API, CUstream(1));
        cuStreamGetAttribute 2: stream::attribute(API, CUstream(1), CUlaunchAttributeID(2));
        cuStreamSetAttribute 2:
            stream::set_attribute(API, CUstream(1), CUlaunchAttributeID(2), CUlaunchAttributeValue::default());
        cuStreamCopyAttributes 2: stream::copy_attributes(API, CUstream(1), CUstream(2));
        // SAFETY: the table makes no call back.
        cuLaunchHostFunc 1: unsafe { stream::launch_host(API, CUstream(1), work, null_mut()) };
        cuStreamWaitValue32_v2 4: stream::wait_value_32(API, CUstream(1), AT(2), 3, 4);
        cuStreamWaitValue64_v2 4: stream::wait_value_64(API, CUstream(1), AT(2), 3, 4);
        cuStreamWriteValue32_v2 4: stream::write_value_32(API, CUstream(1), AT(2), 3, 4);
        cuStreamWriteValue64_v2 4: stream::write_value_64(API, CUstream(1), AT(2), 3, 4);
        cuStreamBatchMemOp_v2 3: stream::batch_mem_op(API, CUstream(1), &mut operations, 3);
    }
}

fn events() -> Vec<Function> {
    arrive! {
        cuEventCreate 1: event::create(API, 1);
        cuEventRecord 2: event::record(API, CUevent(1), CUstream(2));
        cuEventRecordWithFlags 3: event::record_with_flags(API, CUevent(1), CUstream(2), 3);
        cuEventQuery 1: event::query(API, CUevent(1));
        cuEventSynchronize 1: event::synchronize(API, CUevent(1));
        cuEventDestroy_v2 1: event::destroy(API, CUevent(1));
        cuEventElapsedTime_v2 2: event::elapsed_ms_v2(API, CUevent(1), CUevent(2));
        cuEventElapsedTime 2: event::elapsed_ms(API, CUevent(1), CUevent(2));
    }
}

fn pools() -> Vec<Function> {
    let pool = CUmemoryPool(1);
    let mut functions = arrive! {
        cuMemPoolCreate 0: pool::create(API, &CUmemPoolProps::on_device(CUdevice(0)));
        cuMemPoolDestroy 1: pool::destroy(API, pool);
        cuMemPoolSetAttribute 2: pool::set_attribute(API, pool, CUmemPool_attribute(2), 0);
        cuMemPoolGetAttribute 2: pool::attribute(API, pool, CUmemPool_attribute(2));
        cuMemPoolTrimTo 2: pool::trim(API, pool, 2);
        cuMemPoolSetAccess 2: pool::set_access(API, pool, &[CUmemAccessDesc::default(); 2]);
        cuMemPoolGetAccess 1: pool::access(API, pool, CUmemLocation::default());
        cuMemPoolExportPointer 1: pool::export_block(API, AT(1));
        cuMemPoolImportPointer 1: pool::import_block(API, pool, CUmemPoolPtrExportData::default());
    };
    let shared = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR.0.into();
    let descriptor = std::io::stdin();
    functions.push(called(pool::export(API, pool), &[1, shared, 0]));
    functions.push(called(pool::import(API, descriptor.as_fd()), &[shared, 0]));
    functions
}

fn mappings() -> Vec<Function> {
    let allocation = CUmemGenericAllocationHandle;
    let prop = CUmemAllocationProp::on_device(CUdevice(0), CUmemAllocationHandleType::NONE);
    let access = [CUmemAccessDesc::default(); 3];
    let mut functions = arrive! {
        cuMemAddressFree 2: address::free(API, AT(1), 2);
        cuMemRelease 1: allocation::release(API, allocation(1));
        cuMemUnmap 2: mapping::unmap(API, AT(1), 2);
        cuMemSetAccess 3: mapping::set_access(API, AT(1), 2, &access);
        cuMemGetAccess 1: mapping::access(API, CUmemLocation::default(), AT(1));
        cuMemGetAllocationGranularity 1: allocation::granularity_bytes(API, &prop, CUmemAllocationGranularity_flags(1));
        cuMemGetAllocationPropertiesFromHandle 1: allocation::properties(API, allocation(1));
        cuMemRetainAllocationHandle 0: allocation::retain(API, AT(1));
        cuIpcGetMemHandle 1: ipc::memory_handle(API, AT(1));
        cuIpcOpenMemHandle_v2 1: ipc::open_memory(API, CUipcMemHandle::default(), 1);
        cuIpcCloseMemHandle 1: ipc::close_memory(API, AT(1));
        cuIpcGetEventHandle 1: ipc::event_handle(API, CUevent(1));
        cuIpcOpenEventHandle 0: ipc::open_event(API, CUipcEventHandle::default());
    };
    let shared = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR.0.into();
    let descriptor = std::io::stdin();
    functions.push(called(address::reserve(API, 1, 2, AT(3)), &[1, 2, 3, 0]));
    functions.push(called(allocation::create(API, 1, &prop), &[1, 0]));
    functions.push(called(mapping::map(API, AT(1), 2, 3, allocation(4)), &[1, 2, 3, 4, 0]));
    functions.push(called(allocation::export(API, allocation(1)), &[1, shared, 0]));
    functions.push(called(allocation::import(API, descriptor.as_fd()), &[shared]));
    functions
}

fn modules() -> Vec<Function> {
    let mut options = module::Options::new().with(CUjit_option(0), 0);
    let mut functions = arrive! {
        cuModuleLoad 0: module::load_file(API, c"image");
        // SAFETY: the table touches no memory.
        cuModuleLoadData 0: unsafe { module::load(API, null_mut()) };
        // SAFETY: the table touches no memory.
        cuModuleLoadDataEx 1: unsafe { module::load_with(API, null_mut(), &mut options) };
        // SAFETY: the table touches no memory.
        cuModuleLoadFatBinary 0: unsafe { module::load_fat(API, null_mut()) };
        cuModuleUnload 1: module::unload(API, CUmodule(1));
        cuModuleGetLoadingMode 0: module::loading_mode(API);
        cuModuleGetFunction 1: module::function(API, CUmodule(1), c"kernel");
        cuModuleGetFunctionCount 1: module::function_count(API, CUmodule(1));
        cuModuleGetGlobal_v2 1: module::global(API, CUmodule(1), c"variable");
    };
    functions.push(called(module::functions(API, CUmodule(7), 5), &[5, 7]));
    functions
}

fn libraries() -> Vec<Function> {
    let mut options = module::Options::new().with(CUjit_option(0), 0);
    let library = CUlibrary(1);
    let mut functions = arrive! {
        cuLibraryUnload 1: library::unload(API, library);
        cuLibraryGetKernel 1: library::kernel(API, library, c"kernel");
        cuLibraryGetKernelCount 1: library::kernel_count(API, library);
        cuLibraryGetModule 1: library::module(API, library);
        cuLibraryGetGlobal 1: library::global(API, library, c"variable");
        cuLibraryGetManaged 1: library::managed(API, library, c"variable");
        cuLibraryGetUnifiedFunction 1: library::unified_function(API, library, c"function");
    };
    // SAFETY: the table touches no memory.
    functions.push(called(unsafe { library::load(API, null_mut(), &mut options) }, &[1, 0]));
    // SAFETY: the table touches no memory.
    functions.push(called(unsafe { library::load_file(API, c"image", &mut options) }, &[1, 0]));
    functions.push(called(library::kernels(API, CUlibrary(7), 5), &[5, 7]));
    functions
}

fn kernels_and_functions() -> Vec<Function> {
    let (at, device) = (CUfunction_attribute, CUdevice);
    arrive! {
        cuKernelGetFunction 1: kernel::function(API, CUkernel(1));
        cuKernelGetLibrary 1: kernel::library(API, CUkernel(1));
        cuKernelGetAttribute 3: kernel::attribute(API, CUkernel(2), at(1), device(3));
        cuKernelSetAttribute 4: kernel::set_attribute(API, CUkernel(3), at(1), 2, device(4));
        cuKernelSetCacheConfig 3: kernel::set_cache_config(API, CUkernel(1), CUfunc_cache(2), device(3));
        cuKernelGetName 1: kernel::name(API, CUkernel(1));
        cuKernelGetParamInfo 2: kernel::parameter(API, CUkernel(1), 2);
        cuFuncGetAttribute 2: function::attribute(API, CUfunction(2), at(1));
        cuFuncSetAttribute 3: function::set_attribute(API, CUfunction(1), at(2), 3);
        cuFuncSetCacheConfig 2: function::set_cache_config(API, CUfunction(1), CUfunc_cache(2));
        cuFuncSetBlockShape 4: function::set_block_shape(API, CUfunction(1), [2, 3, 4]);
        cuFuncSetSharedMemConfig 2: function::set_shared_config(API, CUfunction(1), CUsharedconfig(2));
        cuFuncGetModule 1: function::module(API, CUfunction(1));
        cuFuncGetName 1: function::name(API, CUfunction(1));
        cuFuncGetParamInfo 2: function::parameter(API, CUfunction(1), 2);
        cuFuncIsLoaded 1: function::loading_state(API, CUfunction(1));
        cuFuncLoad 1: function::load(API, CUfunction(1));
    }
}

fn links() -> Vec<Function> {
    let mut options = module::Options::new().with(CUjit_option(0), 0);
    let mut four = (0..4).fold(module::Options::new(), |options, _| options.with(CUjit_option(0), 0));
    let mut three = (0..3).fold(module::Options::new(), |options, _| options.with(CUjit_option(0), 0));
    let (link, kind) = (CUlinkState(1), CUjitInputType(2));
    arrive! {
        // SAFETY: the table touches no memory.
        cuLinkCreate_v2 1: unsafe { link::create(API, &mut options) };
        // SAFETY: the table touches no memory.
        cuLinkAddData_v2 4: unsafe { link::add(API, link, kind, &[0; 3], c"name", &mut four) };
        // SAFETY: the table touches no memory.
        cuLinkAddFile_v2 3: unsafe { link::add_file(API, link, kind, c"path", &mut three) };
        cuLinkComplete 1: link::complete(API, link);
        cuLinkDestroy 1: link::destroy(API, link);
    }
}

fn occupancies() -> Vec<Function> {
    let function = CUfunction(1);
    let config = CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: CUstream::NULL,
        attrs: null_mut(),
        numAttrs: 0,
    };
    arrive! {
        cuOccupancyMaxActiveBlocksPerMultiprocessor 3: occupancy::blocks(API, function, 2, 3);
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 4: occupancy::blocks_with_flags(API, function, 2, 3, 4);
        // SAFETY: the table makes no call back.
        cuOccupancyMaxPotentialBlockSize 3: unsafe { occupancy::potential(API, function, None, 2, 3) };
        cuOccupancyMaxPotentialBlockSizeWithFlags 4:
            // SAFETY: the table makes no call back.
            unsafe { occupancy::potential_with_flags(API, function, None, 2, 3, 4) };
        cuOccupancyAvailableDynamicSMemPerBlock 3: occupancy::shared_bytes(API, function, 2, 3);
        // SAFETY: the configuration has no attributes.
        cuOccupancyMaxPotentialClusterSize 1: unsafe { occupancy::cluster_size(API, function, &config) };
        // SAFETY: the configuration has no attributes.
        cuOccupancyMaxActiveClusters 1: unsafe { occupancy::clusters(API, function, &config) };
    }
}

fn launches() -> Vec<Function> {
    let shape = launch::LaunchConfig { grid: [2, 3, 4], block: [5, 6, 7], shared_bytes: 8 };
    let (function, stream) = (CUfunction(1), CUstream(9));
    arrive! {
        // SAFETY: the table launches nothing.
        cuLaunchKernel 9: unsafe { launch::kernel(API, function, shape, stream, &mut []) };
        // SAFETY: the table launches nothing.
        cuLaunchKernelEx 1: unsafe { launch::with_attributes(API, function, shape, stream, &mut [], &mut []) };
        // SAFETY: the table launches nothing.
        cuLaunchCooperativeKernel 9: unsafe { launch::cooperative(API, function, shape, stream, &mut []) };
    }
}

fn log_calls() -> Vec<Function> {
    unsafe extern "C" fn callback(_: *mut c_void, _: CUlogLevel, _: *mut c_char, _: usize) {}
    arrive! {
        // SAFETY: the table makes no call back.
        cuLogsRegisterCallback 0: unsafe { logs::register(API, callback, null_mut()) };
        cuLogsUnregisterCallback 1: logs::unregister(API, CUlogsCallbackHandle(1));
        cuLogsCurrent 1: logs::current(API, 1);
        cuLogsDumpToFile 1: logs::dump_to_file(API, None, c"path", 1);
        cuLogsDumpToMemory 1: logs::dump(API, None, 64, 1);
    }
}

fn captures_and_graphs() -> Vec<Function> {
    let (graph, exec) = (CUgraph(1), CUgraphExec(1));
    arrive! {
        cuStreamBeginCapture_v2 2: capture::begin(API, CUstream(1), CUstreamCaptureMode(2));
        cuStreamBeginCaptureToGraph 4:
            capture::begin_to_graph(API, CUstream(1), CUgraph(2), &[NODE(0); 3], CUstreamCaptureMode(4));
        cuStreamEndCapture 1: capture::end(API, CUstream(1));
        cuStreamGetCaptureInfo_v3 1: capture::info_with_nodes(API, CUstream(1));
        cuStreamUpdateCaptureDependencies 3:
            capture::update_dependencies(API, CUstream(1), &mut [NODE(0); 2], 3);
        cuStreamUpdateCaptureDependencies_v2 3: capture::update_dependencies_with_data(
            API,
            CUstream(1),
            &mut [NODE(0); 2],
            &[CUgraphEdgeData::default(); 2],
            3
        );
        cuStreamGetCaptureInfo_v2 1: capture::info(API, CUstream(1));
        cuThreadExchangeStreamCaptureMode 0: capture::exchange_mode(API, CUstreamCaptureMode(1));
        cuGraphCreate 1: graph::create(API, 1);
        cuGraphClone 1: graph::duplicate(API, graph);
        cuGraphDestroy 1: graph::destroy(API, graph);
        cuGraphGetNodes 1: graph::nodes(API, graph, 3);
        cuGraphInstantiateWithFlags 2: graph::instantiate(API, graph, 2);
        cuGraphExecDestroy 1: graph::destroy_exec(API, exec);
        cuGraphUpload 2: graph::upload(API, exec, CUstream(2));
        // SAFETY: the table launches nothing.
        cuGraphLaunch 2: unsafe { graph::launch(API, exec, CUstream(2)) };
        cuProfilerStart 0: profiler::start(API);
        cuProfilerStop 0: profiler::stop(API);
    }
}

fn managed_memory() -> Vec<Function> {
    let place = |id| CUmemLocation { kind: CUmemLocationType::DEVICE, id };
    let mut attributes = [CUmem_range_attribute(0)];
    let mut functions = arrive! {
        cuStreamAttachMemAsync 4: managed::attach(API, CUstream(1), AT(2), 3, 4);
        cuMemPrefetchAsync 4: managed::prefetch(API, AT(1), 2, CUdevice(3), CUstream(4));
        cuMemPrefetchAsync_v2 5: managed::prefetch_to(API, AT(1), 2, place(3), 4, CUstream(5));
        cuMemAdvise 4: managed::advise(API, AT(1), 2, CUmem_advise(3), CUdevice(4));
        cuMemAdvise_v2 4: managed::advise_for(API, AT(1), 2, CUmem_advise(3), place(4));
        cuMemRangeGetAttributes 3: managed::range_attributes(API, &mut attributes, AT(2), 3);
    };
    let outcome = managed::range_attribute(API, &mut [0], CUmem_range_attribute(5), AT(6), 7);
    functions.push(called(outcome, &[4, 5, 6, 7]));
    functions
}

fn graph_structures() -> Vec<Function> {
    let (graph, ends, data) = (CUgraph(1), [NODE(0); 2], [CUgraphEdgeData::default(); 2]);
    arrive! {
        cuGraphGetRootNodes 1: graph::roots(API, graph, 3);
        cuGraphGetEdges 1: graph::edges(API, graph, 3);
        cuGraphGetEdges_v2 1: graph::edges_with_data(API, graph, 3);
        cuGraphAddDependencies 2: graph::add_edges(API, graph, &ends, &ends);
        cuGraphAddDependencies_v2 2: graph::add_edges_with_data(API, graph, &ends, &ends, &data);
        cuGraphRemoveDependencies 2: graph::remove_edges(API, graph, &ends, &ends);
        cuGraphRemoveDependencies_v2 2: graph::remove_edges_with_data(API, graph, &ends, &ends, &data);
        cuGraphDebugDotPrint 2: graph::write_dot(API, graph, c"path", 2);
        cuGraphNodeGetType 1: graph_node::kind(API, NODE(1));
        cuGraphNodeFindInClone 2: graph_node::find_in_copy(API, NODE(1), CUgraph(2));
        cuGraphNodeGetDependencies 1: graph_node::dependencies(API, NODE(1), 3);
        cuGraphNodeGetDependencies_v2 1: graph_node::dependencies_with_data(API, NODE(1), 3);
        cuGraphNodeGetDependentNodes 1: graph_node::dependents(API, NODE(1), 3);
        cuGraphNodeGetDependentNodes_v2 1: graph_node::dependents_with_data(API, NODE(1), 3);
        cuGraphDestroyNode 1: graph_node::destroy(API, NODE(1));
    }
}

const KERNEL: CUDA_KERNEL_NODE_PARAMS = CUDA_KERNEL_NODE_PARAMS {
    func: CUfunction::NULL,
    gridDimX: 1,
    gridDimY: 1,
    gridDimZ: 1,
    blockDimX: 1,
    blockDimY: 1,
    blockDimZ: 1,
    sharedMemBytes: 0,
    kernelParams: null_mut(),
    extra: null_mut(),
    kern: CUkernel::NULL,
    ctx: CUcontext::NULL,
};
const MEM_OPS: CUDA_BATCH_MEM_OP_NODE_PARAMS =
    CUDA_BATCH_MEM_OP_NODE_PARAMS { ctx: CUcontext::NULL, count: 0, paramArray: null_mut(), flags: 0 };

fn graph_nodes() -> Vec<Function> {
    let (graph, after, node) = (CUgraph(1), &[NODE(0); 2], NODE(1));
    let (copy, fill) = (CUDA_MEMCPY3D::default(), CUDA_MEMSET_NODE_PARAMS::default());
    let host = CUDA_HOST_NODE_PARAMS { func: None, userData: null_mut() };
    let mut any = CUgraphNodeParams::zeroed(CUgraphNodeType::EMPTY);
    let (id, value) = (CUlaunchAttributeID(2), CUlaunchAttributeValue::default());
    arrive! {
        // SAFETY: the table touches no memory.
        cuGraphAddNode 2: unsafe { graph_node::add(API, graph, after, &mut any) };
        // SAFETY: the table touches no memory.
        cuGraphAddNode_v2 2: unsafe { graph_node::add_with_data(API, graph, after, &mut any) };
        // SAFETY: the table touches no memory.
        cuGraphNodeSetParams 1: unsafe { graph_node::set(API, node, &mut any) };
        // SAFETY: the table touches no memory.
        cuGraphAddKernelNode_v2 2: unsafe { graph_node::add_kernel(API, graph, after, &KERNEL) };
        cuGraphKernelNodeGetParams_v2 1: graph_node::kernel(API, node);
        // SAFETY: the table touches no memory.
        cuGraphKernelNodeSetParams_v2 1: unsafe { graph_node::set_kernel(API, node, &KERNEL) };
        cuGraphKernelNodeGetAttribute 2: graph_node::kernel_attribute(API, node, id);
        cuGraphKernelNodeSetAttribute 2: graph_node::set_kernel_attribute(API, node, id, value);
        cuGraphKernelNodeCopyAttributes 2: graph_node::copy_kernel_attributes(API, node, NODE(2));
        // SAFETY: the table touches no memory.
        cuGraphAddMemcpyNode 3: unsafe { graph_node::add_copy(API, graph, after, &copy, CUcontext(3)) };
        cuGraphMemcpyNodeGetParams 1: graph_node::copy(API, node);
        // SAFETY: the table touches no memory.
        cuGraphMemcpyNodeSetParams 1: unsafe { graph_node::set_copy(API, node, &copy) };
        cuGraphAddMemsetNode 3: graph_node::add_fill(API, graph, after, &fill, CUcontext(3));
        cuGraphMemsetNodeGetParams 1: graph_node::fill(API, node);
        cuGraphMemsetNodeSetParams 1: graph_node::set_fill(API, node, &fill);
        // SAFETY: the table makes no call back.
        cuGraphAddHostNode 2: unsafe { graph_node::add_host(API, graph, after, &host) };
        cuGraphHostNodeGetParams 1: graph_node::host(API, node);
        // SAFETY: the table makes no call back.
        cuGraphHostNodeSetParams 1: unsafe { graph_node::set_host(API, node, &host) };
        cuGraphAddChildGraphNode 3: graph_node::add_child(API, graph, after, CUgraph(3));
        cuGraphChildGraphNodeGetGraph 1: graph_node::child(API, node);
        cuGraphAddEmptyNode 2: graph_node::add_empty(API, graph, after);
        cuGraphAddEventRecordNode 3: graph_node::add_record(API, graph, after, CUevent(3));
        cuGraphEventRecordNodeGetEvent 1: graph_node::recorded_event(API, node);
        cuGraphEventRecordNodeSetEvent 2: graph_node::set_recorded_event(API, node, CUevent(2));
        cuGraphAddEventWaitNode 3: graph_node::add_wait(API, graph, after, CUevent(3));
        cuGraphEventWaitNodeGetEvent 1: graph_node::awaited_event(API, node);
        cuGraphEventWaitNodeSetEvent 2: graph_node::set_awaited_event(API, node, CUevent(2));
        // SAFETY: the table touches no memory.
        cuGraphAddBatchMemOpNode 2: unsafe { graph_node::add_mem_ops(API, graph, after, &MEM_OPS) };
        cuGraphBatchMemOpNodeGetParams 1: graph_node::mem_ops(API, node);
        // SAFETY: the table touches no memory.
        cuGraphBatchMemOpNodeSetParams 1: unsafe { graph_node::set_mem_ops(API, node, &MEM_OPS) };
        cuGraphAddMemAllocNode 2: graph_node::add_alloc(API, graph, after, CUdevice(0), 5);
        cuGraphMemAllocNodeGetParams 1: graph_node::alloc(API, node);
        cuGraphAddMemFreeNode 3: graph_node::add_free(API, graph, after, AT(3));
        cuGraphMemFreeNodeGetParams 1: graph_node::freed(API, node);
        cuDeviceGraphMemTrim 1: device::trim_graph_memory(API, CUdevice(1));
        cuDeviceGetGraphMemAttribute 2: device::graph_memory(API, CUdevice(1), CUgraphMem_attribute(2));
        cuDeviceSetGraphMemAttribute 2: device::reset_graph_memory(API, CUdevice(1), CUgraphMem_attribute(2));
    }
}

fn user_objects() -> Vec<Function> {
    unsafe extern "C" fn destroy(_: *mut c_void) {}
    let object = CUuserObject(1);
    let mut functions = arrive! {
        cuUserObjectRetain 2: user_object::retain(API, object, 2);
        cuUserObjectRelease 2: user_object::release(API, object, 2);
        cuGraphRetainUserObject 4: user_object::retain_by_graph(API, CUgraph(1), CUuserObject(2), 3, 4);
        cuGraphReleaseUserObject 3: user_object::release_by_graph(API, CUgraph(1), CUuserObject(2), 3);
    };
    // SAFETY: the table makes no call back.
    functions.push(called(unsafe { user_object::create(API, null_mut(), destroy, 7) }, &[7, 1]));
    functions
}

fn executable_graphs() -> Vec<Function> {
    let (graph, exec, node, context) = (CUgraph(1), CUgraphExec(1), NODE(2), CUcontext(3));
    let (copy, fill) = (CUDA_MEMCPY3D::default(), CUDA_MEMSET_NODE_PARAMS::default());
    let host = CUDA_HOST_NODE_PARAMS { func: None, userData: null_mut() };
    let mut any = CUgraphNodeParams::zeroed(CUgraphNodeType::EMPTY);
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::default();
    arrive! {
        cuGraphInstantiateWithParams 1: graph_exec::instantiate(API, graph, &mut params);
        cuGraphExecGetFlags 1: graph_exec::flags(API, exec);
        // SAFETY: the table launches nothing.
        cuGraphExecUpdate_v2 2: unsafe { graph_exec::update(API, exec, CUgraph(2)) };
        cuGraphNodeSetEnabled 3: graph_exec::set_enabled(API, exec, node, 3);
        cuGraphNodeGetEnabled 2: graph_exec::is_enabled(API, exec, node);
        // SAFETY: the table touches no memory.
        cuGraphExecNodeSetParams 2: unsafe { graph_exec::set(API, exec, node, &mut any) };
        // SAFETY: the table touches no memory.
        cuGraphExecKernelNodeSetParams_v2 2: unsafe { graph_exec::set_kernel(API, exec, node, &KERNEL) };
        // SAFETY: the table touches no memory.
        cuGraphExecMemcpyNodeSetParams 3: unsafe { graph_exec::set_copy(API, exec, node, &copy, context) };
        cuGraphExecMemsetNodeSetParams 3: graph_exec::set_fill(API, exec, node, &fill, context);
        // SAFETY: the table makes no call back.
        cuGraphExecHostNodeSetParams 2: unsafe { graph_exec::set_host(API, exec, node, &host) };
        // SAFETY: the table launches nothing.
        cuGraphExecChildGraphNodeSetParams 3: unsafe { graph_exec::set_child(API, exec, node, CUgraph(3)) };
        cuGraphExecEventRecordNodeSetEvent 3: graph_exec::set_recorded_event(API, exec, node, CUevent(3));
        cuGraphExecEventWaitNodeSetEvent 3: graph_exec::set_awaited_event(API, exec, node, CUevent(3));
        // SAFETY: the table touches no memory.
        cuGraphExecBatchMemOpNodeSetParams 2: unsafe { graph_exec::set_mem_ops(API, exec, node, &MEM_OPS) };
    }
}

fn arrays_and_textures() -> Vec<Function> {
    let (plain, solid) = (CUDA_ARRAY_DESCRIPTOR::default(), CUDA_ARRAY3D_DESCRIPTOR::default());
    let (resource, sampling) = (CUDA_RESOURCE_DESC::default(), CUDA_TEXTURE_DESC::default());
    let (from, mut to) = ([0; 3], [0; 4]);
    let (source, target) = (from.as_ptr().cast(), to.as_mut_ptr().cast());
    let tensor = tensor_map::Tensor {
        data_type: CUtensorMapDataType(1),
        address: AT(3),
        sizes: &[4, 4],
        strides: &[16],
        box_sizes: &[4, 4],
        steps: &[1, 1],
        interleave: 4,
        swizzle: 5,
        promotion: 6,
        fill: 7,
    };
    let columns = tensor_map::Columns { lower: &[], upper: &[], channels: 4, pixels: 5 };
    let images = tensor_map::Tensor { interleave: 6, swizzle: 7, promotion: 8, fill: 9, ..tensor };
    arrive! {
        cuArrayCreate_v2 0: array::create_2d(API, &plain);
        cuArrayGetDescriptor_v2 1: array::descriptor_2d(API, CUarray(1));
        cuArrayDestroy 1: array::destroy(API, CUarray(1));
        cuArray3DCreate_v2 0: array::create(API, &solid);
        cuArray3DGetDescriptor_v2 1: array::descriptor(API, CUarray(1));
        cuMipmappedArrayCreate 1: array::create_mipmapped(API, &solid, 1);
        cuMipmappedArrayGetLevel 2: array::level(API, CUmipmappedArray(1), 2);
        cuMipmappedArrayDestroy 1: array::destroy_mipmapped(API, CUmipmappedArray(1));
        cuMemcpyDtoA_v2 4: array::device_to_array(API, CUarray(1), 2, AT(3), 4);
        cuMemcpyAtoD_v2 4: array::array_to_device(API, AT(1), CUarray(2), 3, 4);
        cuMemcpyHtoA_v2 3: array::host_to_array(API, CUarray(1), 2, &from);
        cuMemcpyAtoH_v2 3: array::array_to_host(API, &mut [0; 3], CUarray(1), 2);
        cuMemcpyAtoA_v2 5: array::array_to_array(API, CUarray(1), 2, CUarray(3), 4, 5);
        // SAFETY: nothing is copied.
        cuMemcpyHtoAAsync_v2 4: unsafe { array::host_to_array_async(API, CUarray(1), 2, source, 3, CUstream(4)) };
        // SAFETY: nothing is copied.
        cuMemcpyAtoHAsync_v2 4: unsafe { array::array_to_host_async(API, target, CUarray(1), 2, 3, CUstream(4)) };
        cuTexObjectCreate 0: texture::create(API, &resource, &sampling, None);
        cuTexObjectDestroy 1: texture::destroy(API, CUtexObject(1));
        cuTexObjectGetResourceDesc 1: texture::resource(API, CUtexObject(1));
        cuTexObjectGetTextureDesc 1: texture::sampling(API, CUtexObject(1));
        cuTexObjectGetResourceViewDesc 1: texture::view(API, CUtexObject(1));
        cuSurfObjectCreate 0: texture::create_surface(API, &resource);
        cuSurfObjectDestroy 1: texture::destroy_surface(API, CUsurfObject(1));
        cuSurfObjectGetResourceDesc 1: texture::surface_resource(API, CUsurfObject(1));
        cuTensorMapEncodeTiled 7: tensor_map::encode(API, &tensor);
        cuTensorMapEncodeIm2col 9: tensor_map::encode_columns(API, &images, &columns);
        cuTensorMapReplaceAddress 1: tensor_map::replace_address(API, &mut CUtensorMap::default(), AT(1));
    }
}
