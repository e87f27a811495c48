//! The pool under many threads: up to a million random allocations and releases, some of blocks that another thread
//! allocated, some by threads that end with blocks in their magazines. No block has two owners, and at the end no byte
//! is live.
//!
//! `FREEHOLD_SEED` replays the choices of all threads, though not their order.

use crate::children::alone;
use crate::foreign_pools;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use foreign_pools::Host;
use freehold_driver::cuda::{CUstream, context};
use freehold_testing::{Random, at_effort, report_covered, seed};

const THREADS: u64 = 16;
/// Each thread ends so often, and another goes on with a stream of its own.
const LIVES: u64 = 4;
const SHARED_STREAMS: u64 = 3;

/// What the threads share: blocks that they hand each other, and who has what.
struct Square {
    host: Host,
    shared: Vec<CUstream>,
    handed: Mutex<Vec<Block>>,
    live: Owners,
    live_bytes: AtomicU64,
}

#[derive(Clone, Copy)]
struct Block {
    address: u64,
    bytes: u64,
    owner: u64,
    stream: CUstream,
}

/// The owner of each block, in parts that are locked one by one.
struct Owners([Mutex<std::collections::HashMap<u64, u64>>; 64]);

impl Owners {
    fn part(&self, address: u64) -> std::sync::MutexGuard<'_, std::collections::HashMap<u64, u64>> {
        self.0[(address / 512 % 64) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, block: Block) {
        assert_eq!(
            self.part(block.address).insert(block.address, block.owner),
            None,
            "{:#x} has two owners",
            block.address
        );
    }

    fn leave(&self, block: Block) {
        assert_eq!(
            self.part(block.address).remove(&block.address),
            Some(block.owner),
            "{:#x} was another's",
            block.address
        );
    }
}

impl Square {
    fn free(&self, block: Block, stream: CUstream) {
        self.live.leave(block);
        self.live_bytes.fetch_sub(block.bytes, Ordering::Relaxed);
        self.host.allocator.free(block.address, stream).unwrap();
    }

    /// One life of a thread.
    fn live(&self, mut numbers: Random, steps: u64) {
        self.host.enter();
        let own_stream = self.host.stream();
        let mut own: Vec<Block> = Vec::new();
        for _ in 0..steps {
            let stream = match numbers.below(2) {
                0 => own_stream,
                _ => self.shared[numbers.below(SHARED_STREAMS) as usize],
            };
            match numbers.below(100) {
                0..46 => own.push(self.alloc(&mut numbers, stream)),
                46..80 => {
                    if let Some(index) = pick(&mut numbers, own.len()) {
                        let block = own.swap_remove(index);
                        // Mostly where it was asked for.
                        let stream = if numbers.below(8) == 0 { stream } else { block.stream };
                        self.free(block, stream);
                    }
                }
                80..90 => {
                    if let Some(index) = pick(&mut numbers, own.len()) {
                        self.handed().push(own.swap_remove(index));
                    }
                }
                90..99 => {
                    let handed = self.handed().pop();
                    handed.into_iter().for_each(|block| self.free(block, block.stream));
                }
                _ => {
                    if let Some(index) = pick(&mut numbers, own.len()) {
                        self.host.allocator.record_use(own[index].address, stream).unwrap();
                    }
                }
            }
            if own.len() > 64 {
                own.drain(32..).for_each(|block| self.free(block, block.stream));
            }
        }
        // What is left is another's to release.
        self.handed().append(&mut own);
    }

    fn alloc(&self, numbers: &mut Random, stream: CUstream) -> Block {
        let bytes = match numbers.below(40) {
            0..30 => 1 + numbers.below(8192),
            30..39 => 1 + numbers.below(200 << 10),
            _ => 1 + numbers.below(4 << 20),
        };
        let address = self.host.allocator.alloc(bytes, stream).unwrap();
        let block = Block { address, bytes, owner: numbers.next(), stream };
        self.live.enter(block);
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        block
    }

    fn handed(&self) -> std::sync::MutexGuard<'_, Vec<Block>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pick(numbers: &mut Random, count: usize) -> Option<usize> {
    (count > 0).then(|| numbers.below(count as u64) as usize)
}

#[test]
fn random_operations_of_sixteen_threads_lose_nothing() {
    alone("random_operations_of_sixteen_threads_lose_nothing", run);
}

fn run() {
    let (seed, steps) = (seed(), at_effort(20_000, 200_000, 1_000_000));
    report_covered(steps, "operations of pools");
    let host = Host::new();
    let shared = (0..SHARED_STREAMS).map(|_| host.stream()).collect();
    let live = Owners([(); 64].map(|()| Mutex::default()));
    let square = Arc::new(Square { host, shared, handed: Mutex::default(), live, live_bytes: AtomicU64::new(0) });
    for life in 0..LIVES {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let square = square.clone();
                let numbers = Random::new(seed ^ (life * THREADS + thread) << 40);
                thread::spawn(move || square.live(numbers, steps / THREADS / LIVES))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(square.host.allocator.live_bytes(), square.live_bytes.load(Ordering::Relaxed), "after life {life}");
    }
    let left = std::mem::take(&mut *square.handed());
    left.into_iter().for_each(|block| square.free(block, block.stream));
    context::synchronize(&square.host.api).unwrap();
    assert_eq!(square.host.allocator.live_bytes(), 0);
    square.host.allocator.trim(0).unwrap();
    assert_eq!(square.host.allocator.reserved_bytes(), 0);
}
