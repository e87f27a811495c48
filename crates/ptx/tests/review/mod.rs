//! Runs a kernel over a small memory of words, so that a test is a text and the words it leaves.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;

use freehold_ptx::{Fault, Grid, Image, LANES, Launch, Memory, Progress, Slice, Stray, Unit, Width};

/// Where the memory starts: also the only argument of kernels that take one.
pub(crate) const START: u64 = 0x7000_0000_0000;
const BYTES: usize = 256 << 10;
/// Slices after which a kernel is taken to hang.
const SLICES_MAX: u64 = 20_000;

pub(crate) struct Ram {
    pub(crate) bytes: Vec<u8>,
}

impl Ram {
    fn word(&mut self, width: Width, address: u64) -> Result<&mut [u8], Stray> {
        let start = address.checked_sub(START).and_then(|start| usize::try_from(start).ok());
        let range = start.and_then(|start| Some(start..start.checked_add(width.bytes() as usize)?));
        range.and_then(|range| self.bytes.get_mut(range)).ok_or(Stray { address })
    }

    fn read(&mut self, width: Width, address: u64) -> Result<u64, Stray> {
        let mut word = [0; 8];
        let bytes = self.word(width, address)?;
        word[..bytes.len()].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(word))
    }

    fn write(&mut self, width: Width, address: u64, value: u64) -> Result<(), Stray> {
        let bytes = self.word(width, address)?;
        let count = bytes.len();
        bytes.copy_from_slice(&value.to_le_bytes()[..count]);
        Ok(())
    }
}

impl Memory for Ram {
    fn load(
        &mut self,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &mut [u64; LANES],
    ) -> Result<(), Stray> {
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 != 0) {
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
    ) -> Result<(), Stray> {
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 != 0) {
            self.write(width, addresses[lane], values[lane])?;
        }
        Ok(())
    }

    fn update(&mut self, width: Width, address: u64, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, Stray> {
        let old = self.read(width, address)?;
        self.write(width, address, change(old))?;
        Ok(old)
    }

    fn fence(&mut self) {}

    fn allocate(&mut self, _bytes: u64) -> u64 {
        0
    }

    fn release(&mut self, _address: u64) -> bool {
        false
    }

    fn describe(&mut self, _address: u64) -> String {
        "nothing".to_owned()
    }
}

/// A text of the newest version around these items.
pub(crate) fn module(items: &str) -> String {
    format!(".version 8.6\n.target sm_90\n.address_size 64\n{items}\n")
}

/// A kernel that has the address of the memory in `%out`, that plus four times the thread's index in `%at`, the index in
/// `%tid`, and registers of all kinds.
pub(crate) fn kernel(before: &str, body: &str) -> String {
    module(&format!(
        "{before}\n.visible .entry k(.param .u64 p) {{\n.reg .pred %p<9>; .reg .b16 %h<20>; .reg .b32 %r<20>; \
         .reg .f32 %f<20>; .reg .b64 %d<20>; .reg .f64 %g<20>; .reg .b64 %out, %at; .reg .b32 %tid;\n\
         ld.param.u64 %out, [p]; mov.u32 %tid, %tid.x; mad.wide.u32 %at, %tid, 4, %out;\n{body}\nret;\n}}"
    ))
}

/// Runs the only kernel of the texts, linked, with one block.
pub(crate) fn run_linked(texts: &[&str], threads: [u32; 3]) -> Result<Ram, Fault> {
    let units = texts.iter().map(|text| Unit::compile(text).unwrap_or_else(|error| panic!("{error}"))).collect();
    let image = Image::link(units).unwrap_or_else(|error| panic!("{error}"));
    let addresses: Vec<u64> = (0..image.variables().len() as u64).map(|at| START + (128 << 10) + at * 1024).collect();
    let (program, contents) = image.place(&addresses);
    let mut memory = Ram { bytes: vec![0; BYTES] };
    for (address, content) in addresses.iter().zip(&contents) {
        let start = (address - START) as usize;
        memory.bytes[start..start + content.len()].copy_from_slice(content);
    }
    let launch = Launch {
        kernel: 0,
        grid: [1, 1, 1],
        block: threads,
        shared_bytes: 256,
        parameters: START.to_le_bytes().to_vec(),
        workspace: 0,
        stack_bytes: 1024,
    };
    let mut block = Arc::new(Grid::new(program, launch)).block(0);
    for slice in 0..SLICES_MAX {
        let seed = (slice % 2 == 1).then_some(slice);
        let slice = Slice { instructions: 1000, nanoseconds: slice * 1000, seed };
        if block.run(&mut memory, slice)? == Progress::Done {
            return Ok(memory);
        }
    }
    panic!("the kernel does not end");
}

pub(crate) fn run(text: &str, threads: u32) -> Result<Ram, Fault> {
    run_linked(&[text], [threads, 1, 1])
}

/// The first words of the memory after a kernel has run.
pub(crate) fn words(text: &str, threads: u32, count: usize) -> Vec<u32> {
    let memory = run(text, threads).unwrap_or_else(|fault| panic!("{fault}"));
    memory.bytes.as_chunks::<4>().0[..count].iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// What is wrong with a text.
pub(crate) fn refusal(text: &str) -> String {
    Unit::compile(text).expect_err("the text is refused").to_string()
}
