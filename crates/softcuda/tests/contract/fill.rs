//! Fills of every element width against a model, and which fills wait.

use crate::common;

use common::{Context, Gate, Refused, at, pages, random, same};
use freehold_driver::cuda::{
    Api, CUdeviceptr, CUerror, CUpointer_attribute, CUstream, DriverError, context, fill, pointer,
};
use freehold_testing::at_effort;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// Bytes of the block in the random tests.
const ROOM: usize = 8192;

/// A fill: elements of 1, 2 or 4 bytes.
#[derive(Clone, Copy, Debug)]
struct Step {
    element: usize,
    value: u32,
    /// In bytes, a multiple of the element's size.
    start: usize,
    pitch: usize,
    width: usize,
    height: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Line,
    Rectangle,
}

fn carry_out(api: &Api, block: CUdeviceptr, step: &Step, stream: Option<CUstream>) -> Result<(), DriverError> {
    let Step { element, value, start, pitch, width, height } = *step;
    let to = at(block, start as u64);
    let (byte, half) = (value as u8, value as u16);
    let shape = if height == 1 { Shape::Line } else { Shape::Rectangle };
    match (element, shape, stream) {
        (1, Shape::Line, None) => fill::d8(api, to, byte, width),
        (2, Shape::Line, None) => fill::d16(api, to, half, width),
        (_, Shape::Line, None) => fill::d32(api, to, value, width),
        (1, Shape::Line, Some(stream)) => fill::d8_async(api, to, byte, width, stream),
        (2, Shape::Line, Some(stream)) => fill::d16_async(api, to, half, width, stream),
        (_, Shape::Line, Some(stream)) => fill::d32_async(api, to, value, width, stream),
        (1, Shape::Rectangle, None) => fill::rectangle_d8(api, to, pitch, byte, width, height),
        (2, Shape::Rectangle, None) => fill::rectangle_d16(api, to, pitch, half, width, height),
        (_, Shape::Rectangle, None) => fill::rectangle_d32(api, to, pitch, value, width, height),
        (1, _, Some(stream)) => fill::rectangle_d8_async(api, to, pitch, byte, width, height, stream),
        (2, _, Some(stream)) => fill::rectangle_d16_async(api, to, pitch, half, width, height, stream),
        (_, _, Some(stream)) => fill::rectangle_d32_async(api, to, pitch, value, width, height, stream),
    }
}

