//! Blocks: their content and their owners.

use freehold::ledger::State;
use freehold::{Error, Grid};

use super::rig::{N, Rig};

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
fn an_empty_block_is_a_block_without_memory() {
    let rig = Rig::new();
    let [stream, other] = rig.streams();
    let before = rig.device.stats();
    let mut x = stream.upload::<u32>(&[]).unwrap();
    assert_eq!((x.len(), x.is_empty(), x.address()), (0, true, 0));
    let mut y = other.alloc_tagged::<u32>(0, "model").unwrap();
    stream.fill(&mut x, 7).unwrap();
    stream.copy(&x, &mut y).unwrap();
    stream.write(&mut y, &[]).unwrap();
    assert_eq!(other.download(&y).unwrap(), [0; 0]);
    stream.launch(&rig.add, Grid::line(1, 32), (&mut x, 1_u32, 0_u32)).unwrap();
    other.launch(&rig.add, Grid::line(1, 32), (&mut x.view_mut(..).unwrap(), 1_u32, 0_u32)).unwrap();
    stream.lend_mut(&mut x).unwrap().failed();
    assert_eq!(stream.download(&x).unwrap(), [0; 0]);
    rig.device.synchronize().unwrap();
    assert_eq!((x.owner(), rig.device.live_by_tag()), (None, Vec::new()));
    assert_eq!(rig.device.stats().owned_blocks, before.owned_blocks);
    x.close().unwrap();
    y.release_now().unwrap();
    let shared = stream.zeros::<u8>(0).unwrap().share();
    assert_eq!((shared.len(), shared.is_empty()), (0, true));
    let address = stream.alloc::<u8>(0).unwrap().into_address();
    assert_eq!(address, 0);
    rig.device.release(address).unwrap();
}

#[test]
fn an_empty_block_grows_and_a_block_shrinks_to_nothing() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut x = stream.alloc::<u32>(0).unwrap();
    assert!(x.resize(&stream, 0).unwrap());
    assert!(!x.resize(&stream, N).unwrap());
    stream.fill(&mut x, 3).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [3; N]);
    x.tag("model");
    assert!(!x.resize(&stream, 0).unwrap());
    assert_eq!((x.len(), rig.device.live_by_tag()), (0, Vec::new()));
    assert_eq!(stream.download(&x).unwrap(), [0; 0]);
}

#[test]
fn elements_without_bytes_are_no_block() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let refused = stream.alloc::<[u8; 0]>(5).unwrap_err();
    assert!(matches!(refused, Error::NothingAsked), "{refused}");
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
fn rows_are_packed_and_unpacked() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let field: Vec<u32> = (0..24).collect();
    let mut x = stream.upload(&field).unwrap();
    let mut packed = stream.zeros::<u32>(8).unwrap();
    // The last two columns of four rows of six.
    stream.copy_rows(&x.view(4..).unwrap(), 6, &mut packed, 2, 2, 4).unwrap();
    assert_eq!(stream.download(&packed).unwrap(), [4, 5, 10, 11, 16, 17, 22, 23]);
    stream.copy_rows(&packed.view(2..).unwrap(), 2, &mut x.view_mut(..9).unwrap(), 6, 2, 2).unwrap();
    let wanted = [10, 11, 2, 3, 4, 5, 16, 17, 8, 9];
    assert_eq!(stream.download(&x.view(..10).unwrap()).unwrap(), wanted);
    // One row has no pitch.
    stream.copy_rows(&x, 0, &mut packed, 0, 8, 1).unwrap();
    assert_eq!(stream.download(&packed).unwrap(), wanted[..8]);
    stream.copy_rows(&x, 6, &mut packed, 2, 2, 0).unwrap();
}

#[test]
fn rows_that_are_not_there_or_overlap_are_refused() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut x = stream.zeros::<u32>(24).unwrap();
    let y = stream.zeros::<u32>(24).unwrap();
    let mut refused = |from, to, row, rows| stream.copy_rows(&y, from, &mut x, to, row, rows).unwrap_err();
    let error = refused(6, 7, 5, 4);
    assert!(
        matches!(error, Error::NoSuchRows { rows: 4, row_elements: 5, pitch_elements: 7, elements: 24 }),
        "{error:?}"
    );
    assert!(matches!(refused(4, 6, 5, 2), Error::NoSuchRows { pitch_elements: 4, .. }));
    assert!(matches!(refused(6, 6, 25, 1), Error::NoSuchRows { row_elements: 25, .. }));
    assert!(matches!(refused(6, usize::MAX, 2, 3), Error::NoSuchRows { pitch_elements: usize::MAX, .. }));
}

#[test]
fn a_block_of_another_length_keeps_its_elements_wherever_it_lies_then() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut block = stream.upload(&(0..N as u32).collect::<Vec<_>>()).unwrap();
    let (address, _next) = (block.address(), stream.alloc::<u32>(N).unwrap());
    for len in [N + 1, 200 * N, N / 2] {
        let before = block.address();
        assert_eq!(block.resize(&stream, len).unwrap(), block.address() == before);
        let kept = len.min(N);
        let found = stream.download(&block.view(..kept).unwrap()).unwrap();
        assert_eq!((block.len(), found), (len, (0..kept as u32).collect()));
    }
    assert_ne!(block.address(), address, "another block follows it");
    assert_eq!(rig.device.blocks().len(), 2);
}

/// Fills all but the edges of blocks of many lengths, and looks at all of them.
fn fills<T: freehold::Pod + PartialEq + std::fmt::Debug>(stream: &freehold::Stream, old: T, value: T) {
    for len in [1, 2, 3, 5, 1000, 70_001] {
        let mut block = stream.upload(&vec![old; len + 2]).unwrap();
        stream.fill(&mut block.view_mut(1..=len).unwrap(), value).unwrap();
        let found = stream.download(&block).unwrap();
        assert_eq!((found[0], found[len + 1]), (old, old), "{len} of {value:?}");
        assert!(found[1..=len].iter().all(|found| *found == value), "{len} of {value:?}");
    }
}

#[test]
fn a_block_is_filled_with_elements_of_any_length() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    fills(&stream, 1_u8, 7);
    fills(&stream, 1_u16, 0x0102);
    fills(&stream, 1_u32, 0x0102_0304);
    fills(&stream, 1.0_f32, -0.5);
    fills(&stream, 1_u64, 0x0102_0304_0506_0708);
    fills(&stream, 1_u64, 0);
    fills(&stream, 1.0_f64, 1.0);
    fills(&stream, [1_u8; 3], [1, 2, 3]);
    fills(&stream, [1_u16; 3], [7, 8, 7]);
    fills(&stream, [1.0_f32; 4], [1.0, 2.0, 3.0, 4.0]);
}
