//! The driver calls and fences that ordering needs. The contract tests cover what waits for what.

use crate::own;

use freehold::{Block, CloseError, Error, Stream};
use freehold_driver::cuda::{
    CUdeviceptr, CUstreamCaptureMode, CUstreamCaptureStatus, Function, capture, context, event, graph, stream,
    wait_value_flags,
};
use own::{N, Own, grid, opened};

/// Adds to every value of a block, in `stream`.
fn add(own: &Own, stream: &Stream, to: &mut Block<u32>, more: u32) {
    stream.launch(&own.kernels.add, grid(), (to, more, N as u32)).unwrap();
}

#[test]
fn a_block_is_reused_in_its_own_stream_at_once_without_a_call() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let [a] = own.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    add(&own, &a, &mut x, 1);
    let (address, calls) = (x.address(), faults.calls());
    drop(x);
    let mut y = a.alloc::<u32>(N).unwrap();
    assert_eq!(faults.calls(), calls);
    assert_eq!(y.address(), address);
    a.write(&mut y, &[5; N]).unwrap();
    gate.open();
    assert_eq!(a.download(&y).unwrap(), [5; N]);
}

#[test]
fn an_event_of_another_device_is_refused() {
    let own = Own::new();
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    let other = unsafe { freehold::Device::new(own.api, opened().device) }.unwrap();
    let (here, there) = (own.device.new_stream().unwrap(), other.new_stream().unwrap());
    let foreign = there.event().unwrap();
    let Err(Error::OtherDevice { what: "an event" }) = here.wait(&foreign) else { panic!("the event is refused") };
    let x = here.upload(&[1_u32; N]).unwrap();
    let Err(CloseError { value: x, error: Error::OtherDevice { what: "an event" } }) = x.release_after(&foreign) else {
        panic!("the event is refused")
    };
    assert_eq!(here.download(&x).unwrap(), [1; N]);
}

#[test]
fn a_new_stream_never_sees_the_last_fence_of_its_predecessor() {
    let own = Own::new();
    let [a, b] = own.streams();
    let (first, second) = (own.gate(), own.gate());
    let mut x = a.zeros::<u32>(N).unwrap();
    // A driver event is recorded after the fill, then others hold the stream up, and then comes the mark.
    add(&own, &b, &mut x, 1);
    stream::wait_value_32(&own.api, a.raw().into(), CUdeviceptr(first.address()), 1, wait_value_flags::GEQ).unwrap();
    let filled = a.event().unwrap();
    context::push_current(&own.api, own.primary).unwrap();
    let marked = event::create(&own.api, 0).unwrap();
    context::pop_current(&own.api).unwrap();
    event::record(&own.api, marked, a.raw().into()).unwrap();
    filled.synchronize().unwrap();
    drop(a);
    own.device.tidy().unwrap();
    let next = own.device.new_stream().unwrap();
    own.hold(&next, &second);
    let done = next.event().unwrap();
    first.open();
    event::synchronize(&own.api, marked).unwrap();
    assert!(!done.is_complete().unwrap());
    second.open();
    done.synchronize().unwrap();
}

#[test]
fn a_busy_stream_has_one_fence_in_flight() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let [a, b] = own.streams();
    let blocks: Vec<Block<u32>> = (0..10).map(|_| a.upload(&[1; N]).unwrap()).collect();
    let mut copy = b.alloc::<u32>(N).unwrap();
    let gate = own.gate();
    own.kernels.hold(&b, &gate);
    let before = faults.calls_of(Function::cuStreamWriteValue64_v2);
    for x in blocks {
        b.copy(&x, &mut copy).unwrap();
        drop(x);
    }
    let marks = faults.calls_of(Function::cuStreamWriteValue64_v2) - before;
    gate.open();
    assert_eq!(marks, 1);
    // What came after the fence waits for the next one, which a request that finds nothing records.
    b.synchronize().unwrap();
    let again: Vec<Block<u32>> = (0..100).map(|_| a.alloc(N).unwrap()).collect();
    assert_eq!(own.device.stats().released_blocks, 0);
    drop(again);
}

