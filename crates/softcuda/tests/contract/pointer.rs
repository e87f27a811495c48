//! Pointer attributes of device, pinned, registered, managed and pool memory, and of unknown addresses.

use crate::common;

use std::ffi::c_void;

use common::{Context, Gate, Refused, Shared, at, pages};
use freehold_driver::cuda::{
    CUcontext, CUdeviceptr, CUerror, CUmemPoolProps, CUmemorytype, CUpointer_attribute, copy, device, host, memory,
    pointer, pool,
};

/// An address that no driver returns.
const WILD: CUdeviceptr = CUdeviceptr(0x1234_5600);

/// A host address that no driver knows.
fn pageable() -> CUdeviceptr {
    CUdeviceptr(pages(4096) as u64)
}

/// Memory of each kind that has an owner.
fn kinds(own: &Context) -> (CUdeviceptr, [Shared<'_>; 3]) {
    (own.block(4096), [own.managed(4096), own.pinned(4096), own.registered(4096)])
}

#[test]
fn device_and_managed_memory_are_the_devices_pinned_and_registered_the_hosts() {
    let own = Context::create();
    let (block, [managed, pinned, registered]) = kinds(&own);
    assert_eq!(pointer::memory_type(&own.api, block), Ok(CUmemorytype::DEVICE));
    assert_eq!(pointer::memory_type(&own.api, managed.address()), Ok(CUmemorytype::DEVICE));
    assert_eq!(pointer::memory_type(&own.api, pinned.address()), Ok(CUmemorytype::HOST));
    assert_eq!(pointer::memory_type(&own.api, registered.address()), Ok(CUmemorytype::HOST));
}

#[test]
fn only_managed_memory_is_managed() {
    let own = Context::create();
    let (block, [managed, pinned, registered]) = kinds(&own);
    assert_eq!(pointer::is_managed(&own.api, block), Ok(false));
    assert_eq!(pointer::is_managed(&own.api, managed.address()), Ok(true));
    assert_eq!(pointer::is_managed(&own.api, pinned.address()), Ok(false));
    assert_eq!(pointer::is_managed(&own.api, registered.address()), Ok(false));
}

#[test]
fn memory_names_the_context_that_made_it_whichever_is_current() {
    let own = Context::create();
    let (block, shared) = kinds(&own);
    let other = own.another();
    assert_eq!(pointer::context(&other.api, at(block, 100)), Ok(own.handle));
    for shared in shared {
        assert_eq!(pointer::context(&other.api, shared.address()), Ok(own.handle));
    }
    assert_eq!(pointer::context(&other.api, other.block(512)), Ok(other.handle));
}

#[test]
fn memory_names_its_device() {
    let own = Context::create();
    let (block, [managed, pinned, registered]) = kinds(&own);
    for address in [block, managed.address(), pinned.address(), registered.address()] {
        assert_eq!(pointer::device_ordinal(&own.api, address), Ok(own.device.0));
    }
}

#[test]
fn the_host_has_no_pointer_to_device_memory_and_one_to_all_other() {
    let own = Context::create();
    let (block, shared) = kinds(&own);
    assert_eq!(pointer::host_pointer(&own.api, block).code(), CUerror::INVALID_VALUE);
    for shared in shared {
        let inside = pointer::host_pointer(&own.api, at(shared.address(), 8)).unwrap();
        assert_eq!(inside, shared.pointer().wrapping_byte_add(8));
    }
}

#[test]
fn a_device_has_an_address_for_all_memory() {
    let own = Context::create();
    let (block, shared) = kinds(&own);
    assert_eq!(pointer::device_address(&own.api, at(block, 8)), Ok(at(block, 8)));
    for shared in shared {
        assert_eq!(pointer::device_address(&own.api, at(shared.address(), 8)), Ok(at(shared.address(), 8)));
    }
}

#[test]
fn an_interior_address_has_the_range_of_its_block() {
    let own = Context::create();
    let block = own.block(1000);
    assert_eq!(pointer::range_start(&own.api, at(block, 999)), Ok(block));
    assert_eq!(pointer::range_bytes(&own.api, at(block, 999)), Ok(1000));
}

#[test]
fn a_block_is_mapped_and_of_a_wild_address_it_cannot_be_asked() {
    let own = Context::create();
    assert_eq!(pointer::is_mapped(&own.api, own.block(512)), Ok(true));
    assert_eq!(pointer::is_mapped(&own.api, WILD).code(), CUerror::INVALID_VALUE);
}

#[test]
fn an_address_that_comes_back_has_another_buffer_id() {
    let own = Context::create();
    let (beside, block) = (own.block(4096), own.block(4096));
    let id = pointer::buffer_id(&own.api, block).unwrap();
    assert_eq!(pointer::buffer_id(&own.api, at(block, 9)), Ok(id));
    assert_ne!(pointer::buffer_id(&own.api, beside), Ok(id));
    memory::free(&own.api, block).unwrap();
    let again = own.block(4096);
    assert_eq!(again, block);
    assert_ne!(pointer::buffer_id(&own.api, again), Ok(id));
}

#[test]
fn memory_of_a_pool_names_the_pool_and_no_context() {
    let own = Context::create();
    let stream = own.stream();
    let made = pool::create(&own.api, &CUmemPoolProps::on_device(own.device)).unwrap();
    let from_made = memory::alloc_from_pool_async(&own.api, 4096, made, stream).unwrap();
    let from_default = memory::alloc_async(&own.api, 4096, stream).unwrap();
    own.finish(stream);
    assert_eq!(pointer::pool(&own.api, from_made), Ok(made));
    assert_eq!(pointer::pool(&own.api, from_default), device::default_pool(&own.api, own.device));
    assert_eq!(pointer::pool(&own.api, own.block(512)).unwrap().0, 0);
    for block in [from_made, from_default] {
        assert_eq!(pointer::memory_type(&own.api, block), Ok(CUmemorytype::DEVICE));
        assert_eq!(pointer::context(&own.api, block), Ok(CUcontext::NULL));
        memory::free_async(&own.api, block, stream).unwrap();
    }
    own.finish(stream);
    pool::destroy(&own.api, made).unwrap();
}

#[test]
fn an_address_that_the_driver_does_not_know_has_no_attribute() {
    let own = Context::create();
    let (_beside, freed) = (own.block(512), own.block(4096));
    memory::free(&own.api, freed).unwrap();
    for address in [CUdeviceptr::NULL, WILD, pageable(), freed] {
        assert_eq!(pointer::memory_type(&own.api, address).code(), CUerror::INVALID_VALUE);
        assert_eq!(pointer::context(&own.api, address).code(), CUerror::INVALID_VALUE);
        assert_eq!(pointer::buffer_id(&own.api, address).code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn asked_for_several_attributes_an_unknown_address_has_zeros() {
    let own = Context::create();
    let wanted = [CUpointer_attribute::CONTEXT, CUpointer_attribute::MEMORY_TYPE, CUpointer_attribute::IS_MANAGED];
    assert_eq!(pointer::attributes(&own.api, pageable(), wanted), Ok([0, 0, 0]));
    assert_eq!(pointer::attributes(&own.api, own.managed(512).address(), wanted), Ok([own.handle.0 as u64, 2, 1]));
}

#[test]
fn asked_for_no_attributes_or_for_one_that_is_none_the_driver_refuses() {
    let own = Context::create();
    let block = own.block(512);
    assert_eq!(pointer::attributes(&own.api, block, []).code(), CUerror::INVALID_VALUE);
    for number in [0, 999] {
        assert_eq!(pointer::attribute(&own.api, block, CUpointer_attribute(number)).code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn of_all_attributes_only_sync_memops_can_be_set() {
    let own = Context::create();
    let block = own.block(4096);
    assert_eq!(pointer::sync_memops(&own.api, block), Ok(false));
    assert_eq!(pointer::set_attribute(&own.api, block, CUpointer_attribute::SYNC_MEMOPS, 1), Ok(()));
    assert_eq!(pointer::sync_memops(&own.api, at(block, 4095)), Ok(true));
    for other in [CUpointer_attribute::CONTEXT, CUpointer_attribute::BUFFER_ID, CUpointer_attribute(999)] {
        assert_eq!(pointer::set_attribute(&own.api, block, other, 1).code(), CUerror::INVALID_VALUE);
    }
    let nowhere = pointer::set_attribute(&own.api, WILD, CUpointer_attribute::SYNC_MEMOPS, 1);
    assert_eq!(nowhere.code(), CUerror::INVALID_VALUE);
}

#[test]
fn sync_memops_ends_with_its_block() {
    let own = Context::create();
    let (_beside, block) = (own.block(512), own.block(4096));
    pointer::set_attribute(&own.api, block, CUpointer_attribute::SYNC_MEMOPS, 1).unwrap();
    memory::free(&own.api, block).unwrap();
    let (again, stream) = (own.block(4096), own.blocking());
    assert_eq!(again, block);
    assert_eq!(pointer::sync_memops(&own.api, again), Ok(false));
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    gate.shut_during(|| copy::device_to_device(&own.api, again, at(again, 2048), 2048)).unwrap();
}

#[test]
fn registered_memory_is_known_until_it_is_unregistered() {
    let own = Context::create();
    let registered = own.registered(4096);
    assert_eq!(pointer::memory_type(&own.api, registered.address()), Ok(CUmemorytype::HOST));
    // SAFETY: no work uses the memory.
    unsafe { host::unregister(&own.api, registered.pointer()) }.unwrap();
    assert_eq!(pointer::memory_type(&own.api, registered.address()).code(), CUerror::INVALID_VALUE);
}

#[test]
fn an_address_is_known_without_a_current_context() {
    let own = Context::create();
    let block = own.block(4096);
    let owner = std::thread::scope(|scope| scope.spawn(|| pointer::context(&own.api, block)).join().unwrap());
    assert_eq!(owner, Ok(own.handle));
    assert_ne!(own.handle, CUcontext::NULL);
}

#[test]
fn there_is_room_for_the_answer_or_none_is_given() {
    let own = Context::create();
    let block = own.block(512);
    // SAFETY: a null pointer is refused unread.
    let refused =
        unsafe { (own.api.cuPointerGetAttribute)(std::ptr::null_mut::<c_void>(), CUpointer_attribute::CONTEXT, block) };
    assert_eq!(refused, Err(CUerror::INVALID_VALUE));
}
