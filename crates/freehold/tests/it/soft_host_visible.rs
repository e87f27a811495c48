//! A device whose memory the host can access, and one whose memory it cannot: `FREEHOLD_SOFT_COHERENT`, which the
//! driver reads when it starts, so each test has its own process.

use crate::children::alone_with;

use freehold::Device;
use freehold_driver::cuda::{Api, CUdevice, driver};

// SAFETY: the test names streams, memory and handles that it made.
const API: Api = unsafe { freehold_softcuda::api() };

/// Runs the body of the test `name` in a process of its own with this setting.
#[track_caller]
fn alone(name: &str, coherent: &str, body: impl FnOnce(&Device)) {
    alone_with(name, &[("FREEHOLD_SOFT_COHERENT", coherent)], || {
        driver::init(&API, 0).unwrap();
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        body(&unsafe { Device::new(API, CUdevice(0)) }.unwrap());
    });
}

#[test]
fn the_host_reads_and_writes_what_it_is_lent_where_it_sees_device_memory() {
    alone("the_host_reads_and_writes_what_it_is_lent_where_it_sees_device_memory", "1", |device| {
        assert!(device.is_host_visible().unwrap());
        let (stream, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
        let mut x = stream.upload(&[3_u32; 100]).unwrap();
        let lent = other.lend_mut(&mut x).unwrap();
        stream.copy(&stream.upload(&[1_u32; 1]).unwrap(), &mut x.view_mut(99..).unwrap()).unwrap();
        lent.wait().unwrap();
        // SAFETY: the device says that the host reads and writes there, and the memory is this thread's until the lending ends.
        let seen = unsafe { std::slice::from_raw_parts_mut(lent.address() as *mut u32, lent.bytes() / 4) };
        assert_eq!(seen, [3; 100]);
        seen.fill(7);
        lent.done();
        let mut wanted = vec![7; 100];
        wanted[99] = 1;
        assert_eq!(other.download(&x).unwrap(), wanted);
    });
}

#[test]
fn a_device_says_that_the_host_does_not_see_its_memory() {
    alone("a_device_says_that_the_host_does_not_see_its_memory", "0", |device| {
        assert_eq!([device.is_host_visible().unwrap(), device.is_host_visible().unwrap()], [false, false]);
    });
}
