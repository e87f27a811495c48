//! Shared semaphores: values that streams write and wait for, in one process and in two.

use crate::children::alone;
use crate::own;
use crate::shared;

use std::env;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::Child;
use std::sync::mpsc;
use std::thread;

use freehold::{Device, Error, Imported, ImportedSlice, Permission, SharedSemaphores, Stream};
use freehold_driver::cuda::{
    Api, CUdevice, CUdevice_attribute, CUresult, CUstreamCaptureMode, Function, capture, graph,
};
use freehold_testing::{HANG_TIMEOUT, command_for_test};
use own::{Kernels, N, Own, grid, opened};
use rustix::fs::{SealFlags, fcntl_add_seals};
use rustix::io::{FdFlags, fcntl_setfd};
use shared::CHUNK;

fn own() -> Own {
    shared::move_in();
    Own::new()
}

fn semaphores(own: &Own, words: usize) -> SharedSemaphores {
    own.device.shared_semaphores(shared::words(8 * words as u64).as_fd(), words).unwrap()
}

#[test]
fn semaphores_in_a_captured_stream_are_refused() {
    let own = own();
    let [a] = own.streams();
    let semaphores = semaphores(&own, 2);
    let raw = a.raw();
    capture::begin(&own.api, raw.into(), CUstreamCaptureMode::RELAXED).unwrap();
    assert!(matches!(a.write_value(&semaphores, 0, 5), Err(Error::StreamCaptured)));
    assert!(matches!(a.wait_value(&semaphores, 1, 5), Err(Error::StreamCaptured)));
    let captured = capture::end(&own.api, raw.into()).unwrap();
    assert_eq!(graph::node_count(&own.api, captured).unwrap(), 0);
    a.write_value(&semaphores, 0, 5).unwrap();
    a.synchronize().unwrap();
    assert_eq!(semaphores.read(0), 5);
}

#[test]
fn a_stream_waits_until_a_semaphore_has_a_value() {
    let own = own();
    let [a, b] = own.streams();
    let semaphores = semaphores(&own, 600);
    assert_eq!((semaphores.len(), semaphores.read(599)), (600, 0));
    b.wait_value(&semaphores, 599, 5).unwrap();
    b.write_value(&semaphores, 0, 1).unwrap();
    a.write_value(&semaphores, 599, 4).unwrap();
    a.synchronize().unwrap();
    own.pass_by();
    assert_eq!((semaphores.read(599), semaphores.read(0)), (4, 0));
    a.write_value(&semaphores, 599, 6).unwrap();
    b.synchronize().unwrap();
    assert_eq!((semaphores.read(599), semaphores.read(0)), (6, 1));
}

#[test]
fn a_semaphore_is_written_after_earlier_work_and_awaited_before_later_work() {
    let own = own();
    let [a, b] = own.streams();
    let semaphores = semaphores(&own, 2);
    let mut x = a.zeros::<u32>(N).unwrap();
    let mut y = b.zeros::<u32>(N).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    a.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    a.write_value(&semaphores, 1, 1).unwrap();
    b.wait_value(&semaphores, 1, 1).unwrap();
    b.launch(&own.kernels.add, grid(), (&mut y, 2_u32, N as u32)).unwrap();
    let after = b.event().unwrap();
    own.pass_by();
    assert_eq!((semaphores.read(1), after.is_complete().unwrap()), (0, false));
    gate.open();
    assert_eq!(b.download(&y).unwrap(), [2; N]);
    assert_eq!((semaphores.read(1), a.download(&x).unwrap()), (1, vec![1; N]));
}

#[test]
fn the_host_writes_semaphores_too() {
    let own = own();
    let [stream] = own.streams();
    let semaphores = semaphores(&own, 1);
    stream.wait_value(&semaphores, 0, 3).unwrap();
    own.pass_by();
    assert!(!stream.is_idle().unwrap());
    semaphores.write(0, 3);
    stream.synchronize().unwrap();
}

#[test]
fn semaphores_of_one_descriptor_are_shared_by_all_contexts() {
    let own = own();
    let context = own.device.new_context().unwrap();
    let [stream, other] = [own.device.new_stream().unwrap(), context.new_stream().unwrap()];
    let descriptor = shared::words(4096);
    let [one, two] = [(); 2].map(|()| own.device.shared_semaphores(descriptor.as_fd(), 512).unwrap());
    drop(descriptor);
    other.wait_value(&two, 7, 1).unwrap();
    other.write_value(&two, 8, 2).unwrap();
    stream.write_value(&one, 7, 1).unwrap();
    other.synchronize().unwrap();
    assert_eq!([one.read(8), two.read(8)], [2, 2]);
}

