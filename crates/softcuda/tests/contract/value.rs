//! Words that streams write and wait for: widths, comparisons, order, batches.

use crate::common;

use std::sync::atomic::Ordering;

use common::{Context, Gate, Refused, at, pages, until};
use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUstream, CUstreamBatchMemOpParams, CUstreamBatchMemOpType, fill, memory, stream,
    wait_value_flags, write_value_flags,
};

/// An address that no driver returns.
const WILD: CUdeviceptr = CUdeviceptr(0x1234_5600);

#[test]
fn a_word_of_32_bits_is_written_and_its_neighbours_are_not() {
    let own = Context::create();
    let (stream, pinned) = (own.stream(), own.pinned(16));
    pinned.fill(0xee);
    stream::write_value_32(&own.api, stream, at(pinned.address(), 4), 0x0102_0304, 0).unwrap();
    own.finish(stream);
    assert_eq!(pinned.to_vec()[..8], [0xee, 0xee, 0xee, 0xee, 4, 3, 2, 1]);
    assert_eq!(pinned.to_vec()[8..], [0xee; 8]);
}

#[test]
fn a_word_of_64_bits_is_written_and_its_neighbours_are_not() {
    let own = Context::create();
    let (stream, pinned) = (own.stream(), own.pinned(24));
    pinned.fill(0xee);
    stream::write_value_64(&own.api, stream, at(pinned.address(), 8), 0x0102_0304_0506_0708, 0).unwrap();
    own.finish(stream);
    let found = pinned.to_vec();
    assert_eq!(
        (&found[..8], &found[8..16], &found[16..]),
        (&[0xee; 8][..], &[8, 7, 6, 5, 4, 3, 2, 1][..], &[0xee; 8][..])
    );
}

