//! Memory accessed by something other than a stream, and copies of rows. A direct driver copy plays the transfer.

use crate::own;
use crate::shared;

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;

use freehold::{Error, ExternalAccess, Permission};
use freehold_driver::cuda::{
    Api, CUdevice, CUdevice_attribute, CUdeviceptr, CUresult, CUstream, Function, context, copy, stream,
};
use own::{N, Own, comes_back, grid, is_handed_out, opened};
use shared::CHUNK;
use zerocopy::IntoBytes;

fn own() -> Own {
    shared::move_in();
    Own::new()
}

/// Writes to lent memory, as a transfer does.
fn transfer(own: &Own, to: &ExternalAccess, from: &[u32]) {
    assert_eq!(to.bytes(), size_of_val(from));
    context::push_current(&own.api, own.primary).unwrap();
    copy::host_to_device(&own.api, CUdeviceptr(to.address()), from.as_bytes()).unwrap();
    // The driver has read what it copies, and may be on its way with it.
    stream::synchronize(&own.api, CUstream::NULL).unwrap();
    context::pop_current(&own.api).unwrap();
}

/// What lent memory holds, as a transfer reads it.
fn transferred(own: &Own, from: &ExternalAccess) -> Vec<u32> {
    let mut to = vec![0_u32; from.bytes() / 4];
    context::push_current(&own.api, own.primary).unwrap();
    copy::device_to_host(&own.api, to.as_mut_bytes(), CUdeviceptr(from.address())).unwrap();
    context::pop_current(&own.api).unwrap();
    to
}

#[track_caller]
fn assert_undefined<T: std::fmt::Debug>(outcome: freehold::Result<T>, at: u64) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Undefined { address, .. } if address == at), "{error:?}");
}

#[test]
fn a_transfer_may_begin_when_the_work_before_it_has_passed() {
    let own = own();
    let [a, b] = own.streams();
    let mut x = a.zeros::<u32>(N).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&b, &gate);
    b.launch(&own.kernels.add, grid(), (&mut x, 3_u32, N as u32)).unwrap();
    let lent = a.lend(&x).unwrap();
    own.pass_by();
    assert!(!lent.is_ready().unwrap());
    gate.open();
    lent.wait().unwrap();
    assert!(lent.is_ready().unwrap());
    assert_eq!((lent.address(), lent.bytes()), (x.address(), 4 * N));
    assert_eq!(transferred(&own, &lent), [3; N]);
    lent.done();
}

#[test]
fn work_with_the_block_waits_on_the_device_for_the_end_of_the_transfer() {
    let own = own();
    let [a, b] = own.streams();
    let mut x = a.zeros::<u32>(N).unwrap();
    let lent = a.lend_mut(&mut x).unwrap();
    let mut seen = Vec::new();
    for stream in [&a, &b] {
        let mut y = stream.zeros::<u32>(N).unwrap();
        stream.copy(&x, &mut y).unwrap();
        seen.push((stream, y, stream.event().unwrap()));
    }
    own.pass_by();
    assert!(seen.iter().all(|(_, _, after)| !after.is_complete().unwrap()));
    lent.wait().unwrap();
    transfer(&own, &lent, &[7; N]);
    thread::spawn(move || lent.done()).join().unwrap();
    for (stream, y, _) in seen {
        assert_eq!(stream.download(&y).unwrap(), [7; N]);
    }
}

#[test]
fn a_transfer_does_not_wait_for_work_that_waits_for_it() {
    let own = own();
    let [a, b] = own.streams();
    let mut x = a.zeros::<u32>(N).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    a.launch(&own.kernels.add, grid(), (&mut x, 3_u32, N as u32)).unwrap();
    let lent = a.lend(&x).unwrap();
    a.launch(&own.kernels.add, grid(), (&mut x, 4_u32, N as u32)).unwrap();
    b.launch(&own.kernels.add, grid(), (&mut x, 5_u32, N as u32)).unwrap();
    drop(a);
    gate.open();
    lent.wait().unwrap();
    assert_eq!(transferred(&own, &lent), [3; N]);
    lent.done();
    assert_eq!(b.download(&x).unwrap(), [12; N]);
}

#[test]
fn work_without_the_block_goes_on_in_the_same_stream() {
    let own = own();
    let [stream] = own.streams();
    let mut x = stream.zeros::<u32>(N).unwrap();
    let lent = stream.lend_mut(&mut x).unwrap();
    let y = stream.upload(&[5_u32; N]).unwrap();
    assert_eq!(stream.download(&y).unwrap(), [5; N]);
    stream.synchronize().unwrap();
    own.device.synchronize().unwrap();
    lent.done();
}

