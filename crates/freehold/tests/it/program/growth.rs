//! A random program over vectors and an arena that checks their content: vectors grow, shrink and are dropped while
//! streams use them, and slices follow each other at the same addresses.

use freehold::{Arena, Device, DeviceVec, Grid, Image, Kernel, Scope, Stream};
use freehold_driver::cuda::{Api, CUdevice};

use freehold_testing::Random;

use super::{Wrong, below};

const STREAMS: usize = 3;
const STEPS: usize = 120;
const VECTORS: usize = 2;

/// Elements of a page, in which memory is mapped.
const PAGE: usize = (2 << 20) / 4;
const LEN_MAX: usize = 6 * PAGE;

/// Elements that a kernel changes, and that a piece has.
const PART: usize = 200;
const ARENA_BYTES: usize = 8 << 10;

struct Known {
    vec: DeviceVec<u32>,
    values: Vec<u32>,
}

struct Program {
    random: Random,
    step: usize,
    device: Device,
    add: Kernel,
    streams: Vec<Stream>,
    vectors: Vec<Known>,
    arena: Option<Arena>,
}

/// Runs the program that `seed` names to its end.
pub(crate) fn run(seed: u64, api: Api, ordinal: CUdevice) -> Result<(), Wrong> {
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    let device = unsafe { Device::new(api, ordinal) }?;
    let module = device.module(&Image::ptx(include_str!("../../../examples/kernels.ptx"))?)?;
    let add = crate::own::kernel(&module, "add")?;
    let streams: Vec<Stream> = (0..STREAMS).map(|_| device.new_stream()).collect::<freehold::Result<_>>()?;
    let arena = Some(Arena::new(&streams[0], ARENA_BYTES)?);
    let mut program = Program { random: Random::new(seed), step: 0, device, add, streams, vectors: Vec::new(), arena };
    for _ in 0..VECTORS {
        program.add_vector()?;
    }
    for step in 0..STEPS {
        program.step = step;
        program.advance()?;
    }
    (0..VECTORS).try_for_each(|index| program.check(index))
}

impl Program {
    fn advance(&mut self) -> Result<(), Wrong> {
        let (index, stream) = (below(&mut self.random, VECTORS), below(&mut self.random, STREAMS));
        match below(&mut self.random, 32) {
            0..5 => self.extend(index, stream),
            5..8 => self.resize(index, stream),
            8..14 => self.change_a_part(index, stream),
            14..16 => self.append_a_part_of_the_other(index, stream),
            16..19 => self.shrink(index),
            19 => {
                self.vectors.swap_remove(index);
                self.add_vector()
            }
            20..27 => self.pieces(index),
            27 => self.renew_the_arena(stream),
            28 => Ok(self.device.tidy()?),
            29 => Ok(self.device.trim().map(drop)?),
            _ => self.check(index),
        }
    }

    fn add_vector(&mut self) -> Result<(), Wrong> {
        let vec = DeviceVec::with_max_len(&self.streams[below(&mut self.random, STREAMS)], LEN_MAX)?;
        self.vectors.push(Known { vec, values: Vec::new() });
        let (last, stream) = (self.vectors.len() - 1, below(&mut self.random, STREAMS));
        self.extend(last, stream)
    }

    fn extend(&mut self, index: usize, stream: usize) -> Result<(), Wrong> {
        let len = PART + below(&mut self.random, 2 * PART);
        let first = self.random.next() as u32;
        let more: Vec<u32> = (0..len as u32).map(|index| first.wrapping_add(index)).collect();
        let Known { vec, values } = &mut self.vectors[index];
        if values.len() + len <= LEN_MAX {
            vec.extend_from_host(&self.streams[stream], &more)?;
            values.extend(more);
        }
        Ok(())
    }

