//! Ordering: uses in several streams, reused memory, events, parts, and work that opts out of ordering.

use freehold::Error;

use super::rig::{N, Rig, grid};

#[test]
fn a_read_in_another_stream_waits_for_the_write() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let (mut x, mut y) = (a.upload(&[1_u32; N]).unwrap(), b.zeros(N).unwrap());
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&a);
    rig.add(&a, &mut x, 6);
    b.copy(&x, &mut y).unwrap();
    let copied = b.event().unwrap();
    rig.pass_by();
    assert!(!copied.is_complete().unwrap());
    gate.open();
    assert_eq!(b.download(&y).unwrap(), [7; N]);
}

#[test]
fn a_write_waits_for_the_reads_of_all_streams_since() {
    let rig = Rig::new();
    let [a, b, c] = rig.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    let (mut y, mut z) = (a.zeros(N).unwrap(), b.zeros(N).unwrap());
    rig.device.synchronize().unwrap();
    let gates = [rig.hold(&a), rig.hold(&b)];
    a.copy(&x, &mut y).unwrap();
    b.copy(&x, &mut z).unwrap();
    rig.add(&c, &mut x, 1);
    let written = c.event().unwrap();
    rig.pass_by();
    assert!(!written.is_complete().unwrap(), "the read in the first stream is still to come");
    gates[0].open();
    a.synchronize().unwrap();
    rig.pass_by();
    assert!(!written.is_complete().unwrap(), "the read in the second stream is still to come");
    gates[1].open();
    assert_eq!(c.download(&x).unwrap(), [2; N]);
    assert_eq!(a.download(&y).unwrap(), [1; N]);
    assert_eq!(b.download(&z).unwrap(), [1; N]);
}

#[test]
fn reads_do_not_wait_for_each_other() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let x = a.upload(&[3_u32; N]).unwrap();
    let (mut y, mut z) = (a.zeros(N).unwrap(), b.zeros(N).unwrap());
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&a);
    a.copy(&x, &mut y).unwrap();
    b.copy(&x, &mut z).unwrap();
    b.synchronize().unwrap();
    assert!(!a.event().unwrap().is_complete().unwrap());
    gate.open();
    assert_eq!(a.download(&y).unwrap(), [3; N]);
    assert_eq!(b.download(&z).unwrap(), [3; N]);
}

#[test]
fn a_block_is_not_handed_out_while_another_stream_uses_it() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&b);
    rig.add(&b, &mut x, 1);
    let address = x.address();
    drop(x);
    assert!(!rig.hands_out(&a, address));
    assert!(!rig.hands_out(&b, address));
    gate.open();
    b.synchronize().unwrap();
    assert!(rig.hands_out(&a, address));
}

#[test]
fn a_block_is_not_given_to_another_stream_while_its_own_stream_uses_it() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&a);
    rig.add(&a, &mut x, 1);
    let address = x.address();
    drop(x);
    assert!(!rig.hands_out(&b, address));
    gate.open();
    a.synchronize().unwrap();
    assert!(rig.hands_out(&b, address));
}

#[test]
fn a_block_is_not_reused_while_its_own_stream_uses_it_though_others_are_done() {
    let rig = Rig::new();
    let [a, b, c] = rig.streams();
    let x = a.upload(&[1_u32; N]).unwrap();
    let (mut y, mut z) = (a.zeros(N).unwrap(), b.zeros(N).unwrap());
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&a);
    a.copy(&x, &mut y).unwrap();
    b.copy(&x, &mut z).unwrap();
    let address = x.address();
    drop(x);
    b.synchronize().unwrap();
    assert!(!rig.hands_out(&c, address));
    gate.open();
    a.synchronize().unwrap();
    assert!(rig.hands_out(&c, address));
}