#[test]
fn readers_do_not_wait_for_a_transfer_that_reads_and_writers_do() {
    let own = own();
    let [a, b] = own.streams();
    let mut x = a.upload(&[1_u32; N]).unwrap();
    let lent = [a.lend(&x).unwrap(), b.lend(&x).unwrap()];
    assert_eq!(b.download(&x).unwrap(), [1; N]);
    b.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    let after = b.event().unwrap();
    own.pass_by();
    for lent in lent {
        assert!(!after.is_complete().unwrap());
        assert_eq!(transferred(&own, &lent), [1; N]);
        lent.done();
    }
    assert_eq!(a.download(&x).unwrap(), [2; N]);
}

#[test]
fn a_block_that_is_dropped_is_used_again_when_its_lending_has_ended() {
    let own = own();
    let [stream] = own.streams();
    let mut x = stream.zeros::<u32>(N).unwrap();
    let lent = stream.lend_mut(&mut x).unwrap();
    let address = x.address();
    drop(x);
    stream.synchronize().unwrap();
    assert!(!is_handed_out(&stream, address));
    lent.wait().unwrap();
    transfer(&own, &lent, &[7; N]);
    lent.done();
    assert!(comes_back(&stream, address));
}

#[test]
fn a_release_that_waits_waits_for_a_lending() {
    let own = own();
    let [stream] = own.streams();
    let mut x = stream.zeros::<u32>(N).unwrap();
    let lent = stream.lend_mut(&mut x).unwrap();
    let (told, released) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            x.release_now().unwrap();
            told.send(()).unwrap();
        });
        own.pass_by();
        assert_eq!(released.try_recv(), Err(mpsc::TryRecvError::Empty));
        lent.done();
        released.recv().unwrap();
    });
}

#[test]
fn a_lending_comes_after_those_before_it() {
    let own = own();
    let [a, b] = own.streams();
    let mut x = a.zeros::<u32>(N).unwrap();
    let first = a.lend_mut(&mut x).unwrap();
    let second = b.lend(&x).unwrap();
    assert!(!second.is_ready().unwrap());
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            second.wait().unwrap();
            transferred(&own, &second)
        });
        first.wait().unwrap();
        transfer(&own, &first, &[9; N]);
        first.done();
        assert_eq!(reader.join().unwrap(), [9; N]);
    });
    second.done();
}

#[test]
fn what_waits_for_one_transfer_does_not_wait_for_another() {
    let own = own();
    let [stream] = own.streams();
    let (mut x, mut y) = (stream.zeros::<u32>(N).unwrap(), stream.zeros::<u32>(N).unwrap());
    let (late, soon) = (stream.lend_mut(&mut x).unwrap(), stream.lend_mut(&mut y).unwrap());
    soon.wait().unwrap();
    transfer(&own, &soon, &[4; N]);
    soon.done();
    assert_eq!(stream.download(&y).unwrap(), [4; N]);
    late.done();
}

#[test]
fn an_access_that_ends_before_it_may_begin_overtakes_no_earlier_work() {
    let own = own();
    let [a, b] = own.streams();
    let mut x = a.zeros::<u32>(N).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&b, &gate);
    b.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    a.lend_mut(&mut x).unwrap().done();
    a.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    let after = a.event().unwrap();
    own.pass_by();
    assert!(!after.is_complete().unwrap());
    gate.open();
    assert_eq!(a.download(&x).unwrap(), [2; N]);
}

#[test]
fn what_a_failed_transfer_was_to_write_is_not_read_before_it_is_written() {
    let own = own();
    let [stream] = own.streams();
    let mut x = stream.zeros::<u32>(N).unwrap();
    let mut y = stream.zeros::<u32>(N).unwrap();
    let at = x.address();
    stream.lend_mut(&mut x).unwrap().failed();
    assert_undefined(stream.download(&x), at);
    assert_undefined(stream.copy(&x, &mut y), at);
    assert_undefined(stream.lend(&x), at);
    assert_undefined(stream.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)), at);
    stream.fill_bytes(&mut x.view_mut(1..).unwrap(), 1).unwrap();
    assert_undefined(stream.download(&x.view(1..).unwrap()), at);
    stream.fill_bytes(&mut x, 0).unwrap();
    stream.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [1; N]);
}

