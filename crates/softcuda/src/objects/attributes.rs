//! The properties of the software device: those of the hardware that it emulates, and its own where they differ.

use std::collections::BTreeMap;

use freehold_driver::cuda::{CUdevice_attribute, CUlimit};

use super::device::Device;

/// The version of the driver API, as `cuDriverGetVersion` returns it.
pub(crate) const DRIVER_VERSION: i32 = 13000;

/// The greatest stream priority. Priorities range from this to 0.
pub(crate) const PRIORITY_GREATEST: i32 = -5;

/// Rows of `cuMemAllocPitch` start on a multiple of this.
pub(crate) const PITCH_BYTES: u64 = 512;

pub(crate) fn name(ordinal: usize) -> String {
    format!("Freehold Software Device {ordinal}")
}

/// Returns the UUID, which is the same on every machine: it identifies a device only within a process.
pub(crate) fn uuid(ordinal: usize) -> [u8; 16] {
    let mut bytes = *b"freehold-soft\0\0\0";
    bytes[15] = ordinal as u8;
    bytes
}

/// Returns the PCI bus id. Each device has its own bus.
pub(crate) fn bus_id(ordinal: usize) -> String {
    format!("0000:{:02X}:00.0", ordinal + 1)
}

/// Returns the value of an attribute, or `None` for an unknown attribute.
pub(crate) fn value(attribute: CUdevice_attribute, device: &Device) -> Option<i32> {
    Some(match attribute {
        CUdevice_attribute::PCI_BUS_ID => device.ordinal as i32 + 1,
        CUdevice_attribute::PCI_DEVICE_ID | CUdevice_attribute::PCI_DOMAIN_ID => 0,
        CUdevice_attribute::DIRECT_MANAGED_MEM_ACCESS_FROM_HOST => i32::from(device.memory.arena.is_coherent()),
        _ => *TABLE.iter().find(|(number, _)| *number == attribute.0).map(|(_, value)| value)?,
    })
}

/// Number and value of every attribute: those of an NVIDIA H200, but zero for what this driver does not support (IPC
/// handles that are not descriptors, direct access by other hardware, sparse arrays and arrays with deferred mapping).
#[rustfmt::skip]
const TABLE: &[(u32, i32)] = &[
    (1, 1024), (2, 1024), (3, 1024), (4, 64), (5, 2147483647), (6, 65535), (7, 65535), (8, 49152), (9, 65536),
    (10, 32), (11, 2147483647), (12, 65536), (13, 1980000), (14, 512), (15, 1), (16, 132), (17, 0), (18, 0), (19, 1),
    (20, 0), (21, 131072), (22, 131072), (23, 65536), (24, 16384), (25, 16384), (26, 16384), (27, 32768),
    (28, 32768), (29, 2048), (30, 512), (31, 1), (32, 1), (35, 0), (36, 3201000), (37, 6016), (38, 62914560),
    (39, 2048), (40, 3), (41, 1), (42, 32768), (43, 2048), (44, 1), (45, 32768), (46, 32768), (47, 8192), (48, 8192),
    (49, 32768), (51, 32), (52, 32768), (53, 32768), (54, 2046), (55, 32768), (56, 131072), (57, 65536), (58, 16384),
    (59, 16384), (60, 16384), (61, 32768), (62, 2048), (63, 32768), (64, 32768), (65, 2048), (66, 32768),
    (67, 32768), (68, 2046), (69, 268435456), (70, 131072), (71, 65000), (72, 2097120), (73, 32768), (74, 32768),
    (75, 9), (76, 0), (77, 32768), (78, 1), (79, 1), (80, 1), (81, 233472), (82, 65536), (83, 1), (84, 0), (85, 0),
    (86, 0), (87, 2), (88, 0), (89, 1), (90, 1), (91, 1), (92, 0), (93, 0), (94, 0), (95, 1), (96, 1), (97, 232448),
    (98, 0), (99, 1), (100, 0), (101, 0), (102, 1), (103, 1), (104, 0), (105, 0), (106, 32), (107, 0),
    (108, 39321600), (109, 134217728), (110, 0), (111, 1024), (112, 0), (113, 1), (114, 0), (115, 1), (116, 0),
    (117, 0), (118, 0), (119, 1), (120, 1), (121, 0), (122, 1), (123, 1), (124, 0), (125, 0), (126, 4), (127, 0),
    (128, 0), (129, 1), (130, 0), (131, -1), (132, 0), (133, 0), (134, 0), (135, 0), (136, 0), (137, 0), (138, 0),
    (139, 0), (140, 0), (141, 0), (142, 0), (143, 0), (144, 0), (145, 0), (146, 0), (147, 0),
];

/// The last valid limit. Not every device supports each.
pub(crate) const LIMIT_LAST: u32 = 9;

/// Returns the limits of a new context.
pub(crate) fn limits() -> BTreeMap<u32, usize> {
    BTreeMap::from([
        (CUlimit::STACK_SIZE.0, 1024),
        (CUlimit::PRINTF_FIFO_SIZE.0, 8_650_752),
        (CUlimit::MALLOC_HEAP_SIZE.0, 8 << 20),
        (CUlimit::DEV_RUNTIME_PENDING_LAUNCH_COUNT.0, 2048),
        (CUlimit::MAX_L2_FETCH_GRANULARITY.0, 64),
        (CUlimit::PERSISTING_L2_CACHE_SIZE.0, 11_796_480),
    ])
}
