//! Blocks: what they hold, and who owns them.

use freehold::Error;
use freehold::ledger::State;

use crate::rig::{N, Rig};

#[test]
fn a_block_holds_what_was_uploaded() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let values: Vec<u32> = (0..N as u32).collect();
    let block = stream.upload(&values).unwrap();
    assert_eq!(stream.download(&block).unwrap(), values);
}

#[test]
fn zeros_are_zeros_and_a_fill_sets_every_byte() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut block = stream.zeros::<u32>(N).unwrap();
    assert_eq!(stream.download(&block).unwrap(), [0; N]);
    stream.fill_bytes(&mut block, 0x5a).unwrap();
    assert_eq!(stream.download(&block).unwrap(), [0x5a5a_5a5a; N]);
}

#[test]
fn a_copy_goes_from_view_to_view_and_touches_nothing_else() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let from = stream.upload(&(0..N as u32).collect::<Vec<_>>()).unwrap();
    let mut to = stream.zeros::<u32>(N).unwrap();
    stream.copy(&from.view(3..6).unwrap(), &mut to.view_mut(10..13).unwrap()).unwrap();
    let mut wanted = [0; N];
    wanted[10..13].copy_from_slice(&[3, 4, 5]);
    assert_eq!(stream.download(&to).unwrap(), wanted);
}

#[test]
fn a_large_block_is_uploaded_and_downloaded_whole() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let values: Vec<u32> = (0..5_000_000).collect();
    let block = stream.upload(&values).unwrap();
    assert!(stream.download(&block).unwrap() == values);
}

#[test]
fn lengths_that_differ_are_refused() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut block = stream.zeros::<u32>(N).unwrap();
    let refused = stream.write(&mut block, &[1, 2]).unwrap_err();
    assert!(matches!(refused, Error::LengthsDiffer { from_elements: 2, to_elements: N }), "{refused}");
    assert_eq!(stream.download(&block).unwrap(), [0; N]);
}

#[test]
fn no_elements_are_no_block() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    assert!(matches!(stream.alloc::<u32>(0), Err(Error::NothingAsked)));
}

#[test]
fn the_owner_of_an_address_is_known_for_as_long_as_it_has_one() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let block = stream.alloc_tagged::<u32>(N, "model").unwrap();
    let address = block.address();
    let owner = rig.device.owner_of(address + 4).unwrap();
    assert_eq!((owner.base, owner.bytes), (address, 4 * N as u64));
    assert_eq!(owner.state, State::Owned);
    assert_eq!(owner.tag.as_deref(), Some("model"));
    drop(block);
    assert!(rig.device.owner_of(address).is_none_or(|owner| owner.state != State::Owned));
}

#[test]
fn a_shared_block_goes_with_its_last_reference() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let first = stream.upload(&[7_u32; N]).unwrap().share();
    let second = first.clone();
    assert_eq!(first.count(), 2);
    drop(first);
    assert_eq!(stream.download(&second).unwrap(), [7; N]);
    assert_eq!(second.into_block().unwrap().len(), N);
}