#[test]
fn the_rest_of_a_block_is_read_whatever_became_of_a_part() {
    let own = own();
    let [stream] = own.streams();
    let mut x = stream.upload(&[2_u32; N]).unwrap();
    let at = x.address();
    drop(stream.lend_mut(&mut x.view_mut(..10).unwrap()).unwrap());
    stream.lend_mut(&mut x.view_mut(20..30).unwrap()).unwrap().failed();
    assert_eq!(stream.download(&x.view(10..20).unwrap()).unwrap(), [2; 10]);
    assert_undefined(stream.download(&x.view(9..11).unwrap()), at);
    assert_undefined(stream.download(&x.view(29..).unwrap()), at + 80);
    stream.write(&mut x.view_mut(..10).unwrap(), &[3; 10]).unwrap();
    let again = stream.lend_mut(&mut x.view_mut(20..30).unwrap()).unwrap();
    transfer(&own, &again, &[4; 10]);
    again.done();
    let wanted = [vec![3; 10], vec![2; 10], vec![4; 10]].concat();
    assert_eq!(stream.download(&x.view(..30).unwrap()).unwrap(), wanted);
}

#[test]
fn what_was_written_over_behind_a_transfer_outlives_its_failure() {
    let own = own();
    let [stream] = own.streams();
    let mut x = stream.zeros::<u32>(N).unwrap();
    let lent = stream.lend_mut(&mut x).unwrap();
    stream.fill_bytes(&mut x, 1).unwrap();
    lent.failed();
    assert_eq!(stream.download(&x).unwrap(), [0x0101_0101; N]);
}

#[test]
fn a_transfer_that_reads_leaves_all_as_it_was_however_it_ends() {
    let own = own();
    let [stream] = own.streams();
    let x = stream.upload(&[6_u32; N]).unwrap();
    stream.lend(&x).unwrap().failed();
    drop(stream.lend(&x).unwrap());
    assert_eq!(stream.download(&x).unwrap(), [6; N]);
}

#[test]
fn to_lend_what_nothing_pending_uses_calls_no_driver() {
    let opened = opened();
    shared::move_in();
    let (counting, own) = Own::counted(&opened);
    let [stream, busy] = own.streams();
    let mut x = stream.zeros::<u32>(N).unwrap();
    stream.synchronize().unwrap();
    stream.lend(&x).unwrap().done();
    let gate = own.gate();
    own.hold(&busy, &gate);
    let calls = counting.calls();
    for _ in 0..10 {
        let lent = stream.lend(&x).unwrap();
        lent.wait().unwrap();
        lent.done();
        let lent = stream.lend_mut(&mut x).unwrap();
        assert!(lent.is_ready().unwrap());
        lent.done();
    }
    assert_eq!(counting.calls(), calls);
    gate.open();
}

#[test]
fn a_block_is_at_rest_when_what_would_disturb_it_has_passed() {
    let own = own();
    let [a, b] = own.streams();
    let (mut x, mut y) = (a.zeros::<u32>(N).unwrap(), a.zeros::<u32>(N).unwrap());
    own.device.synchronize().unwrap();
    let whole = x.address()..x.address() + 4 * N as u64;
    assert_eq!(b.at_rest(&x).unwrap(), Some(whole.clone()));
    let part = x.address() + 8..x.address() + 20;
    assert_eq!(a.at_rest_mut(&mut x.view_mut(2..5).unwrap()).unwrap(), Some(part));
    let gate = own.gate();
    own.hold(&b, &gate);
    b.copy(&x, &mut y).unwrap();
    // It is read: others may read it too, and not write it.
    assert_eq!(a.at_rest(&x).unwrap(), Some(whole.clone()));
    assert_eq!(a.at_rest_mut(&mut x).unwrap(), None);
    assert_eq!((a.at_rest(&y).unwrap(), a.at_rest_mut(&mut y).unwrap()), (None, None));
    gate.open();
    own.device.synchronize().unwrap();
    assert_eq!(a.at_rest_mut(&mut x).unwrap(), Some(whole.clone()));
    let lent = a.lend_mut(&mut x).unwrap();
    assert_eq!(a.at_rest(&x).unwrap(), None);
    lent.failed();
    assert_undefined(a.at_rest(&x), x.address());
    assert_eq!(a.at_rest_mut(&mut x).unwrap(), Some(whole));
    // A context that another thread may close is not kept by a borrowed block.
    let context = own.device.new_context().unwrap();
    let z = context.new_stream().unwrap().zeros::<u32>(N).unwrap();
    own.device.synchronize().unwrap();
    assert_eq!(a.at_rest(&z).unwrap(), None);
}

