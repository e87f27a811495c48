//! Copies of every shape in every direction, byte by byte against a model.

use crate::common;

use std::ffi::c_void;

use common::{Context, Refused, Shared, at, random};
use freehold_driver::cuda::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUdeviceptr, CUerror, CUmemorytype, CUstream, DriverError,
    context, copy, fill,
};
use freehold_testing::at_effort;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// Bytes of each buffer in the random tests.
const ROOM: usize = 8192;

/// One buffer of each kind.
struct Buffers<'c> {
    own: &'c Context,
    blocks: [CUdeviceptr; 2],
    shared: [Shared<'c>; 3],
    pageable: Vec<u8>,
    stream: CUstream,
}

/// A buffer by its index in [`Place::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Block,
    OtherBlock,
    Managed,
    Pinned,
    Registered,
    Pageable,
}

impl Place {
    const ALL: [Self; 6] =
        [Self::Block, Self::OtherBlock, Self::Managed, Self::Pinned, Self::Registered, Self::Pageable];

    fn is_host(self) -> bool {
        matches!(self, Self::Pinned | Self::Registered | Self::Pageable)
    }
}

/// One end of a copy: a box of rows within a buffer.
#[derive(Clone, Copy, Debug)]
struct Side {
    place: Place,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    /// Rows from one slice to the next.
    height: usize,
}

impl Side {
    fn offset(&self, x: usize, y: usize, z: usize) -> usize {
        ((self.z + z) * self.height + self.y + y) * self.pitch + self.x + x
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
    depth: usize,
    call: Call,
}

/// The call that makes the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// The call for the direction: `cuMemcpyHtoD` and the others.
    Directed,
    /// `cuMemcpy`, which infers the direction.
    Unified,
    Rectangle,
    Volume,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Sync,
    Async,
}

impl<'c> Buffers<'c> {
    fn new(own: &'c Context) -> Self {
        Self {
            own,
            blocks: [own.block(ROOM), own.block(ROOM)],
            shared: [own.managed(ROOM), own.pinned(ROOM), own.registered(ROOM)],
            pageable: vec![0; ROOM],
            stream: own.stream(),
        }
    }

    fn address(&mut self, place: Place) -> u64 {
        match place {
            Place::Block => self.blocks[0].0,
            Place::OtherBlock => self.blocks[1].0,
            Place::Managed => self.shared[0].address().0,
            Place::Pinned => self.shared[1].address().0,
            Place::Registered => self.shared[2].address().0,
            Place::Pageable => self.pageable.as_mut_ptr() as u64,
        }
    }

    /// Fills all buffers with patterns and returns a copy as the model.
    fn reset(&mut self) -> Vec<Vec<u8>> {
        let model: Vec<Vec<u8>> = (0..Place::ALL.len()).map(pattern).collect();
        self.own.write(self.blocks[0], &model[0]);
        self.own.write(self.blocks[1], &model[1]);
        context::synchronize(&self.own.api).unwrap();
        for (shared, bytes) in self.shared.iter().zip(&model[2..]) {
            shared.set(bytes);
        }
        self.pageable.copy_from_slice(&model[5]);
        model
    }

    fn contents(&self) -> Vec<Vec<u8>> {
        context::synchronize(&self.own.api).unwrap();
        let blocks = self.blocks.iter().map(|block| self.own.read(*block, ROOM));
        let shared = self.shared.iter().map(Shared::to_vec);
        blocks.chain(shared).chain([self.pageable.clone()]).collect()
    }

    fn carry_out(&mut self, step: &Step, mode: Mode) -> Result<(), DriverError> {
        match step.call {
            Call::Directed => self.directed(step, mode),
            Call::Unified => self.unified(step, mode),
            Call::Rectangle => self.rectangle(step, mode),
            Call::Volume => self.volume(step, mode),
        }
    }

    fn ends(&mut self, step: &Step) -> (u64, u64) {
        let from = self.address(step.from.place) + step.from.offset(0, 0, 0) as u64;
        (from, self.address(step.to.place) + step.to.offset(0, 0, 0) as u64)
    }

