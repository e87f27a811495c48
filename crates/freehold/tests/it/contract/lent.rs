//! Memory accessed by something other than a stream. If streams cannot wait for the end of a transfer, the host waits
//! for them.

use std::thread;

use freehold::Error;

use super::rig::{N, Rig};

#[test]
fn a_transfer_may_begin_when_the_work_before_it_has_passed() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let mut x = a.zeros::<u32>(N).unwrap();
    rig.device.synchronize().unwrap();
    let gate = rig.hold(&b);
    rig.add(&b, &mut x, 3);
    let lent = a.lend(&x).unwrap();
    rig.pass_by();
    assert!(!lent.is_ready().unwrap());
    gate.open();
    lent.wait().unwrap();
    assert_eq!((lent.address(), lent.bytes()), (x.address(), 4 * N));
    assert_eq!(rig.transferred(&lent), [3; N]);
    lent.done();
}

#[test]
fn what_reads_the_block_finds_what_the_transfer_wrote() {
    let rig = Rig::new();
    let [a, b] = rig.streams();
    let mut x = a.zeros::<u32>(N).unwrap();
    let lent = a.lend_mut(&mut x).unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| b.download(&x).unwrap());
        lent.wait().unwrap();
        rig.transfer(&lent, &[7; N]);
        lent.done();
        assert_eq!(reader.join().unwrap(), [7; N]);
    });
}

#[test]
fn a_transfer_beside_kernels_writes_its_bytes_and_no_others() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    for bytes in (1..40).chain([4095, 4096, 32_767, 32_768]) {
        let from: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8 + 1).collect();
        let mut to = stream.zeros::<u8>(bytes + 2).unwrap();
        let lent = stream.lend_mut(&mut to.view_mut(1..=bytes).unwrap()).unwrap();
        lent.wait().unwrap();
        rig.transfer_beside(&lent, &from);
        lent.done();
        assert_eq!(stream.download(&to).unwrap(), [&[0], &from[..], &[0]].concat(), "{bytes} bytes");
    }
}

#[test]
fn what_a_failed_transfer_was_to_write_is_not_read_before_it_is_written() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut x = stream.zeros::<u32>(N).unwrap();
    stream.lend_mut(&mut x).unwrap().failed();
    let refused = stream.download(&x).unwrap_err();
    assert!(matches!(refused, Error::Undefined { .. }), "{refused}");
    stream.fill_bytes(&mut x, 0).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [0; N]);
}