#[test]
fn a_descriptor_that_is_too_short_or_can_shrink_is_refused() {
    let own = own();
    let refused = |descriptor: &dyn AsFd, words| own.device.shared_semaphores(descriptor.as_fd(), words).unwrap_err();
    let page = shared::words(4096);
    let short = refused(&page, 513);
    assert!(matches!(short, Error::TooManySemaphores { count: 513, wanted_bytes: 4104, bytes: 4096 }), "{short:?}");
    assert!(matches!(refused(&shared::words(0), 1), Error::TooManySemaphores { bytes: 0, .. }));
    assert!(matches!(refused(&page, 0), Error::NothingAsked));
    let many = usize::MAX / 8 + 1;
    assert!(matches!(refused(&page, many), Error::TooManyElements { element_bytes: 8, .. }));
    assert!(matches!(refused(&shared::unsealed(4096), 1), Error::NotSealed));
    assert!(matches!(refused(&File::open("/dev/null").unwrap(), 1), Error::NotSealed));
    let constant = shared::words(4096);
    fcntl_add_seals(&constant, SealFlags::WRITE).unwrap();
    assert!(matches!(refused(&constant, 1), Error::System { .. }));
    own.device.shared_semaphores(page.as_fd(), 512).unwrap();
    own.device.shared_semaphores(shared::words(12).as_fd(), 1).unwrap();
}

#[test]
fn a_semaphore_out_of_range_is_refused() {
    let own = own();
    let [stream] = own.streams();
    let semaphores = semaphores(&own, 3);
    let refused = |outcome| matches!(outcome, Err(Error::NoSuchSemaphore { index: 3, count: 3 }));
    assert!(refused(stream.write_value(&semaphores, 3, 1)));
    assert!(refused(stream.wait_value(&semaphores, 3, 1)));
    assert!(stream.is_idle().unwrap());
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    let other = unsafe { Device::new(own.api, opened().device) }.unwrap();
    let foreign = other.new_stream().unwrap();
    assert!(matches!(foreign.write_value(&semaphores, 0, 1), Err(Error::OtherDevice { what: "a semaphore" })));
}

unsafe extern "C" fn attribute(to: *mut i32, attribute: CUdevice_attribute, device: CUdevice) -> CUresult {
    let plain = opened().api;
    // SAFETY: the caller's arguments are handed on as they are.
    unsafe { (plain.cuDeviceGetAttribute)(to, attribute, device) }?;
    if attribute == CUdevice_attribute::CAN_USE_64_BIT_STREAM_MEM_OPS {
        // SAFETY: the driver wrote a number there.
        unsafe { *to = 0 };
    }
    Ok(())
}

#[test]
fn a_device_without_stream_memory_operations_has_no_semaphores() {
    shared::move_in();
    let opened = opened();
    let own = Own::over(Api { cuDeviceGetAttribute: attribute, ..opened.api }, &opened);
    assert!(matches!(own.device.shared_semaphores(shared::words(8).as_fd(), 1), Err(Error::NoSemaphores)));
}

#[test]
fn dropped_semaphores_stay_mapped_until_their_work_is_complete() {
    shared::move_in();
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let unregistered = || faults.record().into_iter().filter(|&call| call == Function::cuMemHostUnregister).count();
    // Of a context that the words are not registered in: whether work is pending there the driver does not ask.
    let context = own.device.new_context().unwrap();
    let (kernels, stream) = (Kernels::load(&context), context.new_stream().unwrap());
    let descriptor = shared::words(8);
    let [seen, semaphores] = [(); 2].map(|()| own.device.shared_semaphores(descriptor.as_fd(), 1).unwrap());
    own.device.synchronize().unwrap();
    let gate = own.gate();
    kernels.hold(&stream, &gate);
    stream.write_value(&semaphores, 0, 1).unwrap();
    stream.wait_value(&semaphores, 0, 1).unwrap();
    drop(semaphores);
    own.pass_by();
    own.device.tidy().unwrap();
    assert_eq!((unregistered(), seen.read(0)), (0, 0));
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!((unregistered(), seen.read(0)), (1, 1));
    drop(seen);
    assert_eq!(unregistered(), 2);
    assert!(own.device.drop_errors().is_empty());
}

