//! Programs with and without a required wait: the bugs that GPU users report most, with fills and copies in place of
//! kernels.

use std::sync::atomic::Ordering;

use freehold_driver::cuda::{
    CUdeviceptr, CUmemPoolProps, CUmemoryPool, CUstream, CUstreamCaptureMode, capture, context, copy, event, fill,
    graph, memory, pool, stream,
};

use crate::common::{Context, Shared, address};

/// Whether a program makes the wait that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Made,
    Missing,
}

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Whether the program got the right result.
    pub(crate) is_right: fn(&Context, Waits) -> bool,
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    // Order between streams.
    Scenario { name: "read on b what a writes", is_right: read_on_another_stream },
    Scenario { name: "read on the host what a stream writes", is_right: read_on_the_host },
    Scenario {
        name: "write on the default stream, read on a non-blocking one",
        is_right: read_beside_the_default_stream,
    },
    Scenario { name: "use one thread's stream for another's", is_right: one_key_for_two_default_streams },
    Scenario { name: "record an event again before it is waited for", is_right: event_recorded_too_soon },
    // Released while in flight.
    Scenario { name: "free on b while a still writes", is_right: freed_while_written },
    Scenario { name: "free on the stream of allocation while a side stream reads", is_right: freed_while_read },
    Scenario { name: "free after the first of two side streams", is_right: freed_after_one_of_two },
    Scenario { name: "fill the staging buffer again before it is copied", is_right: staging_buffer_reused },
    Scenario { name: "hand out a cached block before its copy is done", is_right: cached_block_in_flight },
    Scenario { name: "write before the stream that allocates gets there", is_right: written_before_its_allocation },
    // Order within a graph.
    Scenario { name: "write on two branches of a graph", is_right: written_on_two_branches },
    // A reused handle.
    Scenario { name: "take a new stream for the old one of its handle", is_right: stream_handle_comes_back },
    Scenario { name: "free in a new stream that has the old one's handle", is_right: freed_on_a_handle_that_came_back },
];

/// Large enough to be done in pieces.
const BYTES: usize = 64 << 10;

const OLD: u8 = 0x11;
const NEW: u8 = 0x22;
const OTHER: u8 = 0x33;

/// Makes later work of `to` wait for the work in `from`, if the program waits.
fn follow(own: &Context, from: CUstream, to: CUstream, waits: Waits) {
    if waits == Waits::Made {
        let event = event::create(&own.api, 0).unwrap();
        event::record(&own.api, event, from).unwrap();
        stream::wait_event(&own.api, to, event, 0).unwrap();
        event::destroy(&own.api, event).unwrap();
    }
}

fn fill(own: &Context, to: CUdeviceptr, value: u8, stream: CUstream) {
    fill::d8_async(&own.api, to, value, BYTES, stream).unwrap();
}

/// Calls [`fill`] many times, so that the work takes a while.
fn fill_repeatedly(own: &Context, to: CUdeviceptr, value: u8, stream: CUstream) {
    for _ in 0..8 {
        fill(own, to, value, stream);
    }
}

fn copy(own: &Context, to: CUdeviceptr, from: CUdeviceptr, stream: CUstream) {
    copy::device_to_device_async(&own.api, to, from, BYTES, stream).unwrap();
}

/// A block that holds the old value.
fn block(own: &Context) -> CUdeviceptr {
    let block = own.block(BYTES);
    fill(own, block, OLD, CUstream::LEGACY);
    context::synchronize(&own.api).unwrap();
    block
}

/// Returns whether the whole block holds `value` when all work is done.
fn holds(own: &Context, block: CUdeviceptr, value: u8) -> bool {
    context::synchronize(&own.api).unwrap();
    own.read(block, BYTES).iter().all(|byte| *byte == value)
}

fn shared_holds(shared: &Shared<'_>, value: u8) -> bool {
    shared.bytes().iter().all(|byte| byte.load(Ordering::SeqCst) == value)
}

fn pool(own: &Context) -> CUmemoryPool {
    pool::create(&own.api, &CUmemPoolProps::on_device(own.device)).unwrap()
}

