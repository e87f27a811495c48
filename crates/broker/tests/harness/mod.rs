//! A broker for one test, on a software device of its own.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freehold_broker::wire::{BrokerStats, Reply, Request};
use freehold_broker::{BrokerLimits, Config, Link};
use freehold_testing::process::{self, Sandbox};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) use freehold_testing::Random;
pub(crate) use freehold_testing::process::{device, kill, processes, until, until_is};

pub(crate) const MEMORY_BYTES: u64 = 256 << 20;

/// How long a kernel may run in most tests. None of them waits for that: no machine is so slow that a kernel which ends
/// by itself takes as long.
const LAUNCH_MS: u64 = 1_000_000;

/// The same for tests that wait until a kernel is killed. Kernels that end by themselves take milliseconds there.
pub(crate) const SHORT_LAUNCH: Duration = Duration::from_secs(2);

/// Launches of one process that a worker takes before the first is complete.
pub(crate) const LAUNCHES: u64 = 100;

/// Whether it is the software device, whose memory has descriptors of a known name and length.
pub(crate) fn is_soft() -> bool {
    device() == "soft"
}

pub(crate) fn config(socket: PathBuf) -> Config {
    Config {
        program: process::this_program(),
        leading_args: vec!["role".into()],
        socket,
        device: Some(device()),
        device_uuid: 0,
        memory_bytes: MEMORY_BYTES,
        spin_us: 20,
        limits: BrokerLimits { launches_max: Some(LAUNCHES), ..BrokerLimits::default() },
    }
}

/// Segments are multiples of this.
pub(crate) const SEGMENT_BYTES: u64 = 2 << 20;

/// The descriptors of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenFds {
    /// Of segments, in bytes.
    pub(crate) memory_bytes: u64,
    /// The number of others.
    pub(crate) others: usize,
}

pub(crate) struct Harness {
    sandbox: Sandbox,
    serve: Child,
}

impl Harness {
    /// A broker that serves.
    pub(crate) fn new() -> Self {
        Self::with(None, None, None)
    }

    /// A broker whose workers kill kernels that run for longer.
    pub(crate) fn with_launches_of(limit: Duration) -> Self {
        Self::with(None, None, Some(limit))
    }

    /// A broker that also serves the users of a group.
    pub(crate) fn of_group(group: u32) -> Self {
        Self::with(Some(group), None, None)
    }

    /// A broker that reports this UUID for its device.
    pub(crate) fn of_device(uuid: u128) -> Self {
        Self::with(None, Some(uuid), None)
    }

    fn with(group: Option<u32>, uuid: Option<u128>, launches: Option<Duration>) -> Self {
        let sandbox = Sandbox::new("broker-test");
        let dash = || "-".to_owned();
        let mut command = sandbox.own_command();
        command.arg("serve").arg(sandbox.socket());
        command.arg(group.map_or_else(dash, |group| group.to_string()));
        command.arg(uuid.map_or_else(dash, |uuid| uuid.to_string()));
        command.arg(launches.map_or(LAUNCH_MS, |limit| limit.as_millis() as u64).to_string());
        let (serve, line) = sandbox.start(&mut command, 1);
        assert_eq!(line, "ready");
        Self { sandbox, serve }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.sandbox.socket()
    }

    pub(crate) fn link(&self) -> Link {
        Link::connect(&self.socket()).expect("a broker serves")
    }

    fn device_command(&self, task: &str, to: u64) -> Command {
        let mut command = self.sandbox.own_command();
        command.arg("device").arg(self.socket()).arg(task).arg(to.to_string()).stdout(Stdio::piped());
        command
    }

