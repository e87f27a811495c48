//! Two devices, which only the software driver provides on every machine: what they share and what they do not.

use std::os::fd::AsFd;

use crate::common;

use common::{Context, Refused, child, driver};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUdevice, CUdevice_P2PAttribute, CUdeviceptr, CUerror, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemLocation, CUmemLocationType, CUmemPoolProps, CUstream,
    address, allocation, context, copy, device, fill, host, logs, mapping, memory, pointer, pool, primary,
};

const MIB: usize = 1 << 20;

/// Runs the body of the test `name` in a process with two devices.
#[track_caller]
fn with_two(name: &str, body: impl FnOnce()) {
    child::run_in_child_with(name, &[("FREEHOLD_SOFT_DEVICES", "2")], body);
}

/// A context on the second device, above one on the first.
fn two_contexts() -> (Context, Context) {
    let first = Context::create();
    let second = first.on_device(CUdevice(1));
    (first, second)
}

#[test]
fn there_are_as_many_devices_as_the_environment_says() {
    with_two("there_are_as_many_devices_as_the_environment_says", || {
        let (api, _) = driver();
        assert_eq!(device::count(&api), Ok(2));
        assert_eq!(device::at(&api, 1), Ok(CUdevice(1)));
        assert_eq!(device::at(&api, 2).code(), CUerror::INVALID_DEVICE);
        assert_ne!(device::uuid(&api, CUdevice(0)), device::uuid(&api, CUdevice(1)));
        assert_ne!(device::pci_bus_id(&api, CUdevice(0)), device::pci_bus_id(&api, CUdevice(1)));
        assert_eq!(device::at_pci_bus_id(&api, c"0000:02:00.0"), Ok(CUdevice(1)));
    });
}

#[test]
fn each_device_has_its_own_memory_and_its_own_pool() {
    with_two("each_device_has_its_own_memory_and_its_own_pool", || {
        let (first, second) = two_contexts();
        let free = |own: &Context| {
            own.enter();
            memory::info(&own.api).unwrap().free_bytes
        };
        let before = [free(&first), free(&second)];
        let block = second.block(64 * MIB);
        assert_eq!([free(&first), free(&second)], [before[0], before[1] - 64 * MIB]);
        assert_eq!(pointer::device_ordinal(&second.api, block), Ok(1));
        assert_eq!(context::device(&second.api), Ok(CUdevice(1)));
        let default = |device| device::default_pool(&first.api, CUdevice(device)).unwrap();
        assert_ne!(default(0), default(1));
    });
}

#[test]
fn devices_are_each_others_peers_and_not_their_own() {
    with_two("devices_are_each_others_peers_and_not_their_own", || {
        let (api, _) = driver();
        let can = |from, to| device::can_access_peer(&api, CUdevice(from), CUdevice(to));
        assert_eq!([can(0, 1), can(1, 0), can(0, 0)], [Ok(true), Ok(true), Ok(false)]);
        let supported = CUdevice_P2PAttribute::ACCESS_SUPPORTED;
        assert_eq!(device::p2p_attribute(&api, CUdevice(0), CUdevice(1), supported), Ok(1));
        assert_eq!(device::p2p_attribute(&api, CUdevice(0), CUdevice(0), supported).code(), CUerror::INVALID_DEVICE);
    });
}

#[test]
fn peer_access_is_enabled_once_and_disabled_once() {
    with_two("peer_access_is_enabled_once_and_disabled_once", || {
        let (first, second) = two_contexts();
        first.enter();
        let api = &first.api;
        assert_eq!(context::disable_peer_access(api, second.handle).code(), CUerror::PEER_ACCESS_NOT_ENABLED);
        assert_eq!(context::enable_peer_access(api, second.handle, 0), Ok(()));
        assert_eq!(context::enable_peer_access(api, second.handle, 0).code(), CUerror::PEER_ACCESS_ALREADY_ENABLED);
        assert_eq!(context::disable_peer_access(api, second.handle), Ok(()));
        assert_eq!(context::disable_peer_access(api, second.handle).code(), CUerror::PEER_ACCESS_NOT_ENABLED);
        assert_eq!(context::enable_peer_access(api, second.handle, 1).code(), CUerror::INVALID_VALUE);
        assert_eq!(context::enable_peer_access(api, first.handle, 0).code(), CUerror::PEER_ACCESS_UNSUPPORTED);
    });
}

