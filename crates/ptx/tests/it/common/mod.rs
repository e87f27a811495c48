//! A device of plain bytes, and functions that run a kernel on it.

use std::sync::Arc;

use freehold_ptx::{
    Fault, Grid, Image, LANES, Launch, Memory, Observer, OutOfBounds, Pointer, Program, Progress, Slice, Surface,
    Texture, Unit, Width,
};
use freehold_testing::{print_seed, seeds};

use super::observer::Events;

/// The address of the first byte.
pub(crate) const BASE: u64 = 0x1000_0000;

/// Bytes that a kernel can access.
#[derive(Debug, Clone)]
pub(crate) struct Flat {
    pub(crate) bytes: Vec<u8>,
    /// Address and size of the allocations of `malloc`, at the end of the memory.
    heap: Vec<(u64, u64)>,
    /// Named by their index plus one.
    pub(crate) textures: Vec<Arc<Texture>>,
    /// Likewise.
    pub(crate) surfaces: Vec<Arc<Surface>>,
    /// What the kernel did, if it is to be recorded.
    pub(crate) events: Option<Events>,
}

impl Flat {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], heap: Vec::new(), textures: Vec::new(), surfaces: Vec::new(), events: None }
    }

    fn at(&self, address: u64, width: Width) -> Result<usize, OutOfBounds> {
        let offset = address.wrapping_sub(BASE);
        let end = offset.checked_add(width.bytes()).ok_or(OutOfBounds { address })?;
        if end <= self.bytes.len() as u64 { Ok(offset as usize) } else { Err(OutOfBounds { address }) }
    }

    fn get(&self, address: u64, width: Width) -> Result<u64, OutOfBounds> {
        let at = self.at(address, width)?;
        let mut word = [0; 8];
        word[..width as usize].copy_from_slice(&self.bytes[at..at + width as usize]);
        Ok(u64::from_le_bytes(word))
    }

    fn set(&mut self, address: u64, width: Width, value: u64) -> Result<(), OutOfBounds> {
        let at = self.at(address, width)?;
        self.bytes[at..at + width as usize].copy_from_slice(&value.to_le_bytes()[..width as usize]);
        Ok(())
    }

    pub(crate) fn words(&self) -> Vec<u32> {
        self.bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
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

    fn allocate(&mut self, bytes: u64) -> u64 {
        let address = BASE + self.bytes.len().next_multiple_of(16) as u64;
        self.bytes.resize((address - BASE + bytes) as usize, 0);
        self.heap.push((address, bytes));
        address
    }

    fn release(&mut self, address: u64) -> bool {
        let before = self.heap.len();
        self.heap.retain(|&(start, _)| start != address);
        self.heap.len() < before
    }

    fn texture(&mut self, handle: u64) -> Option<Arc<Texture>> {
        self.textures.get(handle.checked_sub(1)? as usize).cloned()
    }

    fn surface(&mut self, handle: u64) -> Option<Arc<Surface>> {
        self.surfaces.get(handle.checked_sub(1)? as usize).cloned()
    }

    fn observer(&mut self) -> Option<&mut dyn Observer> {
        self.events.as_mut().map(|events| events as &mut dyn Observer)
    }

    fn describe(&mut self, _: u64) -> String {
        "nothing lies there".to_owned()
    }
}

/// The results of a launch.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) memory: Flat,
    pub(crate) printed: String,
}

/// Adds a head to a text, so that tests can begin with the kernel.
pub(crate) fn with_head(text: &str) -> String {
    if text.starts_with(".version") {
        return text.to_owned();
    }
    format!(".version 8.6\n.target sm_90\n.address_size 64\n{text}")
}

/// Returns a kernel with the address of the memory in `%out`, that plus four times the thread's index in `%at`, the
/// index in `%tid`, and registers of all kinds.
pub(crate) fn kernel(before: &str, body: &str) -> String {
    format!(
        "{before}\n.visible .entry k(.param .u64 p) {{\n.reg .pred %p<9>; .reg .b16 %h<20>; .reg .b32 %r<20>; \
         .reg .f32 %f<20>; .reg .b64 %d<20>; .reg .f64 %g<20>; .reg .b64 %out, %at; .reg .b32 %tid;\n\
         ld.param.u64 %out, [p]; mov.u32 %tid, %tid.x; mad.wide.u32 %at, %tid, 4, %out;\n{body}\nret;\n}}"
    )
}

/// The size of a test's launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) grid: u32,
    pub(crate) block: [u32; 3],
    /// The size of the memory whose address is the kernel's only parameter, if it has one.
    pub(crate) bytes: usize,
}

/// Compiles a text and launches its first kernel.
pub(crate) fn launch(text: &str, grid: u32, block: u32, bytes: usize, seed: Option<u64>) -> Result<Outcome, Fault> {
    launch_linked(&[text], Size { grid, block: [block, 1, 1], bytes }, seed)
}