fn alloc(own: &Context, pool: CUmemoryPool, stream: CUstream) -> CUdeviceptr {
    memory::alloc_from_pool_async(&own.api, BYTES, pool, stream).unwrap()
}

/// cutlass#214, rmm#2156.
fn read_on_another_stream(own: &Context, waits: Waits) -> bool {
    let (a, b, from, to) = (own.stream(), own.stream(), block(own), own.block(BYTES));
    fill(own, from, NEW, a);
    follow(own, a, b, waits);
    copy(own, to, from, b);
    holds(own, to, NEW)
}

/// rust-cuda#15.
fn read_on_the_host(own: &Context, waits: Waits) -> bool {
    let (a, from, to) = (own.stream(), block(own), own.pinned(BYTES));
    to.fill(OTHER);
    copy(own, to.address(), from, a);
    if waits == Waits::Made {
        own.finish(a);
    }
    shared_holds(&to, OLD)
}

/// alpaka#850: the default stream does not wait for a non-blocking one, nor it for the default stream.
fn read_beside_the_default_stream(own: &Context, waits: Waits) -> bool {
    let (from, to) = (block(own), own.block(BYTES));
    let reader = match waits {
        Waits::Made => own.blocking(),
        Waits::Missing => own.stream(),
    };
    fill(own, from, NEW, CUstream::LEGACY);
    copy(own, to, from, reader);
    holds(own, to, NEW)
}

/// cupy#5069: a block that was used on one kind of default stream is reused as free on the other.
fn one_key_for_two_default_streams(own: &Context, waits: Waits) -> bool {
    let (own_default, other, cached, out) = (CUstream::PER_THREAD, own.stream(), block(own), own.block(BYTES));
    fill(own, cached, NEW, own_default);
    copy(own, out, cached, own_default);
    follow(own, own_default, other, waits);
    fill(own, cached, OTHER, other);
    holds(own, out, NEW)
}

/// An event of a pool of events, recorded for its next user before the last one has waited.
fn event_recorded_too_soon(own: &Context, waits: Waits) -> bool {
    let (a, b, c, from, to) = (own.stream(), own.stream(), own.stream(), block(own), own.block(BYTES));
    let event = event::create(&own.api, 0).unwrap();
    fill_repeatedly(own, block(own), OLD, a);
    fill(own, from, NEW, a);
    event::record(&own.api, event, a).unwrap();
    if waits == Waits::Made {
        stream::wait_event(&own.api, b, event, 0).unwrap();
    }
    event::record(&own.api, event, c).unwrap();
    if waits == Waits::Missing {
        stream::wait_event(&own.api, b, event, 0).unwrap();
    }
    copy(own, to, from, b);
    holds(own, to, NEW)
}

/// The address is reused, and the new owner's data is overwritten.
fn freed_while_written(own: &Context, waits: Waits) -> bool {
    let (a, b, pool) = (own.stream(), own.stream(), pool(own));
    let first = alloc(own, pool, b);
    follow(own, b, a, Waits::Made);
    fill_repeatedly(own, first, OLD, a);
    follow(own, a, b, waits);
    memory::free_async(&own.api, first, b).unwrap();
    let second = alloc(own, pool, b);
    fill(own, second, NEW, b);
    first == second && holds(own, second, NEW)
}

/// pytorch#18465, torchrec#4231, cuda-oxide#619: the owner does not know about the side stream.
fn freed_while_read(own: &Context, waits: Waits) -> bool {
    let (main, side, pool, out) = (own.stream(), own.stream(), pool(own), own.block(BYTES));
    let tensor = alloc(own, pool, main);
    fill(own, tensor, NEW, main);
    follow(own, main, side, Waits::Made);
    copy(own, out, tensor, side);
    follow(own, side, main, waits);
    memory::free_async(&own.api, tensor, main).unwrap();
    fill(own, alloc(own, pool, main), OTHER, main);
    holds(own, out, NEW)
}

