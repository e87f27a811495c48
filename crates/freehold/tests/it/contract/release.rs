//! Releases: none waits, none is too early, and a wrong one is an error.

use freehold::Error;
use freehold::ledger::WrongRelease;

use super::rig::{N, Rig};

#[test]
fn a_block_that_is_released_is_the_next_one_of_its_stream() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let block = stream.alloc::<u32>(N).unwrap();
    let address = block.address();
    drop(block);
    assert_eq!(stream.alloc::<u32>(N).unwrap().address(), address);
}

#[test]
fn a_release_waits_for_nothing_and_what_uses_the_block_still_has_it() {
    let rig = Rig::new();
    let [stream, other] = rig.streams();
    let mut block = stream.upload(&[1_u32; N]).unwrap();
    let mut copy = stream.zeros::<u32>(N).unwrap();
    stream.synchronize().unwrap();
    let gate = rig.hold(&stream);
    rig.add(&stream, &mut block, 1);
    stream.copy(&block, &mut copy).unwrap();
    let address = block.address();
    drop(block);
    // Another stream, which waits for nothing, must not get it, nor write over it.
    assert!(!rig.hands_out(&other, address));
    gate.open();
    assert_eq!(stream.download(&copy).unwrap(), [2; N]);
}

#[test]
fn a_release_now_returns_when_the_work_is_done() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut block = stream.upload(&[1_u32; N]).unwrap();
    rig.add(&stream, &mut block, 1);
    block.release_now().unwrap();
    assert!(stream.is_idle().unwrap());
}

#[test]
fn a_release_after_an_event_is_one_behind_the_work_before_it() {
    let rig = Rig::new();
    let [stream, other] = rig.streams();
    let block = stream.upload(&[1_u32; N]).unwrap();
    stream.synchronize().unwrap();
    let gate = rig.hold(&other);
    let event = other.event().unwrap();
    let address = block.address();
    block.release_after(&event).unwrap();
    assert!(!rig.hands_out(&stream, address));
    gate.open();
    other.synchronize().unwrap();
    rig.device.synchronize().unwrap();
    assert!(rig.hands_out(&stream, address));
}

#[test]
fn a_wrong_release_says_which_wrong_and_changes_nothing() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let address = stream.upload(&[7_u32; N]).unwrap().into_address();
    let wrong = |address| match rig.device.release(address) {
        Err(Error::WrongRelease(wrong)) => wrong,
        other => panic!("{other:?}"),
    };
    assert!(matches!(wrong(address + 64), WrongRelease::Interior { .. }));
    assert!(matches!(wrong(64), WrongRelease::NeverAllocated { .. }));
    let block = rig.device.claim(address).unwrap();
    assert_eq!(stream.download(&block).unwrap()[..4], [7, 0, 0, 0]);
    let address = block.into_address();
    rig.device.release(address).unwrap();
    assert!(matches!(wrong(address), WrongRelease::AlreadyReleased { .. }));
}

#[test]
fn drops_of_all_kinds_record_no_drop_error() {
    let rig = Rig::new();
    let [stream, other] = rig.streams();
    let gate = rig.hold(&stream);
    let mut block = stream.zeros::<u32>(N).unwrap();
    rig.add(&stream, &mut block, 1);
    drop(other);
    drop(block);
    drop(stream);
    gate.open();
    rig.device.synchronize().unwrap();
    assert_eq!(rig.device.drop_errors().len(), 0);
}
