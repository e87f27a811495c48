//! Benchmarks of the ledger: finding an owner, and each step of a block's life, among a thousand blocks and a million.
//!
//! Blocks have 512 bytes to 64 KiB, lie side by side, and are entered in random order; each operation is on a random
//! one. Each figure is for one operation, or pair of operations, of a thousand in a row.

use std::hint::black_box;
use std::panic::Location;
use std::sync::{Arc, Mutex};

use divan::Bencher;
use divan::counter::ItemsCount;
use freehold::ledger::{BlockId, ContextId, EndReason, Entry, Kind, Ledger, StreamId};
use freehold_testing::Random;

const BASE: u64 = 0x7f00_0000_0000;

/// Operations in a row.
const ROW: usize = 1000;

fn main() {
    divan::main();
}

struct Full {
    ledger: Ledger,
    blocks: Vec<(Entry, BlockId)>,
    numbers: Random,
}

impl Full {
    fn new(count: usize, tag: Option<Arc<str>>) -> Self {
        let mut numbers = Random::new(1);
        let mut base = BASE;
        let mut entries = Vec::new();
        for _ in 0..count {
            let bytes = 512 * (1 + numbers.below(128));
            entries.push(entry(base, bytes, tag.clone()));
            base += bytes;
        }
        for place in (1..count).rev() {
            entries.swap(place, numbers.below(place as u64 + 1) as usize);
        }
        let mut ledger = Ledger::new();
        let mut blocks = Vec::new();
        for entry in entries {
            let block = ledger.enter(entry.clone()).expect("the blocks lie side by side");
            blocks.push((entry, block));
        }
        Self { ledger, blocks, numbers }
    }

    /// Addresses within random blocks.
    fn addresses(&mut self) -> Vec<u64> {
        (0..ROW)
            .map(|_| {
                let (entry, _) = &self.blocks[self.numbers.below(self.blocks.len() as u64) as usize];
                entry.base + self.numbers.below(entry.bytes)
            })
            .collect()
    }

    /// Random blocks, each once.
    fn places(&mut self) -> Vec<usize> {
        let part = self.blocks.len() / ROW;
        (0..ROW).map(|row| row * part + self.numbers.below(part as u64) as usize).collect()
    }
}

fn entry(base: u64, bytes: u64, tag: Option<Arc<str>>) -> Entry {
    Entry {
        base,
        bytes,
        capacity_bytes: bytes,
        context: ContextId(1),
        stream: Some(StreamId(1)),
        process: 1,
        kind: Kind::Own,
        tag,
        allocated_at: Location::caller(),
    }
}

#[divan::bench(args = [1_000, 1_000_000])]
fn owner_of(bencher: Bencher, count: usize) {
    let mut full = Full::new(count, None);
    let rows: Vec<Vec<u64>> = (0..1000).map(|_| full.addresses()).collect();
    let mut rows = rows.iter().cycle();
    bencher.counter(ItemsCount::new(ROW)).bench_local(|| {
        for &address in rows.next().expect("a cycle has no end") {
            black_box(full.ledger.owner_of(address));
        }
    });
}

#[divan::bench(args = [1_000, 1_000_000])]
fn owner_of_tagged(bencher: Bencher, count: usize) {
    let mut full = Full::new(count, Some(Arc::from("weights")));
    let rows: Vec<Vec<u64>> = (0..1000).map(|_| full.addresses()).collect();
    let mut rows = rows.iter().cycle();
    bencher.counter(ItemsCount::new(ROW)).bench_local(|| {
        for &address in rows.next().expect("a cycle has no end") {
            black_box(full.ledger.owner_of(address));
        }
    });
}

#[divan::bench(args = [1_000, 1_000_000])]
fn owner_of_behind_a_lock(bencher: Bencher, count: usize) {
    let mut full = Full::new(count, None);
    let rows: Vec<Vec<u64>> = (0..1000).map(|_| full.addresses()).collect();
    let mut rows = rows.iter().cycle();
    let ledger = Mutex::new(full.ledger);
    bencher.counter(ItemsCount::new(ROW)).bench_local(|| {
        for &address in rows.next().expect("a cycle has no end") {
            black_box(ledger.lock().expect("nobody panics here").owner_of(address));
        }
    });
}

#[divan::bench(args = [1_000, 1_000_000])]
fn forget_and_enter(bencher: Bencher, count: usize) {
    let mut full = Full::new(count, None);
    bencher.counter(ItemsCount::new(ROW)).bench_local(|| {
        for place in full.places() {
            let (entry, block) = &mut full.blocks[place];
            full.ledger.forget(*block, EndReason::Returned);
            *block = full.ledger.enter(entry.clone()).expect("its place is empty");
        }
    });
}

/// A block that is too long for pages.
#[divan::bench]
fn forget_and_enter_1_gib(bencher: Bencher) {
    let mut ledger = Ledger::new();
    let large = entry(BASE + 512, 1 << 30, None);
    let mut block = ledger.enter(large.clone()).expect("the ledger is empty");
    bencher.bench_local(|| {
        ledger.forget(block, EndReason::Returned);
        block = ledger.enter(large.clone()).expect("its place is empty");
    });
}
