//! Leases with a device: what one process writes another reads, however the first one ended.

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use freehold::open;
use freehold_broker::wire::{Id, Request};
use freehold_broker::{Access, Broker, Lease, Name, Policy};
use freehold_testing::at_effort;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::harness::{self, Harness};

/// Numbers that no other block has.
fn numbers(first: u32) -> Vec<u32> {
    (0..100_000).map(|at| first.wrapping_mul(2_654_435_761).wrapping_add(at)).collect()
}

pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Runs one task with a device, and prints the result.
pub(crate) fn process(socket: &OsStr, task: &str, to: u64) -> ExitCode {
    let outcome = crate::calls::act(Path::new(socket), task, to);
    match outcome.unwrap_or_else(|| act(Path::new(socket), task, to)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn act(socket: &Path, task: &str, to: u64) -> Outcome {
    let device = open::device(Some(&harness::device()))?;
    let stream = device.new_stream()?;
    let broker = Broker::connect_at(&device, socket)?;
    match task {
        "publish-and-die" => {
            let mut lease = broker.reserve::<u32>(&stream, 100_000)?;
            stream.write(&mut lease, &numbers(1))?;
            broker.publish("numbers", lease, Policy::Restore)?;
            // Published memory is ready when a signal stream of `broker` has reached it.
            device.synchronize()?;
            harness::kill(std::process::id());
        }
        "read" => {
            let lease: Lease<u32> = broker.lease(&stream, "numbers", Access::Read)?;
            assert_eq!(stream.download(&*lease)?, numbers(to as u32));
        }
        "write-to-a-read-lease" => {
            let mut lease: Lease<u32> = broker.lease(&stream, "numbers", Access::Read)?;
            stream.write(&mut lease, &numbers(9))?;
        }
        "write-and-die" => {
            let mut lease: Lease<u32> = broker.lease(&stream, "numbers", Access::Write)?;
            stream.write(&mut lease, &numbers(2))?;
            stream.synchronize()?;
            harness::kill(std::process::id());
        }
        "write" => {
            let mut lease: Lease<u32> = broker.lease(&stream, "numbers", Access::Write)?;
            // Enough work to be pending when this process exits.
            for first in (2..50).rev() {
                stream.write(&mut lease, &numbers(first))?;
            }
            broker.publish("numbers", lease, Policy::Restore)?;
        }
        "publish-what-was-written" => {
            let own = broker.reserve::<u32>(&stream, 1000)?;
            broker.publish("numbers", own, Policy::Restore)?;
            let lease: Lease<u32> = broker.lease(&stream, "numbers", Access::Write)?;
            let is_dropped = to == 0;
            if is_dropped {
                broker.drop_name("numbers")?;
            }
            let name = if is_dropped { "numbers" } else { "other" };
            broker.publish(name, lease, Policy::Restore)?;
        }
        "take" => {
            println!("{}", broker.tenant().0);
            std::io::stdout().flush()?;
            let lease: Lease<u32> = broker.receive(&stream)?;
            assert_eq!(stream.download(&*lease)?, numbers(3));
            // The giver exited long ago.
            lease.close()?;
        }
        "take-unfinished" => {
            println!("{}", broker.tenant().0);
            std::io::stdout().flush()?;
            let lease: Lease<u32> = broker.receive(&stream)?;
            // Submitted work waits for the giver's work, or for its end.
            let first = stream.download(&lease.view(0..1)?)?;
            assert!(lease.is_unfinished()?, "the given memory was not written: {first:?}");
            lease.close()?;
            let lease: Lease<u32> = broker.receive(&stream)?;
            assert_eq!(stream.download(&*lease)?, numbers(3));
            assert!(!lease.is_unfinished()?, "the giver had finished writing before it gave the lease");
        }
        "give-unfinished" => {
            let file = memfd_create("gate", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&file, 4096)?;
            fcntl_add_seals(&file, SealFlags::SHRINK)?;
            let gate = device.shared_semaphores(file.as_fd(), 1)?;
            let mut lease = broker.reserve::<u32>(&stream, 100_000)?;
            stream.wait_value(&gate, 0, 1)?;
            stream.write(&mut lease, &numbers(3))?;
            broker.give(lease, Id(to))?;
            println!("{}", broker.tenant().0);
            std::io::stdout().flush()?;
            loop {
                std::thread::park();
            }
        }
        "give-whole-and-die" => {
            let mut lease = broker.reserve::<u32>(&stream, 100_000)?;
            stream.write(&mut lease, &numbers(3))?;
            stream.synchronize()?;
            broker.give(lease, Id(to))?;
            harness::kill(std::process::id());
        }
        "give-and-die" => {
            let mut lease = broker.reserve::<u32>(&stream, 100_000)?;
            stream.write(&mut lease, &numbers(3))?;
            broker.give(lease, Id(to))?;
            stream.synchronize()?;
            harness::kill(std::process::id());
        }
        "give-and-look" => {
            // The first bytes of a segment are given away, and reused when they were zeroed.
            let mut lease = broker.reserve::<u32>(&stream, 100_000)?;
            stream.write(&mut lease, &numbers(3))?;
            let _rest = broker.reserve::<u32>(&stream, 1)?;
            broker.give(lease, Id(to))?;
            harness::until("the other process has returned it", || {
                let stats = broker.stats().ok()?;
                (stats.leases == 1 && stats.reclaiming_bytes == 0).then_some(())
            });
            let again = broker.reserve::<u32>(&stream, 100_000)?;
            assert!(
                stream.download(&*again)?.iter().all(|&number| number == 0),
                "memory of another process is visible"
            );
        }
        "fresh" => {
            let lease = broker.reserve::<u32>(&stream, 100_000)?;
            assert!(
                stream.download(&*lease)?.iter().all(|&number| number == 0),
                "memory of other processes is visible"
            );
        }
        "lease-and-idle" => {
            let lease: Lease<u32> = broker.lease(&stream, "numbers", Access::Read)?;
            assert_eq!(stream.download(&*lease)?, numbers(1));
            drop(lease);
            println!("0");
            std::io::stdout().flush()?;
            loop {
                std::thread::park();
            }
        }
        "receive-beside-others" => {
            let waits = std::sync::Barrier::new(2);
            std::thread::scope(|scope| -> Outcome {
                let receiver = scope.spawn(|| {
                    let stream = device.new_stream()?;
                    waits.wait();
                    broker.receive::<u32>(&stream).map(|lease| lease.len())
                });
                waits.wait();
                for _ in 0..1000 {
                    broker.reserve::<u32>(&stream, 1)?.close()?;
                }
                broker.stats()?;
                assert!(!receiver.is_finished());
                let lease = broker.reserve::<u32>(&stream, 77)?;
                broker.give(lease, broker.tenant())?;
                assert!(receiver.join().expect("the receiving thread does not panic")? >= 77);
                Ok(())
            })?;
        }
        "fork" => fork(&broker, &stream)?,
        other if other.starts_with("tensors-") => return crate::tensors::act(&broker, &stream, other),
        other => return crate::host::act(&broker, &stream, other, to),
    }
    Ok(())
}

/// A forked child that tries everything with what it inherited, while its parent holds the connection and a lock.
fn fork(broker: &Broker, stream: &freehold::Stream) -> Outcome {
    let lease = broker.reserve::<u32>(stream, 1000)?;
    let kept = broker.reserve::<u32>(stream, 1000)?;
    let host = broker.host("forked", 4096)?;
    let guard = host.lock(freehold_testing::HANG_TIMEOUT)?;
    // No other thread of the parent holds it: a child that waits for it waits forever.
    // SAFETY: nothing is requested over it.
    let link = unsafe { broker.link() }?;
    // SAFETY: the child only calls what this test is about, and exits without running the parent's destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(link);
        let refused =
            |error: &freehold_broker::Error| error.to_string().contains("is a fork of the one that connected");
        let mut is_good = broker.reserve::<u32>(stream, 1).is_err_and(|error| refused(&error));
        is_good &= broker.stats().is_err_and(|error| refused(&error));
        is_good &= broker.receive::<u32>(stream).is_err_and(|error| refused(&error));
        is_good &= host.lock(std::time::Duration::ZERO).is_err_and(|error| refused(&error));
        is_good &= lease.close().is_err_and(|failed| refused(&failed.error));
        drop((kept, guard));
        // SAFETY: the process ends here.
        unsafe { libc::_exit(if is_good { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: the child belongs to this process, and `status` has room for its exit status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child is refused everything");
    drop(link);
    assert_eq!(broker.stats()?.leases, 2, "the child has returned nothing");
    assert!(host.lock(std::time::Duration::ZERO).is_err(), "the child has not released the lock");
    drop(guard);
    drop(host.lock(std::time::Duration::ZERO)?);
    kept.close()?;
    lease.close()?;
    assert_eq!(broker.stats()?.leases, 0);
    Ok(())
}

pub(crate) fn a_forked_child_is_refused_everything(harness: &Harness) {
    assert_eq!(harness.device("fork", 0), Some(String::new()));
}

pub(crate) fn others_go_on_while_one_thread_receives(harness: &Harness) {
    assert_eq!(harness.device("receive-beside-others", 0), Some(String::new()));
}

pub(crate) fn an_idle_process_holds_no_memory_up(harness: &Harness) {
    assert_eq!(harness.device("publish-and-die", 0), None);
    let (mut idle, _) = harness.start_device("lease-and-idle");
    let mut link = harness.link();
    let name = Name::parse("numbers").unwrap();
    assert_eq!(harness::stats(&mut link).reclaiming_bytes, 0);
    link.call(Request::Drop { name }).unwrap();
    harness::until("the memory is free", || {
        let stats = harness::stats(&mut link);
        (stats.named_bytes == 0 && stats.reclaiming_bytes == 0).then_some(())
    });
    assert!(idle.try_wait().unwrap().is_none(), "the idle process is still running");
    harness::kill(idle.id());
    idle.wait().unwrap();
}

pub(crate) fn what_a_dead_process_published_is_read(harness: &Harness) {
    assert_eq!(harness.device("publish-and-die", 0), None);
    harness.kill("broker");
    assert_eq!(harness.device("read", 1), Some(String::new()));
}

pub(crate) fn a_lease_for_reading_is_not_written(harness: &Harness) {
    assert_eq!(harness.device("publish-and-die", 0), None);
    let said = harness.device("write-to-a-read-lease", 0).expect("the process exits by itself");
    assert!(said.contains("read"), "{said:?}");
    assert_eq!(harness.device("read", 1), Some(String::new()));
}

pub(crate) fn a_writer_that_dies_changes_nothing_and_one_that_publishes_does(harness: &Harness) {
    assert_eq!(harness.device("publish-and-die", 0), None);
    assert_eq!(harness.device("write-and-die", 0), None);
    assert_eq!(harness.device("read", 1), Some(String::new()));
    assert_eq!(harness.device("write", 0), Some(String::new()));
    assert_eq!(harness.device("read", 2), Some(String::new()));
}

pub(crate) fn what_was_written_for_a_name_is_published_under_that_name_alone(harness: &Harness) {
    let dropped = "numbers: the name was dropped while this lease was being written: copy the data to a new lease and publish that";
    assert_eq!(harness.device("publish-what-was-written", 0).as_deref(), Some(dropped));
    let other = "other: the lease belongs to another name: publish it under that one, or copy the data to a new lease";
    assert_eq!(harness.device("publish-what-was-written", 1).as_deref(), Some(other));
}

pub(crate) fn what_was_given_outlives_its_giver(harness: &Harness) {
    let (mut taker, tenant) = harness.start_device("take");
    assert_eq!(harness.device("give-and-die", tenant), None);
    assert!(taker.wait().unwrap().success());
    let mut link = harness.link();
    harness::until("no lease is left", || (harness::stats(&mut link).leases == 0).then_some(()));
}

pub(crate) fn a_receiver_learns_that_its_giver_died_before_the_work_was_complete(harness: &Harness) {
    let (mut taker, tenant) = harness.start_device("take-unfinished");
    let (mut giver, _) = harness.start_device_for("give-unfinished", tenant);
    giver.kill().unwrap();
    giver.wait().unwrap();
    assert_eq!(harness.device("give-whole-and-die", tenant), None);
    assert!(taker.wait().unwrap().success());
}

pub(crate) fn what_another_process_had_is_zeros_to_its_owner(harness: &Harness) {
    let (mut taker, tenant) = harness.start_device("take");
    assert_eq!(harness.device("give-and-look", tenant), Some(String::new()));
    assert!(taker.wait().unwrap().success());
}

pub(crate) fn a_broker_of_another_device_is_refused_with_its_name(harness: &Harness) {
    let other = Harness::of_device(0xffee_ddcc_bbaa_9988_7766_5544_3322_1100);
    let sentence = "the broker's memory is on another GPU (GPU-00112233-4455-6677-8899-aabbccddeeff): choose that one with \
                    FREEHOLD_DEVICE or --device";
    assert_eq!(other.device("fresh", 0).as_deref(), Some(sentence));
    let probed = harness::config(harness.socket()).probe().expect("there is a device");
    assert_eq!(Harness::of_device(probed.uuid).device("fresh", 0), Some(String::new()));
}

pub(crate) fn memory_of_the_dead_is_zeros_to_others(harness: &Harness) {
    let mut link = harness.link();
    for _ in 0..at_effort(2, 5, 20) {
        assert_eq!(harness.device("write-and-die", 0), Some("numbers: there is no such name".to_owned()));
        let (mut taker, tenant) = harness.start_device("take");
        harness::kill(taker.id());
        taker.wait().unwrap();
        let said = harness.device("give-and-die", tenant);
        assert_ne!(said, Some(String::new()));
        harness::until("it is zeroed", || (harness::stats(&mut link).reclaiming_bytes == 0).then_some(()));
        assert_eq!(harness.device("fresh", 0), Some(String::new()));
    }
}
