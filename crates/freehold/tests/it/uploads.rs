//! Uploads: staging buffers are shared, reused, and never overwritten while a copy reads them.

use crate::own;

use freehold_driver::cuda::{Function, stream};
use own::{N, Own, opened};

#[test]
fn small_uploads_that_are_pending_share_pinned_memory() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let [a, b] = own.streams();
    let before = faults.calls_of(Function::cuMemHostAlloc);
    let gate = own.gate();
    own.hold(&a, &gate);
    own.hold(&b, &gate);
    // 200 times 400 bytes fit into two buffers of 64 KiB.
    let blocks: Vec<_> = (0..200_u32).map(|i| [&a, &b][i as usize % 2].upload(&[i; 100]).unwrap()).collect();
    let pinned = faults.calls_of(Function::cuMemHostAlloc) - before;
    assert!(pinned <= 2, "{pinned} buffers were pinned");
    gate.open();
    for (i, block) in blocks.iter().enumerate() {
        assert_eq!(a.download(block).unwrap(), [i as u32; 100]);
    }
}

#[test]
fn pinned_memory_is_reused_after_a_synchronize_outside_the_library() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let [a] = own.streams();
    let mut x = a.alloc::<u32>(16_000).unwrap();
    a.write(&mut x, &[0; 16_000]).unwrap();
    a.write(&mut x, &[1; 16_000]).unwrap();
    let before = faults.calls_of(Function::cuMemHostAlloc);
    for i in 2..50_u32 {
        // The library does not see this call.
        stream::synchronize(&own.api, a.raw().into()).unwrap();
        a.write(&mut x, &[i; 16_000]).unwrap();
    }
    let pinned = faults.calls_of(Function::cuMemHostAlloc) - before;
    assert!(pinned <= 1, "{pinned} buffers were pinned for copies that have passed");
    assert_eq!(a.download(&x).unwrap(), [49; 16_000]);
}

#[test]
fn what_an_upload_was_given_may_be_changed_at_once() {
    let own = Own::new();
    let [a, b] = own.streams();
    let gate = own.gate();
    own.hold(&a, &gate);
    let mut from = vec![1_u32; N];
    let x = a.upload(&from).unwrap();
    from.fill(2);
    let y = a.upload(&from).unwrap();
    let large = vec![3_u32; 1 << 20];
    let z = b.upload(&large).unwrap();
    drop(large);
    gate.open();
    assert_eq!(a.download(&x).unwrap(), [1; N]);
    assert_eq!(a.download(&y).unwrap(), [2; N]);
    assert_eq!(b.download(&z.view(..N).unwrap()).unwrap(), [3; N]);
}
