//! Compiles, links, relocates and briefly runs an arbitrary text, or rejects it on the way.

#![no_main]

mod shuffle;

use std::sync::Arc;

use freehold_ptx::{
    Access, Extent, Grid, Image, LANES, Launch, Memory, OutOfBounds, Pointer, Progress, Slice, Unit, Width,
};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

/// The start of the memory.
const START: u64 = 0x7000_0000_0000;
const BYTES: usize = 64 << 10;
/// The maximum stack of a thread.
const LOCAL_BYTES_MAX: u64 = 64 << 10;
const PARAMETER_BYTES_MAX: u64 = 4096;
/// The number of slices of each kernel, and the instructions of each.
const SLICES: u64 = 4;
const INSTRUCTIONS: u64 = 500;

fuzz_target!(|text: &str| {
    let Ok(unit) = Unit::compile(text) else { return };
    let Ok(image) = Image::link(vec![unit]) else { return };
    let Some((addresses, used)) = addresses(&image) else { return };
    let (program, contents) = image.relocate(&addresses);
    let mut memory = Ram { bytes: vec![0; BYTES], next: used };
    for (address, content) in addresses.iter().zip(&contents) {
        let start = (address - START) as usize;
        memory.bytes[start..start + content.len()].copy_from_slice(content);
    }
    for (index, kernel) in program.kernels().iter().enumerate() {
        if kernel.local_bytes > LOCAL_BYTES_MAX || kernel.parameter_bytes > PARAMETER_BYTES_MAX {
            continue;
        }
        let launch = Launch {
            kernel: index,
            grid: [2, 1, 1],
            block: [40, 1, 1],
            // Every other kernel runs in a cluster of two blocks.
            cluster: (index % 2 == 1).then_some([2, 1, 1]),
            shared_bytes: 256,
            is_shared_exact: true,
            parameters: parameters(kernel.parameter_bytes as usize),
            pointers: program.pointer_words(index).iter().map(|&offset| pointer(offset)).collect(),
            workspace: 0,
            stack_bytes: LOCAL_BYTES_MAX,
        };
        run(&Arc::new(Grid::new(program.clone(), launch)), &mut memory);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    shuffle::change(data, size, max_size, seed)
});

/// Returns consecutive addresses for the variables, and their total size; `None` if they do not fit.
fn addresses(image: &Image) -> Option<(Vec<u64>, u64)> {
    let mut next = 0u64;
    let mut addresses = Vec::new();
    for variable in image.variables() {
        next = next.checked_next_multiple_of(variable.align.max(1))?;
        addresses.push(START + next);
        next = next.checked_add(variable.bytes).filter(|end| *end <= BYTES as u64)?;
    }
    Some((addresses, next))
}

/// Returns arguments that are addresses in the memory.
fn parameters(bytes: usize) -> Vec<u8> {
    let address = (START + 1024).to_le_bytes();
    address.iter().copied().cycle().take(bytes).collect()
}

/// Describes an argument: every other one refers to a block, and the target of the rest is unknown.
fn pointer(offset: u32) -> Pointer {
    let block = Extent { start: START + 1024, bytes: 4096, access: Access::ReadWrite };
    let blocks = if offset % 16 == 0 { vec![block] } else { Vec::new() };
    Pointer { offset, region: START..START + BYTES as u64, extents: blocks }
}

fn run(grid: &Arc<Grid>, memory: &mut Ram) {
    let mut block = grid.cluster(grid.clusters() - 1);
    for slice in 0..SLICES {
        let seed = (slice % 2 == 1).then_some(slice);
        let slice = Slice { instructions: INSTRUCTIONS, nanoseconds: slice * 1_000_000, seed };
        match block.run(memory, slice) {
            Ok(Progress::Done) => break,
            Ok(_) => {}
            Err(fault) => {
                assert!(!fault.to_string().is_empty());
                break;
            }
        }
    }
    block.take_printed();
}

struct Ram {
    bytes: Vec<u8>,
    /// The offset of the next allocation.
    next: u64,
}

impl Ram {
    fn word(&mut self, width: Width, address: u64) -> Result<&mut [u8], OutOfBounds> {
        assert!(address.is_multiple_of(width.bytes()), "{address:#x} is not aligned to {width:?}");
        let start = address.checked_sub(START).and_then(|start| usize::try_from(start).ok());
        let range = start.and_then(|start| Some(start..start.checked_add(width.bytes() as usize)?));
        range.and_then(|range| self.bytes.get_mut(range)).ok_or(OutOfBounds { address })
    }

    fn read(&mut self, width: Width, address: u64) -> Result<u64, OutOfBounds> {
        let word = self.word(width, address)?;
        Ok(word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn write(&mut self, width: Width, address: u64, value: u64) -> Result<(), OutOfBounds> {
        let word = self.word(width, address)?;
        let count = word.len();
        word.copy_from_slice(&value.to_le_bytes()[..count]);
        Ok(())
    }
}

fn active(lanes: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| lanes >> lane & 1 == 1)
}

impl Memory for Ram {
    fn load(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &mut [u64; LANES],
    ) -> Result<(), OutOfBounds> {
        for lane in active(lanes) {
            values[lane] = self.read(width, addresses[lane])?;
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
        for lane in active(lanes) {
            self.write(width, addresses[lane], values[lane])?;
        }
        Ok(())
    }

    fn atomic_update(
        &mut self,
        width: Width,
        address: u64,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, OutOfBounds> {
        let old = self.read(width, address)?;
        self.write(width, address, change(old))?;
        Ok(old)
    }

    fn fence(&mut self) {}

    fn allocate(&mut self, bytes: u64) -> u64 {
        let start = self.next.next_multiple_of(16);
        match start.checked_add(bytes).filter(|end| *end <= BYTES as u64) {
            Some(end) => {
                self.next = end;
                START + start
            }
            None => 0,
        }
    }

    fn release(&mut self, address: u64) -> bool {
        address.is_multiple_of(16)
    }

    fn describe(&mut self, address: u64) -> String {
        format!("nothing at {address:#x}")
    }
}
