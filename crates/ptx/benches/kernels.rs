//! Throughput of execution in PTX instructions per second, counted once per thread, and the cost of loading a text.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use freehold_ptx::{
    Access, Extent, Grid, Image, LANES, Launch, Memory, OutOfBounds, Pointer, Progress, Slice, Unit, Width,
};

fn main() {
    divan::main();
}

/// Memory of words, starting at `BASE`, that threads share.
#[derive(Clone)]
struct Words(Arc<[AtomicU32]>);

const BASE: u64 = 0x1000_0000;

impl Words {
    fn new(count: usize) -> Self {
        Self((0..count).map(|word| AtomicU32::new((word as f32).to_bits())).collect())
    }

    fn word(&self, address: u64) -> Result<&AtomicU32, OutOfBounds> {
        let index = usize::try_from(address.wrapping_sub(BASE) / 4).unwrap_or(usize::MAX);
        self.0.get(index).ok_or(OutOfBounds { address })
    }
}

impl Words {
    fn run(&self, address: u64) -> Option<&[AtomicU32; LANES]> {
        let index = usize::try_from(address.checked_sub(BASE)? / 4).ok()?;
        self.0.get(index..)?.first_chunk()
    }
}

impl Memory for Words {
    fn load(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &mut [u64; LANES],
    ) -> Result<(), OutOfBounds> {
        assert_eq!(width, Width::Four, "the kernels here use four-byte words");
        for lane in 0..LANES {
            if lanes >> lane & 1 != 0 {
                values[lane] = u64::from(self.word(addresses[lane])?.load(Ordering::Relaxed));
            }
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
        assert_eq!(width, Width::Four, "the kernels here use four-byte words");
        for lane in 0..LANES {
            if lanes >> lane & 1 != 0 {
                self.word(addresses[lane])?.store(values[lane] as u32, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn load_words(&mut self, address: u64, words: &mut [u32; LANES]) -> bool {
        let Some(run) = self.run(address) else { return false };
        for (word, value) in words.iter_mut().zip(run) {
            *word = value.load(Ordering::Relaxed);
        }
        true
    }

    fn store_words(&mut self, address: u64, words: &[u32; LANES]) -> bool {
        let Some(run) = self.run(address) else { return false };
        for (word, value) in words.iter().zip(run) {
            value.store(*word, Ordering::Relaxed);
        }
        true
    }

    fn store_some_words(&mut self, address: u64, words: &[u32; LANES], lanes: u32) -> bool {
        let Some(run) = self.run(address) else { return false };
        for (lane, (word, value)) in words.iter().zip(run).enumerate() {
            if lanes >> lane & 1 != 0 {
                value.store(*word, Ordering::Relaxed);
            }
        }
        true
    }

    fn atomic_update(
        &mut self,
        width: Width,
        address: u64,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, OutOfBounds> {
        assert_eq!(width, Width::Four, "the kernels here use four-byte words");
        let word = self.word(address)?;
        let mut old = word.load(Ordering::Relaxed);
        loop {
            let new = change(old.into()) as u32;
            match word.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(old.into()),
                Err(now) => old = now,
            }
        }
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

/// A launch of a kernel on its own memory.
struct Bench {
    grid: Arc<Grid>,
    memory: Words,
}

impl Bench {
    fn new(text: &str, grid: [u32; 3], block: [u32; 3], parameters: Vec<u8>, words: usize) -> Self {
        Self::with(text, grid, block, parameters, words, Vec::new())
    }

    /// Adds arguments whose blocks are known.
    fn with(
        text: &str,
        grid: [u32; 3],
        block: [u32; 3],
        parameters: Vec<u8>,
        words: usize,
        pointers: Vec<Pointer>,
    ) -> Self {
        let unit = Unit::compile(text).expect("the text is valid");
        let image = Image::link(vec![unit]).expect("the text needs no other");
        let (program, _) = image.relocate(&vec![BASE; image.variables().len()]);
        let launch = Launch {
            kernel: 0,
            grid,
            block,
            cluster: None,
            shared_bytes: 0,
            is_shared_exact: true,
            parameters,
            pointers,
            workspace: 0,
            stack_bytes: 1024,
        };
        Self { grid: Arc::new(Grid::new(program, launch)), memory: Words::new(words) }
    }

    /// `y = a * x + y`, with known blocks if `is_known`.
    fn saxpy(blocks: u32, threads: u32, is_known: bool) -> Self {
        let count = blocks * threads;
        let mut parameters = Vec::new();
        parameters.extend(BASE.to_le_bytes());
        parameters.extend((BASE + 4 * u64::from(count)).to_le_bytes());
        parameters.extend(2.5f32.to_le_bytes());
        parameters.extend(count.to_le_bytes());
        let text = include_str!("../../softcuda/tests/kernels/saxpy.ptx");
        let (bytes, access) = (4 * u64::from(count), Access::ReadWrite);
        let pointers = [0, 8].map(|offset| {
            let start = BASE + u64::from(offset) / 8 * bytes;
            let blocks = vec![Extent { start, bytes, access }];
            Pointer { offset, region: BASE..BASE + 2 * bytes, extents: blocks }
        });
        let pointers = if is_known { pointers.to_vec() } else { Vec::new() };
        Self::with(text, [blocks, 1, 1], [threads, 1, 1], parameters, 2 * count as usize, pointers)
    }

    /// The product of two matrices of `side` rows, in tiles of 16.
    fn matmul(side: u32) -> Self {
        let bytes = 4 * u64::from(side * side);
        let mut parameters = Vec::new();
        for matrix in 0..3 {
            parameters.extend((BASE + matrix * bytes).to_le_bytes());
        }
        parameters.extend(side.to_le_bytes());
        let text = include_str!("../../softcuda/tests/kernels/matmul_tiled.ptx");
        let words = 3 * (side * side) as usize;
        Self::new(text, [side / 16, side / 16, 1], [16, 16, 1], parameters, words)
    }

    /// The sums of 64 blocks of 256 threads.
    fn reduction() -> Self {
        let (blocks, threads) = (64, 256);
        let mut parameters = Vec::new();
        parameters.extend(BASE.to_le_bytes());
        parameters.extend((BASE + 4 * blocks).to_le_bytes());
        let words = (blocks + 4 * blocks * threads) as usize;
        let text = include_str!("kernels/reduction.ptx");
        Self::new(text, [blocks as u32, 1, 1], [threads as u32, 1, 1], parameters, words)
    }

    /// The prices of 16,384 options.
    fn black_scholes() -> Self {
        let count = 1u32 << 14;
        let array = |index: u64| (BASE + 4 * u64::from(count) * index).to_le_bytes();
        let mut parameters: Vec<u8> = (0..5).flat_map(array).collect();
        parameters.extend(0.02f32.to_le_bytes());
        parameters.extend(0.3f32.to_le_bytes());
        parameters.extend(count.to_le_bytes());
        let text = include_str!("kernels/black_scholes.ptx");
        Self::new(text, [count / 128, 1, 1], [128, 1, 1], parameters, 5 * count as usize)
    }

    /// The frequencies of 256 values in an array of 65,536 words.
    fn histogram() -> Self {
        let count = 1u32 << 16;
        let mut parameters = Vec::new();
        parameters.extend((BASE + 1024).to_le_bytes());
        parameters.extend(BASE.to_le_bytes());
        parameters.extend(count.to_le_bytes());
        let text = include_str!("kernels/histogram.ptx");
        Self::new(text, [16, 1, 1], [256, 1, 1], parameters, 256 + count as usize)
    }

    /// The escape times of 64 × 64 points.
    fn mandelbrot() -> Self {
        let side = 64u32;
        let mut parameters = BASE.to_le_bytes().to_vec();
        parameters.extend(side.to_le_bytes());
        parameters.extend((3.0 / side as f32).to_le_bytes());
        let text = include_str!("kernels/mandelbrot.ptx");
        Self::new(text, [side / 16, side / 16, 1], [16, 16, 1], parameters, (side * side) as usize)
    }

    /// One step of a stencil on 256 × 128 points.
    fn stencil() -> Self {
        let (width, height) = (256u32, 128u32);
        let mut parameters = BASE.to_le_bytes().to_vec();
        parameters.extend((BASE + 4 * u64::from(width * height)).to_le_bytes());
        parameters.extend(width.to_le_bytes());
        parameters.extend(height.to_le_bytes());
        let text = include_str!("kernels/stencil.ptx");
        Self::new(text, [width / 32, height / 8, 1], [32, 8, 1], parameters, 2 * (width * height) as usize)
    }

    /// Runs all blocks on `threads` threads, and returns the number of instructions.
    fn run(&self, threads: usize) -> u64 {
        let (next, executed) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| self.work(&next, &executed));
            }
            self.work(&next, &executed);
        });
        executed.into_inner()
    }

    fn work(&self, next: &AtomicU64, executed: &AtomicU64) {
        let mut memory = self.memory.clone();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= self.grid.clusters() {
                return;
            }
            let mut block = self.grid.cluster(index);
            let slice = Slice { instructions: 100_000, nanoseconds: 0, seed: None };
            while block.run(&mut memory, slice).expect("the kernel faulted") != Progress::Done {}
            executed.fetch_add(block.executed(), Ordering::Relaxed);
        }
    }

    fn measure(&self, bencher: Bencher<'_, '_>, threads: usize) {
        let instructions = self.run(threads);
        bencher.counter(ItemsCount::new(instructions)).bench(|| black_box(self.run(threads)));
    }
}

const KERNELS: [&str; 7] = ["saxpy", "reduction", "matmul", "black_scholes", "histogram", "mandelbrot", "stencil"];

fn by_name(name: &str) -> Bench {
    match name {
        "saxpy" => Bench::saxpy(256, 128, true),
        "reduction" => Bench::reduction(),
        "matmul" => Bench::matmul(64),
        "black_scholes" => Bench::black_scholes(),
        "histogram" => Bench::histogram(),
        "mandelbrot" => Bench::mandelbrot(),
        _ => Bench::stencil(),
    }
}

/// Seven kernels on one core, each of a few hundred thousand to a few million instructions.
#[divan::bench(args = KERNELS)]
fn kernel(bencher: Bencher<'_, '_>, name: &str) {
    by_name(name).measure(bencher, 1);
}

/// The same on two cores.
#[divan::bench(args = KERNELS)]
fn on_two_cores(bencher: Bencher<'_, '_>, name: &str) {
    by_name(name).measure(bencher, 2);
}

/// One core: 16 blocks of 128 threads, each with this many registers in use, which executes 1,024 sums.
#[divan::bench(args = [4, 16, 64, 256])]
fn registers(bencher: Bencher<'_, '_>, count: usize) {
    let (mut init, mut sums, mut step) = (String::new(), String::new(), String::new());
    for register in 0..count {
        init += &format!("cvt.rn.f32.u32 %f{register}, %r1;\n");
        step += &format!("fma.rn.f32 %f{register}, %f{register}, %x, %x;\n");
        sums += &format!("add.f32 %x, %x, %f{register};\n");
    }
    let text = format!(
        ".version 8.8\n.target sm_90\n.address_size 64\n.visible .entry chain(.param .u64 to) {{
        .reg .f32 %f<{count}>; .reg .f32 %x; .reg .b32 %r<3>; .reg .b64 %a<3>; .reg .pred %p;
        ld.param.u64 %a0, [to]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; cvt.rn.f32.u32 %x, %r1;
        {init} LOOP: {step} add.u32 %r2, %r2, {count}; setp.lt.u32 %p, %r2, 1024; @%p bra LOOP;
        {sums} mul.wide.u32 %a1, %r1, 4; add.u64 %a1, %a1, %a0; st.global.f32 [%a1], %x; ret; }}"
    );
    Bench::new(&text, [16, 1, 1], [128, 1, 1], BASE.to_le_bytes().to_vec(), 128).measure(bencher, 1);
}

