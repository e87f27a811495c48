//! `freehold stop`: stops the broker at a socket.

use std::process::ExitCode;
use std::time::Duration;

use freehold_broker::StopReport;

use super::{ClientOptions, Failure};
use crate::output::size;
use crate::output::text::count;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Stop even if published memory will be lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    options: ClientOptions,
}

/// How long a broker may take to end: its driver closes what it has open.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    super::exit_code(stop(arguments))
}

/// What is published: "1 name with 8 B and 2 modules". Not for a broker without any.
pub(super) fn published_text(names: u32, modules: u32, bytes: u64) -> String {
    let names_text = || format!("{} with {}", count(names.into(), "name"), size::format(bytes));
    let modules_text = || count(modules.into(), "module");
    match (names, modules) {
        (_, 0) => names_text(),
        (0, _) => modules_text(),
        _ => format!("{} and {}", names_text(), modules_text()),
    }
}

fn stop(arguments: &Arguments) -> Result<(), Failure> {
    let path = arguments.options.at.path();
    let StopReport { names, modules, bytes } = arguments.options.at.connect()?.stop(arguments.force, STOP_TIMEOUT)?;
    if arguments.options.json {
        let report = serde_json::json!({ "stopped": path, "names": names, "modules": modules, "bytes": bytes });
        return super::print_line(report);
    }
    let lost = match (names, modules) {
        (0, 0) => "nothing was published".to_owned(),
        (1, 0) | (0, 1) => format!("{} is lost", published_text(names, modules, bytes)),
        _ => format!("{} are lost", published_text(names, modules, bytes)),
    };
    super::print_line(format_args!("broker at {} stopped; {lost}", path.display()))
}
