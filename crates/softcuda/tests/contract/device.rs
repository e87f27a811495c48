//! The driver and its devices: versions, names of error codes, addresses of functions, and device properties.

use crate::common;

use std::ffi::{CStr, CString};
use std::thread;

use common::{Context, Gate, Refused, driver};
use freehold_driver::cuda::{
    Api, CUdevice, CUdevice_attribute, CUdriverProcAddressQueryResult, CUerror, CUresult, CUstream, Function, context,
    device, driver, primary, proc_address_flags, stream,
};

#[test]
fn the_driver_speaks_cuda_12_or_later() {
    let (api, _) = driver();
    let version = driver::version(&api).unwrap();
    assert!(version >= 12000, "version {version}");
}

#[test]
fn the_driver_initializes_again_and_takes_no_flags() {
    let (api, _) = driver();
    assert_eq!(driver::init(&api, 0), Ok(()));
    assert_eq!(driver::init(&api, 1).code(), CUerror::INVALID_VALUE);
}

#[test]
fn codes_have_names_and_words() {
    let (api, _) = driver();
    assert_eq!(driver::error_name(&api, 0), Ok("CUDA_SUCCESS".to_owned()));
    assert_eq!(driver::error_name(&api, 1), Ok("CUDA_ERROR_INVALID_VALUE".to_owned()));
    assert_eq!(driver::error_name(&api, 700), Ok("CUDA_ERROR_ILLEGAL_ADDRESS".to_owned()));
    assert_eq!(driver::error_string(&api, 0), Ok("no error".to_owned()));
    assert_eq!(driver::error_string(&api, 2), Ok("out of memory".to_owned()));
    assert_eq!(driver::error_name(&api, 12345).code(), CUerror::INVALID_VALUE);
    assert_eq!(driver::error_string(&api, 12345).code(), CUerror::INVALID_VALUE);
}

/// Returns the status of a look-up, and whether it found an address.
fn proc_address(name: &CStr, version: i32) -> (CUdriverProcAddressQueryResult, bool) {
    let (api, _) = driver();
    let found = driver::proc_address(&api, name, version, proc_address_flags::DEFAULT).unwrap();
    (found.status, !found.function.is_null())
}

#[test]
fn a_function_has_an_address_from_the_version_that_brought_it() {
    assert_eq!(proc_address(c"cuMemAlloc", 3020), (CUdriverProcAddressQueryResult::SUCCESS, true));
    assert_eq!(proc_address(c"cuMemAllocAsync", 11020), (CUdriverProcAddressQueryResult::SUCCESS, true));
    let early = CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT;
    assert_eq!(proc_address(c"cuMemAllocAsync", 10000), (early, false));
}

#[test]
fn a_function_is_asked_for_by_its_name_without_a_version() {
    let unknown = (CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND, false);
    assert_eq!(proc_address(c"cuNoSuchFunction", 12000), unknown);
    assert_eq!(proc_address(c"cuMemAlloc_v2", 12000), unknown);
}

#[test]
fn a_version_that_the_driver_has_not_reached_is_refused() {
    let (api, _) = driver();
    let later = driver::proc_address(&api, c"cuInit", 99000, proc_address_flags::DEFAULT);
    assert_eq!(later.code(), CUerror::INVALID_VALUE);
}

/// Returns `cuStreamQuery` for programs that were compiled for per-thread default streams.
fn own_query(api: &Api) -> unsafe extern "C" fn(CUstream) -> CUresult {
    let flags = proc_address_flags::PER_THREAD_DEFAULT_STREAM;
    let found = driver::proc_address(api, c"cuStreamQuery", 12000, flags).unwrap();
    assert!(!found.function.is_null(), "the function has an address");
    // SAFETY: the address is that of `cuStreamQuery`, which has this signature in every version.
    unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn(CUstream) -> CUresult>(found.function) }
}

#[test]
fn for_programs_with_a_default_stream_for_each_thread_null_is_the_threads_own() {
    let own = Context::create();
    let query = own_query(&own.api);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, CUstream::PER_THREAD);
    // SAFETY: the call takes no pointer.
    assert_eq!(unsafe { query(CUstream::NULL) }, Err(CUerror::NOT_READY));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            own.enter();
            // SAFETY: the call takes no pointer.
            (unsafe { query(CUstream::NULL) }, stream::query(&own.api, CUstream::NULL))
        });
        // The other thread's own stream is idle. The legacy one waits for every blocking stream.
        assert_eq!(other.join().unwrap(), (Ok(()), Ok(false)));
    });
}

#[test]
fn devices_are_numbered_from_0() {
    let (api, wanted) = driver();
    let count = device::count(&api).unwrap();
    assert!(wanted.0 < count, "{wanted:?} is one of {count}");
    assert_eq!(device::at(&api, wanted.0), Ok(wanted));
    assert_eq!(device::at(&api, -1).code(), CUerror::INVALID_DEVICE);
    assert_eq!(device::at(&api, count).code(), CUerror::INVALID_DEVICE);
}

