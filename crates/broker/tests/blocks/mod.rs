//! Leases with a device: what one process writes another reads, however the first one ended.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use freehold::open;
use freehold_broker::wire::Id;
use freehold_broker::{Access, Broker, Lease, Policy};

use crate::stage::{self, Stage};

/// Numbers that no other block has.
fn numbers(first: u32) -> Vec<u32> {
    (0..100_000).map(|at| first.wrapping_mul(2_654_435_761).wrapping_add(at)).collect()
}

pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A process that does one thing with a device, and says what came of it.
pub(crate) fn process(socket: &OsStr, task: &str, to: u64) -> ExitCode {
    match act(Path::new(socket), task, to) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn act(socket: &Path, task: &str, to: u64) -> Outcome {
    let device = open::device(Some(&stage::device()))?;
    let stream = device.stream()?;
    let broker = Broker::connect_at(&device, socket)?;
    match task {
        "publish-and-die" => {
            let mut lease = broker.reserve::<u32>(&stream, 100_000)?;
            stream.write(&mut *lease, &numbers(1))?;
            broker.publish("numbers", lease, Policy::Restore).map_err(|(_, error)| error)?;
            // What is published is ready when a stream of the broker's has come to it.
            device.synchronize()?;
            stage::kill(std::process::id());
        }
        "read" => {
            let lease: Lease<u32> = broker.lease(&stream, "numbers", Access::Read)?;
            assert_eq!(stream.download(&*lease)?, numbers(to as u32));
        }
        "write-to-a-read-lease" => {
            let mut lease: Lease<u32> = broker.lease(&stream, "numbers", Access::Read)?;
            stream.write(&mut *lease, &numbers(9))?;
        }
        "write-and-die" => {
            let mut lease: Lease<u32> = broker.lease(&stream, "numbers", Access::Write)?;
            stream.write(&mut *lease, &numbers(2))?;
            stream.synchronize()?;
            stage::kill(std::process::id());
        }
        "write" => {
            let mut lease: Lease<u32> = broker.lease(&stream, "numbers", Access::Write)?;
            stream.write(&mut *lease, &numbers(2))?;
            broker.publish("numbers", lease, Policy::Restore).map_err(|(_, error)| error)?;
        }
        "take" => {
            println!("{}", broker.tenant().0);
            std::io::stdout().flush()?;
            let lease: Lease<u32> = broker.receive(&stream)?;
            assert_eq!(stream.download(&*lease)?, numbers(3));
            // Whoever gave it has long gone.
            lease.close().map_err(|(_, error)| error)?;
        }
        "give-and-die" => {
            let mut lease = broker.reserve::<u32>(&stream, 100_000)?;
            stream.write(&mut *lease, &numbers(3))?;
            broker.give(lease, Id(to)).map_err(|(_, error)| error)?;
            stream.synchronize()?;
            stage::kill(std::process::id());
        }
        "fresh" => {
            let lease = broker.reserve::<u32>(&stream, 100_000)?;
            assert!(stream.download(&*lease)?.iter().all(|&number| number == 0), "memory of others is seen");
        }
        other => return crate::host::act(&broker, &stream, other, to),
    }
    Ok(())
}

pub(crate) fn what_a_dead_process_published_is_read(stage: &Stage) {
    assert_eq!(stage.device("publish-and-die", 0), None);
    stage.kill("broker");
    assert_eq!(stage.device("read", 1), Some(String::new()));
}

pub(crate) fn a_lease_for_reading_is_not_written(stage: &Stage) {
    assert_eq!(stage.device("publish-and-die", 0), None);
    let said = stage.device("write-to-a-read-lease", 0).expect("it ends by itself");
    assert!(said.contains("read"), "{said:?}");
    assert_eq!(stage.device("read", 1), Some(String::new()));
}

pub(crate) fn a_writer_that_dies_changes_nothing_and_one_that_publishes_does(stage: &Stage) {
    assert_eq!(stage.device("publish-and-die", 0), None);
    assert_eq!(stage.device("write-and-die", 0), None);
    assert_eq!(stage.device("read", 1), Some(String::new()));
    assert_eq!(stage.device("write", 0), Some(String::new()));
    assert_eq!(stage.device("read", 2), Some(String::new()));
}

pub(crate) fn what_was_given_outlives_its_giver(stage: &Stage) {
    let (mut taker, tenant) = stage.start_device("take");
    assert_eq!(stage.device("give-and-die", tenant), None);
    assert!(taker.wait().unwrap().success());
    let mut link = stage.link();
    stage::until("nothing is left", || (stage::sums(&mut link).leases == 0).then_some(()));
}

pub(crate) fn memory_of_the_dead_is_zeros_to_others(stage: &Stage) {
    let mut link = stage.link();
    for _ in 0..5 {
        assert_eq!(stage.device("write-and-die", 0), Some("there is no such name".to_owned()));
        let (mut taker, tenant) = stage.start_device("take");
        stage::kill(taker.id());
        taker.wait().unwrap();
        let said = stage.device("give-and-die", tenant);
        assert_ne!(said, Some(String::new()));
        stage::until("it is clean", || (stage::sums(&mut link).leaving_bytes == 0).then_some(()));
        assert_eq!(stage.device("fresh", 0), Some(String::new()));
    }
}