#[test]
fn a_third_stream_waits_for_the_old_owner_of_a_reused_block() {
    let rig = Rig::new();
    let [a, c] = rig.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&a);
    rig.add(&a, &mut x, 1);
    let address = x.address();
    drop(x);
    let mut y = a.alloc::<u32>(N).unwrap();
    assert_eq!(y.address(), address);
    c.write(&mut y, &[5; N]).unwrap();
    let written = c.event().unwrap();
    rig.pass_by();
    assert!(!written.is_complete().unwrap());
    gate.open();
    assert_eq!(c.download(&y).unwrap(), [5; N]);
}

#[test]
fn a_third_stream_waits_for_what_the_own_stream_of_a_reused_block_waited_for() {
    let rig = Rig::new();
    let [a, b, c] = rig.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&b);
    rig.add(&b, &mut x, 1);
    a.wait(&b.event().unwrap()).unwrap();
    let address = x.address();
    drop(x);
    let mut y = a.alloc::<u32>(N).unwrap();
    assert_eq!(y.address(), address, "what comes next in its home comes after the other stream");
    c.write(&mut y, &[5; N]).unwrap();
    let written = c.event().unwrap();
    rig.pass_by();
    assert!(!written.is_complete().unwrap());
    gate.open();
    assert_eq!(c.download(&y).unwrap(), [5; N]);
}

#[test]
fn no_stream_waits_for_the_own_stream_of_a_fresh_block() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let gate = rig.hold(&a);
    let mut x = a.alloc::<u32>(N).unwrap();
    b.write(&mut x, &[4; N]).unwrap();
    assert_eq!(b.download(&x).unwrap(), [4; N]);
    gate.open();
}

#[test]
fn a_stream_dropped_with_work_pending_does_it_and_its_memory_stays() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let (mut x, mut y) = (a.upload(&[1_u32; N]).unwrap(), b.zeros(N).unwrap());
    let mut gone = a.upload(&[1_u32; N]).unwrap();
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&a);
    rig.add(&a, &mut x, 1);
    rig.add(&a, &mut gone, 1);
    let (address, done) = (gone.address(), a.event().unwrap());
    drop(a);
    drop(gone);
    assert!(!rig.hands_out(&b, address));
    b.copy(&x, &mut y).unwrap();
    assert!(!done.is_complete().unwrap());
    gate.open();
    done.synchronize().unwrap();
    assert!(done.is_complete().unwrap());
    assert_eq!(b.download(&y).unwrap(), [2; N]);
    rig.device.tidy().unwrap();
    assert!(rig.hands_out(&b, address));
}

#[test]
fn unordered_work_waits_for_nothing() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&a);
    rig.add(&a, &mut x, 6);
    // SAFETY: the kernel that the gate holds adds to the same values, and the order of the two does not matter.
    let free = unsafe { x.unordered() };
    b.launch(&rig.add, grid(), (free, 1_u32, N as u32)).unwrap();
    b.synchronize().unwrap();
    gate.open();
    assert_eq!(a.download(&x).unwrap(), [8; N]);
}

#[test]
fn a_read_waits_for_an_unordered_write_before_it() {
    let rig = Rig::new();
    let [a, b, c] = rig.streams();
    let (x, mut y) = (a.upload(&[1_u32; N]).unwrap(), c.zeros(N).unwrap());
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&b);
    // SAFETY: nothing else uses the block until the copy below, which waits.
    let free = unsafe { x.unordered() };
    b.launch(&rig.add, grid(), (free, 1_u32, N as u32)).unwrap();
    c.copy(&x, &mut y).unwrap();
    let copied = c.event().unwrap();
    rig.pass_by();
    assert!(!copied.is_complete().unwrap());
    gate.open();
    assert_eq!(c.download(&y).unwrap(), [2; N]);
}

#[test]
fn an_unordered_use_keeps_the_memory() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let x = a.upload(&[1_u32; N]).unwrap();
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&b);
    // SAFETY: nothing else uses the block.
    let free = unsafe { x.unordered() };
    b.launch(&rig.add, grid(), (free, 1_u32, N as u32)).unwrap();
    let address = x.address();
    drop(x);
    assert!(!rig.hands_out(&a, address));
    gate.open();
}