#[test]
fn an_invalid_device_has_no_attributes() {
    let (api, _) = driver();
    for wrong in [CUdevice(-1), CUdevice(1000)] {
        let codes = [
            device::name(&api, wrong).code(),
            device::uuid(&api, wrong).code(),
            device::total_bytes(&api, wrong).code(),
            device::attribute(&api, wrong, CUdevice_attribute::MULTIPROCESSOR_COUNT).code(),
            device::pci_bus_id(&api, wrong).code(),
            device::compute_capability(&api, wrong).code(),
            primary::state(&api, wrong).code(),
            primary::release(&api, wrong).code(),
        ];
        assert_eq!(common::same(&codes), CUerror::INVALID_DEVICE);
    }
}

#[test]
fn a_name_that_is_longer_than_its_room_is_cut() {
    let (api, wanted) = driver();
    let name = device::name(&api, wanted).unwrap();
    let mut room = [0x7f_u8; 8];
    // SAFETY: `room` outlives the call, which is told of four bytes of it.
    unsafe { (api.cuDeviceGetName)(room.as_mut_ptr().cast(), 4, wanted) }.unwrap();
    assert_eq!(room[..3], name.as_bytes()[..3]);
    assert_eq!(room[3..], [0, 0x7f, 0x7f, 0x7f, 0x7f]);
}

#[test]
fn a_device_is_found_by_its_place_on_the_bus() {
    let (api, wanted) = driver();
    let place = CString::new(device::pci_bus_id(&api, wanted).unwrap()).unwrap();
    assert_eq!(device::at_pci_bus_id(&api, &place), Ok(wanted));
    assert_eq!(device::at_pci_bus_id(&api, c"nowhere").code(), CUerror::INVALID_VALUE);
}

#[test]
fn attributes_say_what_these_tests_build_on() {
    let (api, wanted) = driver();
    let attribute = |attribute| device::attribute(&api, wanted, attribute).unwrap();
    assert_eq!(attribute(CUdevice_attribute::CAN_MAP_HOST_MEMORY), 1);
    assert_eq!(attribute(CUdevice_attribute::UNIFIED_ADDRESSING), 1);
    assert_eq!(attribute(CUdevice_attribute::CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM), 1);
    assert_eq!(attribute(CUdevice_attribute::MEMORY_POOLS_SUPPORTED), 1);
    assert_eq!(attribute(CUdevice_attribute::MANAGED_MEMORY), 1);
    assert_eq!(attribute(CUdevice_attribute::CAN_USE_64_BIT_STREAM_MEM_OPS), 1);
    assert_eq!(attribute(CUdevice_attribute::STREAM_PRIORITIES_SUPPORTED), 1);
}

#[test]
fn attributes_that_are_none_are_refused() {
    let (api, wanted) = driver();
    for number in [0, 10_000] {
        let refused = device::attribute(&api, wanted, CUdevice_attribute(number));
        assert_eq!(refused.code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn the_compute_capability_is_two_attributes() {
    let (api, wanted) = driver();
    let attribute = |attribute| device::attribute(&api, wanted, attribute).unwrap();
    let both = [CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR, CUdevice_attribute::COMPUTE_CAPABILITY_MINOR];
    let [major, minor] = both.map(attribute);
    assert_eq!(device::compute_capability(&api, wanted), Ok((major, minor)));
    assert!(major >= 5, "capability {major}.{minor}");
}

#[test]
fn a_device_is_not_its_own_peer() {
    let own = Context::create();
    assert_eq!(device::can_access_peer(&own.api, own.device, own.device), Ok(false));
    let refused = context::enable_peer_access(&own.api, own.handle, 0);
    assert_eq!(refused.code(), CUerror::PEER_ACCESS_UNSUPPORTED);
    let other = own.another();
    assert_eq!(context::enable_peer_access(&own.api, own.handle, 0).code(), CUerror::PEER_ACCESS_UNSUPPORTED);
    assert_eq!(context::disable_peer_access(&own.api, own.handle).code(), CUerror::PEER_ACCESS_NOT_ENABLED);
    assert_eq!(context::current(&own.api), Ok(other.handle));
}

#[test]
fn the_oldest_figures_of_a_device_are_attributes() {
    let (api, device) = driver();
    let properties = device::properties(&api, device).unwrap();
    assert_eq!(properties.maxThreadsPerBlock, 1024);
    assert_eq!(properties.maxThreadsDim, [1024, 1024, 64]);
    assert_eq!(properties.maxGridSize, [0x7fff_ffff, 65_535, 65_535]);
    assert_eq!((properties.sharedMemPerBlock, properties.SIMDWidth), (49_152, 32));
    assert_eq!(device::uuid_v1(&api, device), device::uuid(&api, device));
}

#[test]
fn a_name_means_another_form_to_programs_of_another_version() {
    let (api, _) = driver();
    let address = |name: &CStr, version| driver::proc_address(&api, name, version, 0).unwrap().function;
    assert_eq!(address(c"cuCtxCreate", 11030) as usize, api.address(Function::cuCtxCreate_v2));
    assert_ne!(address(c"cuCtxCreate", 11030), address(c"cuCtxCreate", 11040));
    assert_ne!(address(c"cuCtxCreate", 12040), address(c"cuCtxCreate", 12050));
    assert_ne!(address(c"cuMemPrefetchAsync", 12010), address(c"cuMemPrefetchAsync", 12020));
    assert_ne!(address(c"cuEventElapsedTime", 12070), address(c"cuEventElapsedTime", 12080));
}