#[test]
fn a_stream_that_others_capture_takes_no_work_until_the_capture_is_over() {
    let own = Own::new();
    let [a, b] = own.streams();
    let mut x = a.zeros::<u32>(N).unwrap();
    own.device.synchronize().unwrap();
    capture::begin(&own.api, a.raw().into(), CUstreamCaptureMode::RELAXED).unwrap();
    let refused = a.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)).unwrap_err();
    assert!(matches!(refused, Error::StreamCaptured), "{refused}");
    assert!(matches!(a.write(&mut x, &[1; N]), Err(Error::StreamCaptured)));
    assert!(matches!(a.download(&x), Err(Error::StreamCaptured)));
    assert!(matches!(a.upload(&[1_u32; N]), Err(Error::StreamCaptured)));
    // Other streams continue, and work submitted before the capture is not waited for.
    add(&own, &b, &mut x, 1);
    assert_eq!(b.download(&x).unwrap(), [1; N]);
    let captured = capture::end(&own.api, a.raw().into()).expect("nothing has spoilt the capture");
    assert_eq!(graph::node_count(&own.api, captured).unwrap(), 0);
    add(&own, &a, &mut x, 1);
    assert_eq!(a.download(&x).unwrap(), [2; N]);
}

#[test]
fn work_that_would_wait_for_a_captured_stream_is_refused_and_the_capture_stays_whole() {
    let own = Own::new();
    let [a, b] = own.streams();
    let (mut x, mut y) = (a.zeros::<u32>(N).unwrap(), b.zeros::<u32>(N).unwrap());
    let mut z = a.zeros::<u32>(N).unwrap();
    own.device.synchronize().unwrap();
    let (gate, raw) = (own.gate(), a.raw());
    own.hold(&a, &gate);
    let reached = a.event().unwrap();
    add(&own, &a, &mut x, 7);
    a.fill(&mut z, 1).unwrap();
    capture::begin(&own.api, raw.into(), CUstreamCaptureMode::RELAXED).unwrap();
    assert!(matches!(b.copy(&x, &mut y), Err(Error::StreamCaptured)));
    assert!(matches!(b.download(&x), Err(Error::StreamCaptured)));
    let refused = b.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32));
    assert!(matches!(refused, Err(Error::StreamCaptured)), "{refused:?}");
    assert!(matches!(b.lend(&x), Err(Error::StreamCaptured)));
    assert!(matches!(b.wait(&reached), Err(Error::StreamCaptured)));
    assert!(matches!(reached.synchronize(), Err(Error::StreamCaptured)));
    assert!(matches!(own.device.synchronize(), Err(Error::StreamCaptured)));
    let Err(CloseError { value: z, error: Error::StreamCaptured }) = z.release_now() else {
        panic!("nothing is recorded for the release")
    };
    own.device.tidy().unwrap();
    own.device.trim().unwrap();
    assert_eq!(stream::capture_status(&own.api, b.raw().into()).unwrap(), CUstreamCaptureStatus::NONE);
    let captured = capture::end(&own.api, raw.into()).expect("nothing has spoilt the capture");
    assert_eq!(graph::node_count(&own.api, captured).unwrap(), 0);
    gate.open();
    b.copy(&x, &mut y).unwrap();
    assert_eq!(b.download(&y).unwrap(), [7; N]);
    z.release_now().map_err(Error::from).unwrap();
}

#[test]
fn events_and_waits_in_a_captured_stream_are_refused_and_the_capture_stays_whole() {
    let own = Own::new();
    let [a, b] = own.streams();
    let gate = own.gate();
    own.hold(&b, &gate);
    let reached = b.event().unwrap();
    let raw = a.raw();
    capture::begin(&own.api, raw.into(), CUstreamCaptureMode::RELAXED).unwrap();
    assert!(matches!(a.event(), Err(Error::StreamCaptured)));
    assert!(matches!(a.wait(&reached), Err(Error::StreamCaptured)));
    assert!(matches!(a.synchronize(), Err(Error::StreamCaptured)));
    assert!(matches!(a.is_idle(), Err(Error::StreamCaptured)));
    let Err(CloseError { value: a, error: Error::StreamCaptured }) = a.close() else {
        panic!("a captured stream is not given up")
    };
    // It goes when the capture is over.
    drop(a);
    own.device.tidy().unwrap();
    let captured = capture::end(&own.api, raw.into()).expect("nothing has spoilt the capture");
    assert_eq!(graph::node_count(&own.api, captured).unwrap(), 0);
    gate.open();
    own.device.tidy().unwrap();
}
