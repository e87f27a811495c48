//! The rules of the ledger, one by one, and its error messages.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use freehold::ledger::{
    BlockId, ContextId, EndReason, Entry, Fence, Kind, Ledger, LedgerStats, NotEntered, Release, State, StreamId,
    WrongRelease,
};

const BASE: u64 = 0x7f00_0000_0000;
const CONTEXT: ContextId = ContextId(1);

fn entry(base: u64, bytes: u64) -> Entry {
    Entry {
        base,
        bytes,
        capacity_bytes: bytes,
        context: CONTEXT,
        stream: Some(StreamId(7)),
        process: 42,
        kind: Kind::Own,
        tag: None,
        allocated_at: Location::caller(),
    }
}

fn mark(position: u64) -> Fence {
    Fence { stream: StreamId(7), seq: position }
}

fn release(marks: &[Fence]) -> Release {
    Release { fences: marks.to_vec(), released_at: Some(Location::caller()), when: Duration::from_millis(1500) }
}

fn enter(ledger: &mut Ledger, base: u64, bytes: u64) -> BlockId {
    ledger.enter(entry(base, bytes)).expect("the span is nobody's")
}

/// The base of the block that an address is in.
fn base_of(ledger: &Ledger, address: u64) -> Option<u64> {
    ledger.owner_of(address).map(|owner| owner.base)
}