    fn unified(&mut self, step: &Step, mode: Mode) -> Result<(), DriverError> {
        let (from, to) = self.ends(step);
        let (from, to, api) = (CUdeviceptr(from), CUdeviceptr(to), &self.own.api);
        match mode {
            // SAFETY: both ranges lie in buffers that outlive the copy.
            Mode::Sync => unsafe { copy::unified(api, to, from, step.width) },
            // SAFETY: both ranges lie in buffers that outlive the stream's work.
            Mode::Async => unsafe { copy::unified_async(api, to, from, step.width, self.stream) },
        }
    }

    fn directed(&mut self, step: &Step, mode: Mode) -> Result<(), DriverError> {
        let (from, to) = self.ends(step);
        let (own, stream, bytes) = (self.own, self.stream, step.width);
        let api = &own.api;
        match (step.from.place.is_host(), step.to.place.is_host(), mode) {
            (false, false, Mode::Sync) => copy::device_to_device(api, CUdeviceptr(to), CUdeviceptr(from), bytes),
            (false, false, Mode::Async) => {
                copy::device_to_device_async(api, CUdeviceptr(to), CUdeviceptr(from), bytes, stream)
            }
            (true, false, Mode::Sync) => {
                // SAFETY: the range lies in a buffer of the host's that nothing else uses during the call.
                let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
                copy::host_to_device(api, CUdeviceptr(to), bytes)
            }
            (true, false, Mode::Async) => {
                // SAFETY: the range lies in a buffer that outlives the stream's work.
                unsafe { copy::host_to_device_async(api, CUdeviceptr(to), from as *const c_void, bytes, stream) }
            }
            (false, true, Mode::Sync) => {
                // SAFETY: the range lies in a buffer of the host's that nothing else uses during the call.
                let bytes = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, bytes) };
                copy::device_to_host(api, bytes, CUdeviceptr(from))
            }
            (false, true, Mode::Async) => {
                // SAFETY: the range lies in a buffer that outlives the stream's work.
                unsafe { copy::device_to_host_async(api, to as *mut c_void, CUdeviceptr(from), bytes, stream) }
            }
            (true, true, _) => self.unified(step, mode),
        }
    }

    fn rectangle(&mut self, step: &Step, mode: Mode) -> Result<(), DriverError> {
        let (from, to) = (self.address(step.from.place), self.address(step.to.place));
        let rectangle = CUDA_MEMCPY2D {
            srcXInBytes: step.from.x,
            srcY: step.from.y,
            srcMemoryType: kind(step.from.place),
            srcHost: from as usize,
            srcDevice: CUdeviceptr(from),
            srcPitch: step.from.pitch,
            dstXInBytes: step.to.x,
            dstY: step.to.y,
            dstMemoryType: kind(step.to.place),
            dstHost: to as usize,
            dstDevice: CUdeviceptr(to),
            dstPitch: step.to.pitch,
            WidthInBytes: step.width,
            Height: step.height,
            ..CUDA_MEMCPY2D::default()
        };
        let api = &self.own.api;
        match mode {
            // SAFETY: all rows lie in buffers that outlive the copy.
            Mode::Sync => unsafe { copy::rectangle_unaligned(api, &rectangle) },
            // SAFETY: all rows lie in buffers that outlive the stream's work.
            Mode::Async => unsafe { copy::rectangle_async(api, &rectangle, self.stream) },
        }
    }

    fn volume(&mut self, step: &Step, mode: Mode) -> Result<(), DriverError> {
        let (from, to) = (self.address(step.from.place), self.address(step.to.place));
        let volume = CUDA_MEMCPY3D {
            srcXInBytes: step.from.x,
            srcY: step.from.y,
            srcZ: step.from.z,
            srcMemoryType: kind(step.from.place),
            srcHost: from as usize,
            srcDevice: CUdeviceptr(from),
            srcPitch: step.from.pitch,
            srcHeight: step.from.height,
            dstXInBytes: step.to.x,
            dstY: step.to.y,
            dstZ: step.to.z,
            dstMemoryType: kind(step.to.place),
            dstHost: to as usize,
            dstDevice: CUdeviceptr(to),
            dstPitch: step.to.pitch,
            dstHeight: step.to.height,
            WidthInBytes: step.width,
            Height: step.height,
            Depth: step.depth,
            ..CUDA_MEMCPY3D::default()
        };
        let api = &self.own.api;
        match mode {
            // SAFETY: all rows lie in buffers that outlive the copy.
            Mode::Sync => unsafe { copy::volume(api, &volume) },
            // SAFETY: all rows lie in buffers that outlive the stream's work.
            Mode::Async => unsafe { copy::volume_async(api, &volume, self.stream) },
        }
    }
}

