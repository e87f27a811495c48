//! The process of one experiment, or of the partner that an experiment needs in another process.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use freehold::open::{self, Kind};
use freehold_driver::cuda::{Api, CUdevice};
use freehold_driver::opencl::discovery::{DiscoveryError, InstalledDevice};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::experiment::{self, Answer};
use super::fixture::Fixture;
use super::id::{Id, OPENCL};
use super::opencl;
use super::partner;
use super::target;
use super::trace::{self, Role};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The experiment
    id: Id,
    #[command(flatten)]
    device: Device,
}

#[derive(clap::Args)]
pub(crate) struct Device {
    /// soft, cuda:N or the uuid of a device of OpenCL's, as the lab has chosen
    #[arg(long = "device")]
    selector: String,
    /// The part of a trace to add the driver's calls to
    #[arg(long)]
    trace: Option<PathBuf>,
}

/// The exit status of an experiment that did not begin: what was printed is no answer, but says why.
pub(super) const NOT_STARTED: u8 = 2;

/// Why a process cannot do what it was started for.
#[derive(Debug, thiserror::Error)]
enum ChildError {
    #[error("there is no experiment {0}")]
    UnknownExperiment(Id),
    #[error("there is no device {0}")]
    AbsentDevice(String),
    #[error("the process of an experiment finds no OpenCL: {0}")]
    NoOpenCl(DiscoveryError),
    #[error("the process of an experiment does not find the OpenCL device {uuid} that the lab has chosen, but {found}")]
    OtherDevices { uuid: String, found: String },
    #[error("the calls cannot be traced: {0}")]
    Untraceable(io::Error),
}

/// Prints the answer and ends the process, without the driver's own farewell: what an experiment has broken is not
/// to break after the answer is there.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    end_with_parent();
    let answer = match answer(arguments) {
        Ok(answer) => answer,
        Err(error) => return exit_not_started(&error),
    };
    let text = answer.unwrap_or_else(|error| format!("failed at {error}"));
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        eprintln!("error: the answer cannot be printed: {error}");
        return ExitCode::from(2);
    }
    exit_now()
}

/// Does what an experiment asks for, and ends as an experiment does.
pub(crate) fn partner(device: &Device) -> ExitCode {
    end_with_parent();
    let bench = match bench(device, Role::Partner) {
        Ok(bench) => bench,
        Err(error) => return exit_refused(&error),
    };
    if let Err(error) = partner::serve(&bench, std::io::stdin().as_fd()) {
        eprintln!("error: the other process of an experiment failed at {error}");
        return ExitCode::from(2);
    }
    exit_now()
}

fn answer(arguments: &Arguments) -> Result<Answer, ChildError> {
    if arguments.id.0 == OPENCL {
        return opencl_answer(arguments);
    }
    let experiment = experiment::with_id(arguments.id).ok_or(ChildError::UnknownExperiment(arguments.id))?;
    Ok((experiment.run)(&bench(&arguments.device, Role::Experiment)?))
}

fn opencl_answer(arguments: &Arguments) -> Result<Answer, ChildError> {
    let unknown = || ChildError::UnknownExperiment(arguments.id);
    let experiment = opencl::all().into_iter().find(|known| known.id == arguments.id).ok_or_else(unknown)?;
    let found = opencl_device(&arguments.device.selector)?;
    Ok((experiment.run)(&opencl::fixture::Fixture { device: found }))
}

/// The device that the lab has chosen, and no other: an answer is recorded as that one's.
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
        Some(("cuda", ordinal)) => (Kind::Cuda, ordinal.parse().ok()?),
        _ => return None,
    };
    // SAFETY: an experiment has a process of its own, and no memory that it did not make; what it does wrong on purpose is
    // what a driver is known to refuse.
    Some((unsafe { open::untouched(kind) }.ok()?, CUdevice(ordinal)))
}

/// Leaves it to the lab to say why an experiment did not begin.
fn exit_not_started(error: &ChildError) -> ExitCode {
    println!("{error}");
    ExitCode::from(NOT_STARTED)
}

fn exit_refused(error: &ChildError) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

fn exit_now() -> ! {
    // SAFETY: the process ends here; nothing of it is left that an exit handler would have to save.
    unsafe { libc::_exit(0) }
}

/// A lab that is interrupted leaves no experiment behind, and an experiment no partner.
fn end_with_parent() {
    // Where the system has no such thing, an experiment that nobody waits for comes to its end by itself.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}
