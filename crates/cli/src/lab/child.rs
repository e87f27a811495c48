//! The process of one experiment, or of the partner that an experiment needs in another process.

use std::io::Write;
use std::process::ExitCode;

use freehold::open::{self, Kind};
use freehold_driver::cuda::CUdevice;

use super::bench::Bench;
use super::experiment::{self, Answer};
use super::id::Id;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The experiment
    id: Id,
    /// soft or cuda:N, as the lab has chosen
    #[arg(long)]
    device: String,
    /// Be the partner of the experiment, with what it has to tell
    #[arg(long, num_args = 0.., allow_hyphen_values = true)]
    partner: Option<Vec<String>>,
}

/// Prints the answer and ends the process, without the driver's own farewell: what an experiment has broken is not
/// to break after the answer is there.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    end_with_parent();
    let Some(answer) = answer(arguments) else {
        eprintln!("error: there is no experiment {} on {}", arguments.id, arguments.device);
        return ExitCode::from(2);
    };
    let text = answer.unwrap_or_else(|error| format!("failed at {error}"));
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        eprintln!("error: the answer cannot be printed: {error}");
        return ExitCode::from(2);
    }
    // SAFETY: the process ends here; nothing of it is left that an exit handler would have to save.
    unsafe { libc::_exit(0) }
}

fn answer(arguments: &Arguments) -> Option<Answer> {
    let (kind, ordinal) = match arguments.device.split_once(':') {
        None if arguments.device == "soft" => (Kind::Soft, 0),
        Some(("cuda", ordinal)) => (Kind::Cuda, ordinal.parse().ok()?),
        _ => return None,
    };
    let api = open::untouched(kind).ok()?;
    let bench = Bench { api, device: CUdevice(ordinal), wish: arguments.device.clone() };
    match &arguments.partner {
        None => Some((experiment::with_id(arguments.id)?.run)(&bench)),
        Some(told) => Some(experiment::partner_of(arguments.id)?(&bench, told)),
    }
}

/// A lab that is interrupted leaves no experiment behind.
fn end_with_parent() {
    // SAFETY: PR_SET_PDEATHSIG takes a signal's number and changes this process alone.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