#[test]
fn a_fill_of_a_peers_memory_needs_peer_access() {
    with_two("a_fill_of_a_peers_memory_needs_peer_access", || {
        let (first, second) = two_contexts();
        let block = second.block(4096);
        first.enter();
        assert_eq!(fill::d8(&first.api, block, 1, 4096).code(), CUerror::INVALID_VALUE);
        context::enable_peer_access(&first.api, second.handle, 0).unwrap();
        assert_eq!(fill::d8(&first.api, block, 1, 4096), Ok(()));
        context::synchronize(&first.api).unwrap();
        context::disable_peer_access(&first.api, second.handle).unwrap();
        assert_eq!(fill::d8(&first.api, block, 1, 4096).code(), CUerror::INVALID_VALUE);
        second.enter();
        assert_eq!(second.byte(block, 4096), 1);
    });
}

#[test]
fn a_copy_between_devices_needs_no_peer_access() {
    with_two("a_copy_between_devices_needs_no_peer_access", || {
        let (first, second) = two_contexts();
        let to = second.block(4096);
        first.enter();
        let from = first.block(4096);
        fill::d8(&first.api, from, 6, 4096).unwrap();
        copy::peer(&first.api, to, second.handle, from, first.handle, 2048).unwrap();
        copy::device_to_device(&first.api, common::at(to, 2048), common::at(from, 2048), 2048).unwrap();
        context::synchronize(&first.api).unwrap();
        second.enter();
        assert_eq!(second.byte(to, 4096), 6);
    });
}

#[test]
fn a_copy_that_names_both_contexts_reaches_memory_mapped_for_one_device_only() {
    with_two("a_copy_that_names_both_contexts_reaches_memory_mapped_for_one_device_only", || {
        let (first, second) = two_contexts();
        let prop = CUmemAllocationProp::on_device(CUdevice(1), CUmemAllocationHandleType::NONE);
        let memory = allocation::create(&second.api, 2 * MIB, &prop).unwrap();
        let mapped = address::reserve(&second.api, 2 * MIB, 0, CUdeviceptr::NULL).unwrap();
        mapping::map(&second.api, mapped, 2 * MIB, 0, memory).unwrap();
        let location = CUmemLocation { kind: CUmemLocationType::DEVICE, id: 1 };
        let access = CUmemAccessDesc { location, flags: CUmemAccess_flags::PROT_READWRITE };
        mapping::set_access(&second.api, mapped, 2 * MIB, &[access]).unwrap();
        fill::d8(&second.api, mapped, 7, 64).unwrap();
        context::synchronize(&second.api).unwrap();
        first.enter();
        let block = first.block(64);
        let stream = CUstream::NULL;
        assert_eq!(copy::device_to_device_async(&first.api, block, mapped, 64, stream).code(), CUerror::INVALID_VALUE);
        copy::peer_async(&first.api, block, first.handle, mapped, second.handle, 64, stream).unwrap();
        let mut back = [0; 64];
        copy::device_to_host(&first.api, &mut back, block).unwrap();
        assert_eq!(back, [7; 64]);
        let wrong = copy::peer_async(&first.api, block, first.handle, mapped, first.handle, 64, stream);
        assert_eq!(wrong.code(), CUerror::INVALID_VALUE);
    });
}

#[test]
fn memory_of_one_device_is_freed_with_the_other_current() {
    with_two("memory_of_one_device_is_freed_with_the_other_current", || {
        let (first, second) = two_contexts();
        let block = second.block(4096);
        first.enter();
        assert_eq!(memory::free(&first.api, block), Ok(()));
        assert_eq!(memory::free(&first.api, block).code(), CUerror::INVALID_VALUE);
    });
}

#[test]
fn pinned_memory_serves_both_devices() {
    with_two("pinned_memory_serves_both_devices", || {
        let (first, second) = two_contexts();
        let pinned = second.pinned(4096);
        first.enter();
        assert_eq!(host::device_address(&first.api, pinned.pointer(), 0), Ok(pinned.address()));
        fill::d8(&first.api, pinned.address(), 3, 4096).unwrap();
        assert_eq!(common::same(&pinned.to_vec()), 3);
    });
}

