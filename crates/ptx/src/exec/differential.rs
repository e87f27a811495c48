//! Runs random kernels with every engine and compares each with the reference: memory, instruction counts, the progress
//! of every slice, and faults.

mod more;
mod paths;
mod text;

use std::sync::Arc;

use freehold_testing::{print_seed, report_covered, seeds};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::SeedableRng;

use text::{Random, Text};

use super::engine::Engine;
use super::{Grid, Launch, Progress, Slice};
use crate::bounds::{Access, Extent, Pointer};
use crate::fault::Fault;
use crate::image::{Image, Program, Unit};
use crate::memory::{LANES, Memory, OutOfBounds, Width};

const BASE: u64 = 0x1000_0000;
/// Words that threads read and write in disorder, then the results.
const TABLE_WORDS: u64 = 256;
const REGISTERS: u64 = 12;
const WIDE_REGISTERS: u64 = 8;
const RESULT_WORDS: u64 = REGISTERS + 2 * WIDE_REGISTERS + 1;

#[test]
fn every_engine_computes_what_the_reference_does() {
    check(seeds(150, 2_000, 100_000), Size::Large);
}

/// The same with kernels of a few instructions, of which there are more in the same time.
#[test]
fn every_engine_computes_what_the_reference_does_in_a_few_instructions() {
    check(seeds(500, 10_000, 10_000_000), Size::Small);
}

/// The size of a random kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

/// Prints the seed of a kernel if its test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_seed(self.0);
        }
    }
}

fn check(seeds: impl Iterator<Item = u64>, size: Size) {
    let (mut kernels, mut faults) = (0, 0);
    for seed in seeds {
        let _seed = Seed(seed);
        let case = Case::random(seed, size);
        // In the reference no registers share a slot.
        let [apart, program] = case.compile();
        let expected = case.run(Engine::REFERENCE, &apart);
        for engine in Engine::available() {
            let outcome = case.run(engine, &program);
            assert!(outcome == expected, "{engine:?}, seed {seed}: {}\n{}", expected.difference(&outcome), case.text);
        }
        kernels += 1;
        // Of a kernel that hangs, this tells about where.
        if kernels % 10_000 == 0 {
            print_seed(seed);
        }
        faults += u64::from(expected.fault.is_some());
    }
    report_covered(kernels, "random kernels executed by every engine");
    report_covered(faults, "of which faulted");
}

/// Loads from shared memory through registers that change between them, and threads that end while others wait.
#[test]
fn every_engine_computes_what_the_reference_does_where_control_flow_meets() {
    // A register that a loop changes: before the loop, at its head and after its end.
    const LOOP: &str = "ld.shared.b32 %r0, [%t9]; mov.b32 %n0, 3;
        L: ld.shared.b32 %r1, [%t9+4]; add.s32 %r2, %r2, %r1; add.u32 %t9, %t9, 64;
        sub.s32 %n0, %n0, 1; setp.gt.s32 %p0, %n0, 0; @%p0 bra L; ld.shared.b32 %r3, [%t9];";
    // Two arms of which each iteration takes one: the second begins after an unconditional branch, without a label.
    const ARMS: &str = "mov.b32 %n0, 3;
        L: setp.eq.s32 %p0, %n0, 3; @!%p0 bra ELSE; ld.shared.b32 %r0, [%t9]; bra NEXT;
        ELSE: ld.shared.b32 %r1, [%t9+4];
        NEXT: add.s32 %r2, %r2, %r1; add.u32 %t9, %t9, 64;
        sub.s32 %n0, %n0, 1; setp.gt.s32 %p1, %n0, 0; @%p1 bra L;";
    // A load with a guard between two others.
    const GUARD: &str = "setp.ge.u32 %p0, %t0, 0; mov.b32 %t10, 64; ld.shared.b32 %r0, [%t9];
        @%p0 ld.shared.b32 %r1, [%t10]; ld.shared.b32 %r2, [%t9+8];";
    // The second warp ends while the first one waits for it.
    const ENDED: &str = "setp.ge.u32 %p0, %t0, 32; @%p0 bra OUT; bar.sync 0; ld.shared.b32 %r0, [%t9+64]; OUT:";
    for body in [LOOP, ARMS, GUARD, ENDED] {
        let case = Case { text: fixed_kernel(body), ..Case::random(1, Size::Large) };
        let case = Case { threads: 64, blocks: 2, words: vec![7; 4 * 128], ..case };
        let [apart, program] = case.compile();
        let expected = case.run(Engine::REFERENCE, &apart);
        assert_eq!(expected.fault, None, "{body}");
        for engine in Engine::available() {
            let outcome = case.run(engine, &program);
            assert!(outcome == expected, "{engine:?}: {}\n{body}", expected.difference(&outcome));
        }
    }
}

