//! A random program over the library that checks every block's content: blocks in streams of two contexts are used,
//! shared, lent, dropped and released in every way, and their memory is reused.

pub(crate) mod growth;
mod lending;

use std::collections::VecDeque;
use std::fmt;

use freehold::{Block, Context, Device, Error, Grid, Image, Kernel, Shared, Stream};
use freehold_driver::cuda::{Api, CUcontext, CUdevice, CUdevice_attribute, device, primary};
use freehold_testing::Random;
use lending::Loan;

/// The values that blocks have: few sizes, so that memory is reused.
const LENGTHS: [usize; 3] = [64, 250, 1000];
const BLOCKS_MAX: usize = 12;
const STREAMS: usize = 4;
const STEPS: usize = 300;

/// A number of places less than `end`.
fn below(random: &mut Random, end: usize) -> usize {
    random.below(end as u64) as usize
}

/// Values that follow each other, from a random one on.
fn values(random: &mut Random, len: usize) -> Vec<u32> {
    let first = random.next() as u32;
    (0..len as u32).map(|index| first.wrapping_add(index)).collect()
}

/// What went wrong: a call, or a block that does not hold the expected values.
#[derive(Debug)]
pub(crate) enum Wrong {
    Call(Error),
    Holds { step: usize, index: usize, found: u32, wanted: u32 },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => write!(f, "{error}"),
            Self::Holds { step, index, found, wanted } => {
                write!(f, "after step {step} value {index} of a block is {found}, not {wanted}")
            }
        }
    }
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

/// A block and the values that it must hold.
struct Known {
    block: Block<u32>,
    values: Vec<u32>,
}

struct Program {
    random: Random,
    step: usize,
    device: Device,
    /// The primary context and a created one, each with its kernel.
    contexts: [(Context, Kernel); 2],
    /// Streams with the number of their context.
    streams: Vec<(Stream, usize)>,
    blocks: Vec<Known>,
    /// For transfers.
    primary: CUcontext,
    /// What is lent, first lent first.
    loans: VecDeque<Loan>,
    /// How many are lent at a time: one, if streams cannot wait for a word, because then the submitting thread waits.
    loans_max: usize,
}

/// Runs the program that `seed` names to its end.
pub(crate) fn run(seed: u64, api: Api, ordinal: CUdevice) -> Result<(), Wrong> {
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    let device = unsafe { Device::new(api, ordinal) }?;
    let image = Image::ptx(include_str!("../../../examples/kernels.ptx"))?;
    let add = |context: &Context| crate::own::kernel(&context.module(&image)?, "add");
    let created = device.new_context()?;
    let kernels = (add(device.primary())?, add(&created)?);
    let contexts = [(device.primary().clone(), kernels.0), (created, kernels.1)];
    let streams = (0..STREAMS).map(|index| Ok((contexts[index % 2].0.new_stream()?, index % 2)));
    let streams = streams.collect::<freehold::Result<_>>()?;
    let primary = primary::retain(&api, ordinal).map_err(Error::from)?;
    let (random, loans) = (Random::new(seed), VecDeque::new());
    let awaits_words = device::attribute(&api, ordinal, CUdevice_attribute::CAN_USE_64_BIT_STREAM_MEM_OPS);
    let loans_max = if awaits_words.map_err(Error::from)? == 0 { 0 } else { 4 };
    let mut program =
        Program { random, step: 0, device, contexts, streams, blocks: Vec::new(), primary, loans, loans_max };
    for step in 0..STEPS {
        program.step = step;
        program.advance()?;
    }
    program.end_all_loans()?;
    (0..program.blocks.len()).try_for_each(|index| program.check(index))
}

impl Program {
    fn advance(&mut self) -> Result<(), Wrong> {
        if self.blocks.len() < 3 {
            return self.upload();
        }
        match below(&mut self.random, 74) {
            0..6 if self.blocks.len() < BLOCKS_MAX => self.upload(),
            6..10 if self.blocks.len() < BLOCKS_MAX => self.hand_on(),
            10..14 if self.blocks.len() < BLOCKS_MAX => self.alloc_here_and_write_there(),
            14 if self.blocks.len() < BLOCKS_MAX => self.block_of_a_context_of_its_own(),
            15..28 => self.add(),
            28..32 => self.fill(),
            32..38 => self.copy(),
            38..42 => self.write_a_part(),
            42..51 => self.release(),
            51..55 => self.share(),
            55..57 => self.replace_a_stream(),
            57 => self.wait(),
            58 => self.check_any(),
            59 => Ok(self.device.tidy()?),
            60 => Ok(self.device.trim().map(drop)?),
            61 => self.kernel_of_a_duplicate(),
            62..64 => self.unordered(),
            64..69 => self.lend(),
            _ => self.end_a_loan(),
        }
    }

