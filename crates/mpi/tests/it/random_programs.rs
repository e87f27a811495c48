//! Random programs of launches, messages, collective calls and releases that never wait for each other, checked against
//! a model in one process: every block has the expected content, no memory is reused too early, nothing hangs, nothing
//! leaks. Some run on devices whose streams advance in a seeded order.

use crate::launcher;

use freehold::{Block, Device, Grid, Image, Kernel, Stream};
use freehold_mpi::{Op, Request, World};
use freehold_testing::{Random, at_effort, env_seed, report_covered, seeds};
use launcher::{RankConfig, Transport, ranks};

const STEPS: usize = 40;
const STREAMS: usize = 3;
/// Blocks per rank. Few lengths, so that memory is reused.
const BLOCKS: usize = 4;
const LENGTHS: [usize; 3] = [64, 1000, 3000];

/// How many programs each configuration runs.
fn programs() -> u64 {
    at_effort(1, 8, 125)
}

const STAGED: (&str, &str) = ("FREEHOLD_MPI", "staged");
const ISOLATED: (&str, &str) = ("FREEHOLD_MPI_APART", "1");
const SHARED: (&str, &str) = ("FREEHOLD_MPI", "shared");
const SMALL_CHUNKS: (&str, &str) = ("FREEHOLD_MPI_CHUNK", "4096");
const COHERENT: [(&str, &str); 2] = [("FREEHOLD_MPI", "direct"), ("FREEHOLD_SOFT_COHERENT", "1")];
/// Makes the device's streams advance only during its calls, in a seeded order.
const SCHEDULE: &str = "FREEHOLD_SOFT_SCHEDULE";
const RUNS: [&[(&str, &str)]; 8] = [
    &[STAGED, SMALL_CHUNKS],
    &[STAGED, SMALL_CHUNKS],
    &[COHERENT[0], COHERENT[1]],
    &[STAGED, SMALL_CHUNKS],
    &[SHARED, SMALL_CHUNKS],
    &[STAGED, ISOLATED, SMALL_CHUNKS, (SCHEDULE, "seed:1")],
    &[SHARED, SMALL_CHUNKS, (SCHEDULE, "seed:2")],
    &[COHERENT[0], COHERENT[1], (SCHEDULE, "seed:3")],
];

#[test]
fn random_programs_find_what_they_put() {
    let all = [
        RankConfig::new(2, Transport::Memory, RUNS[0]),
        RankConfig::new(4, Transport::Memory, RUNS[1]),
        RankConfig::new(2, Transport::Memory, RUNS[2]),
        RankConfig::new(2, Transport::Tcp, RUNS[3]),
        RankConfig::new(2, Transport::Memory, RUNS[4]),
        RankConfig::new(2, Transport::Memory, RUNS[5]),
        RankConfig::new(2, Transport::Memory, RUNS[6]),
        RankConfig::new(2, Transport::Memory, RUNS[7]),
    ];
    let runs = all.len() as u64;
    let mut wanted = all.to_vec();
    if !launcher::is_rank() {
        let seeds = seeds(runs * programs(), runs * programs(), runs * programs());
        // A given seed names one program, which every configuration runs.
        let step = if env_seed().is_some() { 0 } else { programs() };
        for (number, wanted) in wanted.iter_mut().enumerate() {
            wanted.first = Some(seeds.start() + number as u64 * step);
        }
    }
    ranks("random_programs_find_what_they_put", &wanted, |world, device| {
        let first: u64 = std::env::var(launcher::FIRST).unwrap().parse().unwrap();
        let last = if env_seed().is_some() { first } else { first + programs() - 1 };
        let module = Image::ptx(include_str!("../../../freehold/examples/kernels.ptx")).unwrap();
        let module = device.module(&module).unwrap();
        // SAFETY: `add` writes the first `n` elements of its block, which has as many in every launch below; `spend` writes nothing.
        let kernels = ["add", "spend"].map(|name| unsafe { module.kernel(name) }.unwrap());
        let before = device.stats().owned_blocks;
        for seed in first..=last {
            Program::new(seed, world, device, &kernels).run();
            assert_eq!(device.stats().owned_blocks, before, "FREEHOLD_SEED={seed}: leaked blocks");
            assert_eq!(world.drop_errors().len(), 0, "FREEHOLD_SEED={seed}: a transfer failed");
        }
    });
    if !launcher::is_rank() {
        report_covered(if env_seed().is_some() { runs } else { runs * programs() }, "random MPI programs");
    }
}

/// Returns consecutive values from a random one on.
fn values(random: &mut Random, len: usize) -> Vec<u32> {
    let first = random.next() as u32;
    (0..len as u32).map(|index| first.wrapping_add(index)).collect()
}

struct Program<'a> {
    seed: u64,
    /// All ranks draw the same numbers.
    random: Random,
    world: &'a World,
    kernels: &'a [Kernel; 2],
    streams: Vec<Stream>,
    /// This rank's blocks.
    blocks: Vec<Block<u32>>,
    /// The expected content of the blocks of all ranks.
    model: Vec<Vec<Vec<u32>>>,
    requests: Vec<Request<()>>,
}

