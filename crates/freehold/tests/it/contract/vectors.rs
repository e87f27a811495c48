//! Vectors: they keep their elements when they grow, in place if the device maps memory and by copying otherwise.

use freehold::{DeviceVec, Error};

use super::rig::{N, ONE, Rig, grid};

/// Elements of 2 MiB.
const PAGE: usize = (2 << 20) / 4;

#[test]
fn a_vector_keeps_its_elements_when_it_grows_and_its_address_where_it_says_so() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut vec = DeviceVec::<u32>::with_max_len(&stream, 8 * PAGE).unwrap();
    vec.extend_from_host(&stream, &[7; N]).unwrap();
    let address = vec.address();
    let mut wanted = vec![7; N];
    for step in 0..4_u32 {
        vec.extend_from_host(&stream, &vec![step; PAGE]).unwrap();
        wanted.extend(vec![step; PAGE]);
    }
    assert_eq!(vec.len(), N + 4 * PAGE);
    assert!(vec.download(&stream).unwrap() == wanted);
    assert_eq!(vec.address() == address, vec.grows_in_place());
}

#[test]
fn a_vector_that_grows_under_pending_work_keeps_what_that_writes() {
    let rig = Rig::new();
    let [stream, other] = rig.streams();
    let mut vec = DeviceVec::<u32>::with_max_len(&stream, 8 * PAGE).unwrap();
    vec.extend_from_host(&stream, &[1; N]).unwrap();
    stream.synchronize().unwrap();
    let gate = rig.hold(&other);
    other.launch(&rig.add, grid(), (&mut vec.view_mut(..).unwrap(), 1_u32, N as u32)).unwrap();
    vec.extend_from_host(&stream, &vec![9; 2 * PAGE]).unwrap();
    gate.open();
    let found = vec.download(&stream).unwrap();
    assert_eq!(found[..N], [2; N]);
    assert!(found[N..].iter().all(|&value| value == 9));
}

#[test]
fn a_vector_is_cut_short_and_gives_memory_back() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut vec = DeviceVec::<u32>::with_max_len(&stream, 8 * PAGE).unwrap();
    vec.extend_from_host(&stream, &[3; N]).unwrap();
    vec.extend_from_host(&stream, &vec![4; 4 * PAGE]).unwrap();
    vec.truncate(N);
    stream.synchronize().unwrap();
    vec.shrink_to_fit().unwrap();
    // Memory goes back in the pieces in which it came, and not where it is one block.
    assert_eq!(vec.capacity() == PAGE, vec.grows_in_place());
    assert_eq!(vec.download(&stream).unwrap(), [3; N]);
    vec.clear();
    assert_eq!(vec.len(), 0);
}

#[test]
fn resizing_fills_what_is_new() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut vec = DeviceVec::<u32>::with_max_len(&stream, PAGE).unwrap();
    vec.resize(&stream, 3, 1).unwrap();
    vec.resize(&stream, 5, 0).unwrap();
    assert_eq!(vec.download(&stream).unwrap(), [1, 1, 1, 0, 0]);
}

#[test]
fn elements_that_were_unset_are_used_like_any_and_appended_again_behind_their_work() {
    let rig = Rig::new();
    let [busy, idle] = rig.streams();
    let mut vec = DeviceVec::<u32>::with_max_len(&idle, PAGE).unwrap();
    vec.extend_unset(&idle, N).unwrap();
    assert_eq!(vec.len(), N);
    let gate = rig.hold(&busy);
    busy.launch(&rig.add, grid(), (&mut vec, 1_u32, N as u32)).unwrap();
    vec.truncate(1);
    vec.extend_from_host(&idle, &[5; N - 1]).unwrap();
    rig.pass_by();
    assert!(!idle.is_idle().unwrap());
    gate.open();
    assert_eq!(vec.download(&busy).unwrap()[1..], [5; N - 1]);
}

#[test]
fn elements_that_were_there_before_are_appended_behind_their_work() {
    let rig = Rig::new();
    let [busy, idle] = rig.streams();
    let mut vec = DeviceVec::<u32>::with_max_len(&idle, PAGE).unwrap();
    vec.extend_from_host(&idle, &[1; N]).unwrap();
    idle.synchronize().unwrap();
    let gate = rig.hold(&busy);
    busy.launch(&rig.add, grid(), (&mut vec, 1_u32, N as u32)).unwrap();
    vec.clear();
    vec.extend_from_host(&idle, &[5; N]).unwrap();
    rig.pass_by();
    assert!(!idle.is_idle().unwrap());
    gate.open();
    assert_eq!(vec.download(&busy).unwrap(), [5; N]);
}

#[test]
fn a_vector_without_elements_is_used_like_any() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let (mut vec, mut other) = (
        DeviceVec::<u32>::with_max_len(&stream, PAGE).unwrap(),
        DeviceVec::<u32>::with_max_len(&stream, PAGE).unwrap(),
    );
    vec.extend_from_host(&stream, &[1]).unwrap();
    assert_eq!(other.download(&stream).unwrap(), [0_u32; 0]);
    stream.launch(&rig.add, ONE, (&mut other, 1_u32, 0_u32)).unwrap();
    vec.extend_from_device(&stream, &other).unwrap();
    other.extend_from_device(&stream, &vec).unwrap();
    other.extend_from_device(&stream, &vec.view(..).unwrap()).unwrap();
    stream.fill_bytes(&mut vec, 9).unwrap();
    assert_eq!(other.download(&stream).unwrap(), [1, 1]);
}

#[test]
fn a_budget_refuses_growth_and_the_vector_stays_as_it_was() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut vec = DeviceVec::<u32>::with_max_len(&stream, 64 * PAGE).unwrap();
    vec.extend_from_host(&stream, &[1; N]).unwrap();
    rig.device.set_budget(rig.device.stats().reserved_bytes);
    let (len, capacity) = (vec.len(), vec.capacity());
    let refused = vec.extend_from_host(&stream, &vec![2; 40 * PAGE]).unwrap_err();
    assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
    assert_eq!((vec.len(), vec.capacity()), (len, capacity));
    rig.device.set_budget(u64::MAX);
    vec.extend_from_host(&stream, &[2]).unwrap();
    assert_eq!(vec.download(&stream).unwrap()[N - 1..], [1, 2]);
}

#[test]
fn a_vector_dropped_in_use_goes_behind_its_work_and_nothing_waits() {
    let rig = Rig::new();
    let [busy, home] = rig.streams();
    let mut copy = home.alloc::<u32>(N).unwrap();
    let mut vec = DeviceVec::<u32>::with_max_len(&home, 4 * PAGE).unwrap();
    vec.extend_from_host(&home, &vec![1; 3 * PAGE]).unwrap();
    home.synchronize().unwrap();
    let gate = rig.hold(&busy);
    busy.launch(&rig.add, grid(), (&mut vec, 1_u32, N as u32)).unwrap();
    busy.copy(&vec.view(..N).unwrap(), &mut copy).unwrap();
    drop(vec);
    rig.device.tidy().unwrap();
    let next = home.upload(&vec![7_u32; 3 * PAGE]).unwrap();
    gate.open();
    assert_eq!(busy.download(&copy).unwrap(), [2; N]);
    assert!(home.download(&next).unwrap() == vec![7; 3 * PAGE]);
    assert!(rig.device.drop_errors().is_empty());
}