    fn stream(&mut self) -> usize {
        below(&mut self.random, STREAMS)
    }

    fn block(&mut self) -> usize {
        below(&mut self.random, self.blocks.len())
    }

    fn upload(&mut self) -> Result<(), Wrong> {
        let (stream, len) = (self.stream(), LENGTHS[below(&mut self.random, LENGTHS.len())]);
        let values = values(&mut self.random, len);
        let block = self.streams[stream].0.upload(&values)?;
        self.blocks.push(Known { block, values });
        Ok(())
    }

    /// The first use of the memory by its new owner is in a stream other than its home stream.
    fn alloc_here_and_write_there(&mut self) -> Result<(), Wrong> {
        let (here, there, len) = (self.stream(), self.stream(), LENGTHS[below(&mut self.random, LENGTHS.len())]);
        let values = values(&mut self.random, len);
        let mut block = self.streams[here].0.alloc(len)?;
        self.streams[there].0.write(&mut block, &values)?;
        self.blocks.push(Known { block, values });
        Ok(())
    }

    fn add(&mut self) -> Result<(), Wrong> {
        let (index, number, more) = (self.block(), self.stream(), self.random.next() as u32);
        let (stream, context) = &self.streams[number];
        let Known { block, values } = &mut self.blocks[index];
        let len = values.len() as u32;
        stream.launch(&self.contexts[*context].1, Grid::cover(len, 64), (block, more, len))?;
        values.iter_mut().for_each(|value| *value = value.wrapping_add(more));
        Ok(())
    }

    /// Memory goes to another owner while work of the old one is pending, in the own stream or in another.
    fn hand_on(&mut self) -> Result<(), Wrong> {
        let (here, there, user) = (self.stream(), self.stream(), self.stream());
        let taker = [here, there][below(&mut self.random, 2)];
        let len = LENGTHS[below(&mut self.random, LENGTHS.len())];
        let (values, len) = (values(&mut self.random, len), len as u32);
        let mut old = self.streams[here].0.upload(&values)?;
        let (stream, context) = &self.streams[user];
        for _ in 0..3 {
            stream.launch(&self.contexts[*context].1, Grid::cover(len, 64), (&mut old, 1_u32, len))?;
        }
        drop(old);
        let mut block = self.streams[taker].0.alloc(values.len())?;
        self.streams[there].0.write(&mut block, &values)?;
        self.blocks.push(Known { block, values });
        Ok(())
    }

    /// A context that lives as long as one block of it, and its pending uses by others.
    fn block_of_a_context_of_its_own(&mut self) -> Result<(), Wrong> {
        let values = values(&mut self.random, LENGTHS[0]);
        let block = self.device.new_context()?.new_stream()?.upload(&values)?;
        self.blocks.push(Known { block, values });
        Ok(())
    }

    /// A module that is closed with its launch pending.
    fn kernel_of_a_duplicate(&mut self) -> Result<(), Wrong> {
        // A load waits for the context's work, and that for transfers.
        self.end_all_loans()?;
        let (index, number) = (self.block(), self.stream());
        let (stream, context) = &self.streams[number];
        let kernel = crate::own::kernel(&self.contexts[*context].1.module().duplicate()?, "add")?;
        let Known { block, values } = &mut self.blocks[index];
        let len = values.len() as u32;
        stream.launch(&kernel, Grid::cover(len, 64), (block, 1_u32, len))?;
        values.iter_mut().for_each(|value| *value = value.wrapping_add(1));
        Ok(())
    }

    fn fill(&mut self) -> Result<(), Wrong> {
        let (index, number, byte) = (self.block(), self.stream(), self.random.next() as u8);
        let Known { block, values } = &mut self.blocks[index];
        self.streams[number].0.fill_bytes(block, byte)?;
        values.fill(u32::from_ne_bytes([byte; 4]));
        Ok(())
    }