impl<'a> Program<'a> {
    fn new(seed: u64, world: &'a World, device: &Device, kernels: &'a [Kernel; 2]) -> Self {
        let streams: Vec<_> = (0..STREAMS).map(|_| device.new_stream().unwrap()).collect();
        let mut random = Random::new(seed);
        let mut model = Vec::new();
        for _ in 0..world.size() {
            model.push((0..BLOCKS).map(|block| values(&mut random, LENGTHS[block % 3])).collect::<Vec<_>>());
        }
        let mine = &model[world.rank() as usize];
        let blocks = mine.iter().map(|values| streams[0].upload(values).unwrap()).collect();
        Self { seed, random, world, kernels, streams, blocks, model, requests: Vec::new() }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn run(mut self) {
        for step in 0..STEPS {
            match self.below(16) {
                0..5 => self.launch(),
                5..11 => self.message(step as i32 % 3),
                11 => self.release(),
                12 => self.reduce(),
                13 => self.broadcast(),
                14 => self.check(step),
                _ => self.forget(),
            }
        }
        for block in 0..BLOCKS {
            self.check_block(self.world.rank() as usize, block, STEPS);
        }
        self.requests.drain(..).for_each(|request| request.wait().unwrap());
        self.world.barrier().unwrap();
    }

    fn is_mine(&self, rank: usize) -> bool {
        rank == self.world.rank() as usize
    }

    fn random_range(&mut self) -> (usize, usize, usize) {
        let ranks = self.world.size() as usize;
        (self.below(ranks), self.below(BLOCKS), self.below(STREAMS))
    }

    fn launch(&mut self) {
        let ((rank, block, stream), more) = (self.random_range(), self.random.next() as u32);
        let busy_ns = self.below(200_000) as u64;
        self.model[rank][block].iter_mut().for_each(|value| *value = value.wrapping_add(more));
        if self.is_mine(rank) {
            let (stream, block) = (&self.streams[stream], &mut self.blocks[block]);
            let n = block.len() as u32;
            stream.launch(&self.kernels[1], Grid::line(1, 1), (busy_ns,)).unwrap();
            stream.launch(&self.kernels[0], Grid::cover(n, 256), (block, more, n)).unwrap();
        }
    }

    fn message(&mut self, tag: i32) {
        let (from, block, stream) = self.random_range();
        let (to, other_stream) = (self.below(self.world.size() as usize), self.below(STREAMS));
        // Another block of the same length: the fourth is as long as the first.
        let (block, target) = if self.below(2) == 0 { (0, 3) } else { (block, block) };
        if from == to && block == target {
            return;
        }
        let keeps = self.below(2) == 0;
        self.model[to][target] = self.model[from][block].clone();
        if self.is_mine(to) {
            let block = &mut self.blocks[target];
            let request = self.world.irecv(&self.streams[other_stream], block, from as i32, tag).unwrap();
            // Only work that uses the block waits for it.
            drop(request);
        }
        if self.is_mine(from) {
            let request = self.world.isend(&self.streams[stream], &self.blocks[block], to as i32, tag).unwrap();
            if keeps {
                self.requests.push(request);
            }
        }
    }

    /// Drops a block that a transfer may still use, and allocates one that may reuse its memory.
    fn release(&mut self) {
        let (rank, block, stream) = self.random_range();
        let values = values(&mut self.random, LENGTHS[block % 3]);
        if self.is_mine(rank) {
            let stream = &self.streams[stream];
            // Drops the old block first, so that the new one may get its memory.
            let placeholder = stream.alloc(1).unwrap();
            drop(std::mem::replace(&mut self.blocks[block], placeholder));
            self.blocks[block] = stream.upload(&values).unwrap();
        }
        self.model[rank][block] = values;
    }

    fn reduce(&mut self) {
        let (_, _, stream) = self.random_range();
        let len = self.model[0][0].len();
        let sum: Vec<u32> =
            (0..len).map(|index| self.model.iter().fold(0, |sum: u32, of| sum.wrapping_add(of[0][index]))).collect();
        self.model.iter_mut().for_each(|of| of[3].clone_from(&sum));
        let (from, to) = self.blocks.split_at_mut(3);
        self.requests.push(self.world.iallreduce(&self.streams[stream], &from[0], &mut to[0], Op::Sum).unwrap());
    }

    fn broadcast(&mut self) {
        let (root, block, stream) = self.random_range();
        let values = self.model[root][block].clone();
        self.model.iter_mut().for_each(|of| of[block].clone_from(&values));
        let request = self.world.ibroadcast(&self.streams[stream], &mut self.blocks[block], root as i32).unwrap();
        self.requests.push(request);
    }

    fn check(&mut self, step: usize) {
        let (rank, block, _) = self.random_range();
        self.check_block(rank, block, step);
    }

    fn check_block(&self, rank: usize, block: usize, step: usize) {
        if self.is_mine(rank) {
            let found = self.streams[block % STREAMS].download(&self.blocks[block]).unwrap();
            let wanted = &self.model[rank][block];
            assert!(
                &found == wanted,
                "FREEHOLD_SEED={}: after step {step} block {block} of rank {rank} holds {:?}.., not {:?}..",
                self.seed,
                &found[..3],
                &wanted[..3]
            );
        }
    }

    /// Drops pending requests.
    fn forget(&mut self) {
        // Ranks have different requests but draw the same numbers.
        let kept = self.below(8).min(self.requests.len());
        self.requests.truncate(kept);
    }
}
