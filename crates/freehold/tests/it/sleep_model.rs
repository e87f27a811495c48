//! Random programs that sleep and wake: blocks of two names in two streams are allocated, filled and released, awake
//! and asleep. After each sleep the name has no memory, after each wake its blocks have what they had, and in the end
//! the library uses no host memory for them.
//!
//! `FREEHOLD_SEED` repeats a run.

use crate::children::alone;
use crate::own;

use freehold::ledger::State;
use freehold::{Block, Contents, Device, PoolStats, Stream};
use freehold_testing::{Random, at_effort, report_covered, seed};
use own::Own;

const NAMES: [&str; 2] = ["weights", "cache"];

struct Filled {
    block: Block<u8>,
    /// What all of it has; `None` if that is unspecified.
    value: Option<u8>,
}

#[derive(Default)]
struct Name {
    blocks: Vec<Filled>,
    /// How it sleeps, if it does.
    asleep: Option<Contents>,
}

struct Run<'a> {
    device: &'a Device,
    streams: [Stream; 2],
    numbers: Random,
    names: [Name; 2],
    free_bytes: u64,
}

impl Run<'_> {
    fn stream(&mut self) -> usize {
        self.numbers.below(2) as usize
    }

    fn alloc(&mut self, index: usize) {
        let bytes = match self.numbers.below(4) {
            0 => self.numbers.below(5000) + 1,
            1 => self.numbers.below(200_000) + 1,
            _ => self.numbers.below(6 << 20) + 1,
        };
        let stream = self.stream();
        let block = self.streams[stream].alloc_tagged(bytes as usize, NAMES[index]).unwrap();
        let is_asleep = block.owner().unwrap().state == State::Asleep;
        assert_eq!(is_asleep, self.names[index].asleep.is_some());
        self.names[index].blocks.push(Filled { block, value: None });
    }

    fn release(&mut self, index: usize) {
        let count = self.names[index].blocks.len() as u64;
        if count > 0 {
            let at = self.numbers.below(count) as usize;
            drop(self.names[index].blocks.swap_remove(at));
        }
    }

    fn fill(&mut self, index: usize) {
        let (stream, value) = (self.stream(), self.numbers.below(256) as u8);
        let name = &mut self.names[index];
        if !name.blocks.is_empty() {
            let at = self.numbers.below(name.blocks.len() as u64) as usize;
            let filled = &mut name.blocks[at];
            let outcome = self.streams[stream].fill(&mut filled.block, value);
            assert_eq!(outcome.is_err(), name.asleep.is_some());
            filled.value = if outcome.is_ok() { Some(value) } else { filled.value };
        }
    }

    /// What the driver misses is what the pool says that it has.
    fn taken_bytes(&self) -> u64 {
        let taken_bytes = self.free_bytes - self.device.free_bytes().unwrap();
        assert_eq!(taken_bytes, self.device.stats().reserved_bytes);
        taken_bytes
    }

    fn sleep(&mut self, index: usize) {
        let contents = self.numbers.pick(&[Contents::Keep, Contents::Keep, Contents::Drop]);
        let (before, host_bytes) = (self.taken_bytes(), self.device.stats().asleep_host_bytes);
        let slept = self.device.sleep(NAMES[index], contents).unwrap();
        let given_bytes = before - self.taken_bytes();
        let host_bytes = self.device.stats().asleep_host_bytes - host_bytes;
        let name = &mut self.names[index];
        if name.asleep.is_some() {
            assert_eq!((slept, given_bytes, host_bytes), (None, 0, 0));
            return;
        }
        assert_eq!(slept, Some(given_bytes));
        let owned_bytes: u64 = name.blocks.iter().map(|filled| filled.block.len() as u64).sum();
        match contents {
            Contents::Keep => assert!((owned_bytes..=given_bytes).contains(&host_bytes)),
            Contents::Drop => {
                assert_eq!(host_bytes, 0);
                name.blocks.iter_mut().for_each(|filled| filled.value = None);
            }
        }
        name.asleep = Some(contents);
        if self.names.iter().all(|name| name.asleep.is_some()) {
            assert_eq!(self.taken_bytes(), 0, "nothing has memory");
        }
    }

    fn wake(&mut self, index: usize) {
        let before = self.taken_bytes();
        let woken = self.device.wake(NAMES[index]).unwrap();
        let was_asleep = self.names[index].asleep.take().is_some();
        assert_eq!(woken, was_asleep.then_some(self.taken_bytes() - before));
        if self.names.iter().all(|name| name.asleep.is_none()) {
            assert_eq!(self.device.stats().asleep_host_bytes, 0);
        }
        let stream = self.stream();
        for Filled { block, value } in &self.names[index].blocks {
            let bytes = self.streams[stream].download(block).unwrap();
            assert!(value.is_none_or(|value| bytes == vec![value; bytes.len()]), "{value:?} is not what it has");
        }
    }

    fn cycle(&mut self) {
        let index = self.numbers.below(2) as usize;
        for _ in 0..self.numbers.below(8) {
            let index = self.numbers.below(2) as usize;
            // Few enough that the names do not grow for ever.
            match self.numbers.below(5) {
                0 | 1 if self.names[index].blocks.len() < 12 => self.alloc(index),
                0..3 => self.release(index),
                _ => self.fill(index),
            }
        }
        if self.numbers.below(2) == 0 { self.sleep(index) } else { self.wake(index) }
    }
}

#[test]
fn random_programs_that_sleep_and_wake_keep_their_contents_and_give_all_memory_back() {
    // On a machine of its own: other processes and tests use the memory of this one.
    alone("random_programs_that_sleep_and_wake_keep_their_contents_and_give_all_memory_back", || {
        let own = Own::new();
        let device = &own.device;
        NAMES.iter().for_each(|name| device.set_sleepable(name).unwrap());
        device.trim().unwrap();
        let free_bytes = device.free_bytes().unwrap();
        let mut run =
            Run { device, streams: own.streams(), numbers: Random::new(seed()), names: Default::default(), free_bytes };
        let cycles = at_effort(120, 1000, 2000);
        for cycle in 0..cycles {
            eprintln!("cycle {cycle}");
            run.cycle();
        }
        for index in 0..NAMES.len() {
            run.wake(index);
            run.names[index].blocks.clear();
        }
        device.synchronize().unwrap();
        device.trim().unwrap();
        assert_eq!(device.stats(), PoolStats::default());
        assert_eq!(device.free_bytes().unwrap(), free_bytes);
        report_covered(cycles, "sleeps and wakes");
    });
}