/// A kernel of 64 threads whose shared words differ. `%t9` addresses them by rows of 16; `%r0` to `%r3` are stored.
fn fixed_kernel(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64
        .visible .entry k(.param .u64 p) {{
        .reg .b32 %r<4>; .reg .b32 %t<12>; .reg .b32 %n<1>; .reg .pred %p<2>; .reg .b64 %a<3>;
        .shared .align 8 .b8 tile[512];
        ld.param.u64 %a0, [p]; mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mad.lo.u32 %t2, %t1, 64, %t0;
        mul.wide.u32 %a1, %t2, 16; add.u64 %a1, %a1, %a0;
        mov.u32 %t5, tile; shl.b32 %t3, %t0, 2; add.u32 %t3, %t3, %t5; mad.lo.u32 %t4, %t2, 3, 1; st.shared.b32 [%t3], %t4; st.shared.b32 [%t3+256], %t0;
        bar.sync 0; and.b32 %t9, %t3, 60;
        {body}
        st.global.b32 [%a1], %r0; st.global.b32 [%a1+4], %r1; st.global.b32 [%a1+8], %r2; st.global.b32 [%a1+12], %r3;
        ret;\n}}"
    )
}

/// The observable results of a launch.
#[derive(PartialEq)]
struct Outcome {
    words: Vec<u32>,
    executed: u64,
    progress: Vec<Progress>,
    fault: Option<Fault>,
}

impl Outcome {
    fn difference(&self, other: &Self) -> String {
        let word = self.words.iter().zip(&other.words).position(|(a, b)| a != b);
        let what = word.map(|at| (at, self.words[at], other.words[at]));
        format!(
            "word {what:x?}, executed {} and {}, fault {:?} and {:?}, same progress: {}",
            self.executed,
            other.executed,
            self.fault,
            other.fault,
            self.progress == other.progress
        )
    }
}

struct Case {
    text: String,
    threads: u32,
    blocks: u32,
    words: Vec<u32>,
    schedule: Option<u64>,
    slice: u64,
    is_known: bool,
    has_words: bool,
}

impl Case {
    fn random(seed: u64, size: Size) -> Self {
        let mut random = Random(SplitMix64::seed_from_u64(seed));
        let threads = [1, 20, 32, 48, 64, 96][random.below(6) as usize];
        let blocks = if size == Size::Large { 1 + random.below(3) as u32 } else { 1 };
        let count = TABLE_WORDS + RESULT_WORDS * u64::from(threads * blocks);
        let words = (0..count).map(|_| random.word()).collect();
        let text = Text::kernel(&mut random, if size == Size::Large { 5 } else { 1 });
        let schedule = (random.below(2) == 0).then(|| random.below(u64::MAX));
        let slice = [1, 100, 10_000][random.below(3) as usize];
        let (is_known, has_words) = (random.below(2) == 0, random.below(4) != 0);
        Self { text, threads, blocks, words, schedule, slice, is_known, has_words }
    }

    /// Returns the program of the reference, and that of the engines.
    fn compile(&self) -> [Arc<Program>; 2] {
        let units = Unit::compile_both(&self.text).unwrap_or_else(|error| panic!("{error}\n{}", self.text));
        units.map(|unit| Image::link(vec![unit]).expect("the text needs no other").relocate(&[]).0)
    }

    fn run(&self, engine: Engine, program: &Arc<Program>) -> Outcome {
        let mut memory = Flat { words: self.words.clone(), has_words: self.has_words };
        let extent = Extent { start: BASE, bytes: 4 * self.words.len() as u64, access: Access::ReadWrite };
        let pointer = Pointer { offset: 0, region: 0..1 << 40, extents: vec![extent] };
        let launch = Launch {
            kernel: 0,
            grid: [self.blocks, 1, 1],
            block: [self.threads, 1, 1],
            cluster: None,
            shared_bytes: 0,
            is_shared_exact: true,
            parameters: BASE.to_le_bytes().to_vec(),
            pointers: if self.is_known { vec![pointer] } else { Vec::new() },
            workspace: 0,
            stack_bytes: 1024,
        };
        let new_grid = || Arc::new(Grid::new(Arc::clone(program), launch.clone()).with_engine(engine));
        let mut grid = new_grid();
        let mut outcome = Outcome { words: Vec::new(), executed: 0, progress: Vec::new(), fault: None };
        for index in 0..grid.blocks() {
            // A block of the reference does not reuse the memory of one before it.
            if engine == Engine::REFERENCE {
                grid = new_grid();
            }
            let mut block = grid.cluster(index);
            loop {
                let turn = outcome.progress.len() as u64;
                let seed = self.schedule.map(|seed| seed.wrapping_add(turn));
                let slice = Slice { instructions: self.slice, nanoseconds: 0, seed };
                match block.run(&mut memory, slice) {
                    Ok(progress) => outcome.progress.push(progress),
                    Err(fault) => outcome.fault = Some(fault),
                }
                if outcome.fault.is_some() || outcome.progress.last() == Some(&Progress::Done) {
                    break;
                }
            }
            outcome.executed += block.executed();
            if outcome.fault.is_some() {
                break;
            }
        }
        outcome.words = memory.words;
        outcome
    }
}