fn refusal(ledger: &Ledger, address: u64) -> String {
    let text = ledger.releasable(address).expect_err("the address cannot be released").to_string();
    // The line numbers of this file are not what is asked.
    let words = text.split(' ').map(|word| match word.split_once("ledger.rs:") {
        Some((_, line)) => format!("HERE{}", line.trim_start_matches(|digit: char| digit.is_ascii_digit())),
        None => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn stage(ledger: &Ledger, block: BlockId) -> Option<State> {
    ledger.owner(block).map(|owner| owner.state)
}

#[test]
fn every_byte_of_a_block_has_its_owner_and_no_other_byte() {
    let mut ledger = Ledger::new();
    let block = enter(&mut ledger, BASE, 1000);
    let owner = ledger.owner_of(BASE + 999).expect("the last byte has an owner");
    assert_eq!((owner.base, owner.bytes, owner.context, owner.stream), (BASE, 1000, CONTEXT, Some(StreamId(7))));
    assert_eq!((owner.process, owner.kind, owner.state, owner.block), (42, Kind::Own, State::Owned, block));
    assert_eq!(base_of(&ledger, BASE), Some(BASE));
    assert_eq!(base_of(&ledger, BASE - 1), None);
    assert_eq!(base_of(&ledger, BASE + 1000), None);
}

#[test]
fn bytes_past_the_requested_ones_have_no_owner_and_cannot_be_entered() {
    let mut ledger = Ledger::new();
    ledger.enter(Entry { capacity_bytes: 1024, ..entry(BASE, 1000) }).expect("the span is nobody's");
    assert_eq!(base_of(&ledger, BASE + 1000), None);
    assert_eq!(ledger.releasable(BASE + 1000), Err(WrongRelease::NeverAllocated { address: BASE + 1000 }));
    let refused = ledger.enter(entry(BASE + 1023, 1)).expect_err("the driver gave these to another block");
    assert_eq!(
        refused.to_string().split(',').next(),
        Some("1 bytes at 0x7f00000003ff overlap 1000 bytes at 0x7f0000000000")
    );
    enter(&mut ledger, BASE + 1024, 1);
}

#[test]
fn blocks_that_begin_in_one_granule_are_distinguished() {
    let mut ledger = Ledger::new();
    for offset in [300, 0, 100, 200] {
        enter(&mut ledger, BASE + offset, 90);
    }
    let bases = [0, 89, 90, 100, 189, 299, 300, 389, 390].map(|offset| base_of(&ledger, BASE + offset));
    let expected = [Some(0), Some(0), None, Some(100), Some(100), None, Some(300), Some(300), None];
    assert_eq!(bases, expected.map(|offset| offset.map(|offset: u64| BASE + offset)));
}

#[test]
fn a_crowd_of_small_blocks_is_found_while_it_grows_and_shrinks() {
    let mut ledger = Ledger::new();
    let blocks: Vec<BlockId> = (0..256).map(|place| enter(&mut ledger, BASE + (place * 37 % 256) * 512, 512)).collect();
    assert!((0..256).all(|place| base_of(&ledger, BASE + place * 512 + 511) == Some(BASE + place * 512)));
    for &block in &blocks[..250] {
        ledger.forget(block, EndReason::Returned);
    }
    let left: Vec<u64> = ledger.owned().iter().map(|owner| (owner.base - BASE) / 512).collect();
    assert_eq!(left, [34, 71, 108, 145, 182, 219]);
    assert!((0..256).all(|place| base_of(&ledger, BASE + place * 512).is_some() == left.contains(&place)));
}

#[test]
fn a_block_is_found_in_all_of_its_pages() {
    let mut ledger = Ledger::new();
    for (base, bytes) in [(BASE + 512, 1 << 30), (1 << 50, 1 << 50), (u64::MAX - 4095, 4096), (0, 1 << 32)] {
        enter(&mut ledger, base, bytes);
        for offset in [0, bytes / 3, bytes - 1] {
            assert_eq!(base_of(&ledger, base + offset), Some(base));
        }
    }
    assert_eq!(base_of(&ledger, 1 << 32), None);
    assert_eq!(base_of(&ledger, BASE + 512 + (1 << 30)), None);
}

#[test]
fn a_span_without_bytes_or_beyond_all_addresses_is_refused() {
    let mut ledger = Ledger::new();
    let empty = Entry { capacity_bytes: 512, ..entry(BASE, 0) };
    assert_eq!(ledger.enter(empty), Err(NotEntered::Empty { base: BASE }));
    let beyond = ledger.enter(entry(u64::MAX - 511, 513));
    assert_eq!(beyond, Err(NotEntered::BeyondAddresses { base: u64::MAX - 511, bytes: 513 }));
    enter(&mut ledger, u64::MAX - 511, 512);
}

#[test]
fn a_block_without_fences_is_free_at_once_and_one_with_fences_waits() {
    let mut ledger = Ledger::new();
    let (plain, marked) = (enter(&mut ledger, BASE, 512), enter(&mut ledger, BASE + 512, 512));
    ledger.release(plain, release(&[]));
    assert_eq!(stage(&ledger, plain), Some(State::Free));
    ledger.release(marked, release(&[mark(3), mark(5)]));
    assert_eq!(stage(&ledger, marked), Some(State::Released { waiting_for: 2 }));
}

#[test]
#[should_panic(expected = "the id's generation is over")]
fn an_id_that_is_over_releases_nothing() {
    let mut ledger = Ledger::new();
    let block = enter(&mut ledger, BASE, 512);
    ledger.forget(block, EndReason::Returned);
    enter(&mut ledger, BASE, 512);
    ledger.release(block, release(&[]));
}

#[test]
#[should_panic(expected = "a block is released by its owner, once")]
fn a_block_is_not_released_twice() {
    let mut ledger = Ledger::new();
    let block = enter(&mut ledger, BASE, 512);
    ledger.release(block, release(&[mark(1)]));
    ledger.release(block, release(&[]));
}

#[test]
fn only_so_many_traces_are_kept_and_the_oldest_goes_first() {
    let mut ledger = Ledger::new();
    for place in 0..65_537 {
        let block = enter(&mut ledger, BASE + place * 512, 512);
        ledger.forget(block, EndReason::Returned);
    }
    assert_eq!(ledger.releasable(BASE), Err(WrongRelease::NeverAllocated { address: BASE }));
    assert!(matches!(ledger.releasable(BASE + 512), Err(WrongRelease::AlreadyReleased { .. })));
}

#[test]
fn a_trace_gives_way_to_a_block_and_stays_when_the_block_is_refused() {
    let mut ledger = Ledger::new();
    let gone = enter(&mut ledger, BASE, 512);
    enter(&mut ledger, BASE + 1024, 512);
    ledger.forget(gone, EndReason::Returned);
    assert!(matches!(ledger.enter(entry(BASE, 2048)), Err(NotEntered::Overlap { .. })));
    assert!(matches!(ledger.releasable(BASE), Err(WrongRelease::AlreadyReleased { .. })));
    enter(&mut ledger, BASE + 256, 512);
    assert_eq!(ledger.releasable(BASE), Err(WrongRelease::NeverAllocated { address: BASE }));
}

#[test]
fn adopted_memory_that_is_given_back_leaves_no_trace_and_imported_memory_does() {
    let mut ledger = Ledger::new();
    for (kind, base) in [(Kind::Adopted, BASE), (Kind::Imported, BASE + 512)] {
        let block = ledger.enter(Entry { kind, ..entry(base, 512) }).expect("the span is nobody's");
        ledger.forget(block, EndReason::Returned);
    }
    assert!(matches!(ledger.releasable(BASE), Err(WrongRelease::NeverAllocated { .. })));
    assert!(matches!(ledger.releasable(BASE + 512), Err(WrongRelease::AlreadyReleased { when: None, .. })));
}

#[test]
fn blocks_go_with_their_context_and_no_others_do() {
    let mut ledger = Ledger::new();
    let other = ledger.enter(Entry { context: ContextId(2), ..entry(BASE, 512) }).expect("the span is nobody's");
    let adopted = Entry { kind: Kind::Adopted, ..entry(BASE + 1024, 512) };
    let adopted = ledger.enter(adopted).expect("the span is nobody's");
    let own = enter(&mut ledger, BASE + 512, 512);
    assert_eq!(ledger.end_context(CONTEXT, Duration::from_secs(2)), [own, adopted]);
    assert_eq!((ledger.owner(own), ledger.owner(adopted)), (None, None));
    assert_eq!(ledger.owned().iter().map(|owner| owner.block).collect::<Vec<_>>(), [other]);
}

#[test]
fn totals_follow_a_block_through_its_life() {
    let mut ledger = Ledger::new();
    let block = ledger.enter(Entry { capacity_bytes: 1024, ..entry(BASE, 1000) }).expect("the span is nobody's");
    ledger.enter(Entry { kind: Kind::Adopted, ..entry(BASE + 4096, 512) }).expect("the span is nobody's");
    let held = LedgerStats { held_bytes: 1024, ..LedgerStats::default() };
    assert_eq!(ledger.stats(), LedgerStats { owned_blocks: 1, owned_bytes: 1000, ..held });
    ledger.release(block, release(&[mark(1)]));
    assert_eq!(ledger.stats(), LedgerStats { released_blocks: 1, released_bytes: 1000, ..held });
    ledger.forget(block, EndReason::Returned);
    assert_eq!(ledger.stats(), LedgerStats::default());
    let block = ledger.enter(Entry { capacity_bytes: 1024, ..entry(BASE, 1000) }).expect("the span is nobody's");
    ledger.release(block, release(&[]));
    assert_eq!(ledger.stats(), LedgerStats { free_blocks: 1, free_bytes: 1024, ..held });
}

#[test]
fn a_wrong_release_says_which_wrong_and_what_to_do() {
    let mut ledger = Ledger::new();
    let block = ledger.enter(Entry { tag: Some(Arc::from("weights")), ..entry(BASE, 4096) });
    let block = block.expect("the span is nobody's");
    assert_eq!(ledger.releasable(BASE), Ok(block));
    assert_eq!(
        refusal(&ledger, BASE + 16),
        "16 bytes into 4096 bytes at 0x7f0000000000 (weights), allocated at HERE: release the block by its first address"
    );
    ledger.release(block, release(&[mark(1)]));
    let released = "4096 bytes at 0x7f0000000000, allocated at HERE, are already released at HERE, \
                    1.500000 s after the device was opened: release a block once";
    assert_eq!(refusal(&ledger, BASE), released);
    assert_eq!(refusal(&ledger, BASE + 16), format!("16 bytes into a block that is gone: {released}"));
    ledger.forget(block, EndReason::Returned);
    assert_eq!(refusal(&ledger, BASE), released);
    assert_eq!(
        refusal(&ledger, BASE + 4096),
        "nothing was allocated at 0x7f0000001000: release only addresses that an allocation returned"
    );
}

#[test]
fn a_release_of_what_is_not_ours_says_whose_it_is() {
    let mut ledger = Ledger::new();
    for (kind, base) in [(Kind::Adopted, BASE), (Kind::Imported, BASE + 512)] {
        ledger.enter(Entry { kind, ..entry(base, 512) }).expect("the span is nobody's");
    }
    assert_eq!(
        refusal(&ledger, BASE + 1),
        "512 bytes at 0x7f0000000000, allocated at HERE, are foreign memory: release them where they were allocated"
    );
    assert_eq!(
        refusal(&ledger, BASE + 512),
        "512 bytes at 0x7f0000000200, allocated at HERE, are imported from process 42: close the import instead"
    );
    let of_nobody_known = Entry { kind: Kind::Imported, process: 0, ..entry(BASE + 1024, 512) };
    ledger.enter(of_nobody_known).expect("the span is nobody's");
    assert_eq!(
        refusal(&ledger, BASE + 1024),
        "512 bytes at 0x7f0000000400, allocated at HERE, are imported: close the import instead"
    );
    ledger.end_context(CONTEXT, Duration::from_secs(2));
    assert_eq!(
        refusal(&ledger, BASE),
        "512 bytes at 0x7f0000000000, allocated at HERE, are gone with their context, 2.000000 s after the device was \
         opened: release blocks before their context is destroyed"
    );
    let forked = WrongRelease::ForkedChild { address: BASE, process: 42 };
    assert_eq!(
        forked.to_string(),
        "0x7f0000000000 belongs to process 42, which this process was forked from: release it there"
    );
}

#[test]
fn an_answer_to_a_release_is_a_cache_line_at_the_most() {
    assert!(size_of::<Result<BlockId, WrongRelease>>() <= 64);
}
