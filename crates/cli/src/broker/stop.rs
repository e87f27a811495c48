//! `freehold stop`: stops the broker at a socket.

use std::process::ExitCode;
use std::time::Duration;

use freehold_broker::StopReport;

use super::{ClientOptions, Failure};
use crate::output::size;

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

fn stop(arguments: &Arguments) -> Result<(), Failure> {
    let path = arguments.options.at.path();
    let StopReport { names, bytes } = arguments.options.at.connect()?.stop(arguments.force, STOP_TIMEOUT)?;
    if arguments.options.json {
        return super::print_line(serde_json::json!({ "stopped": path, "names": names, "bytes": bytes }));
    }
    let lost = match names {
        0 => "nothing was published".to_owned(),
        1 => format!("1 name with {} is lost", size::format(bytes)),
        _ => format!("{names} names with {} are lost", size::format(bytes)),
    };
    super::print_line(format_args!("broker at {} stopped; {lost}", path.display()))
}
