//! `freehold bench share`: memory handed between processes, next to a socket and a copy.
//!
//! Starts its own broker and partner process.

mod measure;
pub(crate) mod partner;
pub(super) mod report;

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use freehold_broker::wire::Id;

use super::{BenchError, Result};
use crate::broker::ephemeral::EphemeralBroker;
use crate::lab::table::TableStyle;

#[derive(clap::Args)]
pub(crate) struct ShareArguments {
    /// Print one JSON object, with times in nanoseconds
    #[arg(long)]
    json: bool,
    /// Device: soft, cuda or cuda:N [default: FREEHOLD_DEVICE, else an NVIDIA GPU, else the software device]
    #[arg(long)]
    device: Option<String>,
    /// Measure only a few times: a check that it works, not a measurement
    #[arg(long)]
    quick: bool,
}

/// How many times to measure.
#[derive(Clone, Copy)]
struct Effort {
    hand_overs: usize,
    sleeps: usize,
    pairs: usize,
    attaches: usize,
    kernels: usize,
}

const FULL: Effort = Effort { hand_overs: 100_000, sleeps: 5_000, pairs: 1_000_000, attaches: 40, kernels: 100 };
const QUICK: Effort = Effort { hand_overs: 500, sleeps: 50, pairs: 2_000, attaches: 3, kernels: 5 };

pub(super) fn run(arguments: &ShareArguments) -> Result<String> {
    let effort = if arguments.quick { QUICK } else { FULL };
    let device = arguments.device.as_deref();
    // One broker spins during all measurements; the other sleeps as usual.
    let (awake, sleepy) = (BrokerFixture::new(device, "10000")?, BrokerFixture::new(device, "50")?);
    let report = measure::all(&awake, &sleepy, device, effort)?;
    Ok(if arguments.json { report.json() } else { report.table(TableStyle::for_stdout()) })
}

/// A broker in its own folder.
pub(super) struct BrokerFixture {
    broker: EphemeralBroker,
    device: Option<String>,
}

pub(super) fn failed(what: &str, error: impl std::fmt::Display) -> BenchError {
    BenchError::Processes(format!("{what}: {error}"))
}

impl BrokerFixture {
    /// Starts a broker that sleeps after `spin` microseconds without a request.
    pub(super) fn new(device: Option<&str>, spin: &str) -> Result<Self> {
        let broker = EphemeralBroker::start("4GiB", device, |serve| {
            serve.args(["--spin", spin]);
        });
        let broker = broker.map_err(|error| failed("a broker", error))?;
        Ok(Self { broker, device: device.map(str::to_owned) })
    }

    fn program() -> Result<Command> {
        Ok(Command::new(std::env::current_exe().map_err(|error| failed("this program", error))?))
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.broker.socket()
    }

    /// Starts the partner process, which gives everything to `to`. Returns it and its tenant id.
    fn start(&self, task: partner::Task, to: u64, input: Option<OwnedFd>) -> Result<(Partner, Id)> {
        let mut command = Self::program()?;
        command.arg("share-partner").arg(task.argument()).arg(to.to_string()).arg("--socket").arg(self.socket());
        command.stdin(input.map_or_else(Stdio::null, Stdio::from)).stdout(Stdio::piped());
        if let Some(device) = &self.device {
            command.args(["--device", device]);
        }
        let mut child = command.spawn().map_err(|error| failed("the other process", error))?;
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).map_err(|error| failed("the other process", error))?;
        let tenant = line.trim_end().parse().map_err(|_| failed("the other process", "it printed no tenant id"))?;
        Ok((Partner(child), Id(tenant)))
    }
}

/// The partner process, which ends with this.
struct Partner(Child);

impl Drop for Partner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