    fn resize(&mut self, index: usize, stream: usize) -> Result<(), Wrong> {
        let (len, value) = (PART + below(&mut self.random, LEN_MAX - PART), self.random.next() as u32);
        let Known { vec, values } = &mut self.vectors[index];
        vec.resize(&self.streams[stream], len, value)?;
        values.resize(len, value);
        Ok(())
    }

    fn change_a_part(&mut self, index: usize, stream: usize) -> Result<(), Wrong> {
        let Known { vec, values } = &mut self.vectors[index];
        let start = below(&mut self.random, values.len() - PART + 1);
        let mut part = vec.view_mut(start..start + PART)?;
        let (more, stream) = (self.random.next() as u32, &self.streams[stream]);
        stream.launch(&self.add, Grid::cover(PART as u32, 64), (&mut part, more, PART as u32))?;
        values[start..start + PART].iter_mut().for_each(|value| *value = value.wrapping_add(more));
        Ok(())
    }

    fn append_a_part_of_the_other(&mut self, index: usize, stream: usize) -> Result<(), Wrong> {
        let other = self.vectors.swap_remove(1 - index);
        let Known { vec, values } = &mut self.vectors[0];
        let end = other.values.len().min(LEN_MAX - values.len());
        if end > 0 {
            vec.extend_from_device(&self.streams[stream], &other.vec.view(..end)?)?;
            values.extend_from_slice(&other.values[..end]);
        }
        self.vectors.push(other);
        Ok(())
    }

    fn shrink(&mut self, index: usize) -> Result<(), Wrong> {
        let Known { vec, values } = &mut self.vectors[index];
        let len = PART + below(&mut self.random, values.len() - PART + 1);
        vec.truncate(len);
        values.truncate(len);
        Ok(vec.shrink_to_fit()?)
    }

    /// Pieces in scopes within scopes, each written in one stream, changed in another and appended in a third.
    fn pieces(&mut self, index: usize) -> Result<(), Wrong> {
        let mut arena = self.arena.take().expect("the arena is put back");
        let outcome = arena.scope(|scope| {
            self.piece(index, scope)?;
            scope.scope(|inner| {
                self.piece(index, inner)?;
                self.piece(index, inner)
            })?;
            self.piece(index, scope)
        });
        self.arena = Some(arena);
        outcome
    }

    fn piece(&mut self, index: usize, scope: &mut Scope<'_>) -> Result<(), Wrong> {
        let [here, there, beyond] = [(); 3].map(|()| below(&mut self.random, STREAMS));
        let len = PART - below(&mut self.random, PART / 2);
        let (first, more) = (self.random.next() as u32, self.random.next() as u32);
        let mut piece = scope.alloc::<u32>(len)?;
        self.streams[here].write(&mut piece, &vec![first; len])?;
        let grid = Grid::cover(len as u32, 64);
        self.streams[there].launch(&self.add, grid, (&mut piece, more, len as u32))?;
        let Known { vec, values } = &mut self.vectors[index];
        if values.len() + len <= LEN_MAX {
            vec.extend_from_device(&self.streams[beyond], &piece)?;
            values.resize(values.len() + len, first.wrapping_add(more));
        }
        Ok(())
    }

    /// The memory of an arena goes to another one, or to blocks.
    fn renew_the_arena(&mut self, stream: usize) -> Result<(), Wrong> {
        self.arena = None;
        self.arena = Some(Arena::new(&self.streams[stream], ARENA_BYTES)?);
        Ok(())
    }

    fn check(&mut self, index: usize) -> Result<(), Wrong> {
        let stream = &self.streams[below(&mut self.random, STREAMS)];
        let Known { vec, values } = &self.vectors[index];
        let found = vec.download(stream)?;
        assert_eq!(found.len(), values.len());
        match found.iter().zip(values).position(|(found, wanted)| found != wanted) {
            None => Ok(()),
            Some(index) => Err(Wrong::Holds { step: self.step, index, found: found[index], wanted: values[index] }),
        }
    }
}