fn kind(place: Place) -> CUmemorytype {
    match place {
        Place::Block | Place::OtherBlock => CUmemorytype::DEVICE,
        Place::Managed | Place::Registered => CUmemorytype::UNIFIED,
        Place::Pinned | Place::Pageable => CUmemorytype::HOST,
    }
}

/// Returns a pattern that differs between buffers at every offset.
fn pattern(buffer: usize) -> Vec<u8> {
    (0..ROOM).map(|index| (index * 31 + index / 251 + buffer * 41) as u8).collect()
}

/// The model: copies byte by byte.
fn apply(model: &mut [Vec<u8>], step: &Step) {
    let (from, to) = (step.from.place as usize, step.to.place as usize);
    for z in 0..step.depth {
        for y in 0..step.height {
            for x in 0..step.width {
                model[to][step.to.offset(x, y, z)] = model[from][step.from.offset(x, y, z)];
            }
        }
    }
}

/// Builds one end of a copy of a box of this width, height and depth; `room` decides its position in the buffer.
fn side(place: Place, [width, height, depth]: [usize; 3], room: [usize; 5], call: Call) -> Side {
    let slice = if call == Call::Volume { height + room[1] + room[3] % 3 } else { 0 };
    let fits = |pitch: usize, y: usize, z: usize| ((z + depth - 1) * slice + y + height - 1) * pitch + width <= ROOM;
    match call {
        Call::Directed | Call::Unified => {
            Side { place, x: room[0] * 64 % (ROOM - width + 1), y: 0, z: 0, pitch: 0, height: 0 }
        }
        Call::Rectangle | Call::Volume => {
            let x = room[0] % 16;
            let pitch = x + width + room[4] % 16;
            let z = if call == Call::Volume { room[2] % 2 } else { 0 };
            assert!(fits(pitch, room[1], z), "the largest box fits into the room");
            Side { place, x, y: room[1], z, pitch, height: slice }
        }
    }
}

fn places(mode: Mode) -> impl Strategy<Value = (Place, Place)> {
    // The host itself copies host to host, which a stream does not order with the device's copies.
    let is_wanted =
        move |from: Place, to: Place| from != to && (mode == Mode::Sync || !(from.is_host() && to.is_host()));
    let all = Place::ALL;
    let pairs = all.into_iter().flat_map(move |from| all.into_iter().map(move |to| (from, to)));
    prop::sample::select(pairs.filter(|&(from, to)| is_wanted(from, to)).collect::<Vec<_>>())
}

fn step(mode: Mode) -> impl Strategy<Value = Step> {
    let calls = prop::sample::select(vec![Call::Directed, Call::Unified, Call::Rectangle, Call::Volume]);
    let room = || [0..120_usize, 0..3_usize, 0..2_usize, 0..3_usize, 0..16_usize];
    (places(mode), calls, 1..600_usize, 1..8_usize, 1..4_usize, room(), room()).prop_map(
        |((from, to), call, bytes, height, depth, from_room, to_room)| {
            let [width, height, depth] = match call {
                Call::Directed | Call::Unified => [bytes * 8, 1, 1],
                Call::Rectangle => [bytes, height, 1],
                Call::Volume => [bytes / 4 + 1, height, depth],
            };
            let extent = [width, height, depth];
            let (from, to) = (side(from, extent, from_room, call), side(to, extent, to_room, call));
            Step { from, to, width, height, depth, call }
        },
    )
}