/// One core: blocks of 128 threads.
#[divan::bench(args = [1, 16, 256, 4096])]
fn saxpy_blocks(bencher: Bencher<'_, '_>, blocks: u32) {
    Bench::saxpy(blocks, 128, false).measure(bencher, 1);
}

/// The same with known blocks of memory, against which every access is checked.
#[divan::bench(args = [1, 16, 256, 4096])]
fn saxpy_known(bencher: Bencher<'_, '_>, blocks: u32) {
    Bench::saxpy(blocks, 128, true).measure(bencher, 1);
}

/// One core: 64 blocks.
#[divan::bench(args = [1, 32, 128, 1024])]
fn saxpy_threads(bencher: Bencher<'_, '_>, threads: u32) {
    Bench::saxpy(64, threads, false).measure(bencher, 1);
}

#[divan::bench(args = [32, 128, 256])]
fn matmul_side(bencher: Bencher<'_, '_>, side: u32) {
    Bench::matmul(side).measure(bencher, 1);
}

/// All blocks on several cores.
#[divan::bench(args = [1, 2, 4])]
fn matmul_cores(bencher: Bencher<'_, '_>, cores: usize) {
    Bench::matmul(256).measure(bencher, cores);
}

/// Parses, lowers, links and relocates a text of `lines` lines in one kernel.
#[divan::bench(args = [100, 1_000, 10_000, 100_000])]
fn load_lines(bencher: Bencher<'_, '_>, lines: usize) {
    let text = text_of(lines);
    bencher.counter(BytesCount::of_str(&text)).bench(|| {
        let unit = Unit::compile(black_box(&text)).expect("the text is valid");
        Image::link(vec![unit]).expect("the text needs no other").relocate(&[])
    });
}