#[test]
fn imported_memory_stays_mapped_until_its_lending_has_ended() {
    let own = own();
    let [stream] = own.streams();
    let descriptor = shared::memory(CHUNK);
    let import = own.device.import(descriptor.as_fd(), CHUNK, Permission::ReadWrite).unwrap();
    let mut part = import.slice::<u32>(&stream, 4096, N).unwrap();
    let (lent, status) = (stream.lend_mut(&mut part).unwrap(), import.unmap_status());
    drop((part, import));
    own.device.synchronize().unwrap();
    assert!(!status.is_complete().unwrap());
    transfer(&own, &lent, &[8; N]);
    lent.done();
    assert!(status.is_complete().unwrap());
    let import = own.device.import(descriptor.as_fd(), CHUNK, Permission::Read).unwrap();
    let mut part = import.slice::<u32>(&stream, 4096, N).unwrap();
    assert!(matches!(stream.lend_mut(&mut part), Err(Error::ReadOnly { .. })));
    assert_eq!(stream.download(&part).unwrap(), [8; N]);
}

#[test]
fn a_context_that_is_closed_is_not_destroyed_under_a_lending() {
    let own = own();
    let context = own.device.new_context().unwrap();
    let stream = context.new_stream().unwrap();
    let mut x = stream.zeros::<u32>(N).unwrap();
    let lent = stream.lend_mut(&mut x).unwrap();
    context.close_with_blocks().unwrap();
    own.device.synchronize().unwrap();
    own.device.tidy().unwrap();
    transfer(&own, &lent, &[1; N]);
    lent.done();
    own.device.tidy().unwrap();
    assert!(matches!(stream.lend(&x), Err(Error::ContextClosed { .. })));
}

unsafe extern "C" fn no_words(value: *mut i32, attribute: CUdevice_attribute, device: CUdevice) -> CUresult {
    if attribute == CUdevice_attribute::CAN_USE_64_BIT_STREAM_MEM_OPS {
        // SAFETY: the caller gives a pointer to one `i32`, which outlives the call.
        unsafe { value.write(0) };
        return Ok(());
    }
    // SAFETY: the arguments are handed on as they came.
    unsafe { (opened().api.cuDeviceGetAttribute)(value, attribute, device) }
}

#[test]
fn the_host_waits_in_place_of_streams_that_await_no_words() {
    shared::move_in();
    let opened = opened();
    let own = Own::over(Api { cuDeviceGetAttribute: no_words, ..opened.api }, &opened);
    let [a, b] = own.streams();
    let mut x = a.zeros::<u32>(N).unwrap();
    let lent = a.lend_mut(&mut x).unwrap();
    thread::scope(|scope| {
        let (own, x) = (&own, &x);
        let reader = scope.spawn(move || b.download(x).unwrap());
        lent.wait().unwrap();
        transfer(own, &lent, &[7; N]);
        lent.done();
        assert_eq!(reader.join().unwrap(), [7; N]);
    });
}

#[test]
fn rows_that_lie_side_by_side_write_all_of_a_block() {
    let own = own();
    let [stream] = own.streams();
    let (mut x, y) = (stream.zeros::<u32>(8).unwrap(), stream.upload(&[1_u32; 24]).unwrap());
    stream.lend_mut(&mut x).unwrap().failed();
    stream.copy_rows(&y, 6, &mut x, 4, 2, 2).unwrap();
    assert_undefined(stream.download(&x), x.address());
    stream.copy_rows(&y, 6, &mut x, 2, 2, 4).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [1; 8]);
}

/// A copy to memory that is not pinned keeps other threads out of NVIDIA's driver until it is over, also the one whose transfer it
/// waits for: it is put in when the transfer is over.
#[test]
fn a_download_that_waits_for_a_transfer_is_not_yet_with_the_driver() {
    shared::move_in();
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let [a, b] = own.streams();
    let mut x = a.zeros::<u32>(N).unwrap();
    let lent = a.lend_mut(&mut x).unwrap();
    lent.wait().unwrap();
    let calls = || [Function::cuStreamSynchronize, Function::cuMemcpyDtoHAsync_v2].map(|name| faults.calls_of(name));
    let before = calls();
    thread::scope(|scope| {
        let reader = scope.spawn(|| b.download(&x).unwrap());
        while calls() == before {
            thread::yield_now();
        }
        assert_eq!(calls(), [before[0] + 1, before[1]], "it waits, and copies nothing yet");
        transfer(&own, &lent, &[7; N]);
        lent.done();
        assert_eq!(reader.join().unwrap(), [7; N]);
    });
    assert_eq!(calls()[1], before[1] + 1);
}
