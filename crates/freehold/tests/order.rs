//! What waits for what: uses of a block by streams, reuse of its memory, events, views and references.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod own;

use freehold::{Block, Error, Stream};
use freehold_driver::cuda::faults::Faults;
use freehold_driver::cuda::{CUdeviceptr, Function, context, event, stream, wait_value_flags};
use own::{N, Own, comes_back, grid, is_handed_out, opened};

/// Adds to every value of a block, in `stream`.
fn add(own: &Own, stream: &Stream, to: &mut Block<u32>, more: u32) {
    stream.launch(&own.kernels.add, grid(), (to, more, N as u32)).unwrap();
}

#[test]
fn a_read_in_another_stream_waits_for_the_write() {
    let own = Own::new();
    let [a, b] = own.streams();
    let (mut x, mut y) = (a.upload(&[1_u32; N]).unwrap(), b.zeros(N).unwrap());
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    add(&own, &a, &mut x, 6);
    b.copy(&x, &mut y).unwrap();
    let copied = b.event().unwrap();
    own.pass_by();
    assert!(!copied.has_passed().unwrap());
    gate.open();
    assert_eq!(b.download(&y).unwrap(), [7; N]);
}

#[test]
fn a_write_waits_for_the_reads_of_all_streams_since() {
    let own = Own::new();
    let [a, b, c] = own.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    let (mut y, mut z) = (a.zeros(N).unwrap(), b.zeros(N).unwrap());
    own.device.synchronize().unwrap();
    let gates = [own.gate(), own.gate()];
    own.hold(&a, &gates[0]);
    own.hold(&b, &gates[1]);
    a.copy(&x, &mut y).unwrap();
    b.copy(&x, &mut z).unwrap();
    add(&own, &c, &mut x, 1);
    let written = c.event().unwrap();
    own.pass_by();
    assert!(!written.has_passed().unwrap(), "the read in the first stream is still to come");
    gates[0].open();
    a.synchronize().unwrap();
    own.pass_by();
    assert!(!written.has_passed().unwrap(), "the read in the second stream is still to come");
    gates[1].open();
    assert_eq!(c.download(&x).unwrap(), [2; N]);
    assert_eq!(a.download(&y).unwrap(), [1; N]);
    assert_eq!(b.download(&z).unwrap(), [1; N]);
}

#[test]
fn reads_do_not_wait_for_each_other() {
    let own = Own::new();
    let [a, b] = own.streams();
    let x = a.upload(&[3_u32; N]).unwrap();
    let (mut y, mut z) = (a.zeros(N).unwrap(), b.zeros(N).unwrap());
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    a.copy(&x, &mut y).unwrap();
    b.copy(&x, &mut z).unwrap();
    b.synchronize().unwrap();
    assert!(!a.event().unwrap().has_passed().unwrap());
    gate.open();
    assert_eq!(a.download(&y).unwrap(), [3; N]);
    assert_eq!(b.download(&z).unwrap(), [3; N]);
}

#[test]
fn a_block_is_handed_out_again_in_its_home_stream_at_once_without_a_call() {
    let opened = opened();
    let faults = Faults::count(&opened.api);
    let own = Own::over(*faults.api(), &opened);
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
fn a_block_is_not_handed_out_while_another_stream_uses_it() {
    let own = Own::new();
    let [a, b] = own.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&b, &gate);
    add(&own, &b, &mut x, 1);
    let address = x.address();
    drop(x);
    assert!(!is_handed_out(&a, address));
    assert!(!is_handed_out(&b, address));
    gate.open();
    b.synchronize().unwrap();
    assert!(comes_back(&a, address));
}

#[test]
fn a_block_is_not_handed_out_to_another_stream_while_its_home_uses_it() {
    let own = Own::new();
    let [a, b] = own.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    add(&own, &a, &mut x, 1);
    let address = x.address();
    drop(x);
    assert!(!is_handed_out(&b, address));
    gate.open();
    a.synchronize().unwrap();
    assert!(comes_back(&b, address));
}

#[test]
fn a_block_is_not_handed_out_while_its_home_uses_it_though_others_have_passed() {
    let own = Own::new();
    let [a, b, c] = own.streams();
    let x = a.upload(&[1_u32; N]).unwrap();
    let (mut y, mut z) = (a.zeros(N).unwrap(), b.zeros(N).unwrap());
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    a.copy(&x, &mut y).unwrap();
    b.copy(&x, &mut z).unwrap();
    let address = x.address();
    drop(x);
    b.synchronize().unwrap();
    assert!(!is_handed_out(&c, address));
    gate.open();
    a.synchronize().unwrap();
    assert!(comes_back(&c, address));
}

#[test]
fn a_third_stream_waits_for_the_old_owner_of_a_reused_block() {
    let own = Own::new();
    let [a, c] = own.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    add(&own, &a, &mut x, 1);
    let address = x.address();
    drop(x);
    let mut y = a.alloc::<u32>(N).unwrap();
    assert_eq!(y.address(), address);
    c.write(&mut y, &[5; N]).unwrap();
    let written = c.event().unwrap();
    own.pass_by();
    assert!(!written.has_passed().unwrap());
    gate.open();
    assert_eq!(c.download(&y).unwrap(), [5; N]);
}