fn text_of(lines: usize) -> String {
    let mut text = String::from(".version 8.8\n.target sm_90\n.address_size 64\n");
    text += ".visible .entry long(\n.param .u64 p\n)\n{\n.reg .pred %p<2>;\n.reg .f32 %f<1000>;\n.reg .b32 %r<1000>;\n";
    text += ".reg .b64 %rd<1000>;\nld.param.u64 %rd1, [p];\n";
    let mut count = text.lines().count();
    while count + 2 < lines {
        let n = count % 990 + 2;
        let line = match count % 6 {
            0 => format!("\tmad.lo.s32 \t%r{n}, %r{}, %r{}, 17;\n", n - 1, n - 2),
            1 => format!("\tfma.rn.f32 \t%f{n}, %f{}, 0f3F800000, %f{};\n", n - 1, n - 2),
            2 => format!("\tmul.wide.u32 \t%rd{n}, %r{}, 4;\n", n - 1),
            3 => format!("\tld.global.f32 \t%f{n}, [%rd1+{}];\n", 4 * n),
            4 => format!("\tsetp.lt.s32 \t%p1, %r{n}, %r{};\n", n - 1),
            _ => format!("$L__{count}:\n\t@%p1 bra \t$L__{count};\n"),
        };
        count += line.lines().count();
        text += &line;
    }
    text + "ret;\n}\n"
}
