//! A process that survives: it holds memory of known contents, of its own and under a name, and checks both when asked.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, ExitCode};

use freehold::open;
use freehold_broker::{Access, Broker, Lease, Policy};

use crate::harness::{self, Harness};

const NUMBERS: usize = 20_000;

/// Contents that differ between any two blocks.
fn numbers(first: u32) -> Vec<u32> {
    (0..NUMBERS as u32).map(|at| (first + at).wrapping_mul(2_654_435_761)).collect()
}

/// FNV-1a of all bytes.
fn checksum(numbers: &[u32]) -> u64 {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The process: for each line that it reads, it prints the checksums of its own memory and of the named memory.
pub(crate) fn observer(socket: &OsStr) -> ExitCode {
    match hold(Path::new(socket)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn hold(socket: &Path) -> Outcome {
    let device = open::device(Some(&harness::device()))?;
    let stream = device.new_stream()?;
    let broker = Broker::connect_at(&device, socket)?;
    let mut own = broker.reserve::<u32>(&stream, NUMBERS)?;
    stream.write(&mut own, &numbers(1))?;
    let mut named = broker.reserve::<u32>(&stream, NUMBERS)?;
    stream.write(&mut named, &numbers(1 << 20))?;
    broker.publish("witness", named, Policy::Restore)?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let named: Lease<u32> = broker.lease(&stream, "witness", Access::Read)?;
        // Also new memory, which nobody else has.
        let fresh = broker.reserve::<u32>(&stream, NUMBERS)?;
        drop(fresh);
        println!("{:x} {:x}", checksum(&stream.download(&*own)?), checksum(&stream.download(&*named)?));
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// The test's handle of the process.
pub(super) struct Observer {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Observer {
    pub(super) fn start(harness: &Harness) -> Self {
        let mut child = harness.start(&["witness".into(), harness.socket().into()]);
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut witness = Self { child, output };
        witness.check();
        witness
    }

    /// Checks that it still holds what it wrote.
    pub(super) fn check(&mut self) {
        let said = super::ask(&mut self.child, &mut self.output);
        assert_eq!(said, format!("{:x} {:x}\n", checksum(&numbers(1)), checksum(&numbers(1 << 20))));
    }

    /// Ends it.
    pub(super) fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it was started").success());
    }
}