    /// Copies as much of one block as another has room for.
    fn copy(&mut self) -> Result<(), Wrong> {
        let (from, number) = (self.block(), self.stream());
        let Known { block, values } = self.blocks.swap_remove(from);
        let to = self.block();
        let target = &mut self.blocks[to];
        let len = values.len().min(target.values.len());
        self.streams[number].0.copy(&block.view(..len)?, &mut target.block.view_mut(..len)?)?;
        target.values[..len].copy_from_slice(&values[..len]);
        self.blocks.push(Known { block, values });
        Ok(())
    }

    fn write_a_part(&mut self) -> Result<(), Wrong> {
        let (index, number) = (self.block(), self.stream());
        let len = self.blocks[index].values.len() / 2;
        let (start, part) = (below(&mut self.random, len), values(&mut self.random, len));
        let Known { block, values } = &mut self.blocks[index];
        self.streams[number].0.write(&mut block.view_mut(start..start + len)?, &part)?;
        values[start..start + len].copy_from_slice(&part);
        Ok(())
    }

    fn release(&mut self) -> Result<(), Wrong> {
        let (index, number) = (self.block(), self.stream());
        let block = self.blocks.swap_remove(index).block;
        match below(&mut self.random, 6) {
            0 => Ok(block.close().map_err(Error::from)?),
            1 => {
                let event = self.streams[number].0.event()?;
                Ok(block.release_after(&event).map_err(Error::from)?)
            }
            2 => Ok(self.device.release(block.into_address())?),
            _ => {
                drop(block);
                Ok(())
            }
        }
    }

    /// Two references read in two streams, and the block is written again when it has one owner.
    fn share(&mut self) -> Result<(), Wrong> {
        let (from, numbers) = (self.block(), [self.stream(), self.stream()]);
        let Known { block, values } = self.blocks.swap_remove(from);
        let shared: Shared<u32> = block.share();
        for number in numbers {
            let (reference, to) = (shared.clone(), self.block());
            let target = &mut self.blocks[to];
            let len = values.len().min(target.values.len());
            self.streams[number].0.copy(&reference.view(..len)?, &mut target.block.view_mut(..len)?)?;
            target.values[..len].copy_from_slice(&values[..len]);
        }
        let block = shared.into_block().expect("the other references are gone");
        self.blocks.push(Known { block, values });
        Ok(())
    }

    fn replace_a_stream(&mut self) -> Result<(), Wrong> {
        let number = self.stream();
        let context = self.streams[number].1;
        self.streams[number] = (self.contexts[context].0.new_stream()?, context);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Wrong> {
        let (one, other) = (self.stream(), self.stream());
        let event = self.streams[one].0.event()?;
        Ok(self.streams[other].0.wait(&event)?)
    }

    /// Adds without ordering, after an ordered write in the same stream: what comes later waits for it.
    fn unordered(&mut self) -> Result<(), Wrong> {
        let (index, number) = (self.block(), self.stream());
        let (stream, context) = &self.streams[number];
        let Known { block, values } = &mut self.blocks[index];
        let (kernel, len) = (&self.contexts[*context].1, values.len() as u32);
        stream.launch(kernel, Grid::cover(len, 64), (&mut *block, 1_u32, len))?;
        // SAFETY: all other uses of the block come before the launch above, and this one after it.
        let free = unsafe { block.unordered() };
        stream.launch(kernel, Grid::cover(len, 64), (free, 1_u32, len))?;
        values.iter_mut().for_each(|value| *value = value.wrapping_add(2));
        Ok(())
    }

    fn check_any(&mut self) -> Result<(), Wrong> {
        let index = self.block();
        self.check(index)
    }

    /// Checks the values of a block, as some stream sees them.
    fn check(&mut self, index: usize) -> Result<(), Wrong> {
        // Nobody would end a transfer that a download waits for.
        self.end_all_loans()?;
        let number = self.stream();
        let Known { block, values } = &self.blocks[index];
        let found = self.streams[number].0.download(block)?;
        self.compare(&found, values)
    }

    fn compare(&self, found: &[u32], values: &[u32]) -> Result<(), Wrong> {
        match found.iter().zip(values).position(|(found, wanted)| found != wanted) {
            None => Ok(()),
            Some(index) => Err(Wrong::Holds { step: self.step, index, found: found[index], wanted: values[index] }),
        }
    }
}
