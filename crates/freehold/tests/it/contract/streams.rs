//! Streams: they do not wait without a reason, and can be created and dropped at any time.

use super::rig::{N, Rig};

#[test]
fn streams_without_a_block_in_common_do_not_wait_for_each_other() {
    let rig = Rig::new();
    let [stream, other] = rig.streams();
    let mut block = other.upload(&[1_u32; N]).unwrap();
    let gate = rig.hold(&stream);
    rig.add(&other, &mut block, 1);
    assert_eq!(other.download(&block).unwrap(), [2; N]);
    assert!(!stream.is_idle().unwrap());
    gate.open();
    stream.synchronize().unwrap();
    assert!(stream.is_idle().unwrap());
}

#[test]
fn a_closed_stream_finishes_its_work_without_a_wait() {
    let rig = Rig::new();
    let [stream, other] = rig.streams();
    let mut block = other.upload(&[1_u32; N]).unwrap();
    other.synchronize().unwrap();
    let gate = rig.hold(&stream);
    rig.add(&stream, &mut block, 1);
    stream.close().unwrap();
    gate.open();
    assert_eq!(other.download(&block).unwrap(), [2; N]);
}

#[test]
fn many_streams_come_and_go() {
    let rig = Rig::new();
    let [last] = rig.streams();
    let mut block = last.zeros::<u32>(N).unwrap();
    for _ in 0..50 {
        let stream = rig.device.new_stream().unwrap();
        rig.add(&stream, &mut block, 1);
    }
    assert_eq!(last.download(&block).unwrap(), [50; N]);
}

#[test]
fn what_is_uploaded_may_change_when_the_call_has_returned() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut block = stream.alloc::<u32>(N).unwrap();
    let gate = rig.hold(&stream);
    let mut values = vec![1; N];
    stream.write(&mut block, &values).unwrap();
    values.fill(2);
    gate.open();
    assert_eq!(stream.download(&block).unwrap(), [1; N]);
}