#[test]
fn a_third_stream_waits_for_what_the_home_of_a_reused_block_waited_for() {
    let own = Own::new();
    let [a, b, c] = own.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&b, &gate);
    add(&own, &b, &mut x, 1);
    a.wait(&b.event().unwrap()).unwrap();
    let address = x.address();
    drop(x);
    let mut y = a.alloc::<u32>(N).unwrap();
    assert_eq!(y.address(), address, "what comes next in its home comes after the other stream");
    c.write(&mut y, &[5; N]).unwrap();
    let written = c.event().unwrap();
    own.pass_by();
    assert!(!written.has_passed().unwrap());
    gate.open();
    assert_eq!(c.download(&y).unwrap(), [5; N]);
}

#[test]
fn nobody_waits_for_the_home_of_a_fresh_block() {
    let own = Own::new();
    let [a, b] = own.streams();
    let gate = own.gate();
    own.hold(&a, &gate);
    let mut x = a.alloc::<u32>(N).unwrap();
    b.write(&mut x, &[4; N]).unwrap();
    assert_eq!(b.download(&x).unwrap(), [4; N]);
    gate.open();
}

#[test]
fn a_stream_dropped_with_work_pending_does_it_and_its_memory_stays() {
    let own = Own::new();
    let [a, b] = own.streams();
    let (mut x, mut y) = (a.upload(&[1_u32; N]).unwrap(), b.zeros(N).unwrap());
    let mut gone = a.upload(&[1_u32; N]).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    add(&own, &a, &mut x, 1);
    add(&own, &a, &mut gone, 1);
    let (address, done) = (gone.address(), a.event().unwrap());
    drop(a);
    drop(gone);
    assert!(!is_handed_out(&b, address));
    b.copy(&x, &mut y).unwrap();
    assert!(!done.has_passed().unwrap());
    gate.open();
    done.synchronize().unwrap();
    assert!(done.has_passed().unwrap());
    assert_eq!(b.download(&y).unwrap(), [2; N]);
    own.device.tidy().unwrap();
    assert!(comes_back(&b, address));
}

#[test]
fn unordered_work_waits_for_nobody() {
    let own = Own::new();
    let [a, b] = own.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    add(&own, &a, &mut x, 6);
    // SAFETY: the kernel that the gate holds adds to the same values, and the order of the two does not matter.
    let free = unsafe { x.unordered() };
    b.launch(&own.kernels.add, grid(), (free, 1_u32, N as u32)).unwrap();
    b.synchronize().unwrap();
    gate.open();
    assert_eq!(a.download(&x).unwrap(), [8; N]);
}

#[test]
fn a_read_waits_for_an_unordered_write_before_it() {
    let own = Own::new();
    let [a, b, c] = own.streams();
    let (x, mut y) = (a.upload(&[1_u32; N]).unwrap(), c.zeros(N).unwrap());
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&b, &gate);
    // SAFETY: nothing else uses the block until the copy below, which waits.
    let free = unsafe { x.unordered() };
    b.launch(&own.kernels.add, grid(), (free, 1_u32, N as u32)).unwrap();
    c.copy(&x, &mut y).unwrap();
    let copied = c.event().unwrap();
    own.pass_by();
    assert!(!copied.has_passed().unwrap());
    gate.open();
    assert_eq!(c.download(&y).unwrap(), [2; N]);
}

#[test]
fn an_unordered_use_keeps_the_memory() {
    let own = Own::new();
    let [a, b] = own.streams();
    let x = a.upload(&[1_u32; N]).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&b, &gate);
    // SAFETY: nothing else uses the block.
    let free = unsafe { x.unordered() };
    b.launch(&own.kernels.add, grid(), (free, 1_u32, N as u32)).unwrap();
    let address = x.address();
    drop(x);
    assert!(!is_handed_out(&a, address));
    gate.open();
}

#[test]
fn a_release_after_an_event_waits_for_it() {
    let own = Own::new();
    let [a, b] = own.streams();
    let x = a.upload(&[1_u32; N]).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&b, &gate);
    let (address, passed) = (x.address(), b.event().unwrap());
    x.release_after(&passed).unwrap();
    assert!(!is_handed_out(&a, address));
    gate.open();
    passed.synchronize().unwrap();
    assert!(comes_back(&a, address));
}

#[test]
fn a_release_after_an_event_that_has_passed_is_at_once() {
    let own = Own::new();
    let [a, b] = own.streams();
    let x = a.upload(&[1_u32; N]).unwrap();
    own.device.synchronize().unwrap();
    let (address, passed) = (x.address(), b.event().unwrap());
    x.release_after(&passed).unwrap();
    assert_eq!(a.alloc::<u32>(N).unwrap().address(), address);
}