/// Words, in some cases with accesses of whole warps.
struct Flat {
    words: Vec<u32>,
    has_words: bool,
}

impl Flat {
    fn bytes(&self, address: u64, width: Width) -> Result<(usize, u32), OutOfBounds> {
        let offset = address.wrapping_sub(BASE);
        let end = offset.checked_add(width.bytes()).filter(|&end| end <= 4 * self.words.len() as u64);
        end.map(|_| ((offset / 4) as usize, (offset % 4 * 8) as u32)).ok_or(OutOfBounds { address })
    }

    fn get(&self, address: u64, width: Width) -> Result<u64, OutOfBounds> {
        let (index, shift) = self.bytes(address, width)?;
        let word = u64::from(self.words[index]);
        Ok(match width {
            Width::Eight => word | u64::from(self.words[index + 1]) << 32,
            Width::Four => word,
            _ => word >> shift & ((1 << (8 * width.bytes())) - 1),
        })
    }

    fn set(&mut self, address: u64, width: Width, value: u64) -> Result<(), OutOfBounds> {
        let (index, shift) = self.bytes(address, width)?;
        match width {
            Width::Eight => (self.words[index], self.words[index + 1]) = (value as u32, (value >> 32) as u32),
            Width::Four => self.words[index] = value as u32,
            _ => {
                let mask = ((1u32 << (8 * width.bytes())) - 1) << shift;
                self.words[index] = self.words[index] & !mask | (value as u32) << shift & mask;
            }
        }
        Ok(())
    }

    fn run_of(&self, address: u64) -> Option<usize> {
        let start = (address.wrapping_sub(BASE) / 4) as usize;
        (self.has_words && start.checked_add(LANES)? <= self.words.len()).then_some(start)
    }
}

impl Memory for Flat {
    fn load(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &mut [u64; LANES],
    ) -> Result<(), OutOfBounds> {
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 != 0) {
            values[lane] = self.get(addresses[lane], width)?;
        }
        Ok(())
    }

    fn store(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &[u64; LANES],
    ) -> Result<(), OutOfBounds> {
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 != 0) {
            self.set(addresses[lane], width, values[lane])?;
        }
        Ok(())
    }

    fn load_words(&mut self, address: u64, words: &mut [u32; LANES]) -> bool {
        let Some(start) = self.run_of(address) else { return false };
        words.copy_from_slice(&self.words[start..start + LANES]);
        true
    }

    fn store_words(&mut self, address: u64, words: &[u32; LANES]) -> bool {
        let Some(start) = self.run_of(address) else { return false };
        self.words[start..start + LANES].copy_from_slice(words);
        true
    }

    fn store_some_words(&mut self, address: u64, words: &[u32; LANES], lanes: u32) -> bool {
        let (first, last) = (u64::from(lanes.trailing_zeros()), u64::from(31 - lanes.leading_zeros()));
        let is_within = |lane: u64| self.bytes(address.wrapping_add(4 * lane), Width::Four).is_ok();
        if !self.has_words || !is_within(first) || !is_within(last) {
            return false;
        }
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 != 0) {
            let index = (address.wrapping_sub(BASE) as i64 / 4 + lane as i64) as usize;
            self.words[index] = words[lane];
        }
        true
    }

    fn atomic_update(
        &mut self,
        width: Width,
        address: u64,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, OutOfBounds> {
        let old = self.get(address, width)?;
        self.set(address, width, change(old))?;
        Ok(old)
    }

    fn fence(&mut self) {}

    fn allocate(&mut self, _: u64) -> u64 {
        0
    }

    fn release(&mut self, _: u64) -> bool {
        false
    }

    fn describe(&mut self, _: u64) -> String {
        "nothing".to_owned()
    }
}
