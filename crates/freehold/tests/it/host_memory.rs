//! Shared host memory: kernels, copies and the host access the same bytes.

use crate::own;
use crate::shared;

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use freehold::{Error, HostMemory};
use own::{N, Own, grid};

fn own() -> Own {
    shared::move_in();
    Own::new()
}

fn memory(own: &Own, bytes: u64) -> HostMemory {
    own.device.host_memory(shared::words(bytes).as_fd(), bytes).unwrap()
}

#[test]
fn a_kernel_writes_where_the_host_reads() {
    let own = own();
    let [stream] = own.streams();
    let memory = memory(&own, 4096 + 4 * N as u64);
    memory.write(4096, &[7_u32; N]).unwrap();
    let mut part = memory.slice::<u32>(&stream, 4096, N).unwrap();
    stream.launch(&own.kernels.add, grid(), (&mut part, 5_u32, N as u32)).unwrap();
    stream.synchronize().unwrap();
    let mut found = [0_u32; N];
    memory.read(4096, &mut found).unwrap();
    assert_eq!(found, [12; N]);
    assert_eq!(memory.words()[1023].load(Ordering::Relaxed), 0, "what lies before the part is not touched");
}

#[test]
fn it_is_an_end_of_copies() {
    let own = own();
    let [stream] = own.streams();
    let memory = memory(&own, 4 * N as u64);
    let mut part = memory.slice::<u32>(&stream, 0, N).unwrap();
    let block = stream.upload(&[3_u32; N]).unwrap();
    stream.copy(&block, &mut part).unwrap();
    let mut back = stream.zeros::<u32>(N).unwrap();
    stream.copy(&part, &mut back).unwrap();
    assert_eq!(stream.download(&back).unwrap(), [3; N]);
    stream.fill_bytes(&mut part, 1).unwrap();
    assert_eq!(stream.download(&part).unwrap(), [0x0101_0101; N]);
}

#[test]
fn all_that_open_a_descriptor_have_the_same_bytes() {
    let own = own();
    let descriptor = shared::words(4096);
    let [one, two] = [(); 2].map(|()| own.device.host_memory(descriptor.as_fd(), 4096).unwrap());
    drop(descriptor);
    one.write(1, b"owner").unwrap();
    let mut found = [0_u8; 7];
    two.read(0, &mut found).unwrap();
    assert_eq!(&found, b"\0owner\0");
    one.words()[1022].store(9, Ordering::Relaxed);
    let mut last = [0_u64];
    two.read(4088, &mut last).unwrap();
    assert_eq!(last, [9]);
}

#[test]
fn bytes_at_any_place_are_read_and_written_and_their_neighbours_stay() {
    let own = own();
    // The last word is not whole.
    let memory = memory(&own, 4099);
    assert_eq!(memory.words().len(), 1024);
    for first in [0, 1, 2, 3, 4080, 4090] {
        for len in [1, 2, 3, 4, 5, 7, 8, 9] {
            memory.write(0, &[0xee_u8; 4099]).unwrap();
            let wanted: Vec<u8> = (1..=len as u8).collect();
            memory.write(first, &wanted).unwrap();
            let mut found = vec![0_u8; len];
            memory.read(first, &mut found).unwrap();
            assert_eq!(found, wanted, "{len} bytes at {first}");
            let mut all = [0_u8; 4099];
            memory.read(0, &mut all).unwrap();
            let others = all.iter().filter(|&&byte| byte == 0xee).count();
            assert_eq!(others, 4099 - len, "{len} bytes at {first}");
        }
    }
    memory.write(4096, &[1_u8, 2, 3]).unwrap();
    memory.write(4088, &[0x0706_0504_0302_0100_u64]).unwrap();
    let mut end = [0_u8; 11];
    memory.read(4088, &mut end).unwrap();
    assert_eq!(end, [0, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3]);
}

#[test]
fn what_lies_beyond_it_is_refused() {
    let own = own();
    let [stream] = own.streams();
    let memory = memory(&own, 4096);
    assert!(matches!(memory.write(4092, &[0_u64]), Err(Error::OutsideOfImport { offset_bytes: 4092, .. })));
    assert!(matches!(memory.read(u64::MAX, &mut [0_u8]), Err(Error::OutsideOfImport { .. })));
    assert!(matches!(memory.read(2, &mut [0_u32]), Err(Error::Misaligned { offset_bytes: 2, alignment_bytes: 4 })));
    assert!(matches!(memory.slice::<u32>(&stream, 4096, 1), Err(Error::OutsideOfImport { .. })));
}

#[test]
fn a_descriptor_that_has_not_the_bytes_or_may_lose_them_is_refused() {
    let own = own();
    let refused = |bytes| own.device.host_memory(shared::words(4096).as_fd(), bytes).unwrap_err();
    assert!(matches!(refused(4097), Error::OtherLength { bytes: 4097 }));
    assert!(matches!(refused(u64::MAX), Error::OtherLength { bytes: u64::MAX }));
    assert!(matches!(refused(0), Error::NothingAsked));
    let unsealed = own.device.host_memory(shared::unsealed(4096).as_fd(), 4096).unwrap_err();
    assert!(matches!(unsealed, Error::NotSealed));
}

#[test]
fn registration_and_mapping_end_behind_the_last_work() {
    let own = own();
    let [stream] = own.streams();
    // The name tells its mapping from all others of this process.
    let is_mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("memfd:host-memory-that-ends");
    let descriptor = rustix::fs::memfd_create("host-memory-that-ends", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&descriptor, 4096).unwrap();
    rustix::fs::fcntl_add_seals(&descriptor, rustix::fs::SealFlags::SHRINK).unwrap();
    let memory = own.device.host_memory(descriptor.as_fd(), 4096).unwrap();
    drop(descriptor);
    let gate = own.gate();
    own.hold(&stream, &gate);
    let mut part = memory.slice::<u32>(&stream, 0, 4).unwrap();
    stream.fill_bytes(&mut part, 1).unwrap();
    drop((memory, part));
    own.device.tidy().unwrap();
    assert!(is_mapped(), "work is pending");
    gate.open();
    stream.synchronize().unwrap();
    own.device.tidy().unwrap();
    assert!(!is_mapped());
    assert!(own.device.drop_errors().is_empty());
}
