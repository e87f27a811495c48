//! A call returns what the driver writes.

use std::ffi::{c_char, c_void};

use freehold_driver::cuda::*;

fn empty() -> Api {
    // SAFETY: no symbol is returned.
    unsafe { Api::from_symbols(|_| None) }.0
}

/// A function for the table that writes each value to its place and succeeds. The types in brackets are those of the
/// arguments before the places and after them.
macro_rules! writes {
    ([$($before:ty)?] $($place:ident: $kind:ty = $value:expr),*; [$($after:ty),*]) => {{
        unsafe extern "C" fn function($(_: $before,)? $($place: *mut $kind,)* $(_: $after),*) -> CUresult {
            $(
                // SAFETY: the caller meets the conditions of the driver's function, which writes one value there.
                unsafe { $place.write($value) };
            )*
            Ok(())
        }
        function
    }};
}

#[test]
fn two_values_of_one_type_are_not_exchanged() {
    let api = Api {
        cuMemGetInfo_v2: writes!([] free: usize = 1, total: usize = 2; []),
        cuMemAllocPitch_v2: writes!([] start: CUdeviceptr = CUdeviceptr(3), pitch: usize = 4; [usize, usize, u32]),
        cuMemGetAddressRange_v2: writes!([] base: CUdeviceptr = CUdeviceptr(5), bytes: usize = 6; [CUdeviceptr]),
        cuDevicePrimaryCtxGetState: writes!([CUdevice] flags: u32 = 7, active: i32 = 1; []),
        cuDeviceComputeCapability: writes!([] major: i32 = 9, minor: i32 = 0; [CUdevice]),
        cuCtxGetStreamPriorityRange: writes!([] least: i32 = 0, greatest: i32 = -5; []),
        ..empty()
    };
    let at = CUdeviceptr(0);
    assert_eq!(memory::info(&api), Ok(memory::Info { free_bytes: 1, total_bytes: 2 }));
    assert_eq!(memory::alloc_pitch(&api, 1, 1, 4), Ok(memory::Pitched { start: CUdeviceptr(3), pitch_bytes: 4 }));
    assert_eq!(memory::range(&api, at), Ok(memory::Range { base: CUdeviceptr(5), bytes: 6 }));
    assert_eq!(primary::state(&api, CUdevice(0)), Ok(primary::State { flags: 7, active: true }));
    assert_eq!(device::compute_capability(&api, CUdevice(0)), Ok((9, 0)));
    assert_eq!(context::stream_priorities(&api), Ok(context::Priorities { least: 0, greatest: -5 }));
}

#[test]
fn handles_and_numbers_come_back_as_written() {
    let api = Api {
        cuStreamCreate: writes!([] stream: CUstream = CUstream(0x77); [u32]),
        cuEventElapsedTime: writes!([] milliseconds: f32 = 1.5; [CUevent, CUevent]),
        cuMemAllocHost_v2: writes!([] start: *mut c_void = std::ptr::without_provenance_mut(0x1000); [usize]),
        cuDeviceGetUuid_v2: writes!([] uuid: CUuuid = CUuuid { bytes: *b"0123456789abcdef" }; [CUdevice]),
        ..empty()
    };
    assert_eq!(stream::create(&api, 0), Ok(CUstream(0x77)));
    assert_eq!(event::elapsed_ms(&api, CUevent(1), CUevent(2)), Ok(1.5));
    assert_eq!(host::alloc(&api, 8).map(|start| start.addr()), Ok(0x1000));
    assert_eq!(device::uuid(&api, CUdevice(0)).map(|uuid| uuid.bytes), Ok(*b"0123456789abcdef"));
}

#[test]
fn not_ready_is_an_answer_and_any_other_code_an_error() {
    unsafe extern "C" fn ready(_: CUstream) -> CUresult {
        Ok(())
    }
    unsafe extern "C" fn busy(_: CUstream) -> CUresult {
        Err(CUerror::NOT_READY)
    }
    let query = |function| stream::query(&Api { cuStreamQuery: function, ..empty() }, CUstream(1));
    assert_eq!(query(ready), Ok(true));
    assert_eq!(query(busy), Ok(false));
    let error = stream::query(&empty(), CUstream(1)).unwrap_err();
    assert_eq!(error, DriverError { call: Function::cuStreamQuery, code: CUerror::NOT_SUPPORTED });

    unsafe extern "C" fn recorded(_: CUevent) -> CUresult {
        Err(CUerror::NOT_READY)
    }
    assert_eq!(event::query(&Api { cuEventQuery: recorded, ..empty() }, CUevent(1)), Ok(false));
}