/// The model: fills element by element.
fn apply(model: &mut [u8], step: &Step) {
    for row in 0..step.height {
        for column in 0..step.width {
            let first = step.start + row * step.pitch + column * step.element;
            model[first..][..step.element].copy_from_slice(&step.value.to_le_bytes()[..step.element]);
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let element = prop::sample::select(vec![1_usize, 2, 4]);
    (element, any::<u32>(), 0..200_usize, 0..20_usize, 1..150_usize, 1..8_usize).prop_map(
        |(element, value, start, gap, width, height)| Step {
            element,
            value,
            start: start * element,
            pitch: (width + gap) * element,
            width,
            height,
        },
    )
}

fn fills_agree_with_the_model(own: &Context, stream: Option<CUstream>) {
    let block = own.block(ROOM);
    let outcome = random::runner(at_effort(20, 100, 2000)).run(&prop::collection::vec(step(), 1..10), |steps| {
        let mut model = vec![0x77; ROOM];
        own.write(block, &model);
        context::synchronize(&own.api).unwrap();
        for step in &steps {
            let filled = carry_out(&own.api, block, step, stream);
            filled.map_err(|error| TestCaseError::fail(format!("{error} at {step:?}")))?;
            apply(&mut model, step);
        }
        context::synchronize(&own.api).unwrap();
        let found = own.read(block, ROOM);
        prop_assert_eq!(found.iter().zip(&model).position(|(found, wanted)| found != wanted), None);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn synchronous_fills_agree_with_the_model() {
    fills_agree_with_the_model(&Context::create(), None);
}

#[test]
fn asynchronous_fills_of_one_stream_agree_with_the_model() {
    let own = Context::create();
    fills_agree_with_the_model(&own, Some(own.stream()));
}

#[test]
fn an_element_starts_on_a_multiple_of_its_width() {
    let own = Context::create();
    let block = own.block(4096);
    assert_eq!(fill::d8(&own.api, at(block, 1), 0, 4), Ok(()));
    assert_eq!(fill::d16(&own.api, at(block, 2), 0, 4), Ok(()));
    assert_eq!(fill::d32(&own.api, at(block, 4), 0, 4), Ok(()));
    assert_eq!(fill::d16(&own.api, at(block, 1), 0, 4).code(), CUerror::INVALID_VALUE);
    for odd in [1, 2, 3] {
        assert_eq!(fill::d32(&own.api, at(block, odd), 0, 4).code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn rows_of_a_rectangle_start_on_a_multiple_of_the_element() {
    let own = Context::create();
    let block = own.block(4096);
    assert_eq!(fill::rectangle_d16(&own.api, block, 66, 0, 4, 4), Ok(()));
    assert_eq!(fill::rectangle_d16(&own.api, block, 65, 0, 4, 4).code(), CUerror::INVALID_VALUE);
    assert_eq!(fill::rectangle_d32(&own.api, block, 68, 0, 4, 4), Ok(()));
    assert_eq!(fill::rectangle_d32(&own.api, block, 66, 0, 4, 4).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_pitch_shorter_than_its_row_is_refused() {
    let own = Context::create();
    let block = own.block(4096);
    assert_eq!(fill::rectangle_d32(&own.api, block, 16, 0, 4, 4), Ok(()));
    assert_eq!(fill::rectangle_d32(&own.api, block, 12, 0, 4, 4).code(), CUerror::INVALID_VALUE);
}

#[test]
fn no_elements_are_filled() {
    let own = Context::create();
    let block = own.block(4096);
    own.write(block, &[1; 4096]);
    assert_eq!(fill::d8(&own.api, block, 9, 0), Ok(()));
    assert_eq!(fill::rectangle_d8(&own.api, block, 64, 9, 0, 4), Ok(()));
    assert_eq!(fill::rectangle_d8(&own.api, block, 64, 9, 4, 0), Ok(()));
    assert_eq!(own.byte(block, 4096), 1);
}

#[test]
fn a_fill_that_leaves_its_block_is_refused() {
    const BYTES: usize = 64 << 20;
    let own = Context::create();
    let block = own.block(BYTES);
    let last = at(block, BYTES as u64 - 4);
    assert_eq!(fill::d8(&own.api, last, 0, 4), Ok(()));
    assert_eq!(fill::d8(&own.api, last, 0, 5).code(), CUerror::INVALID_VALUE);
    assert_eq!(fill::d32(&own.api, last, 0, 2).code(), CUerror::INVALID_VALUE);
    assert_eq!(fill::rectangle_d8(&own.api, block, BYTES, 0, 4, 2).code(), CUerror::INVALID_VALUE);
}

#[test]
fn every_form_of_a_fill_that_leaves_its_block_is_refused() {
    let own = Context::create();
    let (block, stream) = (own.block(64), own.stream());
    for (element, width, height) in [(1, 65, 1), (2, 33, 1), (4, 17, 1), (1, 8, 9), (2, 4, 9), (4, 2, 9)] {
        let step = Step { element, value: 0, start: 0, pitch: 8, width, height };
        for stream in [None, Some(stream)] {
            assert_eq!(carry_out(&own.api, block, &step, stream).code(), CUerror::INVALID_VALUE, "{step:?}");
        }
        let whole = if height == 1 { Step { width: width - 1, ..step } } else { Step { height: 8, ..step } };
        for stream in [None, Some(stream)] {
            assert_eq!(carry_out(&own.api, block, &whole, stream), Ok(()), "{whole:?}");
        }
    }
}

#[test]
fn a_fill_of_no_block_is_refused() {
    let own = Context::create();
    let pageable = CUdeviceptr(pages(4096) as u64);
    for nowhere in [CUdeviceptr::NULL, CUdeviceptr(0x1234_5600), pageable] {
        assert_eq!(fill::d8(&own.api, nowhere, 0, 4).code(), CUerror::INVALID_VALUE);
        assert_eq!(fill::rectangle_d8(&own.api, nowhere, 64, 0, 4, 4).code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn a_fill_of_device_memory_does_not_keep_the_host() {
    let own = Context::create();
    let (stream, block) = (own.blocking(), own.block(4096));
    own.write(block, &[1; 4096]);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    gate.shut_during(|| fill::d8(&own.api, block, 2, 4096)).unwrap();
    gate.open();
    assert_eq!(own.byte(block, 4096), 2);
}

#[test]
fn a_fill_of_pinned_memory_is_done_when_it_returns() {
    let own = Context::create();
    let (stream, pinned) = (own.blocking(), own.pinned(4096));
    pinned.fill(1);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    gate.opened_during(|| fill::d8(&own.api, pinned.address(), 2, 4096)).unwrap();
    assert_eq!(same(&pinned.to_vec()), 2);
}

#[test]
fn a_fill_of_a_block_that_asks_for_it_is_done_when_it_returns() {
    let own = Context::create();
    let (stream, block) = (own.blocking(), own.block(4096));
    for (asked, waits) in [(1, true), (0, false)] {
        pointer::set_attribute(&own.api, block, CUpointer_attribute::SYNC_MEMOPS, asked).unwrap();
        let gate = Gate::closed(&own);
        gate.hold(&own.api, stream);
        let fill = || fill::d8(&own.api, block, 2, 4096);
        if waits { gate.opened_during(fill) } else { gate.shut_during(fill) }.unwrap();
        gate.open();
        context::synchronize(&own.api).unwrap();
    }
}

#[test]
fn an_asynchronous_fill_of_pinned_memory_is_done_when_its_stream_comes_by() {
    let own = Context::create();
    let (stream, pinned) = (own.stream(), own.pinned(4096));
    pinned.fill(1);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    gate.shut_during(|| fill::d32_async(&own.api, pinned.address(), 0x0303_0303, 1024, stream)).unwrap();
    assert_eq!(same(&pinned.to_vec()), 1);
    gate.open();
    own.finish(stream);
    assert_eq!(same(&pinned.to_vec()), 3);
}