#[test]
fn words_are_written_to_device_and_registered_memory_too() {
    let own = Context::create();
    let (stream, block, registered) = (own.stream(), own.block(8), own.registered(4096));
    stream::write_value_64(&own.api, stream, block, 0x1_0000_0002, 0).unwrap();
    stream::write_value_32(&own.api, stream, registered.address(), 3, write_value_flags::DEFAULT).unwrap();
    own.finish(stream);
    assert_eq!(own.read(block, 8), [2, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(registered.word(0), 3);
}

#[test]
fn words_are_not_written_to_or_waited_for_in_other_memory() {
    let own = Context::create();
    let stream = own.stream();
    let (_beside, freed) = (own.block(512), own.block(512));
    memory::free(&own.api, freed).unwrap();
    let (managed, pageable) = (own.managed(4096), CUdeviceptr(pages(4096) as u64));
    for address in [CUdeviceptr::NULL, WILD, freed, managed.address(), pageable] {
        let refused = CUerror::INVALID_VALUE;
        assert_eq!(stream::write_value_32(&own.api, stream, address, 1, 0).code(), refused);
        assert_eq!(stream::write_value_64(&own.api, stream, address, 1, 0).code(), refused);
        assert_eq!(stream::wait_value_32(&own.api, stream, address, 1, 0).code(), refused);
        assert_eq!(stream::wait_value_64(&own.api, stream, address, 1, 0).code(), refused);
    }
    own.finish(stream);
}

#[test]
fn a_word_lies_on_a_multiple_of_its_width() {
    let own = Context::create();
    let (stream, pinned) = (own.stream(), own.pinned(64));
    let start = pinned.address();
    assert_eq!(stream::write_value_32(&own.api, stream, at(start, 4), 0, 0), Ok(()));
    assert_eq!(stream::write_value_64(&own.api, stream, at(start, 8), 0, 0), Ok(()));
    for odd in [1, 2, 3] {
        assert_eq!(stream::write_value_32(&own.api, stream, at(start, odd), 0, 0).code(), CUerror::INVALID_VALUE);
        assert_eq!(stream::wait_value_32(&own.api, stream, at(start, odd), 0, 0).code(), CUerror::INVALID_VALUE);
    }
    for odd in [1, 2, 4, 7] {
        assert_eq!(stream::write_value_64(&own.api, stream, at(start, odd), 0, 0).code(), CUerror::INVALID_VALUE);
        assert_eq!(stream::wait_value_64(&own.api, stream, at(start, odd), 0, 0).code(), CUerror::INVALID_VALUE);
    }
    own.finish(stream);
}

#[test]
fn unknown_flags_make_no_write_and_no_wait() {
    let own = Context::create();
    let (stream, pinned) = (own.stream(), own.pinned(64));
    pinned.fill(0);
    // The flag existed only in the first version of these calls.
    for flags in [write_value_flags::NO_MEMORY_BARRIER, 2] {
        let refused = stream::write_value_32(&own.api, stream, pinned.address(), 1, flags);
        assert_eq!(refused.code(), CUerror::INVALID_VALUE);
    }
    for flags in [4, 0x100] {
        let refused = stream::wait_value_32(&own.api, stream, pinned.address(), 0, flags);
        assert_eq!(refused.code(), CUerror::INVALID_VALUE);
    }
    own.finish(stream);
    assert_eq!(pinned.word(0), 0);
}

#[test]
fn a_word_is_written_in_stream_order() {
    let own = Context::create();
    let (stream, pinned, block) = (own.stream(), own.pinned(4), own.block(1 << 20));
    pinned.fill(0);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    fill::d8_async(&own.api, block, 1, 1 << 20, stream).unwrap();
    stream::write_value_32(&own.api, stream, pinned.address(), 1, 0).unwrap();
    fill::d8_async(&own.api, block, 2, 1 << 20, stream).unwrap();
    stream::write_value_32(&own.api, stream, pinned.address(), 2, 0).unwrap();
    assert_eq!(pinned.word(0), 0);
    gate.open();
    until(|| pinned.word(0) == 2);
    assert_eq!(own.byte(block, 1 << 20), 2);
}

#[test]
fn one_stream_waits_for_a_word_that_another_writes() {
    let own = Context::create();
    let (writer, reader) = (own.stream(), own.stream());
    let pinned = own.pinned(64);
    for word in [pinned.address(), own.block(64)] {
        own.write(word, &[0; 64]);
        stream::wait_value_32(&own.api, reader, word, 5, wait_value_flags::EQ).unwrap();
        assert_eq!(stream::query(&own.api, reader), Ok(false));
        let gate = Gate::closed(&own);
        gate.hold(&own.api, writer);
        stream::write_value_32(&own.api, writer, word, 5, 0).unwrap();
        gate.opened_during(|| own.finish(reader));
        own.finish(writer);
    }
}

/// Asserts that a 32-bit wait passes if the word is `word`.
#[track_caller]
fn assert_passes(own: &Context, word: u32, value: u32, flags: u32) {
    let (gate, stream) = (Gate::of(own, word.into(), value.into()), own.stream());
    stream::wait_value_32(&own.api, stream, gate.address(), value, flags).unwrap();
    gate.shut_during(|| own.finish(stream));
}

/// Asserts that a 32-bit wait blocks while the word is `word`, and passes once it is `then`.
#[track_caller]
fn assert_blocks(own: &Context, word: u32, value: u32, flags: u32, then: u32) {
    let (gate, stream) = (Gate::of(own, word.into(), then.into()), own.stream());
    stream::wait_value_32(&own.api, stream, gate.address(), value, flags).unwrap();
    gate.opened_during(|| own.finish(stream));
}

/// [`assert_passes`] for 64 bits.
#[track_caller]
fn assert_passes_64(own: &Context, word: u64, value: u64, flags: u32) {
    let (gate, stream) = (Gate::of(own, word, value), own.stream());
    stream::wait_value_64(&own.api, stream, gate.address(), value, flags).unwrap();
    gate.shut_during(|| own.finish(stream));
}

/// [`assert_blocks`] for 64 bits.
#[track_caller]
fn assert_blocks_64(own: &Context, word: u64, value: u64, flags: u32, then: u64) {
    let (gate, stream) = (Gate::of(own, word, then), own.stream());
    stream::wait_value_64(&own.api, stream, gate.address(), value, flags).unwrap();
    gate.opened_during(|| own.finish(stream));
}

#[test]
fn geq_looks_at_the_sign_of_the_difference() {
    let own = Context::create();
    assert_passes(&own, 5, 5, wait_value_flags::GEQ);
    assert_passes(&own, 6, 5, wait_value_flags::GEQ);
    assert_passes(&own, 5, 0xffff_ffff, wait_value_flags::GEQ);
    assert_blocks(&own, 4, 5, wait_value_flags::GEQ, 5);
    assert_blocks(&own, 0xffff_ffff, 1, wait_value_flags::GEQ, 1);
    assert_passes_64(&own, 1 << 40, 5, wait_value_flags::GEQ);
    assert_blocks_64(&own, 5, 1 << 40, wait_value_flags::GEQ, 1 << 40);
}

#[test]
fn eq_wants_the_same_word() {
    let own = Context::create();
    assert_passes(&own, 5, 5, wait_value_flags::EQ);
    assert_blocks(&own, 6, 5, wait_value_flags::EQ, 5);
    assert_passes_64(&own, 5 << 32, 5 << 32, wait_value_flags::EQ);
    assert_blocks_64(&own, 5 << 33, 5 << 32, wait_value_flags::EQ, 5 << 32);
}

#[test]
fn and_wants_a_bit_that_both_have() {
    let own = Context::create();
    assert_passes(&own, 0b110, 0b010, wait_value_flags::AND);
    assert_blocks(&own, 0b101, 0b010, wait_value_flags::AND, 0b111);
    assert_passes_64(&own, 3 << 40, 1 << 40, wait_value_flags::AND);
    assert_blocks_64(&own, 1 << 8, 1 << 40, wait_value_flags::AND, 1 << 40);
}

#[test]
fn nor_wants_a_bit_that_neither_has() {
    let own = Context::create();
    assert_passes(&own, 4, 5, wait_value_flags::NOR);
    assert_blocks(&own, 1, 0xffff_fffe, wait_value_flags::NOR, 0);
}

#[test]
fn a_wait_of_32_bits_looks_at_no_others() {
    let own = Context::create();
    let (gate, stream) = (Gate::of(&own, 0xdead_0000_0005, 5), own.stream());
    stream::wait_value_32(&own.api, stream, gate.address(), 5, wait_value_flags::EQ).unwrap();
    gate.shut_during(|| own.finish(stream));
}

fn operation(operation: CUstreamBatchMemOpType, address: CUdeviceptr, value: u64) -> CUstreamBatchMemOpParams {
    CUstreamBatchMemOpParams { operation, address, value, ..CUstreamBatchMemOpParams::default() }
}

#[test]
fn a_batch_is_done_in_its_order() {
    let own = Context::create();
    let (stream, pinned, gate) = (own.stream(), own.pinned(64), Gate::closed(&own));
    pinned.fill(0);
    let mut batch = [
        operation(CUstreamBatchMemOpType::WRITE_VALUE_32, pinned.address(), 4),
        operation(CUstreamBatchMemOpType::WAIT_VALUE_32, gate.address(), 1),
        operation(CUstreamBatchMemOpType::WRITE_VALUE_64, at(pinned.address(), 8), 1 << 40),
        operation(CUstreamBatchMemOpType::WRITE_VALUE_32, pinned.address(), 6),
        operation(CUstreamBatchMemOpType::WAIT_VALUE_64, at(pinned.address(), 8), 1 << 40),
    ];
    gate.shut_during(|| stream::batch_mem_op(&own.api, stream, &mut batch, 0)).unwrap();
    until(|| pinned.word(0) == 4);
    assert_eq!(pinned.longs()[1].load(Ordering::SeqCst), 0);
    gate.opened_during(|| own.finish(stream));
    assert_eq!(pinned.word(0), 6);
    assert_eq!(pinned.longs()[1].load(Ordering::SeqCst), 1 << 40);
}

#[test]
fn an_empty_batch_is_done() {
    let own = Context::create();
    let stream = own.stream();
    assert_eq!(stream::batch_mem_op(&own.api, stream, &mut [], 0), Ok(()));
    own.finish(stream);
}

#[test]
fn a_batch_with_a_wrong_operation_is_refused() {
    let own = Context::create();
    let (stream, pinned) = (own.stream(), own.pinned(64));
    pinned.fill(0);
    let right = operation(CUstreamBatchMemOpType::WRITE_VALUE_32, pinned.address(), 1);
    let unknown = operation(CUstreamBatchMemOpType(77), pinned.address(), 1);
    let nowhere = operation(CUstreamBatchMemOpType::WRITE_VALUE_32, WILD, 1);
    let between = operation(CUstreamBatchMemOpType::WRITE_VALUE_64, at(pinned.address(), 4), 1);
    for wrong in [unknown, nowhere, between] {
        let refused = stream::batch_mem_op(&own.api, stream, &mut [right, wrong], 0);
        assert_eq!(refused.code(), CUerror::INVALID_VALUE);
    }
    assert_eq!(stream::batch_mem_op(&own.api, stream, &mut [right], 1).code(), CUerror::INVALID_VALUE);
    own.finish(stream);
}

#[test]
fn a_word_is_written_in_the_default_stream() {
    let own = Context::create();
    let pinned = own.pinned(4);
    stream::write_value_32(&own.api, CUstream::NULL, pinned.address(), 9, 0).unwrap();
    own.finish(CUstream::NULL);
    assert_eq!(pinned.word(0), 9);
}
