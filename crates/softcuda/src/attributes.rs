//! What the software device says of itself: the figures of the hardware it stands in for, and its own where they
//! differ.

use std::collections::BTreeMap;

use freehold_driver::cuda::{CUdevice_attribute, CUlimit};

/// The version of the driver API that this driver speaks, as `cuDriverGetVersion` counts.
pub(crate) const DRIVER_VERSION: i32 = 13000;

/// Streams have priorities from this one, the greatest, to 0.
pub(crate) const PRIORITY_GREATEST: i32 = -5;

/// Rows of `cuMemAllocPitch` start on a multiple of this.
pub(crate) const PITCH_BYTES: u64 = 512;

pub(crate) fn name(ordinal: usize) -> String {
    format!("Freehold Software Device {ordinal}")
}

/// The same on every machine: it names a device within a process, which is as far as its memory reaches.
pub(crate) fn uuid(ordinal: usize) -> [u8; 16] {
    let mut bytes = *b"freehold-soft\0\0\0";
    bytes[15] = ordinal as u8;
    bytes
}

/// Where the device would be on the bus: a bus of its own each.
pub(crate) fn bus_id(ordinal: usize) -> String {
    format!("0000:{:02X}:00.0", ordinal + 1)
}

/// The value of an attribute; nothing for a number that is none.
pub(crate) fn value(attribute: CUdevice_attribute, ordinal: usize) -> Option<i32> {
    Some(match attribute {
        CUdevice_attribute::PCI_BUS_ID => ordinal as i32 + 1,
        CUdevice_attribute::PCI_DEVICE_ID | CUdevice_attribute::PCI_DOMAIN_ID => 0,
        CUdevice_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => 0,
        _ => *TABLE.iter().find(|(number, _)| *number == attribute.0).map(|(_, value)| value)?,
    })
}

/// Number and value of every attribute.
const TABLE: &[(u32, i32)] = &[];

/// The limits of a new context.
pub(crate) fn limits() -> BTreeMap<u32, usize> {
    BTreeMap::from([
        (CUlimit::STACK_SIZE.0, 1024),
        (CUlimit::PRINTF_FIFO_SIZE.0, 7_340_032),
        (CUlimit::MALLOC_HEAP_SIZE.0, 8 << 20),
        (CUlimit::DEV_RUNTIME_PENDING_LAUNCH_COUNT.0, 2048),
        (CUlimit::MAX_L2_FETCH_GRANULARITY.0, 64),
        (CUlimit::PERSISTING_L2_CACHE_SIZE.0, 0),
    ])
}
