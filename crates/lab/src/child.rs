//! The process of one experiment, or of the partner that an experiment needs in another process.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use freehold::open::{self, Kind};
use freehold_driver::cuda::{Api, CUdevice};
use freehold_driver::opencl::discovery::{DiscoveryError, InstalledDevice};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::experiment::Answer;
use super::experiments;
use super::fixture::Fixture;
use super::id::{Id, OPENCL};
use super::opencl;
use super::partner;
use super::runtime;
use super::target;
use super::trace::{self, Role};

/// The arguments of an experiment's process.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The experiment
    id: Id,
    #[command(flatten)]
    device: Device,
    /// The CUDA runtime of an experiment on it: a path, or a name for the dynamic linker
    #[arg(long)]
    runtime: Option<PathBuf>,
}

/// The arguments of a partner's process.
#[derive(Debug, clap::Args)]
pub struct Device {
    /// soft, cuda:N or the uuid of an OpenCL device, chosen by the lab
    #[arg(long = "device")]
    selector: String,
    /// The trace file to add the driver calls to
    #[arg(long)]
    trace: Option<PathBuf>,
}

/// The exit status of an experiment that did not start: its output is the reason, not an answer.
pub(super) const NOT_STARTED: u8 = 2;

/// Why a process cannot start its experiment.
#[derive(Debug, thiserror::Error)]
enum ChildError {
    #[error("unknown experiment {0}")]
    UnknownExperiment(Id),
    #[error("unknown device {0}")]
    AbsentDevice(String),
    #[error("OpenCL is not available in the experiment's process: {0}")]
    NoOpenCl(DiscoveryError),
    #[error("the experiment's process does not find the OpenCL device {uuid} chosen by the lab; it finds {found}")]
    OtherDevices { uuid: String, found: String },
    #[error("experiment {0} needs --runtime")]
    NoRuntime(Id),
    #[error(transparent)]
    Runtime(#[from] runtime::functions::LoadError),
    #[error("failed to trace the calls: {0}")]
    Untraceable(io::Error),
}

/// Prints the answer and ends the process without running exit handlers: what an experiment has broken must not crash
/// after the answer.
pub fn run(arguments: &Arguments) -> ExitCode {
    end_with_parent();
    let answer = match answer(arguments) {
        Ok(answer) => answer,
        Err(error) => return exit_not_started(&error),
    };
    let text = answer.unwrap_or_else(|error| format!("failed at {error}"));
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        eprintln!("error: failed to print the answer: {error}");
        return ExitCode::from(2);
    }
    exit_now()
}

/// Serves an experiment's requests, and ends as an experiment does.
pub fn partner(device: &Device) -> ExitCode {
    end_with_parent();
    let bench = match bench(device, Role::Partner) {
        Ok(bench) => bench,
        Err(error) => return exit_refused(&error),
    };
    if let Err(error) = partner::serve(&bench, std::io::stdin().as_fd()) {
        eprintln!("error: the partner process of an experiment failed at {error}");
        return ExitCode::from(2);
    }
    exit_now()
}

fn answer(arguments: &Arguments) -> Result<Answer, ChildError> {
    if arguments.id.0 == OPENCL {
        return opencl_answer(arguments);
    }
    if arguments.id.0 == runtime::QUESTION {
        return runtime_answer(arguments);
    }
    let experiment = experiments::with_id(arguments.id).ok_or(ChildError::UnknownExperiment(arguments.id))?;
    Ok((experiment.run)(&bench(&arguments.device, Role::Experiment)?))
}

/// The runtime loads the driver itself, which the environment selects.
fn runtime_answer(arguments: &Arguments) -> Result<Answer, ChildError> {
    let experiment = runtime::with_id(arguments.id).ok_or(ChildError::UnknownExperiment(arguments.id))?;
    let path = arguments.runtime.as_deref().ok_or(ChildError::NoRuntime(arguments.id))?;
    Ok((experiment.run)(&runtime::fixture::Fixture::open(path)?))
}

fn opencl_answer(arguments: &Arguments) -> Result<Answer, ChildError> {
    let unknown = || ChildError::UnknownExperiment(arguments.id);
    let experiment = opencl::all().into_iter().find(|known| known.id == arguments.id).ok_or_else(unknown)?;
    let found = opencl_device(&arguments.device.selector)?;
    Ok((experiment.run)(&opencl::fixture::Fixture { device: found }))
}

/// Finds exactly the device that the lab has chosen: the answer is recorded as its own.
fn opencl_device(uuid: &str) -> Result<InstalledDevice, ChildError> {
    let all = open::opencl::devices().map_err(ChildError::NoOpenCl)?;
    let said = |found: &InstalledDevice| {
        format!("{} of {} ({})", found.info.name, found.platform_name, target::device_name(found))
    };
    let others = all.iter().map(said).collect::<Vec<_>>().join(", ");
    let chosen = all.into_iter().find(|found| target::device_name(found) == uuid);
    chosen.ok_or_else(|| ChildError::OtherDevices { uuid: uuid.to_owned(), found: others })
}

fn bench(device: &Device, role: Role) -> Result<Fixture, ChildError> {
    let Device { selector, trace } = device;
    let (api, device) = driver(selector).ok_or_else(|| ChildError::AbsentDevice(selector.clone()))?;
    let api = match trace {
        Some(part) => trace::traced(&api, part, role).map_err(ChildError::Untraceable)?,
        None => api,
    };
    Ok(Fixture { api, device, selector: selector.clone(), trace: trace.clone() })
}

fn driver(selector: &str) -> Option<(Api, CUdevice)> {
    let (kind, ordinal) = match selector.split_once(':') {
        None if selector == "soft" => (Kind::Soft, 0),
        Some(("soft", ordinal)) => (Kind::Soft, ordinal.parse().ok()?),
        Some(("cuda", ordinal)) => (Kind::Cuda, ordinal.parse().ok()?),
        _ => return None,
    };
    // SAFETY: an experiment has its own process, and uses only memory that it created; its deliberate errors are known
    // to be rejected by drivers.
    Some((unsafe { open::untouched(kind) }.ok()?, CUdevice(ordinal)))
}

/// Prints why an experiment did not start, for the lab to report.
fn exit_not_started(error: &ChildError) -> ExitCode {
    println!("{error}");
    ExitCode::from(NOT_STARTED)
}

fn exit_refused(error: &ChildError) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

fn exit_now() -> ! {
    // SAFETY: the process ends here; no exit handler has anything to save.
    unsafe { libc::_exit(0) }
}

/// Makes an interrupted lab end its experiments, and an experiment its partner.
fn end_with_parent() {
    // Without this feature, an orphaned experiment runs to its end.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}
