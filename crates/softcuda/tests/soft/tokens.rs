//! Forged and stale IPC handles: the errors of the software driver.

use crate::peer;

use freehold_driver::cuda::CUerror;
use peer::{Kind, Machine, Peer};

/// Size of the small blocks of these tests.
const BYTES: u64 = 4096;

/// Offsets in a token of the block's device, offset and length.
const DEVICE_AT: usize = 20;
const OFFSET_AT: usize = 32;
const BYTES_AT: usize = 40;

/// Two peers on a machine with two devices, of which the first has made a block with this handle.
fn with_block(machine: &Machine) -> (Peer, Peer, String) {
    let peers: [Peer; 2] = std::array::from_fn(|_| Peer::start(machine.name(), &[("FREEHOLD_SOFT_DEVICES", "2")]));
    peers.iter().for_each(|peer| drop(peer.ask("start")));
    let [maker, taker] = peers;
    let token = maker.ask(format!("name {BYTES}"));
    (maker, taker, token)
}

/// Returns the token with `more` added to one of its words.
fn forged(token: &str, at: usize, more: u64) -> String {
    let mut bytes = peer::parse(token).unwrap();
    let word: &mut [u8; 8] = (&mut bytes[at..at + 8]).try_into().unwrap();
    *word = u64::from_le_bytes(*word).wrapping_add(more).to_le_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn take(token: &str) -> String {
    format!("take {:?} {token}", Kind::Legacy)
}

#[test]
fn a_handle_of_what_lies_beyond_its_memory_is_invalid_value_while_it_is_open_and_before() {
    let machine = Machine::new();
    let (_maker, taker, token) = with_block(&machine);
    let wrong = [
        forged(&token, OFFSET_AT, 1 << 30),
        forged(&token, OFFSET_AT, 1 << 63),
        forged(&token, BYTES_AT, 1 << 30),
        forged(&token, BYTES_AT, BYTES.wrapping_neg()),
    ];
    for token in &wrong {
        assert_eq!(taker.refused(take(token)), CUerror::INVALID_VALUE);
    }
    taker.ask(take(&token));
    // One with another length names the block that is open, so that only the places are refused.
    for token in &wrong[..2] {
        assert_eq!(taker.refused(take(token)), CUerror::INVALID_VALUE);
    }
    taker.ask("close");
    taker.ask(take(&token));
}

#[test]
fn a_handle_of_a_part_of_an_open_block_is_invalid_value() {
    let machine = Machine::new();
    let (maker, taker, token) = with_block(&machine);
    taker.ask(take(&token));
    assert_eq!(taker.refused(take(&forged(&token, OFFSET_AT, 512))), CUerror::INVALID_VALUE);
    // The opposite: another block of the same memory.
    let other = maker.ask(format!("name {BYTES}"));
    taker.ask(take(&other));
}

#[test]
fn a_handle_of_another_device_than_its_memory_is_invalid_value() {
    let machine = Machine::new();
    let (_maker, taker, token) = with_block(&machine);
    // The word is the descriptor and the device.
    let wrong = forged(&token, DEVICE_AT - 4, 1 << 32);
    assert_eq!(taker.refused(take(&wrong)), CUerror::INVALID_VALUE);
    taker.ask(take(&token));
    assert_eq!(taker.refused(take(&wrong)), CUerror::INVALID_VALUE);
}

#[test]
fn a_process_that_died_and_was_not_waited_for_is_dead() {
    let machine = Machine::new();
    let (mut maker, taker, token) = with_block(&machine);
    let event = maker.ask_with(format!("make {:?} 1", Kind::Event), &[]);
    taker.ask_with(format!("take {:?} {}", Kind::Event, event.text), &event.descriptors);
    maker.ask("record-behind-gate");
    taker.ask("follow 1");
    maker.kill();
    taker.ask("finish");
    assert_eq!(taker.refused(take(&token)), CUerror::INVALID_HANDLE);
}