/// pytorch#188655: three streams, one of which is forgotten.
fn freed_after_one_of_two(own: &Context, waits: Waits) -> bool {
    let [main, first, second] = [(); 3].map(|()| own.stream());
    let (pool, one, two) = (pool(own), own.block(BYTES), own.block(BYTES));
    let tensor = alloc(own, pool, main);
    fill(own, tensor, NEW, main);
    for (side, out) in [(first, one), (second, two)] {
        follow(own, main, side, Waits::Made);
        fill_repeatedly(own, out, OLD, side);
        copy(own, out, tensor, side);
    }
    follow(own, first, main, Waits::Made);
    follow(own, second, main, waits);
    memory::free_async(&own.api, tensor, main).unwrap();
    fill(own, alloc(own, pool, main), OTHER, main);
    holds(own, one, NEW) && holds(own, two, NEW)
}

/// cudf#22284: the host writes a staging buffer again that the device has not read yet.
fn staging_buffer_reused(own: &Context, waits: Waits) -> bool {
    let (a, staging, one, two) = (own.stream(), own.pinned(BYTES), own.block(BYTES), own.block(BYTES));
    for (value, to) in [(OLD, one), (NEW, two)] {
        staging.fill(value);
        copy(own, to, staging.address(), a);
        if waits == Waits::Made {
            own.finish(a);
        }
    }
    holds(own, one, OLD) && holds(own, two, NEW)
}

/// rmm#1655: a cache in the program that keys a block by size alone.
fn cached_block_in_flight(own: &Context, waits: Waits) -> bool {
    let (a, b, cached, out) = (own.stream(), own.stream(), block(own), own.block(BYTES));
    copy(own, out, cached, a);
    follow(own, a, b, waits);
    fill(own, cached, NEW, b);
    holds(own, out, OLD)
}

/// What another stream writes before the allocation is in its order is lost.
fn written_before_its_allocation(own: &Context, waits: Waits) -> bool {
    let (a, b, pool) = (own.stream(), own.stream(), pool(own));
    let early = alloc(own, pool, a);
    follow(own, a, b, waits);
    fill(own, early, NEW, b);
    holds(own, early, NEW)
}

/// The order of the streams that are captured is that of their waits, not that of the calls.
fn written_on_two_branches(own: &Context, waits: Waits) -> bool {
    let (a, b, block) = (own.stream(), own.stream(), block(own));
    capture::begin(&own.api, a, CUstreamCaptureMode::RELAXED).unwrap();
    follow(own, a, b, Waits::Made);
    fill(own, block, OTHER, a);
    follow(own, a, b, waits);
    fill(own, block, NEW, b);
    follow(own, b, a, Waits::Made);
    let graph = capture::end(&own.api, a).unwrap();
    let exec = graph::instantiate(&own.api, graph, 0).unwrap();
    // SAFETY: the nodes use a block that lives as long as the context.
    unsafe { graph::launch(&own.api, exec, a) }.unwrap();
    holds(own, block, NEW)
}

/// rmm#649: a cache that keys a block by the handle of its stream.
fn stream_handle_comes_back(own: &Context, waits: Waits) -> bool {
    let (old, cached) = (own.stream(), block(own));
    fill_repeatedly(own, cached, OTHER, old);
    let event = event::create(&own.api, 0).unwrap();
    event::record(&own.api, event, old).unwrap();
    stream::destroy(&own.api, old).unwrap();
    let new = own.stream();
    assert_eq!(new, old, "the handle comes back");
    if waits == Waits::Made {
        stream::wait_event(&own.api, new, event, 0).unwrap();
    }
    fill(own, cached, NEW, new);
    holds(own, cached, NEW)
}

/// The same with a pool of the driver: the block is freed in the order of the wrong stream.
fn freed_on_a_handle_that_came_back(own: &Context, waits: Waits) -> bool {
    let (old, pool, word) = (own.stream(), pool(own), &own.words()[0]);
    let first = alloc(own, pool, old);
    fill_repeatedly(own, first, OLD, old);
    stream::write_value_32(&own.api, old, address(word), 1, 0).unwrap();
    stream::destroy(&own.api, old).unwrap();
    let new = own.stream();
    assert_eq!(new, old, "the handle comes back");
    if waits == Waits::Made {
        stream::wait_value_32(&own.api, new, address(word), 1, 0).unwrap();
    }
    memory::free_async(&own.api, first, new).unwrap();
    let second = alloc(own, pool, new);
    fill(own, second, NEW, new);
    first == second && holds(own, second, NEW)
}
