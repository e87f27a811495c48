//! Schedules of the software driver: the same seed gives the same run, a correct program gets the correct result under
//! every schedule, and some seed exposes a missing wait.

use crate::common;

use std::collections::BTreeSet;
use std::fmt::Write;

use common::schedules::{schedules, under};
use common::{Context, child};
use freehold_driver::cuda::{
    CUdeviceptr, CUevent, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUstream, context, copy, event, fill,
    memory, pool, stream,
};
use freehold_testing::{Random, at_effort, env_seed, print_seed, report_covered, seeds};

use crate::scenarios;

use scenarios::{SCENARIOS, Waits};

const STREAMS: usize = 4;
const BLOCKS: usize = 6;
const BLOCK_BYTES: usize = 20_000;

/// A random program without a race: each block is used in the stream that it is in, and moves to another with an event.
struct Program<'c> {
    own: &'c Context,
    random: Random,
    pool: CUmemoryPool,
    streams: Vec<CUstream>,
    blocks: Vec<Block>,
    event: CUevent,
    start: CUevent,
    /// The contents of the blocks once all work is done.
    model: Vec<u8>,
}

/// A block of a pool with the stream that it is in.
#[derive(Clone, Copy)]
struct Block {
    at: CUdeviceptr,
    stream: usize,
}

impl<'c> Program<'c> {
    fn new(own: &'c Context) -> Self {
        let pool = pool::create(&own.api, &CUmemPoolProps::on_device(own.device)).unwrap();
        let streams: Vec<_> = (0..STREAMS).map(|_| own.stream()).collect();
        let blocks = (0..BLOCKS).map(|index| {
            let stream = index % STREAMS;
            let at = memory::alloc_from_pool_async(&own.api, BLOCK_BYTES, pool, streams[stream]).unwrap();
            fill::d8_async(&own.api, at, index as u8, BLOCK_BYTES, streams[stream]).unwrap();
            Block { at, stream }
        });
        let blocks = blocks.collect();
        let (event, start) = (event::create(&own.api, 0).unwrap(), event::create(&own.api, 0).unwrap());
        event::record(&own.api, start, streams[0]).unwrap();
        Self { own, random: Random::new(7), pool, streams, blocks, event, start, model: (0..BLOCKS as u8).collect() }
    }

    /// Makes one step, and returns a line with its observation.
    fn step(&mut self) -> String {
        let api = &self.own.api;
        let one = self.random.below(BLOCKS as u64) as usize;
        let block = self.blocks[one];
        let stream = self.streams[block.stream];
        let mut line = String::new();
        match self.random.below(8) {
            0 => {
                let value = self.random.next() as u8;
                self.model[one] = value;
                fill::d8_async(api, block.at, value, BLOCK_BYTES, stream).unwrap();
                write!(line, "fill {:#x} with {value}", block.at.0)
            }
            1 => {
                let other = self.blocks[(one + 1) % BLOCKS];
                self.model[one] = self.model[(one + 1) % BLOCKS];
                self.follow(other.stream, block.stream);
                copy::device_to_device_async(api, block.at, other.at, BLOCK_BYTES, stream).unwrap();
                self.follow(block.stream, other.stream);
                write!(line, "copy {:#x} to {:#x}", other.at.0, block.at.0)
            }
            2 => {
                let next = self.random.below(STREAMS as u64) as usize;
                self.follow(block.stream, next);
                self.blocks[one].stream = next;
                write!(line, "move {:#x} to stream {next}", block.at.0)
            }
            3 => {
                memory::free_async(api, block.at, stream).unwrap();
                let at = memory::alloc_from_pool_async(api, BLOCK_BYTES, self.pool, stream).unwrap();
                fill::d8_async(api, at, 9, BLOCK_BYTES, stream).unwrap();
                self.blocks[one].at = at;
                self.model[one] = 9;
                write!(line, "replace {:#x} by {:#x}", block.at.0, at.0)
            }
            4 => write!(line, "stream {} is done: {:?}", block.stream, stream::query(api, stream)),
            5 => {
                event::record(api, self.event, stream).unwrap();
                write!(line, "event has passed: {:?}", event::query(api, self.event))
            }
            6 => {
                event::record(api, self.event, stream).unwrap();
                event::synchronize(api, self.event).unwrap();
                let elapsed = event::elapsed_ms(api, self.start, self.event);
                write!(line, "event after {elapsed:?} ms")
            }
            _ => {
                self.own.finish(stream);
                let used = pool::attribute(api, self.pool, CUmemPool_attribute::RESERVED_MEM_CURRENT);
                write!(line, "{used:?} reserved")
            }
        }
        .unwrap();
        line
    }

    /// Makes stream `to` wait for the work of stream `from`.
    fn follow(&self, from: usize, to: usize) {
        event::record(&self.own.api, self.event, self.streams[from]).unwrap();
        stream::wait_event(&self.own.api, self.streams[to], self.event, 0).unwrap();
    }

