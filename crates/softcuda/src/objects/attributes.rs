//! The properties of the software device: those of the emulated hardware, and its own where they differ.

use std::collections::BTreeMap;

use freehold_driver::cuda::{CUdevice_attribute, CUlimit};

use super::device::Device;
use crate::base::config::compute_capability;

/// The version of the driver API, as `cuDriverGetVersion` returns it.
pub(crate) const DRIVER_VERSION: i32 = 13000;

/// The greatest stream priority. Priorities range from this to 0.
pub(crate) const PRIORITY_GREATEST: i32 = -5;

/// Rows of `cuMemAllocPitch` start on a multiple of this.
pub(crate) const PITCH_BYTES: u64 = 512;

pub(crate) fn name(index: usize) -> String {
    format!("Freehold Software Device {index}")
}

/// Returns the UUID, which is the same on every machine: it identifies a device only within a machine.
pub(crate) fn uuid(index: usize) -> [u8; 16] {
    let mut bytes = *b"freehold-soft\0\0\0";
    bytes[15] = index as u8;
    bytes
}

/// Returns the UUID as `CUDA_VISIBLE_DEVICES` names it.
pub(crate) fn uuid_text(index: usize) -> String {
    let mut text = "GPU".to_owned();
    for (place, byte) in uuid(index).iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&place) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

/// Returns the PCI bus id. Each device has its own bus.
pub(crate) fn bus_id(index: usize) -> String {
    format!("0000:{:02X}:00.0", index + 1)
}

/// Returns the value of an attribute, or `None` for an unknown attribute.
pub(crate) fn value(attribute: CUdevice_attribute, device: &Device) -> Option<i32> {
    Some(match attribute {
        CUdevice_attribute::PCI_BUS_ID => device.index as i32 + 1,
        CUdevice_attribute::PCI_DEVICE_ID | CUdevice_attribute::PCI_DOMAIN_ID => 0,
        CUdevice_attribute::DIRECT_MANAGED_MEM_ACCESS_FROM_HOST => i32::from(device.memory.arena.is_coherent()),
        CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR => (compute_capability() / 10) as i32,
        CUdevice_attribute::COMPUTE_CAPABILITY_MINOR => (compute_capability() % 10) as i32,
        CUdevice_attribute(number) if CAPABILITY_ATTRIBUTES.contains(&number) => {
            Multiprocessor::own().attribute(number)
        }
        _ => *TABLE.iter().find(|(number, _)| *number == attribute.0).map(|(_, value)| value)?,
    })
}

/// What a multiprocessor has, which depends on the compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Multiprocessor {
    pub(crate) threads_max: u64,
    pub(crate) blocks_max: u64,
    pub(crate) shared_bytes: u64,
    /// Shared memory that the system reserves for each block.
    pub(crate) reserved_bytes: u64,
    /// Whether blocks form clusters.
    pub(crate) has_clusters: bool,
}

/// The attributes that [`Multiprocessor::attribute`] knows.
const CAPABILITY_ATTRIBUTES: &[u32] = &[39, 81, 97, 106, 120];

impl Multiprocessor {
    /// Returns that of this process's devices.
    pub(crate) fn own() -> Self {
        Self::of(compute_capability())
    }

    /// Returns that of a compute capability, as the programming guide lists them.
    pub(crate) const fn of(capability: u32) -> Self {
        let (threads_max, blocks_max, shared_kib) = match capability {
            75 => (1024, 16, 64),
            80 => (2048, 32, 164),
            86 => (1536, 16, 100),
            87 => (1536, 16, 164),
            89 | 120 | 121 => (1536, 24, 100),
            _ => (2048, 32, 228),
        };
        let reserved_bytes = if capability == 75 { 0 } else { 1 << 10 };
        let has_clusters = capability >= 90;
        Self { threads_max, blocks_max, shared_bytes: shared_kib << 10, reserved_bytes, has_clusters }
    }

    /// Returns the maximum shared memory of a block that opts in.
    pub(crate) const fn block_shared_bytes_max(self) -> u64 {
        self.shared_bytes - self.reserved_bytes
    }

    fn attribute(self, number: u32) -> i32 {
        match number {
            39 => self.threads_max as i32,
            81 => self.shared_bytes as i32,
            97 => self.block_shared_bytes_max() as i32,
            106 => self.blocks_max as i32,
            _ => i32::from(self.has_clusters),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_multiprocessor_of_capability_9_0_is_that_of_the_table() {
        let multiprocessor = Multiprocessor::of(90);
        for number in CAPABILITY_ATTRIBUTES {
            let (_, value) = TABLE.iter().find(|(other, _)| other == number).expect("the table has all attributes");
            assert_eq!(multiprocessor.attribute(*number), *value, "{number}");
        }
    }

    #[test]
    fn older_and_newer_capabilities_have_smaller_multiprocessors() {
        let of = |capability| {
            CAPABILITY_ATTRIBUTES.iter().map(move |number| Multiprocessor::of(capability).attribute(*number))
        };
        assert_eq!(of(75).collect::<Vec<_>>(), [1024, 65536, 65536, 16, 0]);
        assert_eq!(of(80).collect::<Vec<_>>(), [2048, 167_936, 166_912, 32, 0]);
        assert_eq!(of(120).collect::<Vec<_>>(), [1536, 102_400, 101_376, 24, 1]);
    }
}