#[test]
fn a_pool_serves_other_devices_once_access_is_set() {
    with_two("a_pool_serves_other_devices_once_access_is_set", || {
        let (api, _) = driver();
        let made = pool::create(&api, &CUmemPoolProps::on_device(CUdevice(0))).unwrap();
        let place = |id| CUmemLocation { kind: CUmemLocationType::DEVICE, id };
        let access = |id| pool::access(&api, made, place(id));
        assert_eq!(access(0), Ok(CUmemAccess_flags::PROT_READWRITE));
        assert_eq!(access(1), Ok(CUmemAccess_flags::PROT_NONE));
        let set = |id, flags| pool::set_access(&api, made, &[CUmemAccessDesc { location: place(id), flags }]);
        assert_eq!(set(1, CUmemAccess_flags::PROT_READWRITE), Ok(()));
        assert_eq!(access(1), Ok(CUmemAccess_flags::PROT_READWRITE));
        // As an H200 answers.
        assert_eq!(set(0, CUmemAccess_flags::PROT_READ).code(), CUerror::NOT_SUPPORTED);
        assert_eq!(set(0, CUmemAccess_flags::PROT_NONE).code(), CUerror::INVALID_DEVICE);
        assert_eq!(set(7, CUmemAccess_flags::PROT_READWRITE).code(), CUerror::INVALID_DEVICE);
        assert_eq!(device::set_pool(&api, CUdevice(1), made).code(), CUerror::INVALID_VALUE);
        assert_eq!(device::set_pool(&api, CUdevice(0), made), Ok(()));
        pool::destroy(&api, made).unwrap();
    });
}

#[test]
fn a_block_of_an_imported_pool_has_the_access_of_the_pool() {
    with_two("a_block_of_an_imported_pool_has_the_access_of_the_pool", || {
        let (first, second) = two_contexts();
        first.enter();
        let api = &first.api;
        let posix = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
        let props = CUmemPoolProps { handleTypes: posix, ..CUmemPoolProps::on_device(CUdevice(0)) };
        let made = pool::create(api, &props).unwrap();
        let block = memory::alloc_from_pool_async(api, 4, made, CUstream::NULL).unwrap();
        first.finish(CUstream::NULL);
        let descriptor = pool::export(api, made).unwrap();
        let imported = pool::import(api, descriptor.as_fd()).unwrap();
        let opened = pool::import_block(api, imported, pool::export_block(api, block).unwrap()).unwrap();
        second.enter();
        assert_eq!(fill::d8(api, opened, 1, 4).code(), CUerror::INVALID_VALUE);
        let location = CUmemLocation { kind: CUmemLocationType::DEVICE, id: 1 };
        let flags = CUmemAccess_flags::PROT_READWRITE;
        pool::set_access(api, imported, &[CUmemAccessDesc { location, flags }]).unwrap();
        fill::d8(api, opened, 1, 4).unwrap();
        let store = second.kernel(c"store");
        second.run(store, LaunchConfig::linear(1, 1), CUstream::NULL, &[opened.0.into(), 5u32.into()]).unwrap();
        context::synchronize(&second.api).unwrap();
        assert_eq!(second.read(opened, 4), 5u32.to_le_bytes());
    });
}

#[test]
fn each_device_has_its_own_primary_context() {
    with_two("each_device_has_its_own_primary_context", || {
        let (api, _) = driver();
        let [first, second] = [0, 1].map(|device| primary::retain(&api, CUdevice(device)).unwrap());
        assert_ne!(first, second);
        primary::release(&api, CUdevice(1)).unwrap();
        assert!(primary::state(&api, CUdevice(0)).unwrap().active, "the first is still retained");
        assert!(!primary::state(&api, CUdevice(1)).unwrap().active, "the second is not");
    });
}

#[test]
fn a_kernel_reaches_memory_of_another_device_once_its_context_may() {
    with_two("a_kernel_reaches_memory_of_another_device_once_its_context_may", || {
        let (first, second) = two_contexts();
        first.enter();
        let block = first.block(4);
        second.enter();
        context::enable_peer_access(&second.api, first.handle, 0).unwrap();
        let store = second.kernel(c"store");
        second.run(store, LaunchConfig::linear(1, 1), CUstream::NULL, &[block.0.into(), 5u32.into()]).unwrap();
        context::synchronize(&second.api).unwrap();
        assert_eq!(second.read(block, 4), 5u32.to_le_bytes());
        context::disable_peer_access(&second.api, first.handle).unwrap();
        second.run(store, LaunchConfig::linear(1, 1), CUstream::NULL, &[block.0.into(), 6u32.into()]).unwrap();
        assert_eq!(context::synchronize(&second.api).code(), CUerror::ILLEGAL_ADDRESS);
        let log = logs::dump(&second.api, None, 4096, 0).unwrap();
        assert!(log.contains("memory of device 0, to which this context has no access"), "{log}");
        std::mem::forget((first, second));
    });
}
