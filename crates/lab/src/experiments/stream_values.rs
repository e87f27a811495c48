//! Experiments on host functions in stream order, and on words of memory that streams wait for and write (question 2).

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use freehold_driver::cuda::{
    CUdeviceptr, CUresult, CUstream, CUstreamBatchMemOpParams, CUstreamBatchMemOpType, DriverError, Function, context,
    fill, memory, stream, stream_flags, wait_value_flags,
};

use crate::answer_text::{choose, code, code_and_pace, or_code, ready};
use crate::experiment::{Answer, Experiment};
use crate::failure::error_name;
use crate::fixture::{Fixture, check};
use crate::host_buffer::HostBuffer;
use crate::id::Id;
use crate::latch::Latch;

const NON_BLOCKING: u32 = stream_flags::NON_BLOCKING;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: Id(2, 14, 1), did: "three host functions in one stream: the order they run in", run: host_order },
    Experiment { id: Id(2, 14, 2), did: "allocate inside a host function", run: allocate_inside },
    Experiment {
        id: Id(2, 14, 3),
        did: "cuLaunchHostFunc and cuStreamAddCallback without a function",
        run: no_function,
    },
    Experiment { id: Id(2, 14, 4), did: "cuStreamAddCallback: the status it is told", run: callback_status },
    Experiment { id: Id(2, 14, 5), did: "cuStreamAddCallback with flags 1", run: callback_flags },
    Experiment { id: Id(2, 14, 6), did: "cuLaunchHostFunc in a stream that has work", run: host_behind_work },
    Experiment {
        id: Id(2, 14, 7),
        did: "a host function changes pinned memory, the stream then copies it: what arrives",
        run: host_before_copy,
    },
    Experiment {
        id: Id(2, 15, 1),
        did: "write a word to device memory, to pinned, managed and pageable memory",
        run: write_places,
    },
    Experiment {
        id: Id(2, 15, 2),
        did: "wait for a word of device, of managed and of pageable memory that holds the value already",
        run: wait_places,
    },
    Experiment {
        id: Id(2, 15, 3),
        did: "write 32 bits at byte 2 of a word, 64 bits at byte 4, wait for 32 bits at byte 1",
        run: misaligned,
    },
    Experiment {
        id: Id(2, 15, 4),
        did: "wait until a word is at least 4294967295 where it is 5, and at least 1 where it is 4294967295",
        run: cyclic,
    },
    Experiment {
        id: Id(2, 15, 5),
        did: "wait for equal to 5, any bit of 6, not all bits with 5, where the word is 4",
        run: comparisons,
    },
    Experiment {
        id: Id(2, 15, 6),
        did: "a batch that writes two words and waits for the second: the words after it",
        run: batch,
    },
    Experiment { id: Id(2, 15, 7), did: "a batch of no operation, and one of an unknown operation", run: odd_batches },
    Experiment { id: Id(2, 15, 8), did: "a batch with flags 1", run: batch_flags },
    Experiment { id: Id(2, 15, 9), did: "wait with flags 4 and 0x100, write with flags 2", run: unknown_flags },
    Experiment { id: Id(2, 15, 10), did: "write to and wait for the null address", run: null_address },
    Experiment { id: Id(2, 15, 11), did: "write to a block that was freed", run: freed_address },
    Experiment {
        id: Id(2, 15, 12),
        did: "one stream waits for a word of device memory that another stream writes",
        run: between_streams,
    },
    Experiment { id: Id(2, 15, 13), did: "write 64 bits, then 32: the bytes after it", run: widths },
    Experiment { id: Id(2, 15, 14), did: "write a word in the null stream", run: in_null_stream },
];