/// Compiles texts, each after adding a head, links them and launches the first kernel.
pub(crate) fn launch_linked(texts: &[&str], size: Size, seed: Option<u64>) -> Result<Outcome, Fault> {
    let compiled = |text: &&str| Unit::compile(&with_head(text)).unwrap_or_else(|error| panic!("{error}"));
    let image = Image::link(texts.iter().map(compiled).collect()).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Flat::new(size.bytes);
    let addresses: Vec<u64> = image.variables().iter().map(|variable| memory.allocate(variable.bytes.max(1))).collect();
    let (program, initial) = image.relocate(&addresses);
    for (address, initial) in addresses.iter().zip(&initial) {
        for (offset, byte) in initial.iter().enumerate() {
            memory.set(address + offset as u64, Width::One, u64::from(*byte)).expect("a variable is in memory");
        }
    }
    let mut parameters = BASE.to_le_bytes().to_vec();
    parameters.truncate(program.kernels()[0].parameter_bytes as usize);
    let launch = one_kernel(&program, size, parameters, Vec::new());
    let grid = Arc::new(Grid::new(program, launch));
    run(&grid, memory, seed)
}

fn one_kernel(program: &Program, size: Size, parameters: Vec<u8>, pointers: Vec<Pointer>) -> Launch {
    let cluster = program.kernels()[0].required_cluster;
    Launch {
        kernel: 0,
        grid: [size.grid, 1, 1],
        block: size.block,
        cluster,
        shared_bytes: 0,
        is_shared_exact: true,
        parameters,
        pointers,
        workspace: 0,
        stack_bytes: 1024,
    }
}

/// Compiles a text and launches its first kernel with words as arguments. `known` returns the block that a word refers
/// to, if it is known.
pub(crate) fn launch_known(
    text: &str,
    words: &[u64],
    known: impl Fn(u64) -> Option<Pointer>,
    block: u32,
    mut memory: Flat,
) -> Result<Outcome, Fault> {
    let unit = Unit::compile(&with_head(text)).unwrap_or_else(|error| panic!("{error}"));
    let image = Image::link(vec![unit]).unwrap_or_else(|error| panic!("{error}"));
    let addresses: Vec<u64> = image.variables().iter().map(|variable| memory.allocate(variable.bytes)).collect();
    let (program, _) = image.relocate(&addresses);
    let pointer = |&offset: &u32| Some(Pointer { offset, ..known(words[offset as usize / 8])? });
    let pointers = program.pointer_words(0).iter().filter_map(pointer).collect();
    let size = Size { grid: 1, block: [block, 1, 1], bytes: 0 };
    let parameters = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let launch = one_kernel(&program, size, parameters, pointers);
    run(&Arc::new(Grid::new(program, launch)), memory, None)
}

/// Launches the first kernel of a program with words as arguments.
pub(crate) fn launch_program(
    program: &Arc<Program>,
    words: &[u64],
    block: u32,
    memory: Flat,
) -> Result<Outcome, Fault> {
    let size = Size { grid: 1, block: [block, 1, 1], bytes: 0 };
    let parameters = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let launch = one_kernel(program, size, parameters, Vec::new());
    run(&Arc::new(Grid::new(Arc::clone(program), launch)), memory, None)
}

/// Runs the blocks in turn, one slice at a time, until all have ended.
fn run(grid: &Arc<Grid>, mut memory: Flat, seed: Option<u64>) -> Result<Outcome, Fault> {
    let mut blocks: Vec<_> = (0..grid.clusters()).map(|index| grid.cluster(index)).collect();
    let mut printed = Vec::new();
    let (mut nanoseconds, mut turns) = (0, 0);
    while !blocks.is_empty() {
        let mut left = Vec::new();
        for mut block in blocks {
            turns += 1;
            let seed = seed.map(|seed| seed.wrapping_mul(0x9e37_79b9).wrapping_add(turns));
            let progress = block.run(&mut memory, Slice { instructions: 1000, nanoseconds, seed })?;
            printed.extend(block.take_printed());
            nanoseconds += 1000;
            if progress != Progress::Done {
                left.push(block);
            }
        }
        blocks = left;
        assert!(turns < 20_000, "the kernel does not end");
    }
    Ok(Outcome { memory, printed: String::from_utf8(printed).expect("the kernel prints text") })
}

/// The same, for a kernel that does not fault.
pub(crate) fn words(text: &str, grid: u32, block: u32, count: usize) -> Vec<u32> {
    let outcome = launch(text, grid, block, 4 * count, None).unwrap_or_else(|fault| panic!("{fault}"));
    for seed in seeds(2, 5, 200) {
        print_seed(seed);
        let seeded = launch(text, grid, block, 4 * count, Some(seed)).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(seeded.memory.words()[..count], outcome.memory.words()[..count], "seed {seed}");
    }
    outcome.memory.words()[..count].to_vec()
}