#[test]
fn a_release_after_an_event_that_has_passed_is_at_once() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let x = a.upload(&[1_u32; N]).unwrap();
    rig.device.synchronize().unwrap();
    let (address, passed) = (x.address(), b.event().unwrap());
    x.release_after(&passed).unwrap();
    assert_eq!(a.alloc::<u32>(N).unwrap().address(), address);
}

#[test]
fn a_stream_waits_for_an_event_and_the_host_too() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    assert!(a.event().unwrap().is_complete().unwrap(), "a stream without work has nothing to wait for");
    let gate = rig.hold(&a);
    let first = a.event().unwrap();
    b.wait(&first).unwrap();
    let mut x = b.zeros::<u32>(N).unwrap();
    rig.add(&b, &mut x, 1);
    let second = b.event().unwrap();
    rig.pass_by();
    assert!(!first.is_complete().unwrap());
    assert!(!second.is_complete().unwrap());
    gate.open();
    second.synchronize().unwrap();
    assert!(first.is_complete().unwrap());
    assert!(second.is_complete().unwrap());
}

#[test]
fn a_part_is_ordered_as_the_whole_and_cannot_reach_beyond_it() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    let mut y = b.zeros::<u32>(N / 2).unwrap();
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&a);
    let mut low = x.view_mut(..N / 2).unwrap();
    a.launch(&rig.add, grid(), (&mut low, 6_u32, N as u32 / 2)).unwrap();
    b.copy(&x.view(N / 2..).unwrap(), &mut y).unwrap();
    let copied = b.event().unwrap();
    rig.pass_by();
    assert!(!copied.is_complete().unwrap(), "what orders a part is the whole block");
    gate.open();
    assert_eq!(b.download(&y).unwrap(), [1; N / 2]);
    assert_eq!(b.download(&x).unwrap(), [[7; N / 2], [1; N / 2]].concat());
    let (mut left, mut right) = x.view_mut(..).unwrap().split_at(400).unwrap();
    a.write(&mut left, &[8; 400]).unwrap();
    b.write(&mut right, &[9; 600]).unwrap();
    assert_eq!(a.download(&x.view(399..401).unwrap()).unwrap(), [8, 9]);
    for (start, end) in [(N, N), (5, 5)] {
        let empty = x.view(start..end).unwrap();
        assert_eq!(b.download(&empty).unwrap(), [0; 0], "{start}..{end}");
        a.launch(&rig.add, grid(), (&mut x.view_mut(start..end).unwrap(), 1_u32, 0_u32)).unwrap();
    }
    for (start, end) in [(0, N + 1), (N + 1, N + 1), (6, 5)] {
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
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let x = a.upload(&[2_u32; N]).unwrap();
    let address = x.address();
    let one = x.share();
    let two = one.clone();
    assert_eq!(one.count(), 2);
    let mut y = b.zeros::<u32>(N).unwrap();
    let gate = rig.hold(&b);
    b.copy(&two, &mut y).unwrap();
    let two = two.into_block().expect_err("there is another reference");
    std::thread::scope(|scope| scope.spawn(|| drop(one)).join().unwrap());
    assert_eq!(two.count(), 1);
    assert!(rig.device.owner_of(address).is_some());
    drop(two);
    assert_ne!(a.alloc::<u32>(N).unwrap().address(), address, "the copy is still to read it");
    gate.open();
    assert_eq!(b.download(&y).unwrap(), [2; N]);
    let only = b.upload(&[3_u32; N]).unwrap().share();
    let mut block = only.into_block().expect("it is the only reference");
    rig.add(&b, &mut block, 1);
    assert_eq!(b.download(&block).unwrap(), [4; N]);
}