/// Enqueues `work` in the stream, with a pointer that is valid until the process ends.
fn launch<T: Sync>(
    b: &Fixture,
    stream: CUstream,
    work: unsafe extern "C" fn(*mut c_void),
    data: &'static T,
) -> Result<(), DriverError> {
    let data = ptr::from_ref(data).cast_mut().cast();
    // SAFETY: every function that this file launches takes a shared reference to `T`, which lives until the process
    // ends, and never unwinds.
    check(Function::cuLaunchHostFunc, unsafe { (b.api.cuLaunchHostFunc)(stream, Some(work), data) })
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Appends a decimal digit to the number at `data`: `1`, then `12`, then `123`.
unsafe extern "C" fn append<const DIGIT: u32>(data: *mut c_void) {
    // SAFETY: `launch` gave a reference to an atomic that lives until the process ends.
    let number = unsafe { &*data.cast::<AtomicU32>() };
    number.store(number.load(Ordering::SeqCst) * 10 + DIGIT, Ordering::SeqCst);
}

fn host_order(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let number = leak(AtomicU32::new(0));
    launch(b, stream, append::<1>, number)?;
    launch(b, stream, append::<2>, number)?;
    launch(b, stream, append::<3>, number)?;
    stream::synchronize(b, stream)?;
    Ok(number.load(Ordering::SeqCst).to_string())
}

/// A driver call, and the code that it returned inside a host function.
struct Inside {
    alloc: unsafe extern "C" fn(*mut CUdeviceptr, usize) -> CUresult,
    number: AtomicU32,
}

unsafe extern "C" fn allocate(data: *mut c_void) {
    // SAFETY: `launch` gave a reference to an `Inside` that lives until the process ends.
    let inside = unsafe { &*data.cast::<Inside>() };
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it.
    let outcome = unsafe { (inside.alloc)(&mut start, 4096) };
    inside.number.store(outcome.map_or_else(|code| code.number(), |()| 0), Ordering::SeqCst);
}

fn allocate_inside(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let inside = leak(Inside { alloc: b.api.cuMemAlloc_v2, number: AtomicU32::new(u32::MAX) });
    launch(b, stream, allocate, inside)?;
    stream::synchronize(b, stream)?;
    Ok(number_name(inside.number.load(Ordering::SeqCst)))
}

fn number_name(number: u32) -> String {
    freehold_driver::cuda::CUerror::new(number).map_or_else(|| "SUCCESS".to_owned(), error_name)
}

fn no_function(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    // SAFETY: there is no function to call.
    let host = unsafe { (b.api.cuLaunchHostFunc)(stream, None, ptr::null_mut()) };
    // SAFETY: there is no function to call.
    let callback = unsafe { (b.api.cuStreamAddCallback)(stream, None, ptr::null_mut(), 0) };
    let host = code(check(Function::cuLaunchHostFunc, host));
    Ok(format!("{host}, {}", code(check(Function::cuStreamAddCallback, callback))))
}

unsafe extern "C" fn note_status(_: CUstream, status: CUresult, data: *mut c_void) {
    // SAFETY: `add_callback` gave a reference to an atomic that lives until the process ends.
    let number = unsafe { &*data.cast::<AtomicU32>() };
    number.store(status.map_or_else(|code| code.number(), |()| 0), Ordering::SeqCst);
}

fn add_callback(b: &Fixture, stream: CUstream, number: &'static AtomicU32, flags: u32) -> Result<(), DriverError> {
    let data = ptr::from_ref(number).cast_mut().cast();
    // SAFETY: the callback takes a reference to an atomic, which lives until the process ends, and never unwinds.
    let outcome = unsafe { (b.api.cuStreamAddCallback)(stream, Some(note_status), data, flags) };
    check(Function::cuStreamAddCallback, outcome)
}

fn callback_status(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let number = leak(AtomicU32::new(u32::MAX));
    add_callback(b, stream, number, 0)?;
    stream::synchronize(b, stream)?;
    Ok(number_name(number.load(Ordering::SeqCst)))
}

fn callback_flags(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    Ok(code(add_callback(b, stream, leak(AtomicU32::new(0)), 1)))
}

fn host_behind_work(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let number = leak(AtomicU32::new(0));
    latch.block_stream(b, stream)?;
    let answer = code_and_pace(latch.during(|| launch(b, stream, append::<1>, number)));
    stream::synchronize(b, stream)?;
    Ok(format!("{answer}, ran {}", choose(number.load(Ordering::SeqCst) == 1, "once", "another number of times")))
}

fn host_before_copy(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let host = b.pinned_buffer(4)?;
    let block = memory::alloc(b, 4)?;
    launch(b, stream, append::<7>, host.word())?;
    b.copy_in_async(block, host, stream)?;
    stream::synchronize(b, stream)?;
    Ok(format!("{:?}", b.bytes_at(block, 4)?))
}

/// Returns the codes of writing 7 and of the stream's end, and the word afterwards if it is one.
fn write_places(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let device = memory::alloc(b, 4096)?;
    let pinned = b.pinned_buffer(4096)?;
    let managed = memory::alloc_managed(b, 4096, freehold_driver::cuda::attach_flags::GLOBAL)?;
    let outcome = |at| code(stream::write_value_32(b, stream, at, 7, 0));
    let answers =
        [outcome(device), outcome(pinned.address()), outcome(managed), outcome(HostBuffer::pageable(4096).address())];
    stream::synchronize(b, stream)?;
    let word = b.bytes_at(device, 4)?;
    Ok(format!("{}; device {word:?}, pinned {}", answers.join(", "), pinned.word().load(Ordering::SeqCst)))
}

fn wait_places(b: &Fixture) -> Answer {
    b.init_context()?;
    let device = memory::alloc(b, 4096)?;
    fill::d8(b, device, 1, 4096)?;
    let managed = memory::alloc_managed(b, 4096, freehold_driver::cuda::attach_flags::GLOBAL)?;
    fill::d8(b, managed, 1, 4096)?;
    context::synchronize(b)?;
    let pageable = HostBuffer::pageable(4096);
    pageable.fill(1);
    let stream = stream::create(b, NON_BLOCKING)?;
    let outcome = |at| code(stream::wait_value_32(b, stream, at, 1, wait_value_flags::GEQ));
    let answers = [outcome(device), outcome(managed), outcome(pageable.address())];
    Ok(format!("{}; synchronize {}", answers.join(", "), code(stream::synchronize(b, stream))))
}

fn misaligned(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let at = b.pinned_buffer(4096)?.address();
    let word = code(stream::write_value_32(b, stream, CUdeviceptr(at.0 + 2), 1, 0));
    let long = code(stream::write_value_64(b, stream, CUdeviceptr(at.0 + 4), 1, 0));
    Ok(format!(
        "{word}, {long}, {}",
        code(stream::wait_value_32(b, stream, CUdeviceptr(at.0 + 1), 0, wait_value_flags::GEQ))
    ))
}

/// Returns whether a stream passes the comparison of `word` with `value`; the word is finally set so that it does.
fn passes(b: &Fixture, word: u32, value: u32, flags: u32, in_the_end: u32) -> Answer {
    let host = b.registered_buffer(4096)?;
    let end = b.registered_buffer(4096)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let never = Latch::new(b)?;
    host.word().store(word, Ordering::SeqCst);
    stream::wait_value_32(b, stream, b.device_address(host.address(), 0)?, value, flags)?;
    stream::write_value_32(b, stream, b.device_address(end.address(), 0)?, 1, 0)?;
    let passed = never.overtaken_by(b, stream, end.word())?;
    host.word().store(in_the_end, Ordering::SeqCst);
    stream::synchronize(b, stream)?;
    Ok(choose(passed, "passes", "waits"))
}

fn cyclic(b: &Fixture) -> Answer {
    b.init_context()?;
    let around = passes(b, 5, u32::MAX, wait_value_flags::GEQ, u32::MAX)?;
    Ok(format!("{around}, {}", passes(b, u32::MAX, 1, wait_value_flags::GEQ, 1)?))
}

fn comparisons(b: &Fixture) -> Answer {
    b.init_context()?;
    let equal = passes(b, 4, 5, wait_value_flags::EQ, 5)?;
    let and = passes(b, 4, 6, wait_value_flags::AND, 6)?;
    Ok(format!("{equal}, {and}, {}", passes(b, 4, 5, wait_value_flags::NOR, 4)?))
}

fn operation(operation: CUstreamBatchMemOpType, address: CUdeviceptr, value: u64) -> CUstreamBatchMemOpParams {
    CUstreamBatchMemOpParams { operation, address, value, ..Default::default() }
}

fn batch(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let (first, second) = (b.pinned_buffer(8)?, b.pinned_buffer(8)?);
    let mut operations = [
        operation(CUstreamBatchMemOpType::WRITE_VALUE_32, first.address(), 3),
        operation(CUstreamBatchMemOpType::WRITE_VALUE_64, second.address(), 1 << 40),
        operation(CUstreamBatchMemOpType::WAIT_VALUE_64, second.address(), 1 << 40),
        operation(CUstreamBatchMemOpType::WRITE_VALUE_32, first.address(), 4),
    ];
    let outcome = code(stream::batch_mem_op(b, stream, &mut operations, 0));
    stream::synchronize(b, stream)?;
    let (first, second) = (first.word().load(Ordering::SeqCst), second.long().load(Ordering::SeqCst));
    Ok(format!("{outcome}, {first}, {second:#x}"))
}

fn odd_batches(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let empty = code(stream::batch_mem_op(b, stream, &mut [], 0));
    let at = b.pinned_buffer(4096)?.address();
    let unknown = code(stream::batch_mem_op(b, stream, &mut [operation(CUstreamBatchMemOpType(99), at, 0)], 0));
    Ok(format!("{empty}, {unknown}"))
}

fn batch_flags(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let at = b.pinned_buffer(4096)?.address();
    Ok(code(stream::batch_mem_op(b, stream, &mut [operation(CUstreamBatchMemOpType::WRITE_VALUE_32, at, 1)], 1)))
}

fn unknown_flags(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let at = b.pinned_buffer(4096)?.address();
    let (four, high) =
        (code(stream::wait_value_32(b, stream, at, 0, 4)), code(stream::wait_value_32(b, stream, at, 0, 0x100)));
    Ok(format!("{four}, {high}, {}", code(stream::write_value_32(b, stream, at, 1, 2))))
}

fn null_address(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let written = code(stream::write_value_32(b, stream, CUdeviceptr::NULL, 1, 0));
    Ok(format!("{written}, {}", code(stream::wait_value_32(b, stream, CUdeviceptr::NULL, 0, wait_value_flags::GEQ))))
}

fn freed_address(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let block = memory::alloc(b, 64 << 20)?;
    memory::free(b, block)?;
    Ok(code(stream::write_value_32(b, stream, block, 1, 0)))
}

fn between_streams(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    fill::d8(b, block, 0, 4096)?;
    context::synchronize(b)?;
    let (waiting, writing) = (stream::create(b, NON_BLOCKING)?, stream::create(b, NON_BLOCKING)?);
    stream::wait_value_32(b, waiting, block, 1, wait_value_flags::GEQ)?;
    let before = ready(stream::query(b, waiting));
    stream::write_value_32(b, writing, block, 1, 0)?;
    Ok(format!("before {before}, after {}", code(stream::synchronize(b, waiting))))
}

fn widths(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let block = memory::alloc(b, 8)?;
    stream::write_value_64(b, stream, block, 0x1111_2222_3333_4444, 0)?;
    stream::write_value_32(b, stream, block, 0x5555_6666, 0)?;
    stream::synchronize(b, stream)?;
    Ok(format!("{:02x?}", b.bytes_at(block, 8)?))
}

fn in_null_stream(b: &Fixture) -> Answer {
    b.init_context()?;
    let word = b.pinned_buffer(4096)?;
    let outcome = or_code(stream::write_value_32(b, CUstream::NULL, word.address(), 9, 0), |()| "SUCCESS".to_owned());
    context::synchronize(b)?;
    Ok(format!("{outcome}, {}", word.word().load(Ordering::SeqCst)))
}
