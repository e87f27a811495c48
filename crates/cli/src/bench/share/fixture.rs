//! A broker of a benchmark, and the partner processes at it.

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use freehold_broker::wire::Id;

use super::partner::Task;
use crate::bench::error::{Result, failed};
use crate::ephemeral::EphemeralBroker;

/// A broker in its own folder.
pub(crate) struct BrokerFixture {
    broker: EphemeralBroker,
    device: Option<String>,
}

impl BrokerFixture {
    /// Starts a broker that sleeps after `spin` microseconds without a request.
    pub(crate) fn new(device: Option<&str>, spin: &str) -> Result<Self> {
        let broker = EphemeralBroker::start("4GiB", device, |serve| {
            serve.args(["--spin", spin]);
        });
        let broker = broker.map_err(|error| failed("a broker", error))?;
        Ok(Self { broker, device: device.map(str::to_owned) })
    }

    fn program() -> Result<Command> {
        Ok(Command::new(std::env::current_exe().map_err(|error| failed("this program", error))?))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.broker.socket()
    }

    /// Starts the partner process, which gives everything to `to`. Returns it and its tenant id.
    pub(super) fn start(&self, task: Task, to: u64, input: Option<OwnedFd>) -> Result<(Partner, Id)> {
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
pub(super) struct Partner(Child);

impl Drop for Partner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