#[test]
fn a_stream_waits_for_an_event_and_the_host_too() {
    let own = Own::new();
    let [a, b] = own.streams();
    assert!(a.event().unwrap().has_passed().unwrap(), "a stream without work has nothing to wait for");
    let gate = own.gate();
    own.hold(&a, &gate);
    let first = a.event().unwrap();
    b.wait(&first).unwrap();
    let mut x = b.zeros::<u32>(N).unwrap();
    add(&own, &b, &mut x, 1);
    let second = b.event().unwrap();
    own.pass_by();
    assert!(!first.has_passed().unwrap());
    assert!(!second.has_passed().unwrap());
    gate.open();
    second.synchronize().unwrap();
    assert!(first.has_passed().unwrap());
    assert!(second.has_passed().unwrap());
}

#[test]
fn an_event_of_another_device_is_refused() {
    let own = Own::new();
    let other = freehold::Device::new(own.api, opened().device).unwrap();
    let (here, there) = (own.device.stream().unwrap(), other.stream().unwrap());
    let foreign = there.event().unwrap();
    let Err(Error::OtherDevice { what: "an event" }) = here.wait(&foreign) else { panic!("the event is refused") };
    let x = here.upload(&[1_u32; N]).unwrap();
    let Err((x, Error::OtherDevice { what: "an event" })) = x.release_after(&foreign) else {
        panic!("the event is refused")
    };
    assert_eq!(here.download(&x).unwrap(), [1; N]);
}

#[test]
fn a_part_is_ordered_as_the_whole_and_cannot_reach_beyond_it() {
    let own = Own::new();
    let [a, b] = own.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    let mut y = b.zeros::<u32>(N / 2).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    let mut low = x.view_mut(..N / 2).unwrap();
    a.launch(&own.kernels.add, grid(), (&mut low, 6_u32, N as u32 / 2)).unwrap();
    b.copy(&x.view(N / 2..).unwrap(), &mut y).unwrap();
    let copied = b.event().unwrap();
    own.pass_by();
    assert!(!copied.has_passed().unwrap(), "what orders a part is the whole block");
    gate.open();
    assert_eq!(b.download(&y).unwrap(), [1; N / 2]);
    assert_eq!(b.download(&x).unwrap(), [[7; N / 2], [1; N / 2]].concat());
    let (mut left, mut right) = x.view_mut(..).unwrap().split_at(400).unwrap();
    a.write(&mut left, &[8; 400]).unwrap();
    b.write(&mut right, &[9; 600]).unwrap();
    assert_eq!(a.download(&x.view(399..401).unwrap()).unwrap(), [8, 9]);
    for (start, end) in [(0, N + 1), (N, N), (5, 5)] {
        let Err(Error::OutsideOfBlock { start: from, end: to, elements: 1000 }) = x.view(start..end) else {
            panic!("{start}..{end} is refused")
        };
        assert_eq!((from, to), (start, end));
    }
    let nested = x.view(300..500).unwrap().view(99..=100).unwrap();
    assert_eq!(b.download(&nested).unwrap(), [8, 9]);
}

#[test]
fn shared_references_are_counted_and_the_last_one_releases() {
    let own = Own::new();
    let [a, b] = own.streams();
    let x = a.upload(&[2_u32; N]).unwrap();
    let address = x.address();
    let one = x.share();
    let two = one.clone();
    assert_eq!(one.count(), 2);
    let gate = own.gate();
    let mut y = b.zeros::<u32>(N).unwrap();
    own.hold(&b, &gate);
    b.copy(&two, &mut y).unwrap();
    let two = two.into_block().expect_err("there is another reference");
    std::thread::scope(|scope| scope.spawn(|| drop(one)).join().unwrap());
    assert_eq!(two.count(), 1);
    assert!(own.device.owner_of(address).is_some());
    drop(two);
    assert_ne!(a.alloc::<u32>(N).unwrap().address(), address, "the copy is still to read it");
    gate.open();
    assert_eq!(b.download(&y).unwrap(), [2; N]);
    let only = b.upload(&[3_u32; N]).unwrap().share();
    let mut block = only.into_block().expect("it is the only reference");
    add(&own, &b, &mut block, 1);
    assert_eq!(b.download(&block).unwrap(), [4; N]);
}

#[test]
fn a_stream_never_hears_of_the_last_mark_of_the_one_before() {
    let own = Own::new();
    let [a, b] = own.streams();
    let (first, second) = (own.gate(), own.gate());
    let mut x = a.zeros::<u32>(N).unwrap();
    // An event of the driver's is recorded behind the fill, then others hold the stream up, and then comes the mark.
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
    let next = own.device.stream().unwrap();
    own.hold(&next, &second);
    let done = next.event().unwrap();
    first.open();
    event::synchronize(&own.api, marked).unwrap();
    assert!(!done.has_passed().unwrap());
    second.open();
    done.synchronize().unwrap();
}

#[test]
fn a_stream_that_works_has_one_mark_on_its_way() {
    let opened = opened();
    let faults = Faults::count(&opened.api);
    let own = Own::over(*faults.api(), &opened);
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
    // What came after the mark waits for the next one, which a request makes that finds nothing.
    b.synchronize().unwrap();
    let again: Vec<Block<u32>> = (0..100).map(|_| a.alloc(N).unwrap()).collect();
    assert_eq!(own.device.totals().released_blocks, 0);
    drop(again);
}