/// Names, in the second process, the descriptors that it inherits.
const PEER: &str = "FREEHOLD_TEST_PEER";

/// Starts a test of this binary again, in a process that has these descriptors.
fn start(name: &str, descriptors: [&OwnedFd; 2]) -> Child {
    for descriptor in descriptors {
        fcntl_setfd(descriptor, FdFlags::empty()).unwrap();
    }
    let numbers = descriptors.map(|descriptor| descriptor.as_raw_fd().to_string()).join(" ");
    let child = command_for_test(name).env(PEER, numbers).spawn().unwrap();
    for descriptor in descriptors {
        fcntl_setfd(descriptor, FdFlags::CLOEXEC).unwrap();
    }
    child
}

/// Waits for a process, and kills it where that takes too long.
fn finish(mut child: Child) {
    let (done, ended) = mpsc::channel();
    let process = child.id();
    let watchdog = thread::spawn(move || {
        let is_late = ended.recv_timeout(HANG_TIMEOUT).is_err();
        if is_late {
            // SAFETY: the child was not waited for yet, so the number is still its own.
            unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
        }
        is_late
    });
    let status = child.wait().unwrap();
    done.send(()).unwrap();
    assert!(!watchdog.join().unwrap(), "the second process does not end");
    assert!(status.success(), "{status}");
}

/// The descriptors that the first process left to this one.
fn inherited() -> Option<[OwnedFd; 2]> {
    let numbers: Vec<RawFd> = env::var(PEER).ok()?.split(' ').map(|number| number.parse().unwrap()).collect();
    // SAFETY: the first process left these two open for this one, where nobody else knows of them.
    Some([numbers[0], numbers[1]].map(|number| unsafe { OwnedFd::from_raw_fd(number) }))
}

/// Where the values of a turn lie.
fn slot(imported: &Imported, stream: &Stream, turn: u64) -> ImportedSlice<u32> {
    imported.slice(stream, 4096 * turn, N).unwrap()
}

/// What both processes do by turns: each waits for its turn on the device, adds to what the other one left, and hands over.
fn take_turns(own: &Own, stream: &Stream, [memory, words]: [&OwnedFd; 2], first: u64) -> SharedSemaphores {
    let semaphores = own.device.shared_semaphores(words.as_fd(), 1).unwrap();
    let imported = own.device.import(memory.as_fd(), CHUNK, Permission::ReadWrite).unwrap();
    for turn in (first..20).step_by(2) {
        let (from, mut to) = (slot(&imported, stream, turn), slot(&imported, stream, turn + 1));
        stream.wait_value(&semaphores, 0, turn).unwrap();
        stream.copy(&from, &mut to).unwrap();
        stream.launch(&own.kernels.add, grid(), (&mut to, 1_u32 << turn, N as u32)).unwrap();
        stream.write_value(&semaphores, 0, turn + 1).unwrap();
    }
    semaphores
}

#[test]
fn streams_of_two_processes_take_turns_with_shared_memory_and_no_host_waits() {
    const NAME: &str = "streams_of_two_processes_take_turns_with_shared_memory_and_no_host_waits";
    alone(NAME, || {
        let peer = inherited();
        let own = own();
        let [stream] = own.streams();
        if let Some([memory, words]) = peer {
            take_turns(&own, &stream, [&memory, &words], 1);
            return stream.synchronize().unwrap();
        }
        let (memory, words) = (shared::memory(CHUNK), shared::words(8));
        let zeroed = own.device.import(memory.as_fd(), CHUNK, Permission::ReadWrite).unwrap();
        stream.fill_bytes(&mut slot(&zeroed, &stream, 0), 0).unwrap();
        own.device.synchronize().unwrap();
        let child = start(NAME, [&memory, &words]);
        let semaphores = take_turns(&own, &stream, [&memory, &words], 0);
        finish(child);
        stream.synchronize().unwrap();
        assert_eq!(semaphores.read(0), 20);
        assert_eq!(stream.download(&slot(&zeroed, &stream, 20)).unwrap(), [0xf_ffff; N]);
    });
}
