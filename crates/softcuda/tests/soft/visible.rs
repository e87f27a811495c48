//! `CUDA_VISIBLE_DEVICES`: the devices that a process sees, their order, and what stays the same on the machine.

use crate::common;
use crate::peer::{Kind, Machine, Peer};

use common::{Refused, child, driver, untouched};
use freehold_driver::cuda::{CUdevice, CUerror, device, driver, extension};

/// Runs the body of the test `name` in a process that sees a part of three devices.
#[track_caller]
fn with_list(name: &str, list: &str, body: impl FnOnce()) {
    child::run_in_child_with(name, &[("FREEHOLD_SOFT_DEVICES", "3"), ("CUDA_VISIBLE_DEVICES", list)], body);
}

#[test]
fn devices_are_numbered_in_the_order_of_the_list() {
    with_list("devices_are_numbered_in_the_order_of_the_list", "2,0", || {
        let (api, _) = driver();
        assert_eq!(device::count(&api), Ok(2));
        let bus_ids = [0, 1].map(|ordinal| device::pci_bus_id(&api, CUdevice(ordinal)).unwrap());
        assert_eq!(bus_ids, ["0000:03:00.0", "0000:01:00.0"]);
        assert_eq!(device::at(&api, 2).code(), CUerror::INVALID_DEVICE);
        assert_eq!(device::at_pci_bus_id(&api, c"0000:02:00.0").code(), CUerror::INVALID_DEVICE);
        assert_eq!(device::name(&api, CUdevice(0)).unwrap(), "Freehold Software Device 2");
    });
}

#[test]
fn a_uuid_selects_its_device() {
    let list = "GPU-66726565-686f-6c64-2d73-6f6674000001";
    with_list("a_uuid_selects_its_device", list, || {
        let (api, _) = driver();
        assert_eq!(device::count(&api), Ok(1));
        assert_eq!(device::pci_bus_id(&api, CUdevice(0)).unwrap(), "0000:02:00.0");
    });
}

#[test]
fn an_empty_list_leaves_no_device() {
    with_list("an_empty_list_leaves_no_device", "", || {
        let (api, _) = untouched();
        assert_eq!(driver::init(&api, 0).code(), CUerror::NO_DEVICE);
        assert_eq!(device::count(&api).code(), CUerror::NOT_INITIALIZED);
    });
}

#[test]
fn the_extension_describes_devices_that_are_hidden() {
    with_list("the_extension_describes_devices_that_are_hidden", "1", || {
        let (api, _) = untouched();
        let found = extension::find(&api).expect("the software driver has it");
        let bus_ids = || [0, 1, 2].map(|index| found.device(index).unwrap().bus_id.to_string());
        let before = bus_ids();
        driver::init(&api, 0).unwrap();
        assert_eq!(
            (before, bus_ids()),
            (["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"].map(str::to_owned), bus_ids())
        );
        let (hidden, seen) = (found.device(0).unwrap(), found.device(1).unwrap());
        assert_eq!((hidden.total_bytes, hidden.free_bytes), (seen.total_bytes, seen.free_bytes));
        assert_eq!(found.device(3).err(), Some(CUerror::INVALID_DEVICE));
    });
}

/// The number in a handle is the machine's: the processes number the device differently.
#[test]
fn memory_is_shared_by_processes_that_number_its_device_differently() {
    let machine = Machine::new();
    let devices = ("FREEHOLD_SOFT_DEVICES", "2");
    let maker = Peer::start(machine.name(), &[devices, ("CUDA_VISIBLE_DEVICES", "1")]);
    let taker = Peer::start(machine.name(), &[devices, ("CUDA_VISIBLE_DEVICES", "1,0")]);
    let other = Peer::start(machine.name(), &[devices, ("CUDA_VISIBLE_DEVICES", "0")]);
    [&maker, &taker, &other].iter().for_each(|peer| drop(peer.ask("start")));
    let token = maker.ask("name 4096");
    let take = format!("take {:?} {token}", Kind::Legacy);
    taker.ask(&take);
    assert_eq!(other.refused(&take), CUerror::INVALID_VALUE);
}