#[test]
fn a_text_ends_at_its_nul_or_at_the_end_of_its_room() {
    unsafe extern "C" fn name(text: *mut c_char, length: i32, device: CUdevice) -> CUresult {
        let bytes = if device == CUdevice(0) { &b"NVIDIA H200\0rest"[..] } else { &[b'x'; 256] };
        assert!(bytes.len() <= length as usize, "there is room for the text");
        // SAFETY: the caller meets the conditions of `cuDeviceGetName`: there are `length` bytes of room.
        unsafe { text.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
        Ok(())
    }
    let api = Api { cuDeviceGetName: name, cuDeviceGetPCIBusId: name, ..empty() };
    assert_eq!(device::name(&api, CUdevice(0)).unwrap(), "NVIDIA H200");
    assert_eq!(device::pci_bus_id(&api, CUdevice(0)).unwrap(), "NVIDIA H200");
    assert_eq!(device::name(&api, CUdevice(1)).unwrap(), "x".repeat(256));
}

#[test]
fn a_text_of_the_drivers_is_copied() {
    let api = Api {
        cuGetErrorName: writes!([u32] text: *const c_char = c"CUDA_SUCCESS".as_ptr(); []),
        cuGetErrorString: writes!([u32] text: *const c_char = c"no error".as_ptr(); []),
        ..empty()
    };
    assert_eq!(driver::error_name(&api, 0).unwrap(), "CUDA_SUCCESS");
    assert_eq!(driver::error_string(&api, 0).unwrap(), "no error");
}

#[test]
fn a_symbol_comes_with_its_status() {
    unsafe extern "C" fn find(
        name: *const c_char,
        function: *mut *mut c_void,
        _: i32,
        _: u64,
        status: *mut CUdriverProcAddressQueryResult,
    ) -> CUresult {
        // SAFETY: the caller meets the conditions of `cuGetProcAddress`: `name` ends in a NUL.
        let name = unsafe { std::ffi::CStr::from_ptr(name) };
        assert_eq!(name, c"cuInit");
        // SAFETY: the caller meets the conditions of `cuGetProcAddress`: `function` is a place for one pointer.
        unsafe { function.write(std::ptr::without_provenance_mut(0x5000)) };
        // SAFETY: the caller meets the conditions of `cuGetProcAddress`: `status` is a place for one number.
        unsafe { status.write(CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT) };
        Ok(())
    }
    let api = Api { cuGetProcAddress_v2: find, ..empty() };
    let found = driver::proc_address(&api, c"cuInit", 13000, proc_address_flags::DEFAULT).unwrap();
    assert_eq!(found.function.addr(), 0x5000);
    assert_eq!(found.status, CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT);
}

/// Writes a value as long as the attribute's, which is the address.
unsafe extern "C" fn pointer_attribute(
    data: *mut c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> CUresult {
    let value = address.0.to_le_bytes();
    let length = match attribute {
        CUpointer_attribute::IS_MANAGED | CUpointer_attribute::MAPPED => 1,
        CUpointer_attribute::MEMORY_TYPE | CUpointer_attribute::DEVICE_ORDINAL => 4,
        CUpointer_attribute::CONTEXT | CUpointer_attribute::RANGE_START_ADDR => 8,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    // SAFETY: the caller meets the conditions of `cuPointerGetAttribute`: there is room for the attribute's value.
    unsafe { data.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), length) };
    Ok(())
}

#[test]
fn a_pointer_attribute_is_as_long_as_its_type() {
    let api = Api { cuPointerGetAttribute: pointer_attribute, ..empty() };
    let at = CUdeviceptr(0x1122_3344_ffff_ff00);
    assert_eq!(pointer::is_managed(&api, at), Ok(false));
    assert_eq!(pointer::is_managed(&api, CUdeviceptr(1)), Ok(true));
    assert_eq!(pointer::memory_type(&api, at), Ok(CUmemorytype(0xffff_ff00)));
    assert_eq!(pointer::device_ordinal(&api, at), Ok(-256));
    assert_eq!(pointer::context(&api, at), Ok(CUcontext(0x1122_3344_ffff_ff00)));
    assert_eq!(pointer::range_start(&api, at), Ok(at));
    assert_eq!(
        pointer::buffer_id(&api, at).unwrap_err().to_string(),
        "cuPointerGetAttribute: CUDA_ERROR_INVALID_VALUE (1)"
    );
}

#[test]
fn several_pointer_attributes_come_in_their_order() {
    unsafe extern "C" fn all(
        count: u32,
        attributes: *mut CUpointer_attribute,
        data: *mut *mut c_void,
        address: CUdeviceptr,
    ) -> CUresult {
        // SAFETY: the caller meets the conditions of `cuPointerGetAttributes`: there are `count` attributes.
        let attributes = unsafe { std::slice::from_raw_parts(attributes, count as usize) };
        // SAFETY: the caller meets the conditions of `cuPointerGetAttributes`: there are `count` places.
        let places = unsafe { std::slice::from_raw_parts(data, count as usize) };
        for (&place, &attribute) in places.iter().zip(attributes) {
            // SAFETY: the caller meets the conditions of `cuPointerGetAttributes`: the place suits the attribute.
            unsafe { pointer_attribute(place, attribute, address) }?;
        }
        Ok(())
    }
    let api = Api { cuPointerGetAttributes: all, ..empty() };
    use CUpointer_attribute as A;
    let values = pointer::attributes(&api, CUdeviceptr(0x1_0000_0102), [A::MEMORY_TYPE, A::CONTEXT, A::MAPPED]);
    assert_eq!(values, Ok([0x102, 0x1_0000_0102, 0x02]));
    let refused = pointer::attributes(&api, CUdeviceptr(1), [A::MEMORY_TYPE, A::BUFFER_ID]);
    assert_eq!(refused.unwrap_err().call, Function::cuPointerGetAttributes);
}

#[test]
fn each_typed_attribute_asks_for_its_own() {
    unsafe extern "C" fn of_pointer(data: *mut c_void, attribute: CUpointer_attribute, _: CUdeviceptr) -> CUresult {
        // SAFETY: the caller meets the conditions of `cuPointerGetAttribute`; no value here has less than four bytes.
        unsafe { data.cast::<u32>().write(attribute.0) };
        Ok(())
    }
    unsafe extern "C" fn of_pool(_: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) -> CUresult {
        // SAFETY: the caller meets the conditions of `cuMemPoolGetAttribute`; every value has four bytes or more.
        unsafe { value.cast::<u32>().write(attribute.0) };
        Ok(())
    }
    let api = Api { cuPointerGetAttribute: of_pointer, cuMemPoolGetAttribute: of_pool, ..empty() };
    let at = CUdeviceptr(0);
    assert_eq!(pointer::context(&api, at), Ok(CUcontext(1)));
    assert_eq!(pointer::memory_type(&api, at), Ok(CUmemorytype(2)));
    assert_eq!(pointer::device_address(&api, at), Ok(CUdeviceptr(3)));
    assert_eq!(pointer::host_pointer(&api, at).map(|start| start.addr()), Ok(4));
    assert_eq!(pointer::buffer_id(&api, at), Ok(7));
    assert_eq!(pointer::device_ordinal(&api, at), Ok(9));
    assert_eq!(pointer::range_start(&api, at), Ok(CUdeviceptr(11)));
    assert_eq!(pointer::range_bytes(&api, at), Ok(12));
    assert_eq!(pointer::allowed_handle_types(&api, at), Ok(14));
    assert_eq!(pointer::access(&api, at), Ok(CUmemAccess_flags(16)));
    assert_eq!(pointer::pool(&api, at), Ok(CUmemoryPool(17)));
    assert_eq!(pointer::mapping_bytes(&api, at), Ok(18));
    assert_eq!(pointer::mapping_start(&api, at), Ok(CUdeviceptr(19)));
    assert_eq!(pointer::memory_block_id(&api, at), Ok(20));
    let pool = CUmemoryPool(1);
    assert_eq!(pool::release_threshold_bytes(&api, pool), Ok(4));
    assert_eq!(pool::reserved_bytes(&api, pool), Ok(5));
    assert_eq!(pool::reserved_bytes_high(&api, pool), Ok(6));
    assert_eq!(pool::used_bytes(&api, pool), Ok(7));
    assert_eq!(pool::used_bytes_high(&api, pool), Ok(8));
}

#[test]
fn each_yes_or_no_asks_for_its_own() {
    /// Writes true for the attribute whose number is the address.
    unsafe extern "C" fn yes(data: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr) -> CUresult {
        // SAFETY: the caller meets the conditions of `cuPointerGetAttribute`: there is room for a Boolean.
        unsafe { data.cast::<u8>().write(u8::from(u64::from(attribute.0) == address.0)) };
        Ok(())
    }
    let api = Api { cuPointerGetAttribute: yes, ..empty() };
    let asked = [6, 8, 10, 13, 15].map(|number| {
        let at = CUdeviceptr(number);
        let answers = [
            pointer::sync_memops(&api, at),
            pointer::is_managed(&api, at),
            pointer::is_legacy_ipc_capable(&api, at),
            pointer::is_mapped(&api, at),
            pointer::is_gpu_direct_rdma_capable(&api, at),
        ];
        answers.iter().position(|&answer| answer == Ok(true))
    });
    assert_eq!(asked, [Some(0), Some(1), Some(2), Some(3), Some(4)]);
}

#[test]
fn a_value_that_is_set_is_read_whole() {
    unsafe extern "C" fn of_pool(_: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) -> CUresult {
        assert_eq!(attribute, CUmemPool_attribute::RELEASE_THRESHOLD);
        // SAFETY: the caller meets the conditions of `cuMemPoolSetAttribute`: this attribute has eight bytes.
        let value = unsafe { value.cast::<u64>().read() };
        if value == u64::MAX { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
    }
    unsafe extern "C" fn of_pointer(value: *const c_void, attribute: CUpointer_attribute, _: CUdeviceptr) -> CUresult {
        assert_eq!(attribute, CUpointer_attribute::SYNC_MEMOPS);
        // SAFETY: the caller meets the conditions of `cuPointerSetAttribute`: this attribute has four bytes.
        let value = unsafe { value.cast::<u32>().read() };
        if value == 1 { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
    }
    let api = Api { cuMemPoolSetAttribute: of_pool, cuPointerSetAttribute: of_pointer, ..empty() };
    let (pool, at) = (CUmemoryPool(1), CUdeviceptr(1));
    assert_eq!(pool::set_release_threshold(&api, pool, u64::MAX), Ok(()));
    assert_eq!(pool::set_release_threshold(&api, pool, 0).unwrap_err().code, CUerror::INVALID_VALUE);
    assert_eq!(pointer::set_attribute(&api, at, CUpointer_attribute::SYNC_MEMOPS, 1), Ok(()));
    let refused = pointer::set_attribute(&api, at, CUpointer_attribute::SYNC_MEMOPS, 0).unwrap_err();
    assert_eq!(refused.code, CUerror::INVALID_VALUE);
}

#[test]
fn a_slice_is_copied_whole_each_way() {
    unsafe extern "C" fn to_host(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> CUresult {
        // SAFETY: the caller meets the conditions of `cuMemcpyDtoH`: there are `bytes` of room.
        unsafe { to.write_bytes(from.0 as u8, bytes) };
        Ok(())
    }
    unsafe extern "C" fn to_device(_: CUdeviceptr, from: *const c_void, bytes: usize) -> CUresult {
        // SAFETY: the caller meets the conditions of `cuMemcpyHtoD`: there are `bytes` to read.
        let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
        if from == [1, 2, 3] { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
    }
    let api = Api { cuMemcpyDtoH_v2: to_host, cuMemcpyHtoD_v2: to_device, ..empty() };
    let mut bytes = [0; 3];
    assert_eq!(copy::device_to_host(&api, &mut bytes, CUdeviceptr(9)), Ok(()));
    assert_eq!(bytes, [9, 9, 9]);
    assert_eq!(copy::host_to_device(&api, CUdeviceptr(9), &[1, 2, 3]), Ok(()));
    assert_eq!(copy::host_to_device(&api, CUdeviceptr(9), &bytes).unwrap_err().code, CUerror::INVALID_VALUE);
}

#[test]
fn what_an_image_holds_comes_back_as_written() {
    let api = Api {
        cuModuleLoadData: writes!([] module: CUmodule = CUmodule(1); [*const c_void]),
        cuModuleGetFunction: writes!([] function: CUfunction = CUfunction(2); [CUmodule, *const c_char]),
        cuModuleGetGlobal_v2: writes!([] base: CUdeviceptr = CUdeviceptr(3), bytes: usize = 4; [CUmodule, *const c_char]),
        cuLinkComplete: writes!(
            [CUlinkState] start: *mut c_void = std::ptr::without_provenance_mut(5), bytes: usize = 6; []
        ),
        cuOccupancyMaxPotentialBlockSize: writes!([] grid: i32 = 7, block: i32 = 8; [CUfunction, CUoccupancyB2DSize, usize, i32]),
        cuFuncGetName: writes!([] text: *const c_char = c"kernel".as_ptr(); [CUfunction]),
        ..empty()
    };
    // SAFETY: the table reads nothing.
    assert_eq!(unsafe { module::load(&api, std::ptr::null()) }, Ok(CUmodule(1)));
    assert_eq!(module::function(&api, CUmodule(1), c"kernel"), Ok(CUfunction(2)));
    let variable = memory::Range { base: CUdeviceptr(3), bytes: 4 };
    assert_eq!(module::global(&api, CUmodule(1), c"variable"), Ok(variable));
    let linked = link::complete(&api, CUlinkState(0)).unwrap();
    assert_eq!((linked.start.addr(), linked.bytes), (5, 6));
    // SAFETY: there is no function to call.
    let best = unsafe { occupancy::potential(&api, CUfunction(2), None, 0, 0) };
    assert_eq!(best, Ok(occupancy::Potential { grid_size: 7, block_size: 8 }));
    assert_eq!(function::name(&api, CUfunction(2)), Ok("kernel".to_owned()));
}

#[test]
fn a_value_of_an_option_is_read_after_the_driver_wrote_it() {
    unsafe extern "C" fn load(
        _: *mut CUmodule,
        _: *const c_void,
        count: u32,
        names: *mut CUjit_option,
        values: *mut *mut c_void,
    ) -> CUresult {
        assert_eq!(count, 2);
        let second = names.wrapping_add(1);
        // SAFETY: the caller meets the conditions of the driver's function: there are two names.
        assert_eq!(unsafe { second.read() }, CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES);
        let second = values.wrapping_add(1);
        // SAFETY: as above, for the values.
        unsafe { second.write(std::ptr::without_provenance_mut(12)) };
        Err(CUerror::INVALID_PTX)
    }
    let api = Api { cuModuleLoadDataEx: load, ..empty() };
    let mut options = module::Options::new()
        .with(CUjit_option::OPTIMIZATION_LEVEL, 4)
        .with(CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES, 4096);
    // SAFETY: the table reads no image, and no value is an address.
    let refused = unsafe { module::load_with(&api, std::ptr::null(), &mut options) };
    assert_eq!(refused.unwrap_err().code, CUerror::INVALID_PTX);
    assert_eq!(options.value(CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES), Some(12));
    assert_eq!(options.value(CUjit_option::OPTIMIZATION_LEVEL), Some(4));
    assert_eq!(options.value(CUjit_option::WALL_TIME), None);
}

#[test]
fn a_log_ends_where_the_driver_says() {
    unsafe extern "C" fn dump(iterator: *mut CUlogIterator, text: *mut c_char, bytes: *mut usize, _: u32) -> CUresult {
        // SAFETY: the caller meets the conditions of the driver's function: `iterator` is one of the caller's.
        unsafe { iterator.write(9) };
        // SAFETY: as above: there is room for more than one character.
        unsafe { text.write(b'x' as c_char) };
        // SAFETY: as above.
        unsafe { bytes.write(1) };
        Ok(())
    }
    let api = Api { cuLogsDumpToMemory: dump, ..empty() };
    let mut iterator = 3;
    assert_eq!(logs::dump(&api, Some(&mut iterator), 64, 0), Ok("x".to_owned()));
    assert_eq!(iterator, 9);
}
