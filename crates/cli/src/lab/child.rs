//! The process of one experiment, or of the partner that an experiment needs in another process.

use std::io::Write;
use std::os::fd::AsFd;
use std::process::ExitCode;

use freehold::open::{self, Kind};
use freehold_driver::cuda::CUdevice;

use super::bench::Bench;
use super::experiment::{self, Answer};
use super::id::Id;
use super::partner;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The experiment
    id: Id,
    #[command(flatten)]
    device: Device,
}

#[derive(clap::Args)]
pub(crate) struct Device {
    /// soft or cuda:N, as the lab has chosen
    #[arg(long = "device")]
    wish: String,
}

/// Prints the answer and ends the process, without the driver's own farewell: what an experiment has broken is not
/// to break after the answer is there.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    end_with_parent();
    let Some(answer) = answer(arguments) else {
        eprintln!("error: there is no experiment {} on {}", arguments.id, arguments.device.wish);
        return ExitCode::from(2);
    };
    let text = answer.unwrap_or_else(|error| format!("failed at {error}"));
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        eprintln!("error: the answer cannot be printed: {error}");
        return ExitCode::from(2);
    }
    end()
}

/// Does what an experiment asks for, and ends as an experiment does.
pub(crate) fn partner(device: &Device) -> ExitCode {
    end_with_parent();
    let Some(bench) = bench(device) else {
        eprintln!("error: there is no device {}", device.wish);
        return ExitCode::from(2);
    };
    if let Err(error) = partner::serve(&bench, std::io::stdin().as_fd()) {
        eprintln!("error: the other process of an experiment failed at {error}");
        return ExitCode::from(2);
    }
    end()
}

fn answer(arguments: &Arguments) -> Option<Answer> {
    let experiment = experiment::with_id(arguments.id)?;
    Some((experiment.run)(&bench(&arguments.device)?))
}

fn bench(device: &Device) -> Option<Bench> {
    let (kind, ordinal) = match device.wish.split_once(':') {
        None if device.wish == "soft" => (Kind::Soft, 0),
        Some(("cuda", ordinal)) => (Kind::Cuda, ordinal.parse().ok()?),
        _ => return None,
    };
    let api = open::untouched(kind).ok()?;
    Some(Bench { api, device: CUdevice(ordinal), wish: device.wish.clone() })
}

fn end() -> ! {
    // SAFETY: the process ends here; nothing of it is left that an exit handler would have to save.
    unsafe { libc::_exit(0) }
}

/// A lab that is interrupted leaves no experiment behind, and an experiment no partner.
fn end_with_parent() {
    // SAFETY: PR_SET_PDEATHSIG takes a signal's number and changes this process alone.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
