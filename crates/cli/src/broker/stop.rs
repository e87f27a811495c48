//! `freehold stop`: the broker that serves a place ends, and its keeper with it.

use std::process::ExitCode;
use std::time::Duration;

use freehold_broker::StopReport;

use super::{Failure, SocketOption};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    at: SocketOption,
    /// Stop it though what has a name is lost
    #[arg(long)]
    force: bool,
    /// One object that says what is gone
    #[arg(long)]
    json: bool,
}

/// How long a broker may take to end: its driver closes what it has.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    super::exit_code(stop(arguments))
}

fn stop(arguments: &Arguments) -> Result<(), Failure> {
    let path = arguments.at.path();
    let StopReport { names, bytes } = arguments.at.connect()?.stop(arguments.force, STOP_TIMEOUT)?;
    if arguments.json {
        return super::print_line(serde_json::json!({ "stopped": path, "names": names, "bytes": bytes }));
    }
    let lost = match names {
        0 => "it had no names".to_owned(),
        1 => format!("1 name and {bytes} bytes are gone"),
        _ => format!("{names} names and {bytes} bytes are gone"),
    };
    super::print_line(format_args!("the broker at {} has ended: {lost}", path.display()))
}