    /// Checks the contents of the blocks when all work is done.
    fn end(self) {
        context::synchronize(&self.own.api).unwrap();
        let bytes = self.blocks.iter().map(|block| self.own.byte(block.at, BLOCK_BYTES));
        assert_eq!(bytes.collect::<Vec<_>>(), self.model);
        for block in &self.blocks {
            memory::free_async(&self.own.api, block.at, self.streams[0]).unwrap();
        }
        context::synchronize(&self.own.api).unwrap();
        pool::destroy(&self.own.api, self.pool).unwrap();
    }
}

fn steps() -> usize {
    at_effort(100, 400, 1000)
}

/// Runs the program, reports the observation of each step, and checks the result.
fn run_program() {
    let own = Context::create();
    let mut program = Program::new(&own);
    let log: Vec<_> = (0..steps()).map(|_| program.step()).collect();
    program.end();
    log.iter().for_each(|line| child::report_line(line));
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    const NAME: &str = "the_same_seed_gives_the_same_run_and_another_seed_another";
    if child::is_child(NAME) {
        return run_program();
    }
    let mut runs = BTreeSet::new();
    let seeds = seeds(2, 6, 100);
    let count = seeds.clone().count();
    for seed in seeds {
        print_seed(seed);
        for schedule in [format!("seed:{seed}"), format!("seed:{seed},switches:3")] {
            let [first, second] = [(); 2].map(|()| under(NAME, &schedule));
            assert_eq!(first.len(), steps());
            assert_eq!(first, second, "{schedule} gives the same run twice");
            runs.insert(first);
        }
    }
    report_covered(2 * count as u64, "schedules run twice");
    assert!(runs.len() >= 2, "{count} seeds give {} different runs", runs.len());
}

#[test]
fn every_schedule_gives_a_right_program_its_result() {
    const NAME: &str = "every_schedule_gives_a_right_program_its_result";
    if child::is_child(NAME) {
        return run_program();
    }
    for schedule in schedules(1, 3, 100).chain(["seed:18446744073709551615".to_owned()]) {
        assert_eq!(under(NAME, &schedule).len(), steps(), "under {schedule}");
    }
}

/// Runs each scenario with and without its wait, and reports those with a wrong result.
fn run_scenarios() {
    for scenario in SCENARIOS {
        for waits in [Waits::Made, Waits::Missing] {
            let own = Context::create();
            if !(scenario.is_right)(&own, waits) {
                child::report_line(&format!("{waits:?} {}", scenario.name));
            }
            context::synchronize(&own.api).unwrap();
        }
    }
}

#[test]
fn a_missing_wait_is_caught_by_some_seed_and_a_made_one_passes_all() {
    const NAME: &str = "a_missing_wait_is_caught_by_some_seed_and_a_made_one_passes_all";
    if child::is_child(NAME) {
        return run_scenarios();
    }
    // Memory of a pool may be written before its allocation, as on a device, unless the number of switches is limited.
    let is_kept = |name: &&str| *name == "write before the stream that allocates gets there";
    let names = SCENARIOS.iter().map(|scenario| scenario.name).filter(|name| !is_kept(name));
    let all: BTreeSet<_> = names.map(str::to_owned).collect();
    let (mut caught, seeds) = (BTreeSet::new(), seeds(5, 50, 400));
    let last = *seeds.end();
    // Some wait may need more seeds than the effort asks for.
    let more = (last + 1..last + 400).take_while(|_| env_seed().is_none());
    for seed in seeds.chain(more) {
        if seed > last && caught == all {
            break;
        }
        print_seed(seed);
        for wrong in under(NAME, &format!("seed:{seed}")) {
            let (waits, name) = wrong.split_once(' ').unwrap();
            assert_eq!(waits, "Missing", "seed {seed} breaks {name}, which waits for all it needs");
            caught.insert(name.to_owned());
        }
    }
    let missed: Vec<_> = all.difference(&caught).filter(|_| env_seed().is_none()).collect();
    assert_eq!(missed, Vec::<&String>::new(), "some seed shows every missing wait");
}

/// As late as possible, with the work of one stream after that of all others.
#[test]
fn a_few_schedules_without_switches_catch_every_missing_wait() {
    const NAME: &str = "a_few_schedules_without_switches_catch_every_missing_wait";
    if child::is_child(NAME) {
        return run_scenarios();
    }
    // The right result if the second stream comes first: only what lies between two works of the first one is wrong.
    let is_right_in_reverse = |name: &str| name == "use one thread's stream for another's";
    let names = SCENARIOS.iter().map(|scenario| scenario.name).filter(|name| !is_right_in_reverse(name));
    let all: BTreeSet<_> = names.map(|name| format!("Missing {name}")).collect();
    let caught: BTreeSet<_> = (1..=8).flat_map(|seed| under(NAME, &format!("seed:{seed},switches:0"))).collect();
    assert_eq!(caught, all);
}

#[test]
fn programs_that_wait_for_all_they_need_pass_with_threads_and_eagerly() {
    const NAME: &str = "programs_that_wait_for_all_they_need_pass_with_threads_and_eagerly";
    if child::is_child(NAME) {
        return run_scenarios();
    }
    for schedule in ["threads", "eager"] {
        let broken: Vec<_> = under(NAME, schedule).into_iter().filter(|wrong| wrong.starts_with("Made")).collect();
        assert_eq!(broken, Vec::<String>::new(), "under {schedule}");
    }
}
