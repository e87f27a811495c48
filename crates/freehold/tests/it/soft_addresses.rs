//! A process with too little address space for a pool's metadata: the device does not open, and the error says why.

use crate::children;

use std::fs;
use std::io::ErrorKind;

use children::alone;
use freehold::{Device, Error};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const GIB: u64 = 1 << 30;

/// The addresses that this process has.
fn had_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    4096 * pages.split(' ').next().unwrap().parse::<u64>().unwrap()
}

fn let_have(bytes: Option<u64>) {
    setrlimit(Resource::As, Rlimit { current: bytes, ..getrlimit(Resource::As) }).unwrap();
}

#[test]
fn a_device_without_addresses_for_its_records_is_not_opened_and_can_be_later() {
    alone("a_device_without_addresses_for_its_records_is_not_opened_and_can_be_later", || {
        let opened = crate::own::opened();
        // What the driver itself needs is there from now on.
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        drop(unsafe { Device::new(opened.api, opened.device) }.unwrap());
        // Too few for the records, then for the slabs, then for the table.
        for more_bytes in [GIB / 64, GIB, 2 * GIB + GIB / 2, 4 * GIB] {
            let_have(Some(had_bytes() + more_bytes));
            // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
            let refused = unsafe { Device::new(opened.api, opened.device) }.unwrap_err();
            assert!(matches!(refused, Error::System { kind: ErrorKind::OutOfMemory }), "{more_bytes}: {refused}");
            let_have(None);
        }
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        let device = unsafe { Device::new(opened.api, opened.device) }.unwrap();
        assert_eq!(device.stats(), freehold::PoolStats::default());
    });
}
