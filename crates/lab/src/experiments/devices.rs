//! Experiments on what a driver reports about itself and its devices (question 0).

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use freehold_driver::cuda::{
    CUdevice_attribute, CUdriverProcAddressQueryResult, CUresult, Function, context, device, driver, proc_address_flags,
};

use crate::answer_text::{choose, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::{Fixture, check};
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(0, 10, 1),
        did: "ask for the version, the device count and the current context before cuInit",
        run: before_init,
    },
    Experiment { id: Id(0, 10, 2), did: "cuInit with flags 1, then 0, then 0 again", run: init_flags },
    Experiment { id: Id(0, 10, 3), did: "ask for device -1 and for the one after the last", run: ordinals },
    Experiment { id: Id(0, 10, 4), did: "ask for a device's name with room for 4 bytes", run: short_name },
    Experiment { id: Id(0, 10, 5), did: "ask for device attributes 0 and 10000", run: unknown_attribute },
    Experiment { id: Id(0, 10, 6), did: "ask for the name of error 0, 1 and 12345", run: error_names },
    Experiment {
        id: Id(0, 10, 7),
        did: "cuGetProcAddress of cuMemAlloc for CUDA 3.2, the version that changed it",
        run: |b| Ok(proc_address(b, c"cuMemAlloc", 3020)),
    },
    Experiment {
        id: Id(0, 10, 8),
        did: "cuGetProcAddress of cuMemAllocAsync, new in CUDA 11.2, for CUDA 11.2 and for 10.0",
        run: |b| {
            let (new, old) = (proc_address(b, c"cuMemAllocAsync", 11020), proc_address(b, c"cuMemAllocAsync", 10000));
            Ok(format!("{new}; {old}"))
        },
    },
    Experiment {
        id: Id(0, 10, 9),
        did: "cuGetProcAddress of a name that no version has",
        run: |b| Ok(proc_address(b, c"cuMemAllocTwice", 12000)),
    },
    Experiment { id: Id(0, 10, 10), did: "find a device by its PCI bus id, and by the text nowhere", run: bus_id },
    Experiment {
        id: Id(0, 10, 11),
        did: "ask whether a device can map host memory, shares its addresses with the host, has pools and managed memory",
        run: capabilities,
    },
];

fn before_init(b: &Fixture) -> Answer {
    let version = code(driver::version(b));
    let count = code(device::count(b));
    Ok(format!("version {version}, count {count}, current {}", code(context::current(b))))
}

fn init_flags(b: &Fixture) -> Answer {
    Ok(format!("{}, {}, {}", code(driver::init(b, 1)), code(driver::init(b, 0)), code(driver::init(b, 0))))
}

fn ordinals(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let count = device::count(b)?;
    Ok(format!("{}, {}", code(device::at(b, -1)), code(device::at(b, count))))
}

fn short_name(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let mut text = [0x55_u8; 8];
    // SAFETY: `text` outlives the call, which gets four of its eight bytes.
    let outcome = unsafe { (b.api.cuDeviceGetName)(text.as_mut_ptr().cast::<c_char>(), 4, b.device) };
    let outcome = code(check(Function::cuDeviceGetName, outcome));
    let ended = choose(text[3] == 0, "ends in a NUL", "ends in no NUL");
    Ok(format!("{outcome}, the text {ended}"))
}

fn unknown_attribute(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let ask = |number| code(device::attribute(b, b.device, CUdevice_attribute(number)));
    Ok(format!("{}, {}", ask(0), ask(10_000)))
}

fn error_names(b: &Fixture) -> Answer {
    let name = |number| or_code(driver::error_name(b, number), |name| name);
    Ok(format!("{}, {}, {}", name(0), name(1), name(12_345)))
}

/// Returns the code, and what the driver reports about the symbol.
fn proc_address(b: &Fixture, name: &CStr, version: i32) -> String {
    if let Err(error) = driver::init(b, 0) {
        return code::<(), _>(Err(error));
    }
    let mut function: *mut c_void = ptr::null_mut();
    let mut status = CUdriverProcAddressQueryResult(99);
    let call = b.api.cuGetProcAddress_v2;
    // SAFETY: the name ends in a NUL, and both variables outlive the call, which writes a pointer and a number.
    let outcome: CUresult =
        unsafe { call(name.as_ptr(), &mut function, version, proc_address_flags::DEFAULT, &mut status) };
    let status = match status {
        CUdriverProcAddressQueryResult::SUCCESS => "found",
        CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND => "symbol not found",
        CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT => "version not sufficient",
        _ => "no status",
    };
    let outcome = code(check(Function::cuGetProcAddress_v2, outcome));
    let address = choose(function.is_null(), "null", "an address");
    format!("{outcome}, {status}, {address}")
}

fn bus_id(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let text = CString::new(device::pci_bus_id(b, b.device)?).unwrap_or_default();
    let same = |device| choose(device == b.device, "the same device", "another device");
    let found = or_code(device::at_pci_bus_id(b, &text), same);
    Ok(format!("{found}, {}", code(device::at_pci_bus_id(b, c"nowhere"))))
}

fn capabilities(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let mut answers = Vec::new();
    for attribute in [
        CUdevice_attribute::CAN_MAP_HOST_MEMORY,
        CUdevice_attribute::UNIFIED_ADDRESSING,
        CUdevice_attribute::MEMORY_POOLS_SUPPORTED,
        CUdevice_attribute::MANAGED_MEMORY,
    ] {
        answers.push(choose(device::attribute(b, b.device, attribute)? != 0, "yes", "no"));
    }
    Ok(answers.join(", "))
}