fn copies_agree_with_the_model(mode: Mode) {
    let own = Context::create();
    let buffers = std::cell::RefCell::new(Buffers::new(&own));
    let steps = prop::collection::vec(step(mode), 1..12);
    let outcome = random::runner(at_effort(15, 80, 2000)).run(&steps, |steps| {
        let mut buffers = buffers.borrow_mut();
        let mut model = buffers.reset();
        for step in &steps {
            buffers.carry_out(step, mode).map_err(|error| TestCaseError::fail(format!("{error} at {step:?}")))?;
            apply(&mut model, step);
        }
        for (place, (found, wanted)) in Place::ALL.iter().zip(buffers.contents().iter().zip(&model)) {
            let wrong = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
            prop_assert_eq!(wrong, None, "the first wrong byte of {:?}", place);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn synchronous_copies_agree_with_the_model() {
    copies_agree_with_the_model(Mode::Sync);
}

#[test]
fn asynchronous_copies_of_one_stream_agree_with_the_model() {
    copies_agree_with_the_model(Mode::Async);
}

#[test]
fn a_megabyte_of_pageable_memory_goes_there_and_back() {
    const BYTES: usize = (1 << 20) + 3;
    let own = Context::create();
    let (block, other, stream) = (own.block(BYTES), own.block(BYTES), own.stream());
    let sent: Vec<u8> = (0..BYTES).map(|index| (index * 7 + index / 256) as u8).collect();
    let mut returned = vec![0; BYTES];
    own.write(block, &sent);
    copy::device_to_device(&own.api, other, block, BYTES).unwrap();
    assert!(own.read(other, BYTES) == sent, "the bytes are those that were sent");
    fill::d8_async(&own.api, other, 0, BYTES, stream).unwrap();
    // SAFETY: `sent` outlives the stream's work.
    unsafe { copy::host_to_device_async(&own.api, other, sent.as_ptr().cast(), BYTES, stream) }.unwrap();
    // SAFETY: `returned` outlives the stream's work.
    unsafe { copy::device_to_host_async(&own.api, returned.as_mut_ptr().cast(), other, BYTES, stream) }.unwrap();
    own.finish(stream);
    assert!(returned == sent, "the bytes are those that were sent");
}

#[test]
fn copies_between_contexts_name_both() {
    let one = Context::create();
    let from = one.block(4096);
    fill::d8(&one.api, from, 8, 4096).unwrap();
    context::synchronize(&one.api).unwrap();
    let two = one.another();
    let to = two.block(4096);
    copy::peer(&two.api, to, two.handle, from, one.handle, 2048).unwrap();
    let volume = CUDA_MEMCPY3D_PEER {
        srcXInBytes: 8,
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: from,
        srcContext: one.handle,
        srcPitch: 64,
        srcHeight: 4,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: at(to, 2048),
        dstContext: two.handle,
        dstPitch: 32,
        dstHeight: 4,
        WidthInBytes: 32,
        Height: 4,
        Depth: 2,
        ..CUDA_MEMCPY3D_PEER::default()
    };
    fill::d8(&two.api, at(to, 2048), 0, 2048).unwrap();
    // SAFETY: both sides are the device's.
    unsafe { copy::volume_peer(&two.api, &volume) }.unwrap();
    context::synchronize(&two.api).unwrap();
    assert_eq!((two.byte(to, 2048 + 256), two.byte(at(to, 2048 + 256), 1024)), (8, 0));
}

#[test]
fn no_bytes_are_copied_from_anywhere() {
    let own = Context::create();
    let block = own.block(4096);
    own.write(block, &[1; 4096]);
    assert_eq!(copy::host_to_device(&own.api, block, &[]), Ok(()));
    assert_eq!(copy::device_to_device(&own.api, block, at(block, 2048), 0), Ok(()));
    assert_eq!(own.byte(block, 4096), 1);
}

#[test]
fn a_copy_that_leaves_its_block_is_refused() {
    const BYTES: usize = 64 << 20;
    let own = Context::create();
    let (block, other) = (own.block(BYTES), own.block(4096));
    let last = at(block, BYTES as u64 - 4);
    assert_eq!(copy::host_to_device(&own.api, last, &[0; 4]), Ok(()));
    assert_eq!(copy::host_to_device(&own.api, last, &[0; 5]).code(), CUerror::INVALID_VALUE);
    assert_eq!(copy::device_to_device(&own.api, other, last, 5).code(), CUerror::INVALID_VALUE);
    assert_eq!(copy::device_to_host(&own.api, &mut [0; 5], last).code(), CUerror::INVALID_VALUE);
}

#[test]
fn every_form_of_a_copy_that_leaves_its_block_is_refused() {
    let own = Context::create();
    let (stream, to) = (own.stream(), own.block(64));
    let from = own.block(64 << 10);
    let pinned = own.pinned(64 << 10);
    let mut pageable = vec![0_u8; 64 << 10];
    let (host, refused) = (pageable.as_mut_ptr(), CUerror::INVALID_VALUE);
    for bytes in [65, 32 << 10] {
        let rectangle = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::DEVICE,
            srcDevice: from,
            srcPitch: bytes,
            dstMemoryType: CUmemorytype::DEVICE,
            dstDevice: to,
            dstPitch: bytes,
            WidthInBytes: bytes,
            Height: 1,
            ..CUDA_MEMCPY2D::default()
        };
        let volume = CUDA_MEMCPY3D {
            srcMemoryType: CUmemorytype::DEVICE,
            srcDevice: from,
            dstMemoryType: CUmemorytype::DEVICE,
            dstDevice: to,
            WidthInBytes: bytes,
            Height: 1,
            Depth: 1,
            ..CUDA_MEMCPY3D::default()
        };
        assert_eq!(copy::device_to_device_async(&own.api, to, from, bytes, stream).code(), refused);
        // SAFETY: the host's memory is longer than any of these copies, which are refused.
        assert_eq!(unsafe { copy::unified(&own.api, to, pinned.address(), bytes) }.code(), refused);
        // SAFETY: as above.
        assert_eq!(unsafe { copy::unified_async(&own.api, to, from, bytes, stream) }.code(), refused);
        // SAFETY: as above.
        assert_eq!(unsafe { copy::host_to_device_async(&own.api, to, host.cast(), bytes, stream) }.code(), refused);
        // SAFETY: as above.
        assert_eq!(unsafe { copy::device_to_host_async(&own.api, host.cast(), to, bytes, stream) }.code(), refused);
        // SAFETY: both sides are the device's.
        assert_eq!(unsafe { copy::rectangle_async(&own.api, &rectangle, stream) }.code(), refused);
        // SAFETY: both sides are the device's.
        assert_eq!(unsafe { copy::volume(&own.api, &volume) }.code(), refused);
        // SAFETY: both sides are the device's.
        assert_eq!(unsafe { copy::volume_async(&own.api, &volume, stream) }.code(), refused);
    }
    own.finish(stream);
}

#[test]
fn a_copy_to_or_from_no_block_is_refused() {
    let own = Context::create();
    let block = own.block(4096);
    for nowhere in [CUdeviceptr::NULL, CUdeviceptr(0x1234_5600)] {
        assert_eq!(copy::host_to_device(&own.api, nowhere, &[0; 4]).code(), CUerror::INVALID_VALUE);
        assert_eq!(copy::device_to_host(&own.api, &mut [0; 4], nowhere).code(), CUerror::INVALID_VALUE);
        assert_eq!(copy::device_to_device(&own.api, block, nowhere, 4).code(), CUerror::INVALID_VALUE);
        assert_eq!(copy::device_to_device(&own.api, nowhere, block, 4).code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn a_pitch_shorter_than_its_row_is_refused() {
    let own = Context::create();
    let (from, to) = (own.block(4096), own.block(4096));
    let rectangle = |from_pitch, to_pitch| CUDA_MEMCPY2D {
        srcXInBytes: 8,
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: from,
        srcPitch: from_pitch,
        dstXInBytes: 16,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: to,
        dstPitch: to_pitch,
        WidthInBytes: 64,
        Height: 4,
        ..CUDA_MEMCPY2D::default()
    };
    // SAFETY: both sides are the device's.
    let call = |from, to| unsafe { copy::rectangle_unaligned(&own.api, &rectangle(from, to)) };
    assert_eq!(call(72, 80), Ok(()));
    assert_eq!(call(71, 80).code(), CUerror::INVALID_VALUE);
    assert_eq!(call(72, 79).code(), CUerror::INVALID_VALUE);
}
