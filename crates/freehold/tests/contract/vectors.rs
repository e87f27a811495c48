//! Vectors: they keep their elements when they grow, in place where the device maps memory and by copying elsewhere.

use freehold::DeviceVec;

use crate::rig::{N, Rig, grid};

/// Elements of 2 MiB.
const PAGE: usize = (2 << 20) / 4;

#[test]
fn a_vector_keeps_its_elements_when_it_grows_and_its_address_where_it_says_so() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut vec = DeviceVec::<u32>::with_room(&stream, 8 * PAGE).unwrap();
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
    let mut vec = DeviceVec::<u32>::with_room(&stream, 8 * PAGE).unwrap();
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
    let mut vec = DeviceVec::<u32>::with_room(&stream, 8 * PAGE).unwrap();
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
    let mut vec = DeviceVec::<u32>::with_room(&stream, PAGE).unwrap();
    vec.resize(&stream, 3, 0xff).unwrap();
    vec.resize(&stream, 5, 0).unwrap();
    assert_eq!(vec.download(&stream).unwrap(), [u32::MAX, u32::MAX, u32::MAX, 0, 0]);
}