    /// Runs a task with a device in a process. Returns its output, unless it was killed.
    ///
    /// # Panics
    /// If the task panicked: its output would look like that of one that succeeded.
    pub(crate) fn device(&self, task: &str, to: u64) -> Option<String> {
        let output = self.device_command(task, to).output().expect("this program runs");
        let code = output.status.code()?;
        assert!(matches!(code, 0 | 1), "{task} failed:\n{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Runs a process of this harness to its end. Returns its output, unless it failed.
    pub(crate) fn process(&self, words: &[OsString]) -> Option<String> {
        let output = self.sandbox.own_command().args(words).stderr(Stdio::inherit()).output();
        let output = output.expect("this program runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Starts a process of this harness, with pipes.
    pub(crate) fn start(&self, words: &[OsString]) -> Child {
        let mut command = self.sandbox.own_command();
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program runs")
    }

    /// Starts a process that runs a task with a device. Returns it and its tenant id.
    pub(crate) fn start_device(&self, task: &str) -> (Child, u64) {
        self.start_device_for(task, 0)
    }

    /// Like [`start_device`](Self::start_device), with another tenant to give to.
    pub(crate) fn start_device_for(&self, task: &str, to: u64) -> (Child, u64) {
        let mut child = self.device_command(task, to).spawn().expect("this program runs");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it prints its tenant id");
        let tenant = line.trim_end().parse().expect("a number");
        (child, tenant)
    }

    /// Runs a task as another user. Returns its output.
    pub(crate) fn as_user(&self, user: u32, task: &str) -> String {
        let mut command = Command::new(process::this_program());
        command.arg("stranger").arg(self.socket()).arg(user.to_string()).arg(task);
        let output = command.output().expect("this program runs");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The processes of a role, by their arguments.
    pub(crate) fn processes(&self, part: &str) -> Vec<u32> {
        self.sandbox.processes(part)
    }

    /// Kills the processes of a role, without waiting until they are dead.
    pub(crate) fn kill(&self, part: &str) -> bool {
        self.sandbox.kill(part)
    }

    /// The descriptors of a role.
    pub(crate) fn open_fds(&self, part: &str) -> OpenFds {
        let process = *self.processes(part).first().expect("the role is running");
        let mut held = OpenFds::default();
        for entry in std::fs::read_dir(format!("/proc/{process}/fd")).expect("a process has descriptors").flatten() {
            let of = std::fs::read_link(entry.path()).unwrap_or_default();
            let of = of.to_string_lossy();
            // Memory of a GPU has descriptors of the driver.
            if of.contains("nvidia") {
                continue;
            }
            if of.starts_with("/memfd:freehold-memory") {
                // The file of a segment has a page more than the segment.
                let bytes = std::fs::metadata(entry.path()).map_or(0, |file| file.len());
                held.memory_bytes += bytes - bytes % SEGMENT_BYTES;
            } else {
                held.others += 1;
            }
        }
        held
    }

    /// Waits until broker and fdstore have one descriptor of each segment. Returns their other descriptors.
    pub(crate) fn descriptors(&self, link: &mut Link, fdstore: &str) -> [usize; 2] {
        until("broker and fdstore have one descriptor for each segment", || {
            let segment_bytes = stats(link).segment_bytes;
            let held = ["broker", fdstore].map(|part| self.open_fds(part));
            let is_all = !is_soft() || held.iter().all(|held| held.memory_bytes == segment_bytes);
            (is_all && stats(link).segment_bytes == segment_bytes).then_some(held.map(|held| held.others))
        })
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        // The fdstore last: it would restart the broker.
        for part in [
            "serve", "fdstore", "broker", "scrubber", "worker", "tenant", "witness", "hoarder", "serve", "fdstore",
            "broker",
        ] {
            self.kill(part);
        }
        let _ = self.serve.wait();
        until("all processes are gone", || {
            ["serve", "fdstore", "broker"].iter().all(|part| !self.kill(part)).then_some(())
        });
    }
}

/// Kills the processes of a role of the broker at a socket, without waiting until they are dead.
pub(crate) fn kill_role(socket: &Path, part: &str) {
    processes(socket, part).into_iter().for_each(kill);
}

/// Stops a process. Returns when all of its threads are stopped.
pub(crate) fn stop(process: u32) {
    kill_process(pid(process), Signal::STOP).expect("the signal is permitted");
    process::wait_stopped(process);
}

/// Lets a stopped process go on.
pub(crate) fn resume(process: u32) {
    kill_process(pid(process), Signal::CONT).expect("the signal is permitted");
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(process.cast_signed()).expect("a process has a number")
}

pub(crate) fn stats(link: &mut Link) -> BrokerStats {
    match link.call(Request::Stats).expect("a broker serves").reply {
        Reply::Stats(stats) => stats,
        other => panic!("{other:?}"),
    }
}
